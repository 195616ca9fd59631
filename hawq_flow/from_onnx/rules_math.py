"""Rules for arithmetic: affine maps by constants, clamps, batch norms, sums and products of values, tables."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from hawq_flow.from_onnx.affine import Rationals, aligned, common, compress, exact, full, only
from hawq_flow.from_onnx.clamping import materialized, retyped
from hawq_flow.from_onnx.fitting import simplest_near
from hawq_flow.from_onnx.layers import convolution, dense
from hawq_flow.from_onnx.nodes import Node
from hawq_flow.from_onnx.refusals import Refuse, Snap
from hawq_flow.from_onnx.tensors import Const, Grid, Known, Left, Tabulated, Tensor, check_bounds, fresh, scalar
from hawq_flow.network import MAX_TABLE, Add, Multiply, Subtract
from hawq_flow.numeric import FloatArray, IntArray

# --- elementwise with constants --------------------------------------------------------------------------------------


def arithmetic(node: Node) -> Known:
    """Add, Sub, Mul and Div, of two values or with a constant."""
    a, b = node.inputs[0], node.inputs[1]
    kind = node.op_type
    if isinstance(a, Const) and isinstance(b, Const):
        return _constants(kind, a, b)
    if isinstance(a, Tabulated) or isinstance(b, Tabulated):
        return _on_table(node)
    if not isinstance(a, Const) and not isinstance(b, Const):
        x, y = node.tensor(0), node.tensor(1)
        if kind in ("Add", "Sub"):
            return total(node, x, y, kind == "Sub")
        if kind == "Mul":
            return product(node, x, y)
        raise Refuse("divides one value by another; the IR has no such operation")
    constant_first = isinstance(a, Const)
    constant = node.constant(0 if constant_first else 1, "operand")
    tensor = node.tensor(1 if constant_first else 0)
    c = constant.real()
    one, zero = scalar(1), scalar(0)
    if kind == "Add":
        return node.builder.with_bias(tensor.affine(one, c))
    if kind == "Sub":
        return tensor.affine(-one, c) if constant_first else node.builder.with_bias(tensor.affine(one, -c))
    if kind == "Mul":
        return tensor.affine(c, zero)
    if constant_first:
        raise Refuse("divides a constant by a value; the IR has no such operation")
    if any(v == 0 for v in c.ravel()):
        raise Refuse("divides by zero")
    return tensor.affine(1 / c, zero)


def summed(node: Node) -> Known:
    """Sum: the Add of any number of tensors."""
    found = node.inputs[0]
    if found is None:
        raise Refuse("has no input")
    for i, other in enumerate(node.inputs[1:], start=1):
        pair = dataclasses.replace(node, op_type="Add", inputs=(found, other), names=(node.names[0], node.names[i]))
        found = arithmetic(pair)
    return found


def _constants(kind: str, a: Const, b: Const) -> Const:
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[kind]
    with np.errstate(all="ignore"):
        if kind == "Div" and a.array.dtype.kind in "iu":
            if not b.array.all():
                raise Refuse("divides by zero")
            sign = np.sign(a.array) * np.sign(b.array)  # integers are truncated to zero
            return Const(np.asarray(sign * (np.abs(a.array) // np.abs(b.array)), dtype=a.array.dtype))
        array = np.asarray(function(a.array, b.array))
    for x, y in ((a, b), (b, a)):
        if x.grid is not None and y.grid is None and array.shape == x.array.shape and kind in ("Mul", "Div"):
            if kind == "Div" and x is b:
                continue
            c = y.real() if kind == "Mul" else 1 / y.real()
            scale = aligned(x.grid.scale, array.ndim) * aligned(c, array.ndim)
            return Const(array, Grid(x.grid.integers, compress(np.asarray(scale, dtype=object))))
    return Const(array)


def relu(node: Node) -> Known:
    """Relu: a pending clamp at zero."""
    found = node.inputs[0]
    if isinstance(found, Tabulated):
        return _map_table(found, lambda v: np.maximum(v, 0), "Relu")
    return retyped(node.builder, node.tensor(0).clamp(scalar(0), np.array([math.inf], dtype=object)))


def clip(node: Node) -> Known:
    """Clip, with its bounds as inputs or (before opset 11) attributes; Min and Max with a constant."""
    ends: list[Rationals] = [np.array([v], dtype=object) for v in (-math.inf, math.inf)]
    source = 0
    if node.op_type == "Clip":
        for i, name in enumerate(("min", "max")):
            if node.given(i + 1):
                ends[i] = exact(node.constant(i + 1, name, finite=False).array)
            elif name in node.attributes:
                ends[i] = exact(np.float32(node.attributes[name]))
    else:
        values = [i for i, v in enumerate(node.inputs) if not isinstance(v, Const)]
        if len(values) > 1:
            raise Refuse(f"{node.op_type} of {len(values)} values; the IR has no such operation")
        source = values[0]
        bounds = [node.constant(i, "bound", finite=False).real() for i in range(len(node.inputs)) if i != source]
        if bounds:
            extreme = np.maximum if node.op_type == "Max" else np.minimum
            bound = functools.reduce(extreme, bounds)
            ends[0 if node.op_type == "Max" else 1] = compress(bound)
    found = node.inputs[source]
    if isinstance(found, Tabulated):
        if any(end.size > 1 for end in ends):
            raise Refuse(
                f"a bound for each channel behind a {found.function}; a table holds one function. Use one bound, or "
                "quantize before it"
            )
        check_bounds(*ends)
        low, high = (float(end.reshape(-1)[0]) for end in ends)
        return _map_table(found, lambda v: np.clip(v, low, high), node.op_type)
    return retyped(node.builder, node.tensor(source).clamp(*ends))


def batch_norm(node: Node) -> Known:
    """BatchNormalization with stored statistics: an affine map for each channel; the square root in float64."""
    tensor = node.tensor(0)
    if int(node.attributes.get("training_mode", 0)):
        raise Refuse("normalizes with the statistics of the batch (training_mode=1); export the model in eval mode")
    gamma, beta, mean, variance = (
        node.constant(i, what) for i, what in enumerate(("scale", "bias", "mean", "variance"), 1)
    )
    epsilon = float(np.float32(node.attributes.get("epsilon", 1e-5)))
    squares = variance.array.astype(np.float64) + epsilon
    if (squares <= 0).any():
        raise Refuse(f"a variance of {float(variance.array.min()):g} with epsilon {epsilon:g}; expected a positive sum")
    deviation = exact(np.sqrt(squares))
    column = (-1,) + (1,) * (len(tensor.shape) - 2)
    size = (gamma.array.size,)
    factor = np.asarray(full(gamma.real(), size) / full(deviation, size), dtype=object)
    term = np.asarray(full(beta.real(), size) - full(mean.real(), size) * factor, dtype=object)
    return tensor.affine(factor.reshape(column), term.reshape(column))


def negative(node: Node) -> Known:
    """Neg."""
    found = node.inputs[0]
    if isinstance(found, Tabulated):
        return _map_table(found, np.negative, "Neg")
    return node.tensor(0).affine(scalar(-1), scalar(0))


# --- tables ----------------------------------------------------------------------------------------------------------


def _softplus(v: FloatArray) -> FloatArray:
    return np.asarray(np.logaddexp(0, v))


def _erf(v: FloatArray) -> FloatArray:
    return np.array([math.erf(x) for x in v])


def _sigmoid(v: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-np.logaddexp(0, -v)))


def function_of(node: Node) -> Callable[[FloatArray], FloatArray]:
    """The node's function of one real number, in float64."""
    alpha = node.attributes.get("alpha")
    gamma = node.attributes.get("gamma")

    def number(value: Any, default: float) -> float:
        return default if value is None else float(np.float32(value))

    match node.op_type:
        case "Sigmoid":
            return _sigmoid
        case "Tanh":
            return np.tanh
        case "Softplus":
            return _softplus
        case "Softsign":
            return lambda v: v / (1 + np.abs(v))
        case "Exp":
            return np.exp
        case "Erf":
            return _erf
        case "Abs":
            return np.abs
        case "Elu":
            a = number(alpha, 1.0)
            return lambda v: np.where(v < 0, a * np.expm1(np.minimum(v, 0)), v)
        case "Selu":
            a, g = number(alpha, float(np.float32(1.67326319217681884765625))), number(gamma, 1.05070102214813232421875)
            return lambda v: g * np.where(v < 0, a * np.expm1(np.minimum(v, 0)), v)
        case "LeakyRelu":
            a = number(alpha, float(np.float32(0.01)))
            return lambda v: np.where(v < 0, a * v, v)
        case "PRelu":
            slope = node.constant(1, "slope").array
            if slope.size != 1:
                raise Refuse(f"a slope for each of {slope.size} channels; a table holds one function. Use one slope")
            a = float(slope.reshape(-1)[0])
            return lambda v: np.where(v < 0, a * v, v)
        case "HardSigmoid":
            a, b = number(alpha, float(np.float32(0.2))), number(node.attributes.get("beta"), 0.5)
            return lambda v: np.clip(a * v + b, 0, 1)
        case "HardSwish":
            return lambda v: v * np.clip(v / 6 + 0.5, 0, 1)
        case "Gelu":
            if node.text("approximate", "none") == "tanh":
                return lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
            return lambda v: 0.5 * v * (1 + _erf(v / math.sqrt(2)))
        case "Mish":
            return lambda v: v * np.tanh(_softplus(v))
        case _:
            raise Refuse(f"no rule for {node.op_type}")


def table(node: Node) -> Known:
    """A function of one number, to be written down as a table once a quantizer follows."""
    found = node.inputs[0]
    function = function_of(node)
    if isinstance(found, Const):
        return Const(function(found.array.astype(np.float64)).astype(np.float32))
    if isinstance(found, Tabulated):
        return _map_table(found, function, node.op_type)
    builder = node.builder
    tensor = materialized(builder, node.tensor(0), f"{node.name}_in", f"a {node.op_type}")
    scale, offset = only(tensor.scale), only(tensor.offset)
    if scale is None or offset is None:
        raise Refuse("its input has a scale for each channel, and a table is one function; quantize it with one scale")
    value = builder.value(tensor)
    first, last = int(value.low.min()), int(value.high.max())
    if last - first + 1 > MAX_TABLE:
        raise Refuse(
            f"its input takes {last - first + 1} integers, more than the {MAX_TABLE} of a table; put a quantizer of 16 "
            "bits or fewer before it"
        )
    reals = np.array([float(scale * a + offset) for a in range(first, last + 1)])
    return Tabulated(tensor, node.names[0], _evaluated(function, reals), first, node.op_type)


def _map_table(found: Tabulated, function: Callable[[FloatArray], FloatArray], name: str) -> Tabulated:
    return dataclasses.replace(found, table=_evaluated(function, found.table), function=f"{found.function}, {name}")


def _evaluated(function: Callable[[FloatArray], FloatArray], at: FloatArray) -> FloatArray:
    """A function's values; infinities and NaN are for the quantizer that follows to judge."""
    with np.errstate(all="ignore"):
        return np.asarray(function(at), dtype=np.float64)


def _on_table(node: Node) -> Known:
    a, b = node.inputs[0], node.inputs[1]
    first = isinstance(a, Tabulated)
    found, other = (a, b) if first else (b, a)
    assert isinstance(found, Tabulated)
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[node.op_type]
    if isinstance(other, Const) and other.array.size == 1:
        c = float(other.array.reshape(-1)[0])
        return _map_table(found, (lambda v: function(v, c)) if first else (lambda v: function(c, v)), node.op_type)
    reads = other.before if isinstance(other, Tabulated) else other
    if (
        isinstance(reads, Tensor)
        and reads.name == found.before.name
        and np.array_equal(reads.index, found.before.index)
    ):
        # x * sigmoid(x) and the like: still a function of the one integer.
        if isinstance(other, Tabulated):
            second = other.table
        else:
            scale, offset = only(reads.scale), only(reads.offset)
            if scale is None or offset is None or reads.clamped:
                raise Refuse("joins a table with its own input through a clip or scales for each channel")
            second = np.array([float(scale * (found.start + i) + offset) for i in range(found.table.size)])
        pair = (found.table, second) if first else (second, found.table)
        joined = _evaluated(lambda v: function(v, pair[1]), pair[0])
        return dataclasses.replace(found, table=joined, function=f"{found.function}, {node.op_type}")
    raise Refuse(f"reads a {found.function} that no quantizer follows; quantize it first")


# --- two values ------------------------------------------------------------------------------------------------------


def _side_by_side(node: Node, x: Tensor, y: Tensor) -> tuple[str, str, IntArray, tuple[Tensor, Tensor]]:
    """Two values for an elementwise op: (IR name, IR name, index of the result, the tensors)."""
    builder = node.builder
    shape = np.broadcast_shapes(x.shape, y.shape)
    px, py = builder.positions(x), builder.positions(y)
    vx, vy = builder.values[x.name], builder.values[y.name]
    if px.shape == py.shape and np.array_equal(px, py) and vx.low.size == vy.low.size:
        name = builder.reshaped(y.name, vx.shape)
        return x.name, name, px, (x, dataclasses.replace(y, name=name, index=py))
    names = [builder.laid_out(t, f"a {node.op_type} of two values") for t in (x, y)]
    ranks = {len(builder.values[name].shape) for name in names}
    if len(ranks) > 1:
        raise Refuse(f"joins values of shapes {x.shape} and {y.shape}; expected the same rank")
    return names[0], names[1], np.arange(int(np.prod(shape))).reshape(shape), (x, y)


def _materialized_pair(node: Node, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    what = f"a {node.op_type} of two values"
    return (
        materialized(node.builder, x, f"{node.name}_left", what),
        materialized(node.builder, y, f"{node.name}_right", what),
    )


def total(node: Node, x: Tensor, y: Tensor, minus: bool) -> Tensor:
    """``x + y`` or ``x - y``: both on their scales' largest common measure, offsets apart."""
    builder = node.builder
    x, y = _materialized_pair(node, x, y)
    scales = np.broadcast_arrays(x.scale, y.scale)
    measure = np.array(
        [common(pair) or Fraction(1) for pair in zip(*(s.ravel() for s in scales), strict=True)] + [None], dtype=object
    )
    measures = measure[:-1].reshape(scales[0].shape)
    ratios = [compress(np.asarray(t.scale / measures, dtype=object)) for t in (x, y)]
    if any(abs(v) >= 1 << 24 for r in ratios for v in r.ravel()):
        y, measures, ratios = _near(node, x, y)
    sides = []
    for tensor, ratio, side in ((x, ratios[0], "left"), (y, ratios[1], "right")):
        spread = builder.spread(tensor, aligned(ratio, len(tensor.shape)))
        m = np.array([int(v) for v in spread.ravel()], dtype=np.int64).reshape(spread.shape)
        sides.append(builder.moved(tensor, builder.step(f"{node.name}_{side}", tensor.name, m, 0)))
    left, right, index, _ = _side_by_side(node, *sides)
    name = builder.name(node.name)
    op = Subtract(name, left, right) if minus else Add(name, (left, right))
    offset = x.offset - y.offset if minus else x.offset + y.offset
    return fresh(builder.add(op), index, compress(measures), compress(np.asarray(offset, dtype=object)))


def _near(node: Node, x: Tensor, y: Tensor) -> tuple[Tensor, Rationals, list[Rationals]]:
    """Scales with no common measure: the second one changed within the snap, or refused."""
    sx, sy = only(x.scale), only(y.scale)
    if sx is None or sy is None or sx == 0 or sy == 0:
        raise Refuse("joins two values whose scales (for each channel) have no common measure; quantize both alike")
    ratio = sy / sx
    found = simplest_near(abs(ratio), node.builder.snap) if node.builder.snap is not None else None
    if found is None:
        raise Refuse(
            f"joins values with scales {float(sx):g} and {float(sy):g}, which have no common measure (ratio "
            f"{float(ratio):.9g}); quantize both with one scale, or accept a nearby ratio with snap"
        )
    snapped = found if ratio > 0 else -found
    node.builder.snaps.append(Snap(node.name, float(abs(snapped / ratio - 1)), 0.0, 0, 0, 0))
    measure = sx / snapped.denominator
    shape = x.scale.shape
    parts = [
        np.array([v], dtype=object).reshape((1,) * len(shape))
        for v in (measure, Fraction(snapped.denominator), Fraction(snapped.numerator))
    ]
    moved = dataclasses.replace(y, scale=y.scale / ratio * snapped)
    return moved, parts[0], [parts[1], parts[2]]


def product(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """``x * y`` of two values without offsets."""
    builder = node.builder
    x, y = _materialized_pair(node, x, y)
    sides = []
    for found, side in ((x, "left"), (y, "right")):
        tensor = builder.positive(found, f"{node.name}_{side}")
        if any(v == 0 for v in tensor.scale.ravel()) and any(tensor.offset.ravel()):
            raise Refuse("multiplies a value that has constant channels (scale 0) of an offset; multiply by a constant")
        units = tensor.offset / builder.unit(tensor)
        spread = builder.spread(tensor, compress(np.asarray(units, dtype=object)))
        if any(v.denominator != 1 for v in spread.ravel()):
            raise Refuse("multiplies a value whose zero is not on its grid; quantize it with a whole zero point")
        bias = np.array([int(v) for v in spread.ravel()], dtype=np.int64).reshape(spread.shape)
        moved = builder.shifted(tensor, bias, f"{node.name}_{side}")
        sides.append(moved)
    left, right, index, (x, y) = _side_by_side(node, *sides)
    made = builder.add(Multiply(builder.name(node.name), left, right))
    zero = np.array([Fraction(0)], dtype=object)
    return fresh(made, index, compress(np.asarray(x.scale * y.scale, dtype=object)), zero)


# --- layers ----------------------------------------------------------------------------------------------------------


def _weights(node: Node, i: int) -> Const:
    found = node.inputs[i]
    if not isinstance(found, Const):
        raise Refuse("multiplies two values of the network (attention); the IR has no such operation")
    return found


def matmul(node: Node) -> Known:
    """MatMul of a value and weights, on either side."""
    if isinstance(node.inputs[0], Const):
        weights, tensor = node.inputs[0], node.tensor(1)
        if len(tensor.shape) != 2 or weights.array.ndim != 2:
            raise Refuse("multiplies weights with a value of more than two axes; expected value @ weights")
        if tensor.shape[1] != 1:
            raise Refuse("multiplies rows of the batch with each other")
        flipped = dense(node, tensor.map(np.transpose), transposed(weights))
        return flipped.map(np.transpose)
    return dense(node, node.tensor(0), _weights(node, 1))


def transposed(const: Const) -> Const:
    """A matrix's transpose, on its grid."""
    return Const(const.array.T, const.grid.map(np.transpose) if const.grid else None)


def gemm(node: Node) -> Known:
    """Gemm: ``alpha A' B' + beta C`` with constant B and C."""
    tensor, weights = node.tensor(0), _weights(node, 1)
    if int(node.attributes.get("transA", 0)):
        raise Refuse("transposes its input, which mixes the rows of the batch")
    if int(node.attributes.get("transB", 0)):
        weights = transposed(weights)
    alpha, beta = (exact(np.float32(node.attributes.get(name, 1.0))).reshape(1) for name in ("alpha", "beta"))
    result = dense(node, tensor, weights)
    term = node.constant(2, "bias").real() * beta if node.given(2) else scalar(0)
    return node.builder.with_bias(result.affine(alpha, np.asarray(term, dtype=object)))


def conv(node: Node) -> Known:
    """Conv with constant weights and bias."""
    result = convolution(node, node.tensor(0), _weights(node, 1))
    if node.given(2):
        bias = node.constant(2, "bias").real()
        column = (1, -1) + (1,) * (len(result.shape) - 2)
        bias = bias.reshape(column) if bias.size > 1 else bias.reshape(-1)
        return node.builder.with_bias(result.affine(scalar(1), bias))
    return result


def integer_layer(node: Node) -> Known:
    """MatMulInteger and ConvInteger: zero points of the input and of the weights, int32 sums."""
    tensor, weights = node.tensor(0), _weights(node, 1)
    if weights.array.dtype.kind not in "iu":
        raise Refuse(f"weights of {weights.array.dtype}; expected 8-bit integers")
    if node.given(2):
        tensor = tensor.affine(scalar(1), -node.constant(2, "zero point").real())
    q = weights.array.astype(np.int64)
    if node.given(3):
        zero = node.constant(3, "weights' zero point").array.astype(np.int64)
        if zero.size > 1:
            zero = zero.reshape((1, -1) if node.op_type == "MatMulInteger" else (-1,) + (1,) * (q.ndim - 1))
        q = q - zero
    const = Const(q)
    return dense(node, tensor, const) if node.op_type == "MatMulInteger" else convolution(node, tensor, const)


def left_in_float(node: Node) -> list[Known]:
    """Softmax, ArgMax and the like, every output: not computed by integers; a network may end before one."""
    found = node.inputs[0]
    if isinstance(found, Tabulated):
        left = Left(found.before, found.tensor, node.name, f"{found.function}, {node.op_type}", found.shape)
    else:
        tensor = node.tensor(0)
        left = Left(tensor, node.names[0], node.name, node.op_type, tensor.shape)
    return [left for _ in node.outputs]
