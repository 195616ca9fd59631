"""The nodes of Dense, Conv and SumPool; :mod:`hawq_flow.to_onnx.products` says which."""

from __future__ import annotations

from typing import Any

from hawq_flow.network import Conv, Dense, SumPool
from hawq_flow.to_onnx.containers import FLOAT, INT32, Dtype, accumulator
from hawq_flow.to_onnx.nodes import Nodes
from hawq_flow.to_onnx.plan import OpPlan
from hawq_flow.to_onnx.products import Part, Products
from hawq_flow.to_qonnx import declared_accumulator


def layer(nodes: Nodes, plan: OpPlan, x: Any) -> Any:
    """The nodes of a Dense, Conv or SumPool."""
    made = plan.layer
    assert made is not None
    weight, bias = made.weight, made.bias
    if made.dtype == FLOAT:
        real = nodes.cast(x, plan.sources[0], FLOAT, "float")
        constants = [nodes.constant(weight, FLOAT, "weight")]
        if bias.any():
            constants.append(nodes.constant(bias, FLOAT, "bias"))
        acc = nodes("Conv", real, *constants, what="conv", **_window(plan))
        return _finished(nodes, plan, nodes.cast(acc, FLOAT, INT32, "sum"), INT32)
    if made.products is None:
        wide = nodes.cast(x, plan.sources[0], made.dtype, "wide")
        acc = nodes("MatMul", wide, nodes.constant(weight.T, made.dtype, "weight"), what="matmul")
    else:
        acc = _horner(nodes, made.products, _product_nodes(nodes, plan, made.products, x))
    if not isinstance(plan.op, SumPool):
        shaped = bias.reshape(-1, *(1,) * (weight.ndim - 2))
        acc = nodes("Add", acc, nodes.constant(shaped, made.dtype, "bias"), what="sum")
    return _finished(nodes, plan, acc, made.dtype)


def _finished(nodes: Nodes, plan: OpPlan, acc: Any, dtype: Dtype) -> Any:
    """A sum, cut to its declared accumulator when there is one, in its container."""
    op = plan.op
    if isinstance(op, Dense | Conv) and declared_accumulator(op, {op.input: plan.operands[0]}):
        assert op.accumulator is not None
        acc = nodes.clip(acc, dtype, *op.accumulator.range, what="accumulator")
    return nodes.finish(acc, dtype, plan.target)


def _window(plan: OpPlan) -> dict[str, Any]:
    op, made = plan.op, plan.layer
    assert isinstance(op, Conv | SumPool)
    assert made is not None
    return {
        "kernel_shape": list(made.weight.shape[2:]),
        "strides": list(op.stride),
        "pads": list(op.padding),
        "dilations": [1] * len(op.stride),
        "group": made.weight.shape[0] if isinstance(op, SumPool) else op.groups,
    }


def _part_nodes(nodes: Nodes, plan: OpPlan, parts: tuple[Part, ...], x: Any) -> list[Any]:
    """x as its digits: the low byte by BitwiseAnd, and the rest over 256, which then divides exactly."""
    have = plan.sources[0]
    if len(parts) == 1:
        return [nodes.cast(x, have, parts[0].dtype, "byte")]
    work = accumulator(plan.operands[0].magnitude)
    rest, result = nodes.cast(x, have, work, "wide"), []
    for i, part in enumerate(parts[:-1]):
        low = nodes("BitwiseAnd", rest, nodes.constant(255, work, f"digit{i}/mask"), what=f"digit{i}/bits")
        result.append(nodes.cast(low, work, part.dtype, f"digit{i}"))
        above = nodes("Sub", rest, low, what=f"digit{i}/above")
        rest = nodes("Div", above, nodes.constant(256, work, f"digit{i}/base"), what=f"digit{i}/rest")
    return [*result, nodes.cast(rest, work, parts[-1].dtype, f"digit{len(parts) - 1}")]


def _product_nodes(nodes: Nodes, plan: OpPlan, made: Products, x: Any) -> dict[int, list[Any]]:
    """By place in base 256, the int32 products of that place."""
    op = plan.op
    parts = _part_nodes(nodes, plan, made.parts, x)
    places: dict[int, list[Any]] = {}
    for i, term in enumerate(made.terms):
        mark = "" if len(made.terms) == 1 else str(i)
        constant = term.weight.T if isinstance(op, Dense) else term.weight
        operands = [parts[term.part], nodes.constant(constant, term.dtype, f"weight{mark}")]
        if term.zero_point:
            operands.append(nodes.constant(0, made.parts[term.part].dtype, f"weight{mark}/input_zero_point"))
            operands.append(nodes.constant(term.zero_point, term.dtype, f"weight{mark}/zero_point"))
        if isinstance(op, Conv | SumPool):
            product = nodes("ConvInteger", *operands, what=f"product{mark}", **_window(plan))
        else:
            product = nodes("MatMulInteger", *operands, what=f"product{mark}")
        places.setdefault(term.place, []).append(product)
    return places


def _horner(nodes: Nodes, made: Products, places: dict[int, list[Any]]) -> Any:
    """``sum 256^place * product``."""
    total = None
    for place in range(max(places), -1, -1):
        if total is not None:
            total = nodes(
                "Mul", total, nodes.constant(256, made.total, f"place{place}/base"), what=f"place{place}/raised"
            )
        for i, product in enumerate(places.get(place, [])):
            term = nodes.cast(product, INT32, made.total, f"place{place}/wide{i}")
            total = term if total is None else nodes("Add", total, term, what=f"place{place}/sum{i}")
    return total
