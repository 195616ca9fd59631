"""Are the representations of a network equal? Compared with ==, on integers, value by value; the certificate says.

The interpreter is the reference. A *backend* is anything else that computes the network: for the same input integers
it gives values by name, all of them or only the outputs. Every value that it gives is compared with the reference in
the network's order, so the first difference found is the first one there is: its layer, row, element, and what was got
and expected. The C simulation gives outputs only; when one differs, it is compiled again with a print after every
layer and run on the row that differs.

The certificate is a dict, stable for others to build on::

    {"samples": n, "backends": {name: {"mismatches": int, "elements": int, "method": str, "first_mismatch": null or
        {"layer": str, "row": int, "element": [int, ...], "got": int, "expected": int}}}}

``elements`` counts every element compared, ``mismatches`` those that differ; ``element`` is the index inside the
layer's value, batch excluded. The first mismatch is in the first layer of the network's order that differs, in its
first differing row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from hawq_flow import interpret, to_cpp, to_hls, to_onnx, to_qonnx
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.to_qonnx import Execution
from hawq_flow.to_rtl.design import Rtl
from hawq_flow.to_rtl.netlist_simulator import simulate_netlist
from hawq_flow.to_rtl.simulate import compile_simulation, traced
from hawq_flow.to_rtl.synthesize import OpenSynthesis

Values = Mapping[str, ArrayLike]
SLOW = "onnx-reference"
"""The backend that is not for many rows: onnx's reference evaluator, up to a tenth of a second a row of a ResNet-8."""


class EqualityError(ValueError):
    """A backend's result cannot be compared at all, or a certificate that had to be clean is not."""


@dataclass(frozen=True)
class Result:
    """What a backend computed: values by name, whole numbers of shape (n, *shape), and the method in words."""

    values: Values
    method: str


@dataclass(frozen=True)
class Backend:
    """Something that computes a network.

    Attributes
    ----------
    run:
        From the inputs (int64 (n, *input shape), or a mapping with several inputs) to a :class:`Result`.
    localize:
        For a backend whose result lacks intermediate values: the same, slower, with them.
    """

    run: Callable[[Any], Result]
    localize: Callable[[Any], Result] | None = None


def reference_backend(network: IntegerNetwork) -> Backend:
    """The plain int64 definition of every op: checks the interpreter itself."""
    return Backend(lambda x: Result(interpret.reference(network, x), "int64 definition of every op"))


def interpreter_backend(network: IntegerNetwork) -> Backend:
    """The interpreter of ``network``; in a certificate of another network it shows where the two differ."""
    return Backend(lambda x: Result(interpret.trace(network, x), "interpreter: integers in floats proven wide enough"))


def trace_backend(values: Values, method: str) -> Backend:
    """Values computed elsewhere for the same inputs, such as the QAT module's in eval: name -> (n, *shape)."""
    return Backend(lambda x: Result(values, method))


def executed(run: Callable[[Any], Execution], localize: Callable[[Any], Execution] | None = None) -> Backend:
    """A backend from functions that give executions."""

    def of(function: Callable[[Any], Execution]) -> Callable[[Any], Result]:
        def result(x: Any) -> Result:
            execution = function(x)
            return Result(execution.values, execution.method)

        return result

    return Backend(of(run), None if localize is None else of(localize))


def qonnx_backend(network: IntegerNetwork, model: onnx.ModelProto | None = None) -> Backend:
    """The network's QONNX model (exported here if not given), run as ``to_qonnx.execute`` does."""
    model = model if model is not None else to_qonnx.export(network)
    return executed(lambda x: to_qonnx.execute(model, network, x))


def onnx_backends(network: IntegerNetwork, model: onnx.ModelProto) -> dict[str, Backend]:
    """The network's standard ONNX model, run by other people's tools.

    ``onnx-plain`` and ``onnx-optimized`` are onnxruntime without and with its default rewriting of the graph,
    ``onnx-reference`` is onnx's own reference evaluator. They give outputs; a difference is located in a copy of the
    model whose every value is an output.
    """

    def runtime(optimized: bool) -> Backend:
        return executed(
            to_onnx.runtime(model, network, optimized=optimized),
            lambda x: to_onnx.execute(to_onnx.traced(model, network), network, x, optimized=optimized),
        )

    return {
        "onnx-plain": runtime(False),
        "onnx-optimized": runtime(True),
        SLOW: executed(
            lambda x: to_onnx.evaluate_reference(model, network, x),
            lambda x: to_onnx.evaluate_reference(to_onnx.traced(model, network), network, x),
        ),
    }


def csim_backend(project: Path | str, build: Path | str, *, timeout_s: float = 600.0) -> Backend:
    """The C simulation of a written project, compiled under ``build`` from the project's folder alone."""

    def compute(x: Any, traced: bool) -> Result:
        csim = to_hls.compile_csim(project, build, traced=traced, timeout_s=timeout_s)
        array = np.asarray(next(iter(x.values())) if isinstance(x, Mapping) else x)
        config = csim.manifest["config"]
        method = (
            f"hls4ml {csim.manifest['hls4ml']} C simulation ({config['backend']}, {config['io_type']}, "
            f"{config['strategy']}, {to_hls.reuse(csim.manifest)}), compiled from the written project"
        )
        simulate = csim.trace if traced else csim.run
        return Result(simulate(array, timeout_s=timeout_s), method)

    return Backend(lambda x: compute(x, False), lambda x: compute(x, True))


def cpp_backend(network: IntegerNetwork, build: Path, *, timeout_s: float = 1800.0) -> Backend:
    """The network's plain C++, compiled under ``build``."""

    def compute(x: Any, traced: bool) -> Result:
        program = to_cpp.compile_program(network, build, timeout_s=timeout_s)
        values = program.trace(x, timeout_s=timeout_s) if traced else program.run(x, timeout_s=timeout_s)
        return Result(values, program.method)

    return Backend(lambda x: compute(x, False), lambda x: compute(x, True))


def netlist_backend(network: IntegerNetwork, synthesis: OpenSynthesis) -> Backend:
    """The synthesized netlist itself, LUT by LUT, module after module; an input that is an output passes by them."""
    network_inputs = [port.value for port in synthesis.rtl.inputs]
    stages = [(found.module, found.netlist) for found in synthesis.modules]

    def run(x: Any) -> Result:
        rows = x if isinstance(x, Mapping) else {network_inputs[0]: x}
        flat = simulate_netlist(stages, rows)
        passed = [output.name for output in network.outputs if output.name in rows and output.name not in flat]
        flat |= {name: np.asarray(rows[name]) for name in passed}
        values = {name: array.reshape(-1, *network.values[name].shape) for name, array in flat.items()}
        cells = f"{synthesis.yosys.flavour} {synthesis.yosys.version}, {synthesis.config.family}"
        return Result(values, f"netlist of {cells}: every LUT, carry and DSP in numpy")

    return Backend(run)


def rtl_backend(network: IntegerNetwork, rtl: Rtl, build: Path, *, timeout_s: float = 600.0) -> Backend:
    """The streaming Verilog in Verilator or Icarus, compiled under ``build``, with its latency held against it."""

    def of(design: Rtl, x: Any) -> Result:
        simulation = compile_simulation(design, network, build, timeout_s=timeout_s)
        return Result(simulation.run(x, timeout_s=timeout_s), simulation.method)

    return Backend(lambda x: of(rtl, x), lambda x: of(traced(rtl), x))


def certify(
    network: IntegerNetwork,
    x: ArrayLike | Mapping[str, ArrayLike],
    backends: Mapping[str, Backend],
    *,
    expected: Mapping[str, IntArray] | None = None,
) -> dict[str, Any]:
    """Run every backend on the same integers and compare it with the interpreter.

    Parameters
    ----------
    x:
        Integers as for ``interpret.run``: (n, *input shape), n >= 1.
    backends:
        By the name they have in the certificate.
    expected:
        ``interpret.trace(network, x)``, where the caller has it already.

    Returns
    -------
    The certificate (see the module's docstring), ready for JSON.

    Raises
    ------
    EqualityError
        If a backend gives a value the network lacks, or a wrong shape, or not the outputs; or there are no samples.
    """
    if expected is None:
        expected = interpret.trace(network, x)
    samples = len(next(iter(expected.values())))
    if samples == 0:
        raise EqualityError("certify: 0 samples; equality on nothing proves nothing. Give at least one row")
    if not backends:
        raise EqualityError("certify: no backend to compare; equality of nothing proves nothing. Name at least one")
    entries = {name: _compare(network, name, backend, x, expected) for name, backend in backends.items()}
    return {"samples": samples, "backends": entries}


def _compare(
    network: IntegerNetwork, name: str, backend: Backend, x: Any, expected: Mapping[str, IntArray]
) -> dict[str, Any]:
    result = backend.run(x)
    got = _checked(network, name, result.values, expected)
    different = {value: got[value] != expected[value] for value in got}
    entry: dict[str, Any] = {
        "mismatches": sum(int(np.count_nonzero(where)) for where in different.values()),
        "elements": sum(where.size for where in different.values()),
        "method": result.method,
        "first_mismatch": None,
    }
    first = next((value for value, where in different.items() if where.any()), None)
    if first is None:
        return entry
    row, *element = (int(i) for i in np.argwhere(different[first])[0])
    entry["first_mismatch"] = _mismatch(first, row, element, got[first], expected[first])
    if backend.localize is not None:
        inputs = x if isinstance(x, Mapping) else {network.inputs[0].name: x}
        one = {key: np.asarray(array)[row : row + 1] for key, array in inputs.items()}
        wanted = {value: array[row : row + 1] for value, array in expected.items()}
        traced = _checked(network, name, backend.localize(one).values, wanted)
        for value, array in traced.items():
            where = np.argwhere(array != wanted[value])
            if len(where):
                element = [int(i) for i in where[0][1:]]
                entry["first_mismatch"] = _mismatch(value, 0, element, array, wanted[value]) | {"row": row}
                break
    return entry


def _mismatch(layer: str, row: int, element: list[int], got: NDArray[Any], expected: NDArray[Any]) -> dict[str, Any]:
    index = (row, *element)
    value = got[index].item()
    return {
        "layer": layer,
        "row": row,
        "element": element,
        "got": _plain(value),
        "expected": int(expected[index]),
    }


def _plain(value: int | float) -> int | float | str:
    """A number for JSON: whole ones as integers; NaN and infinities, which JSON lacks, as text."""
    if not math.isfinite(value):
        return repr(value)
    return int(value) if value == int(value) else value


def _checked(
    network: IntegerNetwork, name: str, values: Values, expected: Mapping[str, IntArray]
) -> dict[str, NDArray[Any]]:
    """A backend's values as arrays of the reference's shapes, in the network's order."""
    unknown = [value for value in values if value not in expected]
    missing = [output.name for output in network.outputs if output.name not in values]
    if unknown or missing:
        raise EqualityError(
            f"backend {name!r}: values the network lacks: {', '.join(unknown) or 'none'}; outputs it does not give: "
            f"{', '.join(missing) or 'none'}. The network's values are {', '.join(expected)}; name them like that"
        )
    result = {}
    for value, reference in expected.items():
        if value in values:
            array = np.asarray(values[value])
            if array.shape != reference.shape:
                raise EqualityError(f"backend {name!r}: {value} has shape {array.shape}; expected {reference.shape}")
            if array.dtype.kind not in "iuf":
                raise EqualityError(f"backend {name!r}: {value} is of {array.dtype}; expected integers")
            limit = 1 << (np.finfo(array.dtype).nmant + 1) if array.dtype.kind == "f" else 1 << 62
            if reference.size and max(-int(reference.min()), int(reference.max())) > limit:
                raise EqualityError(
                    f"backend {name!r}: {value} comes as {array.dtype}, which cannot tell its integers apart; "
                    "give them as integers"
                )
            result[value] = array
    return result


def equal(certificate: Mapping[str, Any]) -> bool:
    """Whether every backend of a certificate equals the interpreter on every element."""
    return all(entry["mismatches"] == 0 for entry in certificate["backends"].values())


def require(certificate: Mapping[str, Any]) -> None:
    """``EqualityError`` naming every backend that differs, with its first mismatch; nothing when all are equal."""
    lines = [
        f"{name}: {entry['mismatches']} of {entry['elements']} elements differ; first {_words(entry['first_mismatch'])}"
        for name, entry in certificate["backends"].items()
        if entry["mismatches"]
    ]
    if lines:
        raise EqualityError("\n".join([f"not equal on {certificate['samples']} samples", *lines]))


def _words(mismatch: Mapping[str, Any] | None) -> str:
    if mismatch is None:
        return "none"
    return (
        f"{mismatch['layer']}{mismatch['element']} in row {mismatch['row']}: "
        f"got {mismatch['got']}, expected {mismatch['expected']}"
    )


def markdown(certificate: Mapping[str, Any], title: str = "Equality certificate") -> str:
    """The certificate as Markdown: the verdict, then one table row for each backend."""
    samples = certificate["samples"]
    rows = [
        f"| {name} | {e['mismatches']:,} | {e['elements']:,} | {_words(e['first_mismatch'])} | {e['method']} |"
        for name, e in certificate["backends"].items()
    ]
    verdict = (
        f"{f'All {len(rows)} representations equal' if len(rows) > 1 else 'Equal to'} the interpreter, integer by "
        f"integer, on {samples:,} samples."
        if equal(certificate)
        else f"**Not equal** on {samples:,} samples."
    )
    head = ["| representation | mismatches | elements compared | first mismatch | method |", "|---|---:|---:|---|---|"]
    return "\n".join([f"## {title}", "", verdict, "", *head, *rows, ""])


def write(certificate: Mapping[str, Any], path: Path | str) -> None:
    """Write ``equality.json``."""
    Path(path).write_text(json.dumps(certificate, indent=1) + "\n")
