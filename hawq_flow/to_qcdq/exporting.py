"""The QCDQ file, and running it in onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from hawq_flow.interpret import check_inputs
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.runtime import session
from hawq_flow.to_qcdq.plan import plan_network
from hawq_flow.to_qcdq.symbolic import table
from hawq_flow.to_qonnx import Execution
from hawq_flow.to_qonnx.execution import in_blocks
from hawq_flow.to_qonnx.exporting import canonical, exported, modelled

OPSET, OPSET_16_BITS = 20, 21
"""The table's own, and the first with 16-bit QuantizeLinear and DequantizeLinear."""
SCALED = "rescaled"
"""``layer/rescaled`` is the sum of a layer times the factor that its scales carry: no value of the network."""
BLOCK_ELEMENTS = 1 << 24
"""Elements of all values of a block of rows together."""


def export(network: IntegerNetwork, *, double: bool = True) -> onnx.ModelProto:
    """The network in QuantizeLinear-Clip-DequantizeLinear form, standard operators alone, exact in onnxruntime.

    Inputs and outputs are integers carried in float32, of shape (batch, *shape); names, metadata and determinism are
    those of ``to_qonnx.export``. A layer whose factor its scales carry has no tensor of its own name: its sum times the
    factor is called ``layer/rescaled``. ``metadata_props`` say in ``hawq_flow.qcdq`` what carries what.

    Parameters
    ----------
    double:
        Allow a rescale in float64 where float32 could round the product wrongly; False refuses such networks.

    Raises
    ------
    NotExact
        Naming everything that float32 cannot carry exactly, with the bits it needs, and every type above 16 bits.
    NetworkError
        If the network is malformed.
    """
    planned = plan_network(network, double=double)
    graph = canonical(network, exported(network, table(network, planned)), {})
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name in planned.folded:
                    names[i] = f"{name}/{SCALED}"
    doubles = sorted(name for name, rescale in planned.rescales.items() if rescale.double)
    note = (
        "Activations have scale 1: DequantizeLinear gives the integers themselves. Weights and biases of "
        f"{', '.join(sorted(planned.folded)) or 'no layer'} carry their rescale m * 2^-c as scales; the other rescales "
        f"are a Mul, in float64 for {', '.join(doubles) or 'none'}. Exact with and without graph optimizations."
    )
    model = modelled(
        network, graph, {"": OPSET_16_BITS if planned.wide else OPSET}, "float32", {"hawq_flow.qcdq": note}
    )
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def execute(
    model: onnx.ModelProto, network: IntegerNetwork, x: ArrayLike | Mapping[str, ArrayLike], *, optimized: bool
) -> Execution:
    """Run a QCDQ model on integers in onnxruntime (CPU, one thread), rows in blocks.

    Parameters
    ----------
    model:
        What :func:`export` made of ``network`` (or a loaded copy).
    x:
        Integers as for ``interpret.run``.
    optimized:
        False: ORT_DISABLE_ALL, every node as it stands; the result holds every value of the network that the graph
        forms. True: onnxruntime's default level, which fuses nodes into integer kernels; the result holds the network's
        outputs alone, since asking for more would keep it from fusing.

    Returns
    -------
    int64 values of shape (n, *shape) by name.

    Raises
    ------
    NotExact
        If a value is not a whole number.
    """
    return runtime(model, network, optimized=optimized)(x)


def runtime(
    model: onnx.ModelProto, network: IntegerNetwork, *, optimized: bool
) -> Callable[[ArrayLike | Mapping[str, ArrayLike]], Execution]:
    """A QCDQ model loaded into onnxruntime: :func:`execute` as a function of ``x``, for blocks of rows."""
    names = [output.name for output in network.outputs]
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if not optimized:
        formed = {info.name: info for info in model.graph.value_info}
        copy.graph.output.extend(formed[op.name] for op in network.ops if op.name in formed and op.name not in names)
        names = [info.name for info in copy.graph.output]
    loaded = session(copy, optimized=optimized)
    shapes = {name: network.values[name].shape for name in names}
    step = BLOCK_ELEMENTS // sum(math.prod(value.shape) for value in network.values.values())
    method = f"onnxruntime, {'default optimizations' if optimized else 'no optimizations'}, float32"

    def run(block: Mapping[str, IntArray]) -> dict[str, NDArray[Any]]:
        feed = {name: array.astype(np.float32) for name, array in block.items()}
        return dict(zip(names, loaded.run(names, feed), strict=True))

    return lambda x: Execution(in_blocks(run, check_inputs(network, x), shapes, step), method)
