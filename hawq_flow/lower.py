"""The bridge: a trained quantized network becomes an IntegerNetwork. The one module that imports both sides.

Nothing is computed here but copies: evaluation already runs on the integers of ``QuantNetwork.integer_layers`` and
those become ops, with the input's standardization and the scales as annotations. ``lower`` then verifies the network,
so that what it returns is proved free of overflow.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow.network import Dense, InputSpec, IntegerNetwork, Op, OutputSpec, Requantize, Reshape, verify
from hawq_flow.numeric import Overflow
from hawq_flow.quant import FLATTEN, REQUANT, QuantNetwork
from hawq_flow.topology import INPUT, identifier


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
    outputs = {INPUT: INPUT}
    ops: list[Op] = []
    layers = model.integer_layers()
    for layer in layers:
        name, value = identifier(layer.name), outputs[layer.source]
        if layer.flattened:
            ops.append(Reshape(name + FLATTEN, value, (layer.weight.shape[1],), layer.name))
            value = name + FLATTEN
        ops.append(Dense(name, value, layer.weight, layer.bias, layer=layer.name))
        ops.append(
            Requantize(
                name + REQUANT,
                name,
                layer.multiplier,
                layer.shift,
                np.asarray(layer.offset),
                layer.type,
                layer.rounding,
                Overflow.SATURATE,
                layer.name,
            )
        )
        outputs[layer.name] = name + REQUANT
    last = layers[-1]
    network = IntegerNetwork(
        (source,),
        tuple(ops),
        (OutputSpec(outputs[last.name], np.asarray(last.scale), np.asarray(last.offset)),),
        tuple((metadata or {}).items()),
    )
    verify(network)
    return network
