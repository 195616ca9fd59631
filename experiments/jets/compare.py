"""Compare the simulated jets with real ones of the public benchmark: the figures of docs/jets.md.

Two comparisons, because the real jets exist in two forms:

* *Particle lists*: 3,000 real jets, of each the particles above 2 GeV within 0.4 of the jet axis, at most the 32
  leading ones. Simulated jets are cut to the same, groomed and measured by the same code; then the two
  distributions of every observable in every class are compared by their Kolmogorov-Smirnov distance (the largest
  difference of the cumulative distributions), whose value for equal distributions is known: its expectation for n and
  m jets is ``0.8687 sqrt((n + m) / (n m))``.
* *Standardized observables*: 100 rows of the public set itself, scaled to mean 0 and deviation 1 over all of it, by
  numbers that are not known. The simulated jets are scaled by their own, and the distances computed as above. Scale
  leaves correlations untouched: the 16 x 16 correlation matrix is compared too; 100 rows alone give every coefficient
  ``r`` a standard error of about ``(1 - r^2) / 10``. Multiplicities are whole numbers, so that the spacing of their
  scaled values gives their real deviation away: 21.68.

The real jets are not part of this project and are never copied into it: the script reads them from the folder it is
given and writes a figure and a table of summaries. Run it from the repository's folder as
``python -m experiments.jets.compare FOLDER``.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from experiments.jets import simulate
from experiments.jets.simulate import CLASSES, FEATURES, HERE, Array, Recipe

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LEADING = 32
MIN_PT_GEV = 2.0
WINDOW = 0.4
COLOURS = dict(zip(CLASSES, ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677"), strict=True))
NAMES = {"g": "gluon", "q": "quark", "w": "W", "z": "Z", "t": "top"}


def as_published(jet: Array) -> Array:
    """Cut a jet to what the published particle lists hold: massless momenta (m, 4) about the jet axis.

    Parameters
    ----------
    jet:
        Four-momenta ``(px, py, pz, E)`` in GeV, float64 (n, 4).
    """
    axis = jet.sum(axis=0)
    pt = np.hypot(jet[:, 0], jet[:, 1])
    eta = np.arcsinh(jet[:, 2] / pt) - np.arcsinh(axis[2] / np.hypot(axis[0], axis[1]))
    turn = np.arctan2(jet[:, 1], jet[:, 0]) - np.arctan2(axis[1], axis[0])
    phi = (turn + np.pi) % (2 * np.pi) - np.pi
    leading = np.argsort(-pt, kind="stable")
    kept = leading[(pt[leading] > MIN_PT_GEV) & (np.hypot(eta[leading], phi[leading]) < WINDOW)][:LEADING]
    pt, eta, phi = pt[kept], eta[kept], phi[kept]
    return np.stack([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), pt * np.cosh(eta)], axis=1)


def real_lists(folder: Path, z_cut: float) -> dict[str, Array]:
    """Return the observables (n_c, 16) of the real particle lists by class."""
    lists = np.load(folder / "constituents_32.npy").astype(np.float64)
    # One-hot columns of the published labels.
    labels = np.array(("g", "q", "w", "z", "t"))[np.load(folder / "constituents_labels.npy").argmax(axis=1)]
    rows = []
    for particles in lists:
        pt, eta, phi = particles[particles[:, 0] > 0].T
        jet = np.stack([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), pt * np.cosh(eta)], axis=1)
        rows.append(simulate.observables(jet, simulate.groom(jet, z_cut)))
    values = np.array(rows)
    return {name: values[labels == name] for name in CLASSES}


def simulated(recipe: Recipe, count: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the observables (count, 16) by class of whole jets, and of the same jets cut as published."""
    whole, cut = {}, {}
    for name in CLASSES:
        with simulate._captured_output():
            pairs = list(itertools.islice(simulate.jets(recipe, name, 0), count))
        whole[name] = np.array([simulate.observables(jet, groomed) for jet, groomed in pairs])
        short = [as_published(jet) for jet, _ in pairs]
        cut[name] = np.array([simulate.observables(jet, simulate.groom(jet, recipe.z_cut)) for jet in short])
        print(f"{count} {name} jets", file=sys.stderr, flush=True)
    return whole, cut


def distance(one: Array, other: Array) -> float:
    """Kolmogorov-Smirnov distance of two samples (n,) and (m,)."""
    points = np.concatenate([one, other])
    ranks = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(ranks[0] - ranks[1]).max())


def distances(one: dict[str, Array], other: dict[str, Array]) -> Array:
    """Return the distances of every class and observable, (5, 16)."""
    return np.array([[distance(one[c][:, i], other[c][:, i]) for i in range(len(FEATURES))] for c in CLASSES])


def correlation(by_class: dict[str, Array], shares: NDArray[np.int64]) -> Array:
    """Return the correlation matrix (16, 16) of a mixture with the given numbers of jets of each class."""
    values = np.concatenate([by_class[name] for name in CLASSES])
    weights = np.concatenate(
        [np.full(len(by_class[name]), share / len(by_class[name])) for name, share in zip(CLASSES, shares, strict=True)]
    )
    covariance: Array = np.atleast_2d(np.cov(values.T, aweights=weights))
    deviation: Array = np.asarray(np.sqrt(np.diag(covariance)))
    out: Array = covariance / np.outer(deviation, deviation)
    return out


def figure(path: Path, cut: dict[str, Array], real: dict[str, Array], ours: Array, theirs: Array) -> None:
    """Draw the distributions of two observables in each class, and the correlation matrices with their difference."""
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    canvas = plt.figure(figsize=(12.5, 9.3), layout="constrained")
    halves: Any = canvas.subfigures(2, 1, height_ratios=(1.0, 0.85))
    upper, lower = halves
    axes = upper.subplots(2, len(CLASSES))
    panels = (
        ("mass_mmdt", "groomed mass [GeV]", np.linspace(0, 200, 41)),
        ("n2_b1_mmdt", "N2, exponent 1", np.linspace(0, 0.5, 26)),
    )
    for row, (feature, label, edges) in zip(axes, panels, strict=True):
        column = FEATURES.index(feature)
        centres = (edges[1:] + edges[:-1]) / 2
        for axis, name in zip(row, CLASSES, strict=True):
            made, seen = (np.histogram(jets[name][:, column], edges)[0] for jets in (cut, real))
            axis.stairs(made / len(cut[name]), edges, color=COLOURS[name], fill=True, alpha=0.25)
            axis.stairs(made / len(cut[name]), edges, color=COLOURS[name], lw=1.5, label="simulated")
            axis.errorbar(
                centres,
                seen / len(real[name]),
                np.sqrt(seen) / len(real[name]),
                fmt="o",
                ms=2.6,
                lw=0.9,
                color="#222222",
                label="real",
            )
            axis.set(xlabel=label, xlim=(edges[0], edges[-1]), ylim=(0, None))
            axis.tick_params(labelsize=7)
        row[0].set_ylabel("fraction of jets a bin")
    for axis, name in zip(axes[0], CLASSES, strict=True):
        axis.set_title(NAMES[name], fontsize=11)
    axes[0, 0].legend(frameon=False)
    for axis, (title, matrix, bound) in zip(
        lower.subplots(1, 3),
        (
            ("correlations, simulated (60,000 jets)", ours, 1.0),
            ("correlations, real (100 jets)", theirs, 1.0),
            ("simulated minus real (other scale)", ours - theirs, 0.5),
        ),
        strict=True,
    ):
        picture = axis.imshow(matrix, cmap="RdBu_r", vmin=-bound, vmax=bound)
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(16), [name.removesuffix("_mmdt") for name in FEATURES], rotation=90, fontsize=7)
        axis.set_yticks(range(16), [name.removesuffix("_mmdt") for name in FEATURES], fontsize=7)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        lower.colorbar(picture, ax=axis, shrink=0.75)
    canvas.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(canvas)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("real", type=Path, help="folder of the real jets")
    parser.add_argument("--count", type=int, default=1000, help="simulated jets a class for the particle lists")
    parser.add_argument("--figure", type=Path, help="write the figure here (uses the shipped jets for correlations)")
    parser.add_argument("--radius", type=float, help="another radius than the recipe's")
    parser.add_argument("--shower-scale", type=float, help="another shower scale than the recipe's, in GeV")
    parser.add_argument("--no-mpi", action="store_true", help="without multiple interactions")
    options = parser.parse_args(arguments)
    recipe = Recipe()
    if options.radius is not None:
        recipe = replace(recipe, radius=options.radius)
    if options.shower_scale is not None:
        recipe = replace(recipe, shower_scale_gev=options.shower_scale)
    if options.no_mpi:
        recipe = replace(recipe, multiple_interactions=False)
    rows = np.loadtxt(options.real / "hlf_100_features.dat")
    # Labels of the 100 rows are numbers, in alphabetical order of the classes.
    letters = np.array(("g", "q", "t", "w", "z"))[np.loadtxt(options.real / "hlf_100_labels_gqtwz.txt", dtype=int)]
    shares = np.array([(letters == name).sum() for name in CLASSES])
    theirs: Array = np.asarray(np.corrcoef(rows.T))
    real = real_lists(options.real, recipe.z_cut)
    whole, cut = simulated(recipe, options.count)
    if options.figure is not None:
        shipped = simulate.read_parquet(HERE / "jets.parquet").astype(np.float64)
        whole = {name: shipped[i :: len(CLASSES)] for i, name in enumerate(CLASSES)}
    ours = correlation(whole, shares)
    everything = np.concatenate([whole[name] for name in CLASSES])
    scaled = {name: (v - everything.mean(axis=0)) / everything.std(axis=0) for name, v in whole.items()}
    public = {name: rows[letters == name] for name in CLASSES}
    standardized = distances(scaled, public)
    alike = np.mean([0.8687 * np.sqrt(1 / len(v) + 1 / len(whole[name])) for name, v in public.items()])
    found = distances(cut, real)
    equal = np.mean([0.8687 * np.sqrt((options.count + len(v)) / (options.count * len(v))) for v in real.values()])
    print(f"particle lists, mean distance: {found.mean():.3f} (equal distributions: {equal:.3f}); by class:", end=" ")
    print(", ".join(f"{name} {value:.3f}" for name, value in zip(CLASSES, found.mean(axis=1), strict=True)))
    print(f"standardized observables, mean distance: {standardized.mean():.3f} (equal distributions: {alike:.3f})")
    gap = np.abs(ours - theirs)[np.triu_indices(16, 1)]
    noise = ((1 - theirs**2) / 10)[np.triu_indices(16, 1)]
    print(
        f"correlations, mean |difference|: {gap.mean():.3f}, largest {gap.max():.3f} (100 rows alone: "
        f"{np.sqrt(2 / np.pi) * noise.mean():.3f})"
    )
    lost = [f"{name} {(cut[name][:, 14] < 50).mean():.3f} / {(real[name][:, 14] < 50).mean():.3f}" for name in "wzt"]
    print(f"jets of W, Z, t below 50 GeV, simulated / real: {', '.join(lost)}")
    multiplicity = everything[:, -1]
    print(f"multiplicity: mean {multiplicity.mean():.1f}, standard deviation {multiplicity.std():.2f} (real: 21.68)")
    print("\n| observable | " + " | ".join(NAMES[name] for name in CLASSES) + " | distance |")
    print("|---|" + "---:|" * (len(CLASSES) + 1))
    for i, feature in enumerate(FEATURES):
        cells = [f"{np.median(cut[name][:, i]):.3g} / {np.median(real[name][:, i]):.3g}" for name in CLASSES]
        print(f"| `{feature}` | " + " | ".join(cells) + f" | {found[:, i].mean():.3f} |")
    if options.figure is not None:
        figure(options.figure, cut, real, ours, theirs)


if __name__ == "__main__":
    main()
