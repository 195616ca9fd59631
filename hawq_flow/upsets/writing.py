"""A campaign as an artifact: a folder that is whole or absent, the same bytes each time, made once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow import interpret, store
from hawq_flow.network import IntegerNetwork
from hawq_flow.upsets import figures, text
from hawq_flow.upsets.campaign import Measure, Progress, run
from hawq_flow.upsets.protection import protection
from hawq_flow.upsets.result import Upsets


def write(upsets: Upsets, folder: Path, title: str = "", costs: Mapping[str, float] | None = None) -> None:
    """Write ``upsets.json``, ``.csv``, ``.md``, ``flips.parquet`` and the figures into a folder that exists."""
    store.write_json(folder / "upsets.json", text.document(upsets, costs))
    (folder / "upsets.csv").write_text(text.csv(upsets))
    (folder / "upsets.md").write_text(text.markdown(upsets, title or upsets.network[:16], costs=costs))
    text.flips_frame(upsets).to_parquet(folder / "flips.parquet", index=False)
    figures.save(figures.heat_map(upsets, title), folder / "upsets.png")
    for memory, name in text.NAMES.items():
        if upsets.part(memory):
            figures.save(figures.protection_figure(upsets, memory, title), folder / f"{name}.png")


def make(
    network: IntegerNetwork,
    x: ArrayLike | Mapping[str, ArrayLike],
    folder: Path,
    labels: ArrayLike | None = None,
    *,
    title: str = "",
    costs: Mapping[str, float] | None = None,
    kinds: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    samples: int | Literal["all"] | None = None,
    rows: int | None = None,
    seed: int = 0,
    measure: Measure | None = None,
    output: str | None = None,
    progress: Progress | None = None,
    on_reuse: Callable[[], None] | None = None,
) -> store.Artifact:
    """:func:`run` and :func:`write` as an artifact at ``folder``; one that is there, of the same question, is kept.

    ``title`` names the network on the page and in the figures; ``costs`` as in
    :func:`hawq_flow.upsets.protection`; the others as in :func:`run`.

    Raises
    ------
    UpsetError, NetworkError
        As those functions do.
    StoreError
        Where ``folder`` holds something else.
    """
    inputs = interpret.check_inputs(network, x)
    given = None if labels is None else np.asarray(labels)
    options: dict[str, Any] = {
        "kinds": kinds,
        "layers": layers,
        "samples": samples,
        "rows": rows,
        "seed": seed,
        "measure": measure,
        "output": output,
    }
    depends = {
        "network": network.digest,
        "data": _digest(inputs, given),
        "options": options,
        "title": title,
        "costs": costs,
        "packages": store.versions("numpy", "pandas", "pyarrow", "matplotlib"),
        "code": store.code_digest("upsets"),
    }

    def build(work: Path) -> None:
        found = run(network, inputs, given, **options, progress=progress)
        for memory in (True, False):
            protection(found, memory, "layer", costs)  # refused before anything is written
        write(found, work, title, costs)

    return store.make(folder, "upsets", depends, build, on_reuse=on_reuse)


def _digest(inputs: Mapping[str, ArrayLike], labels: ArrayLike | None) -> str:
    """SHA-256 (hex) of inputs and labels."""
    sha = hashlib.sha256()
    arrays = dict(inputs) if labels is None else {**inputs, "labels of rows": labels}
    for name, values in arrays.items():
        array = np.asarray(values)
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        sha.update(f"{name}:{little.dtype.str}:{little.shape}\n".encode())
        sha.update(little.tobytes())
    return sha.hexdigest()
