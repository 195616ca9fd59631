"""Each op as C++: its constants, and the body of a function ``compute(operands, y)``.

Loops run over the value's own axes in the order of the op's definition (``network.forward``), so that a debugger sees
each sum grow as the formula in the comment says. Axes are ``c`` (channels), ``i`` and ``j`` (space), ``o`` the outputs
of a layer, ``k`` and ``l`` places in a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hawq_flow.network import (
    Add,
    Concat,
    Conv,
    Dense,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    Pad,
    ReduceMax,
    ReduceSum,
    Requantize,
    Reshape,
    Subtract,
    SumPool,
    Upsample,
    Value,
)
from hawq_flow.numeric import IntArray, IntType, Overflow, Rounding
from hawq_flow.to_cpp.code import Node, at, element, loop, loops, over, variables
from hawq_flow.to_cpp.words import array, cast, comment, dims, storage, stored, word


@dataclass(frozen=True)
class Function:
    """An op in C++.

    Attributes
    ----------
    formula:
        What it computes, in lines of comment.
    parameters:
        Names of the operands, in order.
    body:
        The statements.
    constants:
        Lines that define its constants.
    word:
        The type it computes in, or '' when it only moves integers.
    """

    formula: tuple[str, ...]
    parameters: tuple[str, ...]
    body: tuple[Node, ...]
    constants: tuple[str, ...] = ()
    word: str = ""


def function(op: Op, values: Mapping[str, Value]) -> Function:
    """The C++ of one op of a network."""
    y, operands = values[op.name], [values[name] for name in op.inputs]
    x = operands[0]
    match op:
        case Dense() | Conv():
            return _layer(op, x, y)
        case Requantize():
            return _requantize(op, x, y)
        case Reshape():
            return _reshape(x, y)
        case Pad():
            return _pad(op, x, y)
        case MaxPool() | SumPool():
            return _pool(op, x, y)
        case Upsample():
            return _upsample(op, y)
        case Concat():
            return _concat(op, operands)
        case Add():
            return _join("+", [f"x{n}" for n in range(len(operands))], operands, y)
        case Subtract():
            return _join("-", ["left", "right"], operands, y)
        case Multiply():
            return _join("*", ["left", "right"], operands, y)
        case ReduceMax() | ReduceSum():
            return _reduce(op, x, y)
        case Lookup():
            return _lookup(op, x, y)


def _wide(word: str, expression: str, type: str) -> str:
    """An operand of type ``type`` as it has to stand in arithmetic of ``word``: int takes care of what is narrower."""
    return cast(word, expression) if word == "int64_t" and type != word else expression


def _store(target: str, y: Value, expression: str, type: str) -> str:
    """The assignment of an expression of type ``type`` to an element of y."""
    return f"{target} = {expression if stored(y.type) == type else cast(stored(y.type), expression)};"


def _constant(name: str, values: IntArray, index: Sequence[str]) -> tuple[list[str], str]:
    """A constant that broadcasts over a value with loops ``index``: its definition, and its element in the loops."""
    if (values == values.flat[0]).all():
        only = int(values.flat[0])
        return [f"const {storage(only, only)} {name} = {only};"], name
    full = values.reshape((1,) * (len(index) - values.ndim) + values.shape)
    used = [v for v, n in zip(index, full.shape, strict=True) if n > 1]
    return array(name, full.squeeze()), at(name, used)


def _into(
    type: IntType, overflow: Overflow, index: Sequence[str], expression: str, word: str
) -> tuple[list[str], str, str]:
    """An expression of type ``word`` brought into ``type``: constants, the new expression and its C++ type."""
    low, low_here = _constant("low", type.low(len(index)), index)
    high, high_here = _constant("high", type.high(len(index)), index)
    if overflow is Overflow.WRAP:
        return [*low, *high], f"wrap({expression}, {low_here}, {high_here})", "int64_t"
    return [*low, *high], f"saturate<{word}>({expression}, {low_here}, {high_here})", word


def _how(type: IntType, overflow: Overflow) -> str:
    return f"{'wrapped' if overflow is Overflow.WRAP else 'saturated'} into {type}"


def _layer(op: Dense | Conv, x: Value, y: Value) -> Function:
    """Dense, and Conv as a Dense whose terms are the places of a window."""
    type = word(y, [x], [op.weight, op.bias])
    place = ["o", *variables(len(y.shape))[1:]]
    # An axis of one place (a kernel of 1, a depthwise layer's channel) says nothing: it is not written.
    weight = op.weight if isinstance(op, Dense) else op.weight.reshape(-1, *(n for n in op.weight.shape[1:] if n > 1))
    constants, finished, of = [*array("weight", weight), *array("bias", op.bias)], "sum", type
    formula = []
    if op.accumulator is not None:
        limits, finished, of = _into(op.accumulator, op.overflow, place, "sum", type)
        constants += limits
        formula = [f"the finished sum {_how(op.accumulator, op.overflow)}"]
    if isinstance(op, Dense):
        terms = loops([("i", op.weight.shape[1])], f"sum += {_product(op, type, ['o', 'i'], ['i'])};")
        first: tuple[Node, ...] = ()
        formula = ["y[o] = bias[o] + sum over i of weight[o][i] * x[i]", *formula]
    else:
        first, terms, said = _taps(op, x, type)
        formula = [*said, *formula]
    each = (f"{type} sum = bias[o];", *terms, _store(at("y", place), y, finished, of))
    space = loops(zip(place[1:], y.shape[1:], strict=True), *each)
    body = (loop("o", y.shape[0], *first, *space),)
    return Function(tuple(formula), ("x",), body, tuple(constants), type)


def _product(op: Dense | Conv, word: str, weight: Sequence[str], x: Sequence[str]) -> str:
    type = storage(int(op.weight.min()), int(op.weight.max()))
    return f"{_wide(word, at('weight', weight), type)} * {at('x', x)}"


def _taps(op: Conv, x: Value, word: str) -> tuple[tuple[Node, ...], tuple[Node, ...], list[str]]:
    """What stands before the loops over space, the loops over a window's terms, and the formula."""
    inputs, size = op.weight.shape[1], op.weight.shape[0] // op.groups
    summed = [v for v, n in zip("ckl", op.weight.shape[1:], strict=False) if n > 1]
    channel = "c" if inputs > 1 else "0"
    before: tuple[Node, ...] = ()
    if op.groups > 1:
        first = " ".join(["o", *([f"/ {size}"] if size > 1 else []), *([f"* {inputs}"] if inputs > 1 else [])])
        before = (f"const int first = {first};  // channel of the group of o",)
        channel = "first + c" if inputs > 1 else "first"
    terms = _window(op, x, lambda where: f"sum += {_product(op, word, ['o', *summed], [channel, *where])};")
    if inputs > 1:
        terms = (loop("c", inputs, *terms),)
    rank = len(op.kernel)
    seen = ", ".join([channel, *(_source(op, axis) for axis in range(rank))])
    over = f"sum over {', '.join(summed)} of " if summed else ""
    formula = [
        f"y[o, {', '.join('ij'[:rank])}] = bias[o] + {over}weight[{', '.join(['o', *summed])}] * x[{seen}]",
        *_outside(op, "zeros"),
    ]
    if op.groups > 1:
        formula.append(f"{op.groups} groups of channels; first is the first channel of x in the group of o")
    return before, terms, formula


def _outside(op: Conv | MaxPool | SumPool, what: str) -> list[str]:
    return [f"with {what} outside of x"] if any(op.padding) else []


def _source(op: Conv | MaxPool | SumPool, axis: int) -> str:
    """The index into x along an axis of space that a place of the window at a position looks at."""
    text = "ij"[axis]
    text += f" * {op.stride[axis]}" if op.stride[axis] > 1 else ""
    text += f" + {'kl'[axis]}" if op.kernel[axis] > 1 else ""
    return text + (f" - {op.padding[axis]}" if op.padding[axis] else "")


def _window(op: Conv | MaxPool | SumPool, x: Value, inner: Callable[[list[str]], Node]) -> tuple[Node, ...]:
    """Loops over the places of a window that lie inside of x, around a statement that is told the indices into x."""
    rank = len(op.kernel)
    names = ["row", "col"] if rank == 2 else ["place"]
    checks: list[tuple[Node, ...]] = []
    where: list[str] = []
    for axis, (size, name) in enumerate(zip(x.shape[1:], names, strict=True)):
        source, outside = _source(op, axis), []
        positions = (size + op.padding[axis] + op.padding[rank + axis] - op.kernel[axis]) // op.stride[axis]
        if op.padding[axis]:
            outside.append(f"{name} < 0")
        if positions * op.stride[axis] - op.padding[axis] + op.kernel[axis] > size:
            outside.append(f"{name} >= {size}")
        where.append(name if outside else source)
        checks.append((f"const int {name} = {source};", f"if ({' || '.join(outside)}) continue;") if outside else ())
    body: tuple[Node, ...] = (inner(where),)
    for axis in reversed(range(rank)):
        body = (*checks[axis], *body)
        if op.kernel[axis] > 1:
            body = (loop("kl"[axis], op.kernel[axis], *body),)
    return body


_ROUND = {
    Rounding.HALF_EVEN: ("round_half_even", "rounded to nearest, ties to even"),
    Rounding.HALF_UP: ("round_half_up", "rounded to nearest, ties up"),
    Rounding.FLOOR: ("round_floor", "rounded down"),
}


def _requantize(op: Requantize, x: Value, y: Value) -> Function:
    type = word(y, [x], [op.multiplier, op.offset])
    index = variables(len(dims(y.shape)))
    rounding, words = _ROUND[op.rounding]
    constants: list[str] = []
    here: dict[str, str] = {}
    for name in ("multiplier", "shift", "offset"):
        lines, here[name] = _constant(name, getattr(op, name), index)
        if name != "offset" or op.offset.any():
            constants += lines
    shifted = " + offset" if op.offset.any() else ""
    result = f"rounded + {here['offset']}" if shifted else "rounded"
    limits, limited, of = _into(op.type, op.overflow, index, result, type)
    body = over(
        y.shape,
        f"const {type} product = {_wide(type, element('x', x.shape, y.shape), stored(x.type))} * {here['multiplier']};",
        f"const {type} rounded = {rounding}<{type}>(product, {here['shift']});",
        _store(at("y", index), y, limited, of),
    )
    formula = (f"y = x * multiplier / 2^shift, {words},{shifted} {_how(op.type, op.overflow)}",)
    return Function(formula, ("x",), body, (*constants, *limits), type)


def _reshape(x: Value, y: Value) -> Function:
    source, target = dims(x.shape), dims(y.shape)
    indices, size = [], 1
    for axis, n in reversed(list(enumerate(target))):
        text = "n" if size == 1 else f"n / {size}"
        indices.append("0" if n == 1 else text if axis == 0 else f"{text} % {n}")
        size *= n
    move = f"{at('y', reversed(indices))} = {at('x', variables(len(source)))};"
    return Function(("the same integers in the same order",), ("x",), ("int n = 0;", *over(source, move, "n++;")))


def _pad(op: Pad, x: Value, y: Value) -> Function:
    index = variables(len(y.shape))
    inside = [f"{v} + {p}" if p else v for v, p in zip(index[1:], op.padding, strict=False)]
    body = (
        *over(y.shape, f"{at('y', index)} = {op.value};"),
        *over(x.shape, f"{at('y', [index[0], *inside])} = {at('x', index)};"),
    )
    return Function((f"x with {op.value} around its space",), ("x",), body)


def _pool(op: MaxPool | SumPool, x: Value, y: Value) -> Function:
    index = variables(len(y.shape))
    if isinstance(op, MaxPool):
        least = x.type.range[0]
        start = f"{stored(x.type)} best = {least};  // no integer of x is less"

        def inner(where: list[str]) -> Node:
            seen = at("x", ["c", *where])
            return f"if ({seen} > best) best = {seen};"

        body = over(y.shape, start, *_window(op, x, inner), _store(at("y", index), y, "best", stored(x.type)))
        return Function(("the largest element of every window", *_outside(op, "nothing")), ("x",), body)
    type = word(y, [x])
    terms = _window(op, x, lambda where: f"sum += {at('x', ['c', *where])};")
    body = over(y.shape, f"{type} sum = 0;", *terms, _store(at("y", index), y, "sum", type))
    return Function(("the sum of every window", *_outside(op, "zeros")), ("x",), body, (), type)


def _upsample(op: Upsample, y: Value) -> Function:
    index = variables(len(y.shape))
    source = [v if f == 1 else f"{v} / {f}" for v, f in zip(index[1:], op.factors, strict=True)]
    body = over(y.shape, f"{at('y', index)} = {at('x', [index[0], *source])};")
    return Function((f"every element {' x '.join(map(str, op.factors))} times",), ("x",), body)


def _concat(op: Concat, operands: Sequence[Value]) -> Function:
    names = tuple(f"x{n}" for n in range(len(operands)))
    body: tuple[Node, ...] = ()
    start = 0
    for name, x in zip(names, operands, strict=True):
        index = variables(len(x.shape))
        target = [f"{start} + {v}" if axis == op.axis and start else v for axis, v in enumerate(index)]
        body = (*body, *over(x.shape, f"{at('y', target)} = {at(name, index)};"))
        start += x.shape[op.axis]
    return Function((f"operands side by side along axis {op.axis}",), names, body)


def _join(sign: str, names: Sequence[str], operands: Sequence[Value], y: Value) -> Function:
    type = word(y, operands)
    first, *rest = (element(name, x.shape, y.shape) for name, x in zip(names, operands, strict=True))
    expression = f" {sign} ".join([_wide(type, first, stored(operands[0].type)), *rest])
    body = over(y.shape, _store(at("y", variables(len(dims(y.shape)))), y, expression, type))
    return Function((f"y = {f' {sign} '.join(names)}, element by element",), tuple(names), body, (), type)


def _reduce(op: ReduceMax | ReduceSum, x: Value, y: Value) -> Function:
    index = variables(len(x.shape))
    outer = [(v, n) for axis, (v, n) in enumerate(zip(index, x.shape, strict=True)) if axis != op.axis]
    along, count = index[op.axis], x.shape[op.axis]
    target, seen = at("y", ["0" if axis == op.axis else v for axis, v in enumerate(index)]), at("x", index)
    if isinstance(op, ReduceMax):
        type = stored(x.type)
        start, step = (
            f"{type} best = {x.type.range[0]};  // no integer of x is less",
            f"if ({seen} > best) best = {seen};",
        )
        body = loops(outer, start, loop(along, count, step), _store(target, y, "best", type))
        return Function((f"the largest element along axis {op.axis}",), ("x",), body)
    type = word(y, [x])
    body = loops(outer, f"{type} sum = 0;", loop(along, count, f"sum += {seen};"), _store(target, y, "sum", type))
    return Function((f"the sum along axis {op.axis}",), ("x",), body, (), type)


def _lookup(op: Lookup, x: Value, y: Value) -> Function:
    index = variables(len(dims(y.shape)))
    start = int(op.start)
    wide = max(-x.type.range[0], x.type.range[1], abs(start)) >= 1 << 31
    seen = at("x", index)
    if wide:
        seen = _wide("int64_t", seen, stored(x.type))
    entry = seen if start == 0 else f"{seen} - {start}" if start > 0 else f"{seen} + {-start}"
    table = storage(int(op.table.min()), int(op.table.max()))
    body = over(y.shape, _store(at("y", index), y, f"table[{entry}]", table))
    said = f"y = table[x - {start}]" if start >= 0 else f"y = table[x + {-start}]"
    formula = (said, *([comment(op.function)] if op.function else []))
    return Function(formula, ("x",), body, tuple(array("table", op.table)))
