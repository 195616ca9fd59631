"""Files that ONNX's own rules forbid: each malformed node becomes a finding, and an unknown node in its place.

``onnx.load`` accepts whatever protobuf can parse: cycles, tensors that nothing gives, operators with too few operands,
attributes of another type, initializers whose bytes are missing. The other modules read what comes out of here, where

* the nodes stand in the order of computation;
* every tensor is given once, and before it is read;
* operands and attributes are as many and of the types that the operator's schema says;
* a node that breaks one of these is a ``Malformed`` one, of which nothing is known but its tensors.

What hls4ml does on each was tried; where it imports such a file there are no right numbers to compare with, and the
finding is "wrong".
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from hawq_flow.check_hls.findings import Finding

P = ParamSpec("P")
T = TypeVar("T")

MALFORMED = "Malformed"
"""The operator of the node that stands in the place of a malformed one."""

DOMAIN = "hawq_flow.malformed"
FIX = "Write a file that onnx.checker accepts; --repair needs one too"

_INPUTS = {"Quant": (4, 4), "IntQuant": (4, 4), "BipolarQuant": (2, 2), "Trunc": (5, 7)}
"""The fewest and the most operands of QONNX's operators; those of Trunc depend on its version."""

_ATTRIBUTES = {
    name: {"signed": AttributeProto.INT, "narrow": AttributeProto.INT, "rounding_mode": AttributeProto.STRING}
    for name in ("Quant", "IntQuant")
}
_CHANNELS_LAST = {(op, "qonnx.custom_op.channels_last") for op in ("Conv", "MaxPool", "BatchNormalization")}
"""Operators of ONNX that are others in a domain of qonnx."""

_EVERY = ("Concat", "Max", "Mean", "Min", "Sum")
"""Operators of any number of operands, each of which is needed."""

_OWN_RULE = {("MaxPool", "kernel_shape"), ("AveragePool", "kernel_shape")}
"""Required attributes that the rules of the operator speak of."""

_UNSHAPED = ("Flatten", "Transpose", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that hls4ml imports even where onnx cannot infer their shape."""


class Guard:
    """Runs rules on nodes: one that stops on a node whose tensors do not go together is a finding, not an exception.

    Attributes
    ----------
    found:
        One finding for each such node, in the order met.
    """

    def __init__(self) -> None:
        self.found: dict[str, Finding] = {}

    def run(self, node: str, op_type: str, otherwise: T, rule: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
        """What a rule gives, or ``otherwise``, with a finding, where it cannot be computed."""
        try:
            return rule(*args, **given)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, MemoryError) as error:
            said = str(error).splitlines()[0] if str(error) else ""
            reason = f"malformed: its tensors and attributes do not go together ({type(error).__name__}: {said})"
            self.found.setdefault(node, Finding(node, op_type, "wrong", reason, FIX))
            return otherwise


def sift(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Finding]]:
    """A copy of a model that the rules can read (see above), and a finding for everything that was mended for it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph, found = copy.graph, list[Finding]()
    for number, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    opset = max([entry.version for entry in copy.opset_import if entry.domain in ("", "ai.onnx")], default=None)
    if opset is None:
        reason = "it imports no opset of ONNX; qonnx's shape inference stops with 'No opset import for domain'"
        found.append(Finding(graph.name or "graph", "Graph", "crash", reason, FIX))
        opset = 13
        copy.opset_import.append(helper.make_opsetid("", opset))
    nodes = list(graph.node)
    problems: dict[int, tuple[str, str]] = {}
    given = _constants(graph, found)
    usable = {name for name, why in given.items() if not why} | {info.name for info in graph.input}
    made: dict[str, str] = {}
    for number, node in enumerate(nodes):
        if not node.output or not node.output[0]:
            problems[number] = ("wrong", "it gives no tensor")
        for name in node.output:
            if name and (name in made or name in given or name in {info.name for info in graph.input}):
                by = made.get(name, "an input or a constant")
                problems[number] = ("crash", f"it gives {name!r}, which {by} gives already ({_SHAPELESS})")
            made.setdefault(name, node.name)
    for number, node in enumerate(nodes):
        for name in node.input:
            if given.get(name):
                problems.setdefault(number, ("crash", f"it reads {name!r}, {given[name]}"))
            elif name and name not in usable and name not in made:
                problems.setdefault(number, ("crash", f"it reads {name!r}, which nothing gives ({_SHAPELESS})"))
        problem = _against_schema(node, opset)
        if problem is not None:
            problems.setdefault(number, problem)
    for number in _circles(nodes):
        problems[number] = ("crash", "it waits for its own result; qonnx stops with 'CircularDependencyError'")
    sound: list[onnx.NodeProto] = []
    taken = set(given) | {info.name for info in graph.input}
    for number, node in enumerate(nodes):
        if number not in problems:
            sound.append(node)
            taken |= set(node.output)
    for number, (kind, reason) in sorted(problems.items()):
        node = nodes[number]
        found.append(Finding(node.name, node.op_type, kind, f"malformed: {reason}", FIX))
        outputs = [name for name in dict.fromkeys(node.output) if name and name not in taken]
        taken |= set(outputs)
        if outputs:
            sound.append(helper.make_node(MALFORMED, [], outputs, name=node.name, domain=DOMAIN))
    order = _order(sound)
    found += _unordered(sound, order)
    ordered = [sound[number] for number in order]
    del graph.node[:]
    graph.node.extend(ordered)
    found += _outputs(graph, taken)
    _forget(graph, {name for name, why in given.items() if why})
    return copy, found


def _unordered(nodes: list[onnx.NodeProto], order: list[int]) -> list[Finding]:
    """A file whose nodes do not stand in the order of computation. qonnx sorts them, but infers shapes before."""
    first = next((number for place, number in enumerate(order) if place != number), None)
    if first is None:
        return []
    late = nodes[first]
    crash = any(node.op_type in ("Conv", "MaxPool", "BatchNormalization") for node in nodes)
    reason = "it stands behind a node that reads it; ONNX wants the order of computation" + (
        ", and qonnx's channels-last conversion stops with 'All tensor shapes must be specified'" if crash else ""
    )
    return [Finding(late.name, late.op_type, "crash" if crash else "note", reason, FIX)]


_SHAPELESS = "hls4ml raises 'Could not find the shape for input'"


def _constants(graph: onnx.GraphProto, found: list[Finding]) -> dict[str, str]:
    """Every constant of the file, and what is wrong with it: '' where its numbers can be read."""
    given: dict[str, str] = {}
    for tensor in graph.initializer:
        if tensor.name in given:
            reason = "two constants of this name; qonnx stops with 'Found multiple get_by_name matches'"
            found.append(Finding(tensor.name, "Constant", "crash", reason, FIX))
        given[tensor.name] = ""
        try:
            array = numpy_helper.to_array(tensor)
        except Exception as error:  # onnx does not say what it raises on bytes that are no numbers
            given[tensor.name] = f"a constant whose data cannot be read ({type(error).__name__})"
        else:
            if array.dtype.kind in "OSU":
                given[tensor.name] = "a constant of texts ('TypeError' in hls4ml)"
    for sparse in graph.sparse_initializer:
        given[sparse.values.name] = f"a sparse constant, which qonnx does not read ({_SHAPELESS})"
    return given


def _forget(graph: onnx.GraphProto, unusable: set[str]) -> None:
    kept = [tensor for tensor in graph.initializer if tensor.name not in unusable]
    del graph.initializer[:], graph.sparse_initializer[:]
    graph.initializer.extend(kept)


def _against_schema(node: onnx.NodeProto, opset: int) -> tuple[str, str] | None:
    """What the operator's schema forbids: how many operands, and attributes of which types."""
    if node.op_type in _INPUTS:
        least, most = _INPUTS[node.op_type]
        types = _ATTRIBUTES.get(node.op_type, {})
        required: Iterable[str] = types
        raised = "hls4ml fails with 'IndexError'"
    elif node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type):
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, "")
        except onnx.defs.SchemaError:
            return None  # newer than the file's opset; the rules go by the name, as hls4ml does
        least, most = schema.min_input, schema.max_input
        types = {name: cast(Any, entry.type).value for name, entry in schema.attributes.items()}
        required = [name for name, entry in schema.attributes.items() if entry.required]
        raised = "qonnx or hls4ml fail on its shape"
    elif onnx.defs.has(node.op_type) and (node.op_type, node.domain) not in _CHANNELS_LAST:
        return (
            "refused",
            f"of domain {node.domain!r}; qonnx raises 'Custom op_type {node.op_type} is currently not supported'",
        )
    else:
        return _readable(node, {})
    if node.op_type in _EVERY:
        least = max(least, len(node.input))
    missing = [place for place in range(least) if place >= len(node.input) or not node.input[place]]
    if missing:
        return "crash", f"it has {len(list(filter(None, node.input)))} operands and needs {least} ({raised})"
    if len(node.input) > most:
        return "wrong", f"it has {len(node.input)} operands, and {node.op_type} takes {most}"
    absent = sorted(set(required) - {entry.name for entry in node.attribute})
    absent = [name for name in absent if (node.op_type, name) not in _OWN_RULE]
    if absent and node.op_type not in _ATTRIBUTES:
        return "crash", f"no attribute {absent[0]!r}, which {node.op_type} must have ({raised})"
    return _readable(node, types)


def _readable(node: onnx.NodeProto, types: Mapping[str, int]) -> tuple[str, str] | None:
    for entry in node.attribute:
        try:
            value = helper.get_attribute_value(entry)
        except ValueError:
            value, entry_type = None, -1
        else:
            entry_type = entry.type
        if value is None or entry_type != types.get(entry.name, entry_type):
            wanted = AttributeProto.AttributeType.Name(types[entry.name]) if entry.name in types else "a value"
            return "wrong", f"its attribute {entry.name!r} is {_typename(entry)}; expected {wanted}"
        if entry_type in (AttributeProto.FLOAT, AttributeProto.FLOATS) and not np.isfinite(value).all():
            return "wrong", f"its attribute {entry.name!r} is {value}, no number"
    return None


def _typename(entry: AttributeProto) -> str:
    names = AttributeProto.AttributeType
    return names.Name(entry.type) if entry.type in names.values() else f"of type {entry.type}"


def _dependencies(nodes: list[onnx.NodeProto]) -> list[set[int]]:
    """The nodes that each node waits for."""
    made: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in node.output:
            if name:
                made.setdefault(name, number)
    return [{made[name] for name in node.input if name in made} for node in nodes]


def _order(nodes: list[onnx.NodeProto]) -> list[int]:
    """The order of computation that is nearest to the file's; nodes that wait for a circle are left out."""
    return _peeled(_dependencies(nodes))


def _peeled(waits: list[set[int]]) -> list[int]:
    readers: list[list[int]] = [[] for _ in waits]
    for number, before in enumerate(waits):
        for other in before:
            readers[other].append(number)
    left = [len(before) for before in waits]
    free = [number for number, count in enumerate(left) if not count]
    order: list[int] = []
    while free:
        number = heapq.heappop(free)
        order.append(number)
        for reader in readers[number]:
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(free, reader)
    return order


def _circles(nodes: list[onnx.NodeProto]) -> list[int]:
    """The nodes in circles, and between two of them: neither before nor behind all."""
    waits = _dependencies(nodes)
    forward = set(_peeled(waits))
    if len(forward) == len(nodes):
        return []
    behind: list[set[int]] = [set() for _ in waits]
    for number, before in enumerate(waits):
        for other in before:
            behind[other].add(number)
    return sorted(set(range(len(nodes))) - forward - set(_peeled(behind)))


def _outputs(graph: onnx.GraphProto, given: set[str]) -> list[Finding]:
    """Outputs of the graph that nothing gives, that are inputs, that come twice; and a graph without any."""
    found: list[Finding] = []
    if not graph.output:
        reason = "malformed: it has no outputs, so there is nothing to compute"
        found.append(Finding(graph.name or "graph", "Graph", "wrong", reason, FIX))
    inputs = {info.name for info in graph.input}
    seen: set[str] = set()
    for info in graph.output:
        if info.name in seen or info.name in inputs:
            what = "listed twice" if info.name in seen else "an input as well"
            reason = f"an output that is {what}; qonnx stops with 'Multiple ValueInfoProto found'"
            found.append(Finding(info.name, "Output", "crash", reason, FIX))
        elif info.name not in given:
            found.append(Finding(info.name, "Output", "wrong", "malformed: an output that no node gives", FIX))
        seen.add(info.name)
    return found


def inconsistent(error: Exception) -> Mapping[tuple[str, str], tuple[str, str]]:
    """(operator, node) -> (kind, what is wrong), from what onnx's strict shape inference raised."""
    pattern = r"\(op_type:([^,]*), node name: (.*?)\): \[(ShapeInferenceError|TypeInferenceError)\] ([^\n]*)"
    result: dict[tuple[str, str], tuple[str, str]] = {}
    for op_type, name, kind, said in re.findall(pattern, str(error)):
        if op_type == MALFORMED or (kind == "TypeInferenceError" and not said.startswith("Attribute")):
            continue  # a type that is missing follows from the node before
        worst = "wrong" if op_type in _UNSHAPED else "crash"
        raised = "" if op_type in _UNSHAPED else "; qonnx and hls4ml do not get its shape"
        result.setdefault((op_type, name), (worst, f"onnx's shape inference says {said.rstrip('. ')!r}{raised}"))
    return result
