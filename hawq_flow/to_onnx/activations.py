"""tanh and sigmoid of integers: the two published forms of pre-quantized ONNX, our exact table, and their errors.

"Pre-quantized Deep Learning Models Codified in ONNX" (Hanebutte et al. 2021, arXiv:2110.01730) writes an activation
that is no ReLU with a float function between integers. With ``q`` the input's integer and ``r`` the result's::

    int8    q -> DequantizeLinear(S_x, z_x) -> Tanh or Sigmoid in float32 -> QuantizeLinear(S_y, z_y)
    fp16    q -> Clip(-127, 127) -> DequantizeLinear(S_x) -> Cast(float16) -> Tanh or Sigmoid -> Cast(float32)
              -> QuantizeLinear(S_y, z_y)
    table   q -> Cast -> Sub(low) -> Gather(r of every q)

``int8`` maps the whole range of the type: tanh's [-1, 1] on int8 by S_y = 1/127, sigmoid's [0, 1] on uint8 by 1/255.
``fp16`` mixes int8 tensors with a float16 function, over a narrowed input range symmetric about zero: beyond the
:func:`reach` of a function every result rounds to its limit, so the 8 bits are spent inside. Its QuantizeLinear is in
float32, as in the operator of the paper's time: in float16 (opset 19) runtimes divide differently, and 4 to 25 of 256
results differed between onnxruntime and the reference evaluator. ``table`` rounds
``f(S_x (q - z_x)) / S_y + z_y`` once, in the platform's extended precision, and is what the IR's Lookup is.

The float forms are what a runtime makes of them. onnxruntime's CPU provider computes ``fp16`` in float32 (it removes
both Casts, even at ORT_DISABLE_ALL), the reference evaluator in float16: 2 to 13 of 256 results differ. :func:`results`
runs all of them over every integer, :func:`table` refuses what they do not agree on; :func:`published_nodes` may stand
for a Lookup only where :func:`prove_published` finds every entry equal. :func:`error` is against the real function,
over every integer.

A Lookup that training made carries the scales of what it reads and gives as an annotation: :func:`published` puts the
form in its place in a whole network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxscript import opset20 as standard

from hawq_flow.network import IntegerNetwork, Lookup, Value
from hawq_flow.numeric import IntArray, IntType
from hawq_flow.runtime import session
from hawq_flow.to_qonnx import NotExact
from hawq_flow.to_qonnx.symbolic import named, tensor

Function = Literal["tanh", "sigmoid"]
Form = Literal["int8", "fp16", "table"]
OPSET = 20
INT8, UINT8 = IntType(8, True), IntType(8, False)


@dataclass(frozen=True)
class Grid:
    """What integers mean: ``real = scale * (integer - zero_point)``, of a type of at most 8 bits."""

    type: IntType
    scale: float
    zero_point: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"Grid: scale {self.scale!r}; expected a positive finite number")
        if not self.type.uniform or self.type.max_bits > 8:
            raise ValueError(f"Grid: type {self.type}; expected one width of at most 8 bits, as int8 and uint8 hold")
        low, high = self.type.range
        if not low <= self.zero_point <= high:
            raise ValueError(f"Grid: zero point {self.zero_point}; expected one of {self.type}, {low} to {high}")

    @property
    def container(self) -> np.dtype[Any]:
        """int8 or uint8."""
        return np.dtype(np.int8 if self.type.signed else np.uint8)

    @property
    def integers(self) -> IntArray:
        """Every integer of the type, ascending."""
        low, high = self.type.range
        return np.arange(low, high + 1)

    def real(self, integers: IntArray) -> NDArray[np.longdouble]:
        """Their meaning, in extended precision."""
        return np.longdouble(self.scale) * (integers - self.zero_point).astype(np.longdouble)


@dataclass(frozen=True)
class Error:
    """A form's distance from the real function, over every integer of its input.

    Attributes
    ----------
    max_abs, mean_abs:
        In real units.
    max_levels:
        The largest, in steps of the output's grid; a table has at most 0.5 where nothing saturates.
    """

    max_abs: float
    mean_abs: float
    max_levels: float


def real(function: Function, x: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    """tanh or sigmoid in the platform's extended precision."""
    if function == "tanh":
        return np.asarray(np.tanh(x))
    # The exponential of what is not positive: nothing overflows.
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, e) / (1 + e))


def output_grid(function: Function) -> Grid:
    """The published output: tanh's [-1, 1] on int8 (1/127), sigmoid's [0, 1] on uint8 (1/255)."""
    return Grid(INT8, 1 / 127) if _known(function) == "tanh" else Grid(UINT8, 1 / 255)


def reach(function: Function) -> float:
    """The narrowed range's end: 4 for tanh, 8 for sigmoid.

    The least power of two from which on results round to the function's limit (tanh(3.12) = 1 - 1/254 on int8,
    sigmoid(6.24) = 1 - 1/510 on uint8), so that the scale is dyadic.
    """
    return 4.0 if _known(function) == "tanh" else 8.0


def input_grid(function: Function, input_scale: float | None = None) -> Grid:
    """An int8 input of that scale; None: the narrowed range, :func:`reach` over 128."""
    return Grid(INT8, reach(function) / 128 if input_scale is None else input_scale)


def _known(function: str) -> str:
    if function not in get_args(Function):
        raise ValueError(f"activation {function!r}; expected one of {', '.join(get_args(Function))}")
    return function


# --- the nodes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """A node of one stream: its operator, what follows (or precedes) the stream as constants, attributes."""

    what: str
    operator: str
    constants: tuple[tuple[str, NDArray[Any]], ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()
    stream_last: bool = False


def _steps(function: Function, form: Form, x: Grid, y: Grid) -> Iterator[_Step]:
    """The chain from the input's integers (in x's container) to the output's (in y's)."""
    _known(function)
    if form == "table":
        entries = exact(function, x, y).astype(y.container)
        low = np.array(x.type.range[0], dtype=np.int64)
        yield _Step("wide", "Cast", attributes=(("to", TensorProto.INT64),))
        yield _Step("entry", "Sub", (("low", low),))
        yield _Step("gather", "Gather", (("table", entries),), (("axis", 0),), stream_last=True)
        return
    if form not in get_args(Form):
        raise ValueError(f"form {form!r}; expected one of {', '.join(get_args(Form))}")
    half = form == "fp16"
    if half:
        if not x.type.signed or x.zero_point:
            raise ValueError(
                f"fp16: an input of {x.type} with zero point {x.zero_point}; expected signed integers and 0, since its "
                "range is symmetric"
            )
        if not x.type.narrow:
            least = np.array(-x.type.range[1], x.container), np.array(x.type.range[1], x.container)
            yield _Step("narrow", "Clip", (("narrow/low", least[0]), ("narrow/high", least[1])))
    yield _Step("real", "DequantizeLinear", _parameters("input", x))
    if half:
        yield _Step("half", "Cast", attributes=(("to", TensorProto.FLOAT16),))
    yield _Step(function, function.capitalize())
    if half:
        yield _Step("single", "Cast", attributes=(("to", TensorProto.FLOAT),))
    yield _Step("quantize", "QuantizeLinear", _parameters("output", y))
    info = np.iinfo(y.container)
    if y.type.range != (info.min, info.max):
        low_high = (np.array(end, y.container) for end in y.type.range)
        yield _Step("clip", "Clip", tuple(zip(("clip/low", "clip/high"), low_high, strict=True)))


def _parameters(what: str, grid: Grid) -> tuple[tuple[str, NDArray[Any]], ...]:
    scale = np.array(grid.scale, dtype=np.float32)
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"{what} scale {grid.scale!r} is {scale} in float32; use form 'table'")
    return ((f"{what}/scale", scale), (f"{what}/zero_point", np.array(grid.zero_point, grid.container)))


def exact(function: Function, x: Grid, y: Grid) -> IntArray:
    """The table: ``round(f(S_x (q - z_x)) / S_y) + z_y`` into y's type for every q, int64, halves to even."""
    values = np.rint(real(function, x.real(x.integers)) / np.longdouble(y.scale)) + y.zero_point
    return np.asarray(np.clip(values, *y.type.range), dtype=np.int64)


def model(
    function: Function,
    form: Form,
    *,
    input_scale: float | None = None,
    x: Grid | None = None,
    y: Grid | None = None,
) -> onnx.ModelProto:
    """A model of one activation, input ``x`` and output ``y`` of shape (batch, n), in standard operators.

    Parameters
    ----------
    input_scale:
        Of an int8 input with zero point 0; None: the narrowed range (:func:`input_grid`).
    x, y:
        Grids of input and output, in place of an int8 input and of the published output.

    Raises
    ------
    ValueError
        If the form or a grid cannot be, saying what was expected.
    """
    x, y = _grids(function, input_scale, x, y)
    stream, nodes, constants = "x", [], []
    steps = list(_steps(function, form, x, y))
    for i, step in enumerate(steps):
        operands = [name for name, _ in step.constants]
        operands.insert(len(operands) if step.stream_last else 0, stream)
        stream = "y" if i == len(steps) - 1 else step.what
        nodes.append(helper.make_node(step.operator, operands, [stream], name=step.what, **dict(step.attributes)))
        constants += [numpy_helper.from_array(array, name) for name, array in step.constants]
    ends = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(grid.container), ["batch", "n"])
        for name, grid in (("x", x), ("y", y))
    ]
    graph = helper.make_graph(nodes, f"{function}_{form}", ends[:1], ends[1:], constants)
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", OPSET)])
    onnx.checker.check_model(made, full_check=True)
    return made


def _grids(function: Function, scale: float | None, x: Grid | None, y: Grid | None) -> tuple[Grid, Grid]:
    if scale is not None and x is not None:
        raise ValueError("activation: input_scale and a grid x; give one")
    return x or input_grid(function, scale), y or output_grid(function)


def published_nodes(x: Any, name: str, form: Form, function: Function, source: Grid, result: Grid, carried: int) -> Any:
    """Symbolic function: the nodes of a form on a value whose integers are ``carried`` in any element type.

    Parameters
    ----------
    x:
        The value being traced, integers in the element type ``carried`` (a ``TensorProto`` number).
    name:
        Of the IR op; nodes and constants are called ``name/what``.

    Returns
    -------
    The result's integers, in ``carried`` again.
    """
    x = named(standard.Cast(x, to=helper.np_dtype_to_tensor_dtype(source.container)), f"{name}/integer")
    for step in _steps(function, form, source, result):
        constants = [tensor(array, f"{name}/{what}") for what, array in step.constants]
        constants.insert(len(constants) if step.stream_last else 0, x)
        x = named(getattr(standard, step.operator)(*constants, **dict(step.attributes)), f"{name}/{step.what}")
    return standard.Cast(x, to=carried)


# --- what they compute -----------------------------------------------------------------------------------------------


def results(
    function: Function,
    form: Form,
    *,
    input_scale: float | None = None,
    x: Grid | None = None,
    y: Grid | None = None,
) -> dict[str, IntArray]:
    """The results of a form for every integer of its input, ascending, int64: by runtime.

    The runtimes are onnx's reference evaluator, and onnxruntime at ORT_DISABLE_ALL and at its default level.
    """
    x, y = _grids(function, input_scale, x, y)
    made = model(function, form, x=x, y=y)
    feed = {"x": x.integers.astype(x.container)[None]}
    (reference,) = cast(list[NDArray[Any]], ReferenceEvaluator(made).run(None, feed))
    found = {"the reference evaluator": reference}
    for where, optimized in (("no optimizations", False), ("its default level", True)):
        found[f"onnxruntime at {where}"] = session(made, optimized=optimized).run(None, feed)[0]
    return {where: array[0].astype(np.int64) for where, array in found.items()}


def table(
    function: Function,
    form: Form,
    *,
    input_scale: float | None = None,
    x: Grid | None = None,
    y: Grid | None = None,
) -> IntArray:
    """The one result of a form for every integer of its input, ascending: int64.

    Raises
    ------
    NotExact
        If runtimes (:func:`results`) differ on an entry: the form has no one meaning on this grid.
    """
    (first, expected), *others = results(function, form, input_scale=input_scale, x=x, y=y).items()
    for where, found in others:
        differ = int((found != expected).sum())
        if differ:
            raise NotExact(
                f"{function} in form {form!r}: {differ} of {expected.size} results differ between {first} and {where}; "
                "form 'table' means the same everywhere"
            )
    return expected


def error(
    function: Function,
    form: Form,
    *,
    input_scale: float | None = None,
    x: Grid | None = None,
    y: Grid | None = None,
) -> Error:
    """The form's error against the real function at what its input's integers mean, over all of them.

    Where runtimes differ, each entry counts as the worst of them gives it.
    """
    x, y = _grids(function, input_scale, x, y)
    expected = real(function, x.real(x.integers))
    distances = [np.abs(y.real(found) - expected) for found in results(function, form, x=x, y=y).values()]
    worst = np.max(distances, axis=0)
    return Error(float(worst.max()), float(worst.mean()), float(worst.max() / np.longdouble(y.scale)))


def prove_published(op: Lookup, value: Value, form: Form, source: Grid, result: Grid) -> Function:
    """Prove that a form may stand for a Lookup: every entry that can be met is equal. Returns the function.

    Parameters
    ----------
    value:
        Of the op's input, derived by the network: its interval is what can be met.
    source, result:
        Grids of the op's input and output.

    Raises
    ------
    NotExact
        Saying how many entries differ, or why the form cannot be.
    """
    function = op.function
    if function not in get_args(Function):
        raise NotExact(
            f"{op.name}: a table of {function or 'something unnamed'!r}; published forms are of tanh and sigmoid. Form "
            "'table' is exact"
        )
    low, high = int(value.low.min()), int(value.high.max())
    first, last = source.type.range
    if low < first or high > last:
        raise NotExact(
            f"{op.name}: its input ranges from {low} to {high}, the grid's {source.type} from {first} to {last}. Form "
            "'table' is exact"
        )
    try:
        found = table(function, form, x=source, y=result)[low - first : high - first + 1]  # type: ignore[arg-type]
    except (NotExact, ValueError) as reason:
        raise NotExact(f"{op.name}: {reason}") from reason
    differ = int((found != op.table[low - op.start : high - op.start + 1]).sum())
    if differ:
        raise NotExact(
            f"{op.name}: {differ} of {found.size} entries of {function} differ in form {form!r}; form 'table' is exact"
        )
    return function  # type: ignore[return-value]


def published(network: IntegerNetwork, form: Form) -> dict[str, Callable[..., Any]]:
    """What ``export`` writes in place of the network's tables of tanh and sigmoid: a function by the Lookup's name.

    Raises
    ------
    NotExact
        Naming every such Lookup that the form does not equal, or whose scales are not known.
    """
    if form not in get_args(Form):
        raise ValueError(f"form {form!r}; expected one of {', '.join(get_args(Form))}")
    forms: dict[str, Callable[..., Any]] = {}
    refused: list[str] = []
    for op in network.ops if form != "table" else ():
        if not isinstance(op, Lookup) or op.function not in get_args(Function):
            continue
        try:
            forms[op.name] = _in_place(op, network.values, form)
        except NotExact as reason:
            refused.append(str(reason))
    if refused:
        raise NotExact("; ".join(refused))
    return forms


def _in_place(op: Lookup, values: Mapping[str, Value], form: Form) -> Callable[..., Any]:
    if op.scales is None:
        raise NotExact(f"{op.name}: the scales of its table are not known; form 'table' is exact")
    scale, zero, result_scale, result_zero = op.scales
    try:
        source = Grid(values[op.input].type, scale, zero)
        result = Grid(UINT8 if int(op.table.min()) >= 0 else INT8, result_scale, result_zero)
    except ValueError as reason:
        raise NotExact(f"{op.name}: {reason}. Form 'table' is exact") from reason
    function = prove_published(op, values[op.input], form, source, result)

    def write(nodes: Any, plan: Any, x: Any) -> Any:
        carried = helper.np_dtype_to_tensor_dtype(plan.target)
        return published_nodes(x, nodes.name, form, function, source, result, carried)

    return write
