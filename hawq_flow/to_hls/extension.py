"""Three nodes that hls4ml 1.3.0 cannot read from ONNX, taught to it through ``register_onnx_layer_handler``.

Each becomes a layer that hls4ml itself has, with its own templates and C++; only the reading is ours:

* ``MaxPool1d``: the reader of MaxPool takes a one-dimensional value (batch, width, channels) for (batch, channels,
  width) and leaves the padding out;
* ``Upsample``: the reader of Resize exchanges height and width, and fails on one dimension;
* ``Lookup``: no ONNX node becomes a ``UnaryLUT``, which reads a table of 2^bits entries by the bits of its input.

The nodes live in the domain ``hawq_flow`` of ``hls4ml_model.onnx``; the QONNX model beside it (``model.onnx``) is of
standard nodes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def register() -> None:
    """Make the three nodes known to hls4ml; once a process."""
    from hls4ml.converters.onnx_to_hls import get_supported_onnx_layers, register_onnx_layer_handler

    for kind, handler in (("MaxPool1d", _max_pool), ("Upsample", _upsample), ("Lookup", _lookup)):
        if kind not in get_supported_onnx_layers():
            register_onnx_layer_handler(kind, handler)


def _common(node: Any, inputs: Sequence[str], kind: str) -> dict[str, Any]:
    return {
        "name": node.name,
        "class_name": kind,
        "inputs": list(inputs),
        "outputs": list(node.output),
        "data_format": "channels_last",
    }


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _max_pool(node: Any, inputs: Sequence[str], shapes: Sequence[Sequence[int]], graph: Any) -> dict[str, Any]:
    given = _attributes(node)
    (kernel,), (stride,), (left, right) = given["kernel_shape"], given["strides"], given["pads"]
    _, width, channels = shapes[0]
    return _common(node, inputs, "MaxPooling1D") | {
        "n_in": width,
        "n_out": (width + left + right - kernel) // stride + 1,
        "n_filt": channels,
        "pool_width": kernel,
        "stride_width": stride,
        "pad_left": left,
        "pad_right": right,
    }


def _upsample(node: Any, inputs: Sequence[str], shapes: Sequence[Sequence[int]], graph: Any) -> dict[str, Any]:
    factors = _attributes(node)["factors"]
    _, *space, channels = shapes[0]
    height, width = space if len(space) == 2 else (1, space[0])
    up, across = factors if len(factors) == 2 else (1, factors[0])
    return _common(node, inputs, f"UpSampling{len(space)}D") | {
        "in_height": height,
        "in_width": width,
        "out_height": height * up,
        "out_width": width * across,
        "n_chan": channels,
        "algorithm": "nearest",
    }


def _lookup(node: Any, inputs: Sequence[str], shapes: Sequence[Sequence[int]], graph: Any) -> dict[str, Any]:
    return _common(node, inputs, "UnaryLUT") | {
        "activation": "unary_lut",  # names the struct of its configuration
        "table_data": np.array(_attributes(node)["table"], dtype=np.float64),
    }
