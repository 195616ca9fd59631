"""Whether a network is INT8/UINT8 all through: what HAWQ's own exporter promised of standard ONNX."""

from __future__ import annotations

import numpy as np

from hawq_flow.network import Conv, Dense, IntegerNetwork, Requantize
from hawq_flow.to_onnx.containers import INT32
from hawq_flow.to_onnx.plan import Plan
from hawq_flow.to_qonnx import NotExact
from hawq_flow.to_qonnx.plan import only_rescaled


def require_eight_bit(network: IntegerNetwork, made: Plan) -> None:
    """``NotExact`` that lists everything which is not of 8 bits.

    Every input, every operand but a rescale's, and every weight has to fit int8 or uint8, and every sum int32; sums
    themselves are read by rescales alone, or leave the network.
    """
    found = []
    values = network.values
    for spec in network.inputs:
        if made.container(spec.name).itemsize > 1:
            found.append(f"input {spec.name!r} is of type {spec.type}")
    for op in network.ops:
        if isinstance(op, Dense | Conv):
            low, high = int(op.weight.min()), int(op.weight.max())
            if low < -128 or high > 127:
                found.append(f"{op.name}: weights from {low} to {high}")
        if isinstance(op, Requantize):
            if made.container(op.name).itemsize > 1 and not only_rescaled(op.name, network):
                found.append(f"{op.name}: rescales to type {op.type}")
            continue
        found += [
            f"{op.name}: reads {name!r} of type {values[name].type}"
            for name in dict.fromkeys(op.inputs)
            if made.container(name).itemsize > 1 and name not in {spec.name for spec in network.inputs}
        ]
        if np.dtype(made.ops[op.name].target).itemsize > INT32.itemsize:
            found.append(f"{op.name}: sums up to {values[op.name].bound} leave int32")
    if found:
        raise NotExact(
            f"not an INT8/UINT8 network: {'; '.join(found)}. Give layers and what joins them 8 bits or fewer, rescale "
            "sums before anything else reads them, or export without eight_bit"
        )
