"""A bundle's proof, from Python: its hashes, the interpreter and the exported models on its vectors, its own script."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hawq_flow import equality, images, interpret, tools, trace
from hawq_flow.handover import archive
from hawq_flow.handover.contents import HandoverError
from hawq_flow.handover.scripts import VERIFY
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.store import file_digest

_READS = (1,)
"""Versions of the format that are checked."""
_MODEL_ROWS = 256
"""Rows on which the ONNX files are run."""


@dataclass(frozen=True)
class Checked:
    """What was proved of a bundle: its name, the digests of its network and of its manifest, and a line a step."""

    name: str
    network: str
    manifest: str
    steps: tuple[str, ...]


def verify(folder: Path, *, timeout_s: float = 1800.0, options: tuple[str, ...] = ()) -> str:
    """Run a bundle's own ``verify.sh`` in a copy of the bundle's folder's place; its log.

    Raises
    ------
    HandoverError
        With the end of its log, if it does not end well.
    """
    with tempfile.TemporaryDirectory(prefix="hawq_flow-verify-") as work:
        log = Path(work) / "verify.log"
        scratch = Path(work) / "scratch"
        scratch.mkdir()
        done = tools.run(
            ["sh", str(folder.resolve() / VERIFY), *options],
            folder=work,
            timeout_s=timeout_s,
            log=log,
            environment={"TMPDIR": str(scratch)},
        )
        if not done.ok:
            raise HandoverError(f"{folder.name}: its verify.sh: {done.outcome.value}; the end of its log:\n{done.tail}")
        return log.read_text(errors="replace")


def check(bundle: Path | str, *, tell: Callable[[str], None] = lambda text: None, timeout_s: float = 1800.0) -> Checked:
    """Prove a bundle: an archive, or the folder it unpacks to.

    Its files are compared with its manifest, its vectors with the interpreter and with its ONNX files, its constants'
    images with its network, and its own ``verify.sh`` is run (where g++ is at hand).

    Raises
    ------
    HandoverError
        Naming the first thing that is not as it should be.
    """
    bundle = Path(bundle)
    with tempfile.TemporaryDirectory(prefix="hawq_flow-handover-") as work:
        folder = bundle if bundle.is_dir() else archive.unpack(bundle, Path(work))
        return _check(folder, tell, timeout_s)


def _check(folder: Path, tell: Callable[[str], None], timeout_s: float) -> Checked:
    steps: list[str] = []

    def step(text: str) -> None:
        steps.append(text)
        tell(text)

    index = _json(folder / "bundle.json")
    if index.get("format") != "hawq_flow.handover":
        raise HandoverError(f"{folder}: bundle.json says {index.get('format')!r}; not a handover bundle")
    if index.get("version") not in _READS:
        raise HandoverError(
            f"{folder}: bundle format {index.get('version')!r}; this hawq_flow checks "
            f"{', '.join(map(str, _READS))}. Its own verify.sh needs no hawq_flow"
        )
    step(f"hashes: {archive.check_sums(folder)} files as they were made")
    network = IntegerNetwork.load(folder / "network")
    if network.digest != index["network"]:
        raise HandoverError(
            f"{folder}: bundle.json is of the network {str(index['network'])[:12]}, network/ holds "
            f"{network.digest[:12]}"
        )
    rows, outputs, layers = _read_vectors(folder / "vectors", network)
    step(_compared(folder, network, rows, outputs, layers))
    try:
        stored = trace.compare(network, None, folder / "images")
    except trace.TraceError as error:
        raise HandoverError(f"{folder}: images/: {error}") from error
    if missing := [constant.name for constant in trace.constants(network) if constant.name in stored.left_out]:
        raise HandoverError(f"{folder}: images/: lacks {', '.join(missing[:5])}")
    if stored.first is not None:
        raise HandoverError(f"{folder}: images/: {stored.first}")
    step(f"images: {len(stored.compared)} constants, {stored.elements:,} integers, equal to the network's")
    some = {name: array[:_MODEL_ROWS] for name, array in rows.items()}
    x: Any = some if len(some) > 1 else next(iter(some.values()))
    models = {name: onnx.load(folder / "onnx" / f"{name}.onnx") for name in ("qonnx", "integer")}
    certificate = equality.certify(
        network,
        x,
        {
            "qonnx": equality.qonnx_backend(network, models["qonnx"]),
            "onnx": equality.onnx_backends(network, models["integer"])["onnx-plain"],
        },
    )
    try:
        equality.require(certificate)
    except equality.EqualityError as error:
        raise HandoverError(f"{folder}: onnx/: {error}") from error
    step(f"onnx: QONNX and integer ONNX equal on {certificate['samples']:,} rows")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        step("verify.sh: not run, there is no C++ compiler here")
    else:
        step(
            "verify.sh: "
            + "; ".join(verify(folder, timeout_s=timeout_s, options=("--no-hashes",)).strip().splitlines())
        )
    return Checked(str(index["name"]), network.digest, file_digest(folder / archive.SUMS), tuple(steps))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise HandoverError(
            f"{path.parent}: no {path.name}; not a handover bundle, or one that is cut short"
        ) from error
    except ValueError as error:
        raise HandoverError(f"{path}: not JSON ({error}); unpack the archive again") from error
    if not isinstance(found, dict):
        raise HandoverError(f"{path}: a {type(found).__name__}; expected a table")
    return found


def _read_vectors(
    folder: Path, network: IntegerNetwork
) -> tuple[dict[str, IntArray], dict[str, IntArray], dict[str, IntArray]]:
    """Inputs (n, *shape) and outputs (n, elements) of all rows, layers of the first rows."""
    values = network.values
    sizes = {name: int(np.prod(value.shape)) for name, value in values.items()}

    def split(file: str, names: list[str]) -> dict[str, IntArray]:
        path = folder / file
        if not path.is_file():
            raise HandoverError(f"{folder}: no {file}; unpack the archive again")
        rows = images.read_decimal(path.read_text(), sum(sizes[name] for name in names), file)
        ends = np.cumsum([sizes[name] for name in names])[:-1]
        return dict(zip(names, np.split(rows, ends, axis=1), strict=True))

    inputs = split("inputs.txt", [spec.name for spec in network.inputs])
    outputs = split("outputs.txt", [output.name for output in network.outputs])
    layers = {op.name: split(f"layers/{op.name}.txt", [op.name])[op.name] for op in network.ops}
    shaped = {name: rows.reshape(-1, *values[name].shape) for name, rows in inputs.items()}
    return shaped, outputs, layers


def _compared(
    folder: Path,
    network: IntegerNetwork,
    rows: dict[str, IntArray],
    outputs: dict[str, IntArray],
    layers: dict[str, IntArray],
) -> str:
    """Layers first: where one differs, it is the first that does."""
    count = len(next(iter(rows.values())))
    some = min((len(expected) for expected in layers.values()), default=0)
    first = interpret.trace(network, {name: array[:some] for name, array in rows.items()})
    for where, given, found, wanted in (
        ("layers", layers, first, some),
        ("outputs", outputs, interpret.outputs(network, rows), count),
    ):
        for name, expected in given.items():
            if len(expected) != wanted or wanted > count or not wanted:
                raise HandoverError(
                    f"{folder}: vectors/{where}: {name} has {len(expected)} rows; expected {wanted} of {count} inputs"
                )
            got = found[name].reshape(wanted, -1)
            if (wrong := np.argwhere(got != expected)).size:
                row, element = (int(i) for i in wrong[0])
                raise HandoverError(
                    f"{folder}: vectors/{where}: {name}, row {row}, element {element}: the interpreter got "
                    f"{got[row, element]}, expected {expected[row, element]}"
                )
    return f"vectors: {count:,} rows of outputs, {some:,} of {len(layers)} layers, equal to the interpreter"
