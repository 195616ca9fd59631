"""Training and evaluation, of float models and of quantized networks alike.

A classifier learns by cross-entropy. An autoencoder learns by the mean squared error between its output and its own
standardized input, in the input's order of elements. Without epochs a network is only calibrated: batch norm takes its
statistics from the data, layer by layer as training would see them, so that even random weights give activations of
mean 0 and deviation 1, and a quantized network its scales.

The whole data set lives in one tensor on the device; an epoch is one permutation, one gather, and views of it, so no
loader stands between the data and the step. A quantized network's inputs are quantized once, before the first epoch.
The last part of a quantized training runs frozen (``QuantNetwork.freeze``): what is then trained is what is deployed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.nn import functional

from hawq_flow import quality
from hawq_flow.quality import Loss
from hawq_flow.quant import QuantNetwork

BATCH_ELEMENTS = 1 << 18
"""Input elements that a batch of :func:`predict` may hold."""


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Attributes
    ----------
    epochs, batch_size, lr, weight_decay:
        Adam's (arXiv:1412.6980), with ``lr`` falling to 0 as a half cosine over all steps. 0 epochs: calibrate only.
    loss:
        "cross_entropy" of logits and class indices, or "mse", of a reconstruction and the standardized input.
    l1:
        Weight of the L1 penalty, ``l1 * sum |W|`` over all weights, added to the mean loss.
    seed:
        Of the order of the samples and of dropout.
    freeze:
        Quantized networks: the fraction of epochs, at the end, that run with frozen scales (rounded up, at least one).
    scale_lr:
        Learned scales train at ``scale_lr * lr``.
    observe_every:
        Without learned scales: activation ranges are observed on every such step until the freeze.
    device:
        "auto" (CUDA when there is one), "cpu" or "cuda".
    threads:
        torch's threads while training. Networks this small gain nothing from a second one, and two processes of two
        threads on two cores take six times as long as two of one.
    """

    epochs: int = 60
    loss: Loss = "cross_entropy"
    batch_size: int = 1024
    lr: float = 4e-3
    weight_decay: float = 0.0
    l1: float = 0.0
    seed: int = 0
    freeze: float = 0.2
    scale_lr: float = 1.0
    observe_every: int = 10
    device: str = "auto"
    threads: int = 1

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("batch_size", 1), ("observe_every", 1), ("threads", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"train: {name} {getattr(self, name)}; expected {least} or more")
        if self.loss not in quality.MEASURES:
            raise ValueError(f"train: loss {self.loss!r}; expected {' or '.join(quality.MEASURES)}")
        for name in ("lr", "scale_lr"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"train: {name} {getattr(self, name)}; expected a positive number")
        for name in ("weight_decay", "l1"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"train: {name} {getattr(self, name)}; expected 0 or more")
        if self.threads > 1024:
            raise ValueError(f"train: threads {self.threads}; expected at most 1024 (one is best for small networks)")
        if not 0 <= self.freeze <= 1:
            raise ValueError(f"train: freeze {self.freeze}; expected a fraction of the epochs, 0 to 1")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"train: device {self.device!r}; expected auto, cpu or cuda")

    def torch_device(self) -> torch.device:
        """The device meant; asking for CUDA without one is an error."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("train: device 'cuda' asked for, but torch finds no CUDA device; use 'auto' or 'cpu'")
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


@dataclass
class History:
    """What training saw: mean loss of every epoch, and the measure on validation where it was taken (None elsewhere).

    The measure is accuracy for cross-entropy, explained variance for mse (``quality.MEASURES``).
    """

    loss: list[float] = field(default_factory=list)
    measure: list[float | None] = field(default_factory=list)


def fit(
    model: nn.Module,
    x: ArrayLike,
    y: ArrayLike,
    config: TrainConfig,
    *,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> History:
    """Train ``model`` in place; the same seed, data and start give the same bytes.

    Parameters
    ----------
    model:
        A float module giving logits or a reconstruction, or a :class:`QuantNetwork` (calibrated here on ``x`` if it is
        not yet; frozen by this call).
    x, y:
        Standardized samples (n, ...) and class indices (n,); "mse" does not look at the classes.
    validation:
        Samples and labels on which the measure of the last epoch is taken.
    progress:
        Called after every epoch with (epoch from 1, mean loss).

    Raises
    ------
    ValueError
        On mismatched or empty data, NaN, labels out of range, an output that is no reconstruction (mse), or a loss
        that is not finite (diverged).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        return _fit(model, x, y, config, validation, progress)
    finally:
        torch.set_num_threads(threads)


def _fit(
    model: nn.Module,
    x: ArrayLike,
    y: ArrayLike,
    config: TrainConfig,
    validation: tuple[ArrayLike, ArrayLike] | None,
    progress: Callable[[int, float], None] | None,
) -> History:
    device = config.torch_device()
    model.to(device)
    # A network is trained in the dtype of its parameters, whichever the data came in.
    reference = next(model.parameters())
    data, classes = checked(x, y)
    highest = int(classes.max())
    if config.loss == "mse":
        labels = data.to(reference).flatten(1)
    else:
        labels = torch.from_numpy(classes.astype(np.int64)).to(device)
    if isinstance(model, QuantNetwork):
        if not model.calibrated:
            model.calibrate(data)
        inputs, step = model.quantize_input(data), model.train_forward
    else:
        inputs, step = data.to(reference), model.__call__
    if config.epochs == 0:
        _calibrate(model, inputs, config.batch_size)
        return History()
    freeze_at = config.epochs - max(1, math.ceil(config.freeze * config.epochs))
    optimizer = _optimizer(model, config)
    # A last batch of a single sample joins the one before: batch norm needs two.
    batches = max(1, math.ceil((len(data) - 1) / config.batch_size))
    rates = [group["lr"] for group in optimizer.param_groups]
    generator = torch.Generator().manual_seed(config.seed)
    weights = [p for name, p in model.named_parameters() if name.endswith("weight") and p.ndim > 1]
    history = History()
    model.train()
    # Dropout draws from torch's global generator: seeded here, and left as it was afterwards.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        for epoch in range(config.epochs):
            if isinstance(model, QuantNetwork) and epoch == freeze_at:
                model.freeze()
            order = torch.randperm(len(data), generator=generator).to(device)
            shuffled, targets = inputs[order], labels[order]
            losses = torch.zeros((), device=device)
            for i in range(batches):
                rows = slice(i * config.batch_size, (i + 1) * config.batch_size if i < batches - 1 else None)
                if isinstance(model, QuantNetwork) and i % config.observe_every == 0:
                    model.observe(shuffled[rows])
                loss = _loss(step(shuffled[rows]), targets[rows], config.loss, highest)
                total = loss + config.l1 * torch.stack([w.abs().sum() for w in weights]).sum() if config.l1 else loss
                optimizer.zero_grad(set_to_none=True)
                total.backward()
                decay = 0.5 * (1.0 + math.cos(math.pi * (epoch * batches + i) / (config.epochs * batches)))
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * decay
                optimizer.step()
                losses += loss.detach() * len(targets[rows])
            mean = float(losses) / len(data)
            if not math.isfinite(mean):
                raise ValueError(
                    f"fit: the loss of epoch {epoch + 1} is {mean}; training diverged: lower the learning rate"
                )
            history.loss.append(mean)
            last = epoch == config.epochs - 1
            measured = evaluate(model, *validation, loss=config.loss) if last and validation is not None else None
            history.measure.append(measured)
            if progress is not None:
                progress(epoch + 1, mean)
    model.eval()
    return history


def checked(x: ArrayLike, y: ArrayLike) -> tuple[torch.Tensor, NDArray[np.integer[Any]]]:
    """Samples as a tensor and labels, as :func:`fit` takes them, or its ``ValueError``."""
    data = torch.from_numpy(np.ascontiguousarray(x))
    classes = np.asarray(y)
    if classes.ndim != 1 or len(data) != len(classes) or len(data) == 0:
        raise ValueError(
            f"fit: {len(data)} samples with labels of shape {classes.shape}; expected one class index for each "
            "sample, and at least one sample"
        )
    if classes.dtype.kind not in "iu" or classes.min() < 0:
        raise ValueError(f"fit: labels of {classes.dtype} from {classes.min()}; expected integers of 0 or more")
    if data.is_floating_point() and not bool(torch.isfinite(data).all()):
        raise ValueError("fit: a sample holds NaN or infinity; clean the data first")
    return data, classes


def _loss(out: torch.Tensor, target: torch.Tensor, loss: Loss, highest: int) -> torch.Tensor:
    """The mean loss of a batch; ``ValueError`` when the output does not fit the target."""
    if loss == "mse":
        if out[0].numel() != target.shape[1]:
            raise ValueError(
                f"fit: outputs of {out[0].numel()} values for inputs of {target.shape[1]}; expected as many: with loss "
                "'mse' a network reconstructs its input"
            )
        return functional.mse_loss(out.flatten(1), target)
    if out.ndim != 2 or highest >= out.shape[1]:
        raise ValueError(f"fit: label {highest} with {out.shape[1]} logits; expected 0 to {out.shape[1] - 1}")
    return functional.cross_entropy(out, target)


@torch.no_grad()
def _calibrate(model: nn.Module, inputs: torch.Tensor, batch_size: int) -> None:
    """Statistics from the data and nothing else: batch norm's of a float model, the scales of a quantized network.

    Each batch norm's statistics are the mean over batches of those of its input, which the layers before normalized
    by the batch's own statistics, as in training. Dropout stands still.
    """
    model.eval()
    if isinstance(model, QuantNetwork):  # calibrated by now, and its batch norm is the float model's
        model.freeze()
        return
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over batches
        norm.train()
    batches = max(1, math.ceil((len(inputs) - 1) / batch_size))
    for i in range(batches):
        model(inputs[i * batch_size : (i + 1) * batch_size if i < batches - 1 else None])
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam; scales are trained at their own rate and without weight decay."""
    scales = [p for name, p in model.named_parameters() if name.endswith("_scale") and p.requires_grad]
    known = {id(p) for p in scales}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in known]
    groups = [{"params": rest, "weight_decay": config.weight_decay}]
    if scales:
        groups.append({"params": scales, "lr": config.lr * config.scale_lr, "weight_decay": 0.0})
    return torch.optim.Adam(groups, lr=config.lr, fused=True)


@torch.no_grad()
def predict(model: nn.Module, x: ArrayLike, *, batch_size: int | None = None) -> NDArray[np.float64]:
    """Outputs (n, ...), float64, in evaluation mode (a quantized network's are its integers times one scale).

    The mode of ``model`` is restored. ``batch_size`` is 8192 at most by default, and less for large samples, whose
    intermediate values would not fit into memory.
    """
    training = model.training
    model.eval()
    reference = next(model.parameters())
    data = torch.from_numpy(np.ascontiguousarray(x))
    if len(data) == 0:
        raise ValueError("predict: no samples; expected at least one")
    if batch_size is None:
        batch_size = max(16, min(8192, BATCH_ELEMENTS // max(1, math.prod(data.shape[1:]))))
    outputs = []
    for start in range(0, len(data), batch_size):
        rows = data[start : start + batch_size]
        outputs.append(model(rows if isinstance(model, QuantNetwork) else rows.to(reference)).to("cpu", torch.float64))
    model.train(training)
    return torch.cat(outputs).numpy()


def evaluate(model: nn.Module, x: ArrayLike, y: ArrayLike, *, loss: Loss = "cross_entropy") -> float:
    """The measure of a network trained on ``loss``: accuracy, or the variance that its reconstruction explains.

    Parameters
    ----------
    x, y:
        Standardized samples (n, ...) and class indices (n,); "mse" does not look at the classes.

    Returns
    -------
    The fraction of samples whose largest logit (the first of equal ones) is the label's; or the explained variance
    (:func:`hawq_flow.quality.explained_variance`).
    """
    samples, labels = np.asarray(x), np.asarray(y)
    if len(samples) == 0:
        raise ValueError("evaluate: no samples; expected at least one")
    if labels.shape != (len(samples),):
        raise ValueError(f"evaluate: {len(samples)} samples with labels of shape {labels.shape}; expected one for each")
    out = predict(model, samples)
    return quality.explained_variance(out, samples)[0] if loss == "mse" else quality.accuracy(out, labels)
