"""Small QONNX and QCDQ models written by hand, and what they mean in exact rationals: the oracle of imports."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hawq_flow.from_onnx import Imported
from hawq_flow.from_onnx.levels import Mode, round_exactly
from hawq_flow.interpret import trace

F = Fraction


class Source:
    """A model under construction: each method adds a node and returns the name of its output."""

    def __init__(self, domain: str = "qonnx.custom_op.general", opset: int = 13) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.domain, self.opset = domain, opset

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype=dtype), name))
        return name

    def node(self, op: str, inputs: Sequence[str], domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        name = f"{op}_{len(self.nodes)}"
        made = [f"{name}_out{i}" if i else f"{name}_out" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), made, name=name, domain=domain, **attributes))
        return made[0] if outputs == 1 else made

    def quant(
        self,
        x: str,
        scale: Any,
        bits: Any = 8,
        *,
        zero: Any = 0.0,
        signed: int = 1,
        narrow: int = 0,
        mode: str = "ROUND",
        op: str = "Quant",
    ) -> str:
        parameters = [self.const(scale), self.const(zero), self.const(bits)]
        return self.node(op, [x, *parameters], self.domain, signed=signed, narrow=narrow, rounding_mode=mode)

    def weights(self, q: Any, scale: Any, bits: int = 8, **kwargs: Any) -> str:
        """A Quant of constants whose integers are ``q``."""
        values = np.asarray(q, dtype=np.float32) * np.asarray(scale, dtype=np.float32)
        return self.quant(self.const(values), scale, bits, **kwargs)

    def model(
        self, inputs: dict[str, Sequence[Any]], outputs: Sequence[str], batch: Any = 1, elem: int = TensorProto.FLOAT
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "hand",
            [helper.make_tensor_value_info(name, elem, [batch, *shape]) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.initializers,
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(self.domain, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="hand", producer_version="1")


def rational(array: Any) -> NDArray[np.object_]:
    array = np.asarray(array)
    if array.dtype == object:
        return array
    whole = array.dtype.kind in "iub"
    result = np.empty(array.shape, dtype=object)
    for i in np.ndindex(array.shape):
        result[i] = F(int(array[i])) if whole else F(float(array[i]))
    return result


def _each(function: Any, *arrays: Any) -> NDArray[np.object_]:
    parts = np.broadcast_arrays(*arrays)
    result = np.empty(parts[0].shape, dtype=object)
    for i in np.ndindex(result.shape):
        result[i] = function(*(part[i] for part in parts))
    return result


def _quant(x: Any, s: Any, z: Any, b: Any, signed: int, narrow: int, mode: str) -> NDArray[np.object_]:
    bits = int(b)
    low = -(1 << (bits - 1)) + narrow if signed else 0
    high = (1 << (bits - signed)) - 1 - (narrow if not signed else 0)

    def one(v: F, scale: F, zero: F) -> F:
        return (min(max(round_exactly(v / scale + zero, Mode(mode)), low), high) - zero) * scale

    return _each(one, x, s, z)


def _windows(x: Any, node: Any, kernel: Sequence[int], fill: Any) -> NDArray[np.object_]:
    """(n, channels, *kernel, *positions)."""
    from hawq_flow.network import patches

    rank = len(kernel)
    stride, pads = node.get("strides", [1] * rank), node.get("pads", [0] * (2 * rank))
    widths = [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))]
    return patches(np.pad(x, widths, constant_values=fill), kernel, stride, [0] * (2 * rank))


def exact_run(model: onnx.ModelProto, feeds: dict[str, Any], wanted: Sequence[str]) -> dict[str, NDArray[np.object_]]:
    """Every node in exact rational arithmetic: the meaning of the file, rounding nowhere but in its quantizers."""
    env: dict[str, Any] = {t.name: rational(numpy_helper.to_array(t)) for t in model.graph.initializer}
    dtypes = {t.name: numpy_helper.to_array(t).dtype for t in model.graph.initializer}
    env |= {name: rational(array) for name, array in feeds.items()}
    for proto in model.graph.node:
        if all(name in env for name in wanted):
            break
        a = {item.name: helper.get_attribute_value(item) for item in proto.attribute}
        x = [env[name] if name else None for name in proto.input]
        out: Any
        match proto.op_type:
            case "Quant" | "IntQuant":
                mode = a.get("rounding_mode", b"ROUND").decode()
                out = _quant(x[0], x[1], x[2], x[3].reshape(-1)[0], a["signed"], a["narrow"], mode)
            case "BipolarQuant":
                out = _each(lambda v, s: s if v >= 0 else -s, x[0], x[1])
            case "Trunc":
                by = F(2) ** int(x[3].reshape(-1)[0] - x[4].reshape(-1)[0])
                mode = Mode(a["rounding_mode"].decode())

                def truncated(v: F, s: F, z: F, by: F = by, mode: Mode = mode) -> F:
                    return (round_exactly(round_exactly(v / s + z, Mode.ROUND) / by, mode) - z) * s

                out = _each(truncated, x[0], x[1], x[2])
            case "QuantizeLinear":
                limits = np.iinfo(dtypes[proto.input[2]])
                shape = (-1,) + (1,) * (x[0].ndim - 2) if x[1].size > 1 else ()
                s, z = x[1].reshape(shape) if shape else x[1], x[2].reshape(shape) if x[2].size > 1 else x[2]
                out = _each(lambda v, s, z, m=limits: F(min(max(round(v / s) + z, m.min), m.max)), x[0], s, z)
            case "DequantizeLinear":
                axis = a.get("axis", 1)
                shape = (-1,) + (1,) * (x[0].ndim - axis - 1)
                s, z = (v.reshape(shape) if v.size > 1 else v for v in x[1:3])
                out = _each(lambda v, s, z: (v - z) * s, x[0], s, z)
            case "MatMul":
                out = x[0] @ x[1]
            case "Gemm":
                out = x[0] @ (x[1].T if a.get("transB") else x[1]) + (x[2] if len(x) > 2 else 0)
            case "Conv":
                w, groups = x[1], a.get("group", 1)
                seen = _windows(x[0], a, w.shape[2:], F(0))
                per, outs = w.shape[1], w.shape[0] // groups
                parts = [
                    np.moveaxis(
                        np.tensordot(
                            w[g * outs : (g + 1) * outs],
                            seen[:, g * per : (g + 1) * per],
                            axes=(range(1, w.ndim), range(1, w.ndim)),
                        ),
                        1,
                        0,
                    )
                    for g in range(groups)
                ]
                out = np.concatenate(parts, 1)
                out = out + x[2].reshape((1, -1) + (1,) * (w.ndim - 2)) if len(x) > 2 else out
            case "Add" | "Sub" | "Mul" | "Div":
                function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.true_divide}
                out = function[proto.op_type](x[0], x[1])
            case "BatchNormalization":
                column = (1, -1) + (1,) * (x[0].ndim - 2)
                g, b, m, v = (p.reshape(column) for p in x[1:5])
                epsilon = float(np.float32(a.get("epsilon", 1e-5)))
                root = _each(lambda u, e: F(math.sqrt(float(u) + float(e))), v, np.array(F(epsilon), dtype=object))
                out = (x[0] - m) / root * g + b
            case "Relu":
                out = _each(lambda v: max(v, F(0)), x[0])
            case "Clip":
                out = _each(lambda v, lo, hi: min(max(v, lo), hi), x[0], x[1], x[2])
            case "MaxPool":
                k = a["kernel_shape"]
                out = _windows(x[0], a, k, F(-(10**9))).max(axis=tuple(range(2, 2 + len(k))))
            case "GlobalAveragePool":
                axes = tuple(range(2, x[0].ndim))
                out = x[0].sum(axis=axes, keepdims=True) / math.prod(x[0].shape[2:])
            case "AveragePool":
                k = a["kernel_shape"]
                axes = tuple(range(2, 2 + len(k)))
                ones = np.full(x[0].shape, F(1), dtype=object)
                fill = F(1) if a.get("count_include_pad") else F(0)
                out = _windows(x[0], a, k, F(0)).sum(axis=axes) / _windows(ones, a, k, fill).sum(axis=axes)
            case "Flatten":
                out = x[0].reshape(len(x[0]), -1)
            case "Reshape":
                shape = [int(n) for n in x[1].reshape(-1)]
                out = x[0].reshape(shape if shape[0] == -1 else [len(x[0]), *shape[1:]])
            case "Transpose":
                out = np.transpose(x[0], a["perm"])
            case "Concat":
                out = np.concatenate(x, a["axis"])
            case "Sum":
                out = sum(x[1:], x[0])
            case "Max":
                out = functools.reduce(lambda p, q: _each(max, p, q), x)
            case "Round":
                out = _each(lambda v: F(round(v)), x[0])
            case "Identity" | "Cast":
                out = x[0]
            case _:
                raise AssertionError(f"the oracle has no {proto.op_type}")
        env[proto.output[0]] = out
    return {name: env[name] for name in wanted}


def edge_integers(imported: Imported, rows: int, seed: int = 0) -> dict[str, NDArray[np.int64]]:
    """Rows of integers of every input: the extremes, zero, and random ones."""
    rng = np.random.default_rng(seed)
    result = {}
    for spec in imported.network.inputs:
        low, high = (
            np.broadcast_to(end, spec.shape)
            for end in (spec.type.low(len(spec.shape)), spec.type.high(len(spec.shape)))
        )
        fixed = [low, high, np.clip(np.zeros(spec.shape, np.int64), low, high)]
        result[spec.name] = np.stack([*fixed, *rng.integers(low, high + 1, (max(0, rows - 3), *spec.shape))])
    return result


def real_rows(imported: Imported, integers: dict[str, NDArray[np.int64]]) -> dict[str, NDArray[np.object_]]:
    """The exact real rows, in the file's order, that integers stand for."""
    result = {}
    for entry in imported.inputs:
        spec = next(s for s in imported.network.inputs if s.name == entry.name)
        q = rational(integers[entry.name])
        real = rational(spec.scale) * (q - rational(spec.zero_point)) * rational(spec.std) + rational(spec.mean)
        flat = np.empty((len(q), entry.order.size), dtype=object)
        flat[:, entry.order] = real.reshape(len(q), -1)
        result[entry.source] = flat.reshape(len(q), *entry.shape)
    return result


def assert_exact(model: onnx.ModelProto, imported: Imported, rows: int = 12, seed: int = 0) -> None:
    """The network's outputs, as exact rationals, equal the file's meaning on the same rows: ``==``, no tolerance."""
    integers = edge_integers(imported, rows, seed)
    feeds = real_rows(imported, integers)
    expected = exact_run(model, feeds, [entry.tensor for entry in imported.outputs])
    values = trace(imported.network, integers)
    for entry in imported.outputs:
        scale, offset = imported.units(entry)
        found = rational(values[entry.name].reshape(len(values[entry.name]), -1)[:, entry.order]) * scale + offset
        wanted = expected[entry.tensor].reshape(len(found), -1)
        wrong = found != wanted
        assert not wrong.any(), f"{entry.source}: {int(wrong.sum())} of {wrong.size}, at {np.argwhere(wrong)[0]}"
