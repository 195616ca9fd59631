"""One network on the C++ side: its parameters in place, its epochs, and what a step found."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hawq_flow.fast_train.build import FLAGS, build
from hawq_flow.numeric import Rounding
from hawq_flow.quant import QuantLayer, QuantNetwork
from hawq_flow.quant.ste import clip_bound
from hawq_flow.train import TrainConfig

BLOCK_ROWS, BLOCK_BYTES = 512, 1 << 19
"""Rows of a block, and the bytes of all its values and gradients: what a second-level cache holds beside the rest."""
LOOKS = ("weight", "bias", "log_weight_scale", "log_scale", "gamma", "beta", "multiplier", "inverse", "bias_factor")
"""What :meth:`Native.look` knows of a layer: the last step's gradients, and the constants it computed with."""

_Pointer = ctypes.c_void_p


class _Spec(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("inputs", "outputs", "scales", "multiplier_bits")),
        *((name, ctypes.c_double) for name in ("max_scale", "momentum", "epsilon")),
        ("down", ctypes.c_float),
        ("has_norm", ctypes.c_int32),
        *((name, _Pointer) for name in ("weight", "bias", "log_weight", "log_scale", "gamma", "beta")),
        *((name, _Pointer) for name in ("running_mean", "running_variance", "weight_ends", "ends")),
    )


class _Hyper(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("lr", "scale_lr", "weight_decay", "l1", "input_scale")),
        *((name, ctypes.c_int64) for name in ("refresh", "steps")),
        *((name, ctypes.c_int32) for name in ("squares", "layers")),
    )


@lru_cache
def library(flags: tuple[str, ...] = FLAGS) -> ctypes.CDLL:
    """The loaded library; ``ToolError`` or ``OSError`` if it cannot be had."""
    made = ctypes.CDLL(str(build(flags)))
    made.hawq_open.restype = _Pointer
    made.hawq_open.argtypes = [ctypes.POINTER(_Hyper), ctypes.POINTER(_Spec), ctypes.c_int32]
    made.hawq_close.restype = None
    made.hawq_close.argtypes = [_Pointer]
    made.hawq_freeze.restype = None
    made.hawq_freeze.argtypes = [_Pointer] * 3
    made.hawq_look.restype = ctypes.POINTER(ctypes.c_float)
    made.hawq_look.argtypes = [_Pointer, ctypes.c_int32, ctypes.c_int32]
    made.hawq_epoch.argtypes = [
        ctypes.POINTER(_Pointer),
        ctypes.c_int32,
        *(_Pointer,) * 4,
        *(ctypes.c_int64,) * 2,
        ctypes.c_int32,
        _Pointer,
    ]
    return made


class Native:
    """A :class:`QuantNetwork` opened for training in place; close it, or use it as a context.

    Parameters
    ----------
    model:
        Calibrated, on the CPU, in float32, of nothing but dense layers.
    steps:
        Of the whole training: what the learning rate's cosine falls over.
    rows:
        Of the largest batch.
    """

    def __init__(
        self, model: QuantNetwork, config: TrainConfig, steps: int, rows: int, flags: tuple[str, ...] = FLAGS
    ) -> None:
        self.model, self.library = model, library(flags)
        self.layers = dense_layers(model)
        panel = self.library.hawq_panel()
        self.block = block_rows(self.layers, rows, panel)
        self._kept: list[Any] = []  # what C++ points into
        specs = (_Spec * len(self.layers))(*map(self._spec, self.layers))
        hyper = _Hyper(
            config.lr,
            config.lr * config.scale_lr,
            config.weight_decay,
            config.l1,
            float(model.input_scale),
            model.config.refresh,
            steps,
            config.loss == "mse",
            len(self.layers),
        )
        self.pointer = self.library.hawq_open(ctypes.byref(hyper), specs, self.block)
        if not self.pointer:
            raise MemoryError(f"fast_train: no memory for a block of {self.block} rows")
        if model.frozen:
            self.freeze()

    def __enter__(self) -> Native:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        if self.pointer:
            self.library.hawq_close(self.pointer)
            self.pointer = None

    def _spec(self, layer: QuantLayer) -> _Spec:
        norm = layer.batch_norm
        spec = _Spec(
            inputs=layer.weight.shape[1],
            outputs=layer.weight.shape[0],
            scales=len(layer.log_weight_scale),
            multiplier_bits=layer.config.multiplier_bits,
            max_scale=6.0 / int(layer.out_type.high().max()) if layer.activation == "relu6" else math.inf,
            down=0.5 if layer.config.rounding is Rounding.FLOOR else 0.0,
            weight=self._parameter(layer.weight),
            bias=self._parameter(layer.bias),
            log_weight=self._parameter(layer.log_weight_scale),
            log_scale=self._parameter(layer.log_scale),
            weight_ends=self._array(weight_ends(layer)),
            ends=self._array(value_ends(layer)),
        )
        if norm is not None:
            spec.has_norm = 1
            spec.momentum = norm.momentum if norm.momentum is not None else 0.1
            spec.epsilon = norm.eps
            spec.gamma, spec.beta = (None if p is None else self._parameter(p) for p in (norm.weight, norm.bias))
            assert norm.running_mean is not None
            assert norm.running_var is not None
            spec.running_mean, spec.running_variance = map(self._parameter, (norm.running_mean, norm.running_var))
        return spec

    def _parameter(self, tensor: Tensor) -> int:
        assert tensor.is_contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()

    def _array(self, array: NDArray[Any]) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)

    def freeze(self) -> None:
        """Take over the fixed scales of the frozen model."""
        multipliers, scales, scale = [], [], self.model.input_scale
        for layer in self.layers:
            m, _, scale = layer.scales(scale)
            multipliers.append(m)
            scales.append(scale)
        fixed = [torch.cat(multipliers).contiguous(), torch.stack(scales).contiguous()]
        self.library.hawq_freeze(self.pointer, *(tensor.data_ptr() for tensor in fixed))

    def look(self, layer: int, what: str) -> NDArray[np.float32]:
        """What the last step found in a layer or computed with (:data:`LOOKS`), flat; no decay or L1 in gradients."""
        outputs, inputs = self.layers[layer].weight.shape
        sizes = {"weight": outputs * inputs, "log_weight_scale": len(self.layers[layer].log_weight_scale)}
        size = sizes.get(what, 1 if what == "log_scale" else outputs)
        found = self.library.hawq_look(self.pointer, layer, LOOKS.index(what))
        return np.ctypeslib.as_array(found, (size,)).copy()


def epoch(
    networks: Sequence[Native],
    x: NDArray[np.float32],
    labels: NDArray[np.int32],
    targets: NDArray[np.float32] | None,
    order: NDArray[np.int64],
    batch: int,
) -> list[float]:
    """One epoch of several networks of one block size on the same rows; each one's mean loss.

    ``x`` (n, inputs), ``labels`` (n,), ``targets`` (n, outputs) for the squared error, ``order`` (n,). The lock
    of Python is free meanwhile, so threads may train side by side.
    """
    first = networks[0]
    pointers = (_Pointer * len(networks))(*(network.pointer for network in networks))
    losses = np.zeros(len(networks))
    failed = first.library.hawq_epoch(
        pointers,
        len(networks),
        x.ctypes.data,
        labels.ctypes.data,
        None if targets is None else targets.ctypes.data,
        order.ctypes.data,
        len(order),
        batch,
        first.block,
        losses.ctypes.data,
    )
    if failed:
        raise MemoryError(f"fast_train: no memory for a block of {first.block} rows")
    return [float(loss) for loss in losses]


def dense_layers(model: QuantNetwork) -> list[QuantLayer]:
    """The layers with weights, in order."""
    return [layer for layer in model.layers if isinstance(layer, QuantLayer)]


def block_rows(layers: Sequence[QuantLayer], rows: int, panel: int) -> int:
    """Rows of a block, whole panels: all of a batch of ``rows`` where batch norm needs its statistics."""
    width = layers[0].weight.shape[1] + 2 * sum(len(layer.weight) for layer in layers)
    fit = (
        rows
        if any(layer.batch_norm is not None for layer in layers)
        else min(rows, BLOCK_ROWS, BLOCK_BYTES // (4 * width))
    )
    return panel * max(1, math.ceil(fit / panel))


def weight_ends(layer: QuantLayer) -> NDArray[np.float32]:
    """For each output channel: where weights are clipped, and inside what they have a gradient (outputs, 2)."""
    tops = layer.weight_top[:, 0].expand(len(layer.weight)).tolist()
    exact = isinstance(layer.weight_bits, tuple)
    return np.array([_ends(int(top), exact) for top in tops], np.float32)


def value_ends(layer: QuantLayer) -> NDArray[np.float32]:
    """For each output channel: clip from, clip to, gradient above, gradient below (outputs, 4)."""
    low, high = layer.bounds(layer.weight)
    exact = low.ndim > 0
    outputs = len(layer.weight)
    pairs = zip(low.reshape(-1).expand(outputs).tolist(), high.reshape(-1).expand(outputs).tolist(), strict=True)
    ends = [(_ends(-int(a), exact), _ends(int(b), exact)) for a, b in pairs]
    return np.array([(-a[0], b[0], -a[1], b[1]) for a, b in ends], np.float32)


def _ends(end: int, exact: bool) -> tuple[float, float]:
    """The clip bound of an end, and the bound below which a gradient passes.

    One range for all channels passes nothing at its clip bounds (torch's hardtanh); ranges a channel pass what rounds
    to a number inside, the bound included.
    """
    bound = clip_bound(end, torch.float32)
    return bound, float(np.nextafter(np.float32(bound), np.float32(math.inf))) if exact else bound
