"""The leading particles of simulated jets: what a trigger sees before anyone has computed observables.

The jets are the first ones of ``experiments/jets`` (same recipe, same seeds, so row ``r`` is the same jet as row ``r``
of ``jets.parquet``); kept are the 16 particles of largest transverse momentum, in falling order, each by three numbers
relative to the jet's axis (the sum of all its particles)::

    0  ln(pT / GeV)        in units of 2^-12, 0 below 1 GeV
    1  eta - eta(jet)      in units of 2^-14
    2  phi - phi(jet)      in units of 2^-14, wrapped into [-pi, pi)

A jet of fewer particles is filled up with zeros. Stored as int16, ``x`` of shape (jets, 3, 16), channels first, and
``jet``, the class. Run as a script it needs the extra ``simulate``; with the pinned versions the arrays come out equal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the folder of `experiments`, when run as a script

from experiments.jets.simulate import CLASSES, Array, Recipe, _captured_output, jets, sha256

HERE = Path(__file__).resolve().parent
PARTICLES = 16
STEPS = (2.0**-12, 2.0**-14, 2.0**-14)
"""What one unit of each channel means."""


def particles(jet: Array) -> NDArray[np.int16]:
    """The leading particles of a jet.

    Parameters
    ----------
    jet:
        Four-momenta ``(px, py, pz, E)`` in GeV, float64 (n, 4), n >= 1.

    Returns
    -------
    int16 (3, 16), in the units of :data:`STEPS`; values beyond int16 are clipped.
    """

    def cylinder(p: Array) -> tuple[Array, Array, Array]:
        pt = np.hypot(p[:, 0], p[:, 1])
        return pt, np.arcsinh(p[:, 2] / pt), np.arctan2(p[:, 1], p[:, 0])

    pt, eta, phi = cylinder(jet)
    _, axis_eta, axis_phi = cylinder(jet.sum(axis=0, keepdims=True))
    order = np.argsort(-pt, kind="stable")[:PARTICLES]
    turned = np.mod(phi - axis_phi + np.pi, 2 * np.pi) - np.pi
    out = np.zeros((3, PARTICLES))
    for channel, (values, step) in enumerate(
        zip((np.log(np.maximum(pt, 1.0)), eta - axis_eta, turned), STEPS, strict=True)
    ):
        out[channel, : len(order)] = values[order] / step
    return np.clip(np.rint(out), -(2**15), 2**15 - 1).astype(np.int16)


def simulate_block(job: tuple[Recipe, str, int, int]) -> NDArray[np.int16]:
    """The first jets of one block of one class: (recipe, class, block, count) -> int16 (count, 3, 16)."""
    recipe, name, block, count = job
    with _captured_output():
        return np.stack([particles(jet) for jet, _ in itertools.islice(jets(recipe, name, block), count)])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jets", type=int, default=20_000, help="a multiple of 5 (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes; the result does not depend on it")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    recipe = Recipe(jets=options.jets)
    each = options.jets // len(CLASSES)
    work = [
        (recipe, name, block, min(recipe.block, each - block * recipe.block))
        for name in CLASSES
        for block in range(-(-each // recipe.block))
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        made = np.concatenate(list(pool.map(simulate_block, work)))
    x = made.reshape(len(CLASSES), each, *made.shape[1:]).swapaxes(0, 1).reshape(-1, *made.shape[1:])
    path = options.out / "constituents.npz"
    np.savez_compressed(path, x=x, jet=np.tile(np.array(CLASSES), each))
    note = {"file": path.name, "sha256": sha256(path), "jets": len(x), "classes": CLASSES, "particles": PARTICLES}
    (options.out / "constituents.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    print(f"{path}: {len(x)} jets, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
