"""``fit`` as :func:`hawq_flow.train.fit`, on the compiled step; several networks at once; what it does not do."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from hawq_flow import tools
from hawq_flow.fast_train.native import Native, dense_layers, epoch, library, value_ends, weight_ends
from hawq_flow.quant import QuantLayer, QuantNetwork
from hawq_flow.quant.joints import Joint, Passing
from hawq_flow.topology import INPUT
from hawq_flow.train import History, TrainConfig, checked, evaluate

LARGEST = 1 << 22
"""Integers up to here are rounded exactly by adding a constant in float32."""


def supported(model: torch.nn.Module, config: TrainConfig) -> str:
    """'' where :func:`fit` can train ``model``; else why not, and ``train.fit`` is the way.

    The library is compiled by the first call that gets so far (some seconds, once for a machine).
    """
    if not isinstance(model, QuantNetwork):
        return f"a {type(model).__name__}; the compiled path trains quantized networks"
    return _structure(model) or _settings(model, config) or _compiler()


def _structure(model: QuantNetwork) -> str:
    parts: list[QuantLayer | Joint | Passing] = [*model.layers, *model.joints]
    before = INPUT
    for _ in parts:
        readers = [part for part in parts if before in part.stage.sources]
        if len(readers) != 1 or set(readers[0].stage.sources) != {before}:
            names = ", ".join(repr(part.name) for part in readers) or "nothing"
            return (
                f"{before!r} is read by {names}; the compiled path trains chains, where each reads the one before alone"
            )
        (part,) = readers
        stage = part.stage
        if stage.kind not in ("linear", "reshape") or (stage.kind == "linear" and len(stage.shape) != 1):
            return f"{part.name!r} is a {stage.what}, to {stage.shape}; the compiled path has linear layers on vectors"
        if stage.dropout:
            return f"{part.name!r} has dropout of {stage.dropout:g}; the compiled path has none"
        before = part.name
    return ""


def _settings(model: QuantNetwork, config: TrainConfig) -> str:
    device = config.torch_device().type
    if device != "cpu":
        return f"device {device!r}; the compiled path runs on the CPU"
    if config.epochs == 0:
        return "0 epochs only calibrate"
    layers = dense_layers(model)
    frozen = [layer.frozen for layer in layers]
    if any(frozen) and not all(frozen):
        return f"layer {layers[frozen.index(True)].name!r} is frozen and others are not"
    if not (model.config.learn_scales or model.frozen):
        return "scales follow observers (learn_scales is off); the compiled path learns them"
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            return f"{name} is {parameter.dtype} on {parameter.device}; the compiled path has float32 on the CPU"
        fixed = model.frozen and (name.endswith("_scale") or "batch_norm" in name)
        if parameter.requires_grad == fixed:
            return f"{name} {'trains' if fixed else 'does not train'}, against the network's state"
        if not parameter.is_contiguous():
            return f"{name} is not contiguous"
    for layer in layers:
        reach = max(float(np.abs(value_ends(layer)).max()), float(weight_ends(layer).max()))
        if reach > LARGEST:
            return f"layer {layer.name!r} has integers of up to {reach:.3g}; the compiled path rounds up to 2^22"
    return ""


def _compiler() -> str:
    if shutil.which("g++") is None:
        return "no g++ on PATH, which compiles it"
    try:
        library()
    except (tools.ToolError, OSError) as error:
        return f"its library cannot be had: {error}"
    return ""


def fit(
    model: QuantNetwork,
    x: ArrayLike,
    y: ArrayLike,
    config: TrainConfig,
    *,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> History:
    """Train ``model`` in place as :func:`hawq_flow.train.fit` does, with the same parameters, errors and result.

    The same seed, data, start and machine give the same bytes. Always one thread, whatever ``config.threads`` says.

    Raises
    ------
    ValueError
        As ``train.fit``; or if :func:`supported` gives a reason, which is the text.
    """
    (found,) = fit_many(
        [model],
        x,
        y,
        [config],
        validation=validation,
        progress=None if progress is None else lambda _, number, loss: progress(number, loss),
    )
    if isinstance(found, ValueError):
        raise found
    return found


def fit_many(
    models: Sequence[QuantNetwork],
    x: ArrayLike,
    y: ArrayLike,
    configs: Sequence[TrainConfig],
    *,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> list[History | ValueError]:
    """Train several networks on the same data, each to the bytes that :func:`fit` alone would leave.

    The data is held once, and networks that read the same integers in the same order (one input grid, seed, batch size
    and loss) take every block of rows in turn, while it is in the cache.

    Parameters
    ----------
    models, configs:
        One config a model.
    progress:
        Called after every epoch of a network with (its index, epoch from 1, mean loss).

    Returns
    -------
    For each network its history; or the ``ValueError`` of one that diverged, which stops no other.

    Raises
    ------
    ValueError
        On what :func:`fit` refuses of the data or of any network, before any is trained.
    """
    if len(models) != len(configs):
        raise ValueError(f"fit_many: {len(models)} models with {len(configs)} configs; expected one for each")
    if len({id(model) for model in models}) != len(models):
        raise ValueError("fit_many: a model is given twice; each is trained in place")
    for model, config in zip(models, configs, strict=True):
        reason = supported(model, config)
        if reason:
            raise ValueError(f"fast_train: {reason}; use train.fit")
    data, labels = checked(x, y)
    groups: dict[tuple[object, ...], list[_Run]] = {}
    integers: dict[tuple[object, ...], NDArray[np.float32]] = {}
    runs = []
    with contextlib.ExitStack() as stack:
        for index, (model, config) in enumerate(zip(models, configs, strict=True)):
            _check_outputs(model, config, data, labels)
            if not model.calibrated:
                model.calibrate(data)
            grid = (float(model.input_scale), int(model.input_zero_point), model.input_type)
            if grid not in integers:
                integers[grid] = np.ascontiguousarray(model.quantize_input(data).flatten(1).numpy())
            batches = max(1, math.ceil((len(data) - 1) / config.batch_size))
            rows = min(len(data), config.batch_size + 1)
            native = stack.enter_context(Native(model, config, config.epochs * batches, rows))
            run = _Run(index, model, config, native, integers[grid])
            runs.append(run)
            groups.setdefault((grid, config.seed, config.batch_size, config.loss, native.block), []).append(run)
        for group in groups.values():
            _train(group, data, labels.astype(np.int32), validation, progress)
    return [run.error or run.history for run in runs]


@dataclass
class _Run:
    index: int
    model: QuantNetwork
    config: TrainConfig
    native: Native
    integers: NDArray[np.float32]
    history: History = field(default_factory=History)
    error: ValueError | None = None

    @property
    def freeze_at(self) -> int:
        return self.config.epochs - max(1, math.ceil(self.config.freeze * self.config.epochs))


def _train(
    group: list[_Run],
    data: torch.Tensor,
    labels: NDArray[np.int32],
    validation: tuple[ArrayLike, ArrayLike] | None,
    progress: Callable[[int, int, float], None] | None,
) -> None:
    """Train networks that read the same blocks; all have one batch size, seed, loss and block."""
    first = group[0]
    targets = None
    if first.config.loss == "mse":
        targets = np.ascontiguousarray(data.to(torch.float32).flatten(1).numpy())
    generator = torch.Generator().manual_seed(first.config.seed)
    for run in group:
        run.model.train()
    for number in range(max(run.config.epochs for run in group)):
        active = [run for run in group if number < run.config.epochs and run.error is None]
        if not active:
            break
        for run in active:
            if number == run.freeze_at:
                run.model.freeze()
                run.native.freeze()
        order = torch.randperm(len(data), generator=generator).numpy()
        losses = epoch([run.native for run in active], first.integers, labels, targets, order, first.config.batch_size)
        for run, loss in zip(active, losses, strict=True):
            if not math.isfinite(loss):
                run.error = ValueError(
                    f"fit: the loss of epoch {number + 1} is {loss}; training diverged: lower the learning rate"
                )
                continue
            last = number == run.config.epochs - 1
            run.history.loss.append(loss)
            measured = last and validation is not None
            run.history.measure.append(
                evaluate(run.model, *validation, loss=run.config.loss) if measured and validation else None
            )
            if progress is not None:
                progress(run.index, number + 1, loss)
            if last:
                run.model.eval()


def _check_outputs(
    model: QuantNetwork, config: TrainConfig, data: torch.Tensor, labels: NDArray[np.integer[Any]]
) -> None:
    """``train.fit``'s errors about an output that does not fit its target."""
    outputs, highest, inputs = math.prod(model.output_shape), int(labels.max()), math.prod(data.shape[1:])
    if config.loss == "mse":
        if outputs != inputs:
            raise ValueError(
                f"fit: outputs of {outputs} values for inputs of {inputs}; expected as many: with loss "
                "'mse' a network reconstructs its input"
            )
    elif len(model.output_shape) != 1 or highest >= outputs:
        raise ValueError(f"fit: label {highest} with {outputs} logits; expected 0 to {outputs - 1}")
