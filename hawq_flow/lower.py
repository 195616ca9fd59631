"""The bridge: a trained quantized network becomes an IntegerNetwork. The one module that imports both sides.

Nothing is computed here but copies: evaluation already runs on the steps of ``QuantNetwork.integer_steps``, and
each becomes the op of its name, with the input's standardization and the scales as annotations. ``lower`` then verifies
the network, so that what it returns is proved free of overflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow.network import OPS, InputSpec, IntegerNetwork, Op, OutputSpec, verify
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.quant import IntegerStep, QuantNetwork, requantize_step, softmax_steps
from hawq_flow.topology import INPUT, Stage


def lower(
    model: QuantNetwork,
    *,
    mean: ArrayLike = 0.0,
    std: ArrayLike = 1.0,
    metadata: Mapping[str, str] | None = None,
) -> IntegerNetwork:
    """The integers of a frozen network as an :class:`IntegerNetwork`, verified.

    Parameters
    ----------
    model:
        Trained and frozen (``train.fit`` freezes).
    mean, std:
        Standardization of the raw data that the model's inputs went through, broadcastable over one sample.
    metadata:
        Strings to carry along: class and feature names, the experiment.

    Raises
    ------
    ValueError
        If the model is not frozen: its scales would go on moving, and what was trained would not be what is deployed.
    NetworkError
        If an op could overflow, naming it.
    """
    if not model.frozen:
        raise ValueError("lower: the network's scales are not frozen; train it with train.fit, or call freeze() first")
    source = InputSpec(
        INPUT,
        model.input_shape,
        model.input_type,
        np.asarray(float(model.input_scale)),
        np.asarray(int(model.input_zero_point)),
        np.asarray(mean, dtype=np.float64),
        np.asarray(std, dtype=np.float64),
    )
    steps, grid = model.integer_steps()
    ops = tuple(_op(step) for step in steps)
    network = IntegerNetwork(
        (source,),
        ops,
        (OutputSpec(model.output_value, np.asarray(float(grid.scale)), np.asarray(grid.zero_point)),),
        tuple((metadata or {}).items()),
    )
    verify(network)
    return network


def with_softmax(network: IntegerNetwork, *, table_bits: int = 10, output_bits: int = 16) -> IntegerNetwork:
    """The network followed by a softmax in integers, for those that need probabilities on the chip.

    Classes come out the same but where logits tie once they have ``table_bits``; the argmax of the logits costs less.

    Parameters
    ----------
    network:
        With one output of shape (classes,), signed and on one scale.
    table_bits:
        The logits are first rounded to so many bits, by a power of two, of the range that they can reach: the table
        of exponentials then has twice ``2^table_bits`` entries. The sum of the exponentials is read with as many bits
        by the table of reciprocals. 2 to 14.
    output_bits:
        Width of the probabilities; the largest integer means 1.

    Raises
    ------
    ValueError
        For several outputs, one of another shape, or one with a zero point or several scales; for widths out of range.
    """
    if not 2 <= table_bits <= 14 or not 1 <= output_bits <= 16:
        raise ValueError(
            f"with_softmax: table_bits {table_bits}, output_bits {output_bits}; expected 2 to 14 and 1 to 16"
        )
    if len(network.outputs) != 1:
        raise ValueError(f"with_softmax: {len(network.outputs)} outputs; expected one, the logits")
    (logits,) = network.outputs
    value = network.values[logits.name]
    if len(value.shape) != 1 or logits.scale.size != 1 or np.any(logits.zero_point) or not value.type.signed:
        raise ValueError(
            f"with_softmax: output {logits.name!r} is {value.type} of shape {value.shape} with {logits.scale.size} "
            "scales; expected a vector of signed logits on one scale without a zero point"
        )
    reached = IntType.holding(min(int(value.low.min()), -1), int(value.high.max())).max_bits
    drop = max(0, reached - table_bits)
    scale = float(logits.scale) * 2.0**drop
    narrow, out = IntType(max(2, reached - drop), True), IntType(output_bits, False)
    stage = Stage("softmax", "softmax", (logits.name,), value.shape, logits.name, "softmax")
    steps = [
        requantize_step("softmax_logits", logits.name, "", 1, drop, narrow, Rounding.HALF_EVEN),
        *softmax_steps(stage, "softmax_logits", narrow, scale, out, Rounding.HALF_EVEN, table_bits),
    ]
    output = OutputSpec(steps[-1].name, np.asarray(1.0 / out.range[1]), np.asarray(0))
    whole = IntegerNetwork(network.inputs, (*network.ops, *map(_op, steps)), (output,), network.metadata)
    verify(whole)
    return whole


_OPERANDS = {"Add": "operands", "Concat": "operands", "Subtract": "", "Multiply": ""}
"""How an op takes its operands, where it is not as ``input``: in one tuple, or as left and right."""


def _op(step: IntegerStep) -> Op:
    """A step of evaluation as the op it names."""
    how = _OPERANDS.get(step.kind, "input")
    operands: dict[str, Any] = {how: step.inputs if how == "operands" else step.inputs[0]}
    if not how:
        operands = {"left": step.inputs[0], "right": step.inputs[1]}
    op: Op = OPS[step.kind](name=step.name, layer=step.layer, **operands, **step.fields)
    return op
