"""Training: it learns, it is reproducible to the byte, it freezes, and it says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hawq_flow.lower import lower
from hawq_flow.numeric import Rounding
from hawq_flow.plan import BitPlan, LayerBits
from hawq_flow.quant import QuantConfig, QuantNetwork, quantize
from hawq_flow.topology import read
from hawq_flow.train import TrainConfig, evaluate, fit, predict


def toy(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes by angle around the origin, in four features: learnable, not linearly separable."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = np.floor((np.arctan2(x[:, 0] + x[:, 2], x[:, 1] - x[:, 3]) / np.pi + 1) * 1.4999).astype(np.int64)
    return x.astype(np.float32), y


def model_of(seed: int = 0, *, batch_norm: bool = False, dropout: float = 0.0, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(4, 16)]
    if batch_norm:
        layers.append(nn.BatchNorm1d(16))
    layers.append(nn.ReLU())
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(16, classes))


def quantized(
    model: nn.Module, weight: int = 4, activation: int = 5, inputs: int = 8, output: int = 10, **config: Any
) -> QuantNetwork:
    stages = read(model).layers
    layers = {s.name: LayerBits(weight, activation) for s in stages}
    layers[stages[-1].name] = LayerBits(weight, output)
    return quantize(model, BitPlan.of({"x": inputs}, layers), QuantConfig(**config))


FAST = TrainConfig(epochs=4, batch_size=64, lr=1e-2)


# ------------------------------------------------------------------------------------------------------------- learning


def test_float_training_learns() -> None:
    x, y = toy()
    model = model_of()
    before = evaluate(model, x, y)
    seen: list[tuple[int, float]] = []
    history = fit(
        model,
        x,
        y,
        TrainConfig(epochs=30, batch_size=64, lr=1e-2),
        validation=(x, y),
        progress=lambda e, loss: seen.append((e, loss)),
    )
    assert history.loss[-1] < 0.5 * history.loss[0]
    assert evaluate(model, x, y) > max(0.9, before)
    assert history.measure == [None] * 29 + [evaluate(model, x, y)]
    assert seen == list(enumerate(history.loss, start=1))
    assert not model.training


@pytest.mark.parametrize("learn_scales", [True, False])
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("rounding", Rounding)
def test_quantized_training_recovers_what_few_bits_lose(
    learn_scales: bool, batch_norm: bool, rounding: Rounding
) -> None:
    x, y = toy()
    model = model_of(batch_norm=batch_norm)
    fit(model, x, y, TrainConfig(epochs=30, batch_size=64, lr=1e-2))
    net = quantized(model, 3, 3, learn_scales=learn_scales, rounding=rounding)
    history = fit(net, x, y, TrainConfig(epochs=15, batch_size=64, lr=5e-3, freeze=0.3))
    assert history.loss[-1] < history.loss[0]
    assert evaluate(net, x, y) > 0.85
    assert net.frozen
    assert not net.training


def test_weights_stay_in_their_dtype_whatever_the_data_is() -> None:
    x, y = toy(100)
    for dtype in (torch.float32, torch.float64):
        for data in (x, x.astype(np.float64)):
            for model in (model_of().to(dtype), quantized(model_of().to(dtype))):
                fit(model, data, y, TrainConfig(epochs=1, batch_size=64))
                assert next(model.parameters()).dtype == dtype
                assert predict(model, data).dtype == np.float64


def test_evaluation_does_not_depend_on_the_training_dtype() -> None:
    x, y = toy(200)
    net = quantized(model_of())
    fit(net, x, y, FAST)
    double = quantized(model_of()).double()
    double.load_state_dict(net.state_dict())
    assert (predict(net, x) == predict(double, x)).all()
    assert lower(net) == lower(double)


# ------------------------------------------------------------------------------------------------------ reproducibility


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["float", "learned scales", "observed scales", "batch norm"])
def test_the_same_seed_gives_the_same_bytes(kind: str, dropout: float) -> None:
    x, y = toy()

    def run(seed: int) -> nn.Module:
        model: nn.Module = model_of(batch_norm=kind == "batch norm", dropout=dropout)
        if kind != "float":
            model = quantized(model, learn_scales=kind != "observed scales")
        torch.rand(3)  # whatever else draws from the global generator
        fit(model, x, y, TrainConfig(epochs=3, batch_size=64, lr=1e-2, seed=seed))
        return model

    first, second, other = run(0).state_dict(), run(0).state_dict(), run(1).state_dict()
    for name, value in first.items():
        assert value.numpy().tobytes() == second[name].numpy().tobytes(), name
    assert any(not torch.equal(value, other[name]) for name, value in first.items())


def test_the_callers_generator_is_left_alone() -> None:
    x, y = toy(100)
    model = model_of(dropout=0.5)
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    fit(model, x, y, TrainConfig(epochs=2, batch_size=32))
    assert torch.equal(torch.rand(4), expected)


# ------------------------------------------------------------------------------------------------------------- freezing


@pytest.mark.parametrize("learn_scales", [True, False])
def test_after_freezing_scales_stand_still_and_weights_move(learn_scales: bool) -> None:
    x, y = toy()
    net = quantized(model_of(batch_norm=True), learn_scales=learn_scales)
    fit(net, x, y, TrainConfig(epochs=2, batch_size=64, lr=1e-2))
    assert net.frozen
    before = {k: v.clone() for k, v in net.state_dict().items()}
    integers = net.integer_layers()
    fit(net, x, y, TrainConfig(epochs=3, batch_size=64, lr=1e-2, freeze=1.0))
    after = net.state_dict()
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert moved == {f"layers.{i}.{name}" for i in (0, 1) for name in ("weight", "bias")}
    for old, new in zip(integers, net.integer_layers(), strict=True):
        assert (old.multiplier == new.multiplier).all()
        assert (old.shift == new.shift).all()
        assert (old.scale, old.offset) == (new.scale, new.offset)
        assert (old.weight != new.weight).any()


@pytest.mark.parametrize(
    ("freeze", "epochs", "expected"), [(0.0, 5, 4), (0.2, 5, 4), (0.21, 5, 3), (1.0, 5, 0), (0.5, 1, 0)]
)
def test_the_last_epochs_run_frozen(freeze: float, epochs: int, expected: int) -> None:
    x, y = toy(100)
    net = quantized(model_of())
    states: list[bool] = []
    fit(
        net,
        x,
        y,
        TrainConfig(epochs=epochs, batch_size=64, freeze=freeze),
        progress=lambda *_: states.append(net.frozen),
    )
    assert states == [False] * expected + [True] * (epochs - expected)


def test_scales_move_before_freezing() -> None:
    x, y = toy()
    for learn in (True, False):
        net = quantized(model_of(), learn_scales=learn)
        net.calibrate(torch.from_numpy(x))
        before = {k: v.clone() for k, v in net.state_dict().items() if "log_" in k}
        fit(net, x, y, FAST)
        after = net.state_dict()
        assert all(not torch.equal(value, after[name]) for name, value in before.items())
        assert float(net.input_scale) > 0


def test_the_rate_of_scales_is_their_own() -> None:
    x, y = toy()
    slow, fast = (quantized(model_of()) for _ in range(2))
    moves = []
    for net, rate in ((slow, 1e-6), (fast, 1.0)):
        net.calibrate(torch.from_numpy(x))
        before = net.layers[0].log_scale.detach().clone()  # type: ignore[operator,union-attr]
        fit(net, x, y, TrainConfig(epochs=2, batch_size=64, lr=1e-2, scale_lr=rate))
        moves.append(float((net.layers[0].log_scale.detach() - before).abs()))  # type: ignore[operator,union-attr]
    assert moves[0] < 1e-5 < moves[1]


def test_l1_makes_zeros() -> None:
    x, y = toy()
    zeros = []
    for l1 in (0.0, 3e-3):
        net = quantized(model_of(), learn_scales=False)
        fit(net, x, y, TrainConfig(epochs=12, batch_size=64, lr=1e-2, l1=l1))
        zeros.append(sum(net.zero_fraction().values()))
    assert zeros[1] > zeros[0]


def test_weight_decay_shrinks_weights_but_no_scales() -> None:
    x, y = toy()
    sizes = []
    for decay in (0.0, 0.1):
        model = model_of()
        fit(model, x, y, TrainConfig(epochs=8, batch_size=64, lr=1e-2, weight_decay=decay))
        sizes.append(float(model[0].weight.detach().square().sum()))
    assert sizes[1] < 0.8 * sizes[0]


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("kind", ["float", "quantized"])
def test_bad_data_is_refused(kind: str) -> None:
    x, y = toy(40)

    def run(x: Any, y: Any) -> None:
        model: nn.Module = model_of()
        fit(quantized(model) if kind == "quantized" else model, x, y, FAST)

    with pytest.raises(ValueError, match=r"fit: 40 samples with labels of shape \(39,\); expected one class index"):
        run(x, y[:-1])
    with pytest.raises(ValueError, match=r"fit: 0 samples with labels of shape \(0,\)"):
        run(x[:0], y[:0])
    with pytest.raises(ValueError, match=r"labels of shape \(40, 3\)"):
        run(x, np.eye(3)[y])
    with pytest.raises(ValueError, match="fit: label 3 with 3 logits; expected 0 to 2"):
        run(x, np.where(y == 2, 3, y))
    with pytest.raises(ValueError, match="fit: labels of int64 from -100; expected integers of 0 or more"):
        run(x, np.where(y == 2, -100, y))
    with pytest.raises(ValueError, match=r"fit: labels of float64 from .*; expected integers"):
        run(x, y + 0.5)
    for bad in (np.nan, np.inf):
        spoiled = x.copy()
        spoiled[7, 2] = bad
        with pytest.raises(ValueError, match="fit: a sample holds NaN or infinity; clean the data first"):
            run(spoiled, y)


@pytest.mark.parametrize("kind", ["float", "learned scales", "observed scales"])
def test_divergence_is_said(kind: str) -> None:
    x, y = toy()
    model: nn.Module = model_of()
    if kind != "float":
        model = quantized(model, learn_scales=kind == "learned scales")
    with pytest.raises(ValueError, match="lower the learning rate"):
        fit(model, x, y, TrainConfig(epochs=3, batch_size=64, lr=1e30))


def test_a_last_batch_of_one_sample_joins_the_one_before() -> None:
    """Batch norm has no statistics of one sample: torch refuses it, and folding would divide by sqrt(eps)."""
    x, y = toy(65)
    for model in (model_of(batch_norm=True), quantized(model_of(batch_norm=True))):
        history = fit(model, x, y, TrainConfig(epochs=2, batch_size=32))
        assert np.isfinite(history.loss).all()
    single = fit(model_of(), x[:1], y[:1], TrainConfig(epochs=2, batch_size=32))
    assert len(single.loss) == 2


# ---------------------------------------------------------------------------------- reconstruction, calibration alone


def patterns(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Samples of 6 values that are 2 numbers seen through a matrix, with a little noise; labels of no meaning."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + 0.05 * rng.normal(size=(n, 6))
    return x.astype(np.float32), np.zeros(n, dtype=np.int64)


def bottleneck(width: int = 2, outputs: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, width), nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, outputs)
    )


RECONSTRUCT = TrainConfig(epochs=40, batch_size=32, lr=1e-2, loss="mse")


def test_an_autoencoder_learns_its_own_input() -> None:
    x, y = patterns()
    model = bottleneck()
    before = evaluate(model, x, y, loss="mse")
    history = fit(model, x, y, RECONSTRUCT, validation=(x, y))
    assert before < 0.3
    assert history.measure[-1] == evaluate(model, x, y, loss="mse") > 0.95
    # The loss is the mean over samples and elements, of which the explained variance is another form.
    residual = ((predict(model, x) - x) ** 2).mean()
    assert history.loss[-1] == pytest.approx(residual, rel=0.2)


def test_a_quantized_autoencoder_learns_its_standardized_input() -> None:
    """The target is what the float network saw, not the integers that the quantized one reads."""
    x, y = patterns()
    model = bottleneck()
    fit(model, x, y, RECONSTRUCT)
    net = quantized(model, 6, 6, inputs=8, output=10)
    fit(net, x, y, TrainConfig(epochs=20, batch_size=32, lr=3e-3, loss="mse"))
    assert evaluate(net, x, y, loss="mse") > 0.9


def test_a_reconstruction_of_another_size_is_refused() -> None:
    x, y = patterns(40)
    with pytest.raises(ValueError, match="fit: outputs of 5 values for inputs of 6; expected as many: with loss 'mse'"):
        fit(bottleneck(outputs=5), x, y, RECONSTRUCT)


def test_images_are_reconstructed_in_the_order_of_their_elements() -> None:
    x, y = patterns(64)
    images = x.reshape(64, 1, 2, 3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 6, bias=False))
    fit(model, images, y, TrainConfig(epochs=200, batch_size=32, lr=3e-2, loss="mse"))
    assert evaluate(model, images, y, loss="mse") > 0.97
    assert predict(model, images).shape == (64, 6)


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Conv2d(4, 3, 3),
        nn.BatchNorm2d(3),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


def test_batch_norm_of_images_trains_with_a_last_batch_of_one() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(33, 2, 6, 6)).astype(np.float32), np.arange(33) % 3
    history = fit(convolutions(), x, y, TrainConfig(epochs=2, batch_size=16))
    assert np.isfinite(history.loss).all()


@pytest.mark.parametrize("rows", [96, 97])
def test_without_epochs_batch_norm_takes_its_statistics_from_the_data(rows: int) -> None:
    rng = np.random.default_rng(1)
    x, y = (5 + 3 * rng.normal(size=(rows, 2, 6, 6))).astype(np.float32), np.arange(rows) % 3
    model = convolutions()
    weights = [p.detach().clone() for p in model.parameters()]
    history = fit(model, x, y, TrainConfig(epochs=0, batch_size=32))
    assert (history.loss, history.measure) == ([], [])
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert not model.training
    with torch.no_grad():
        for i in (1, 5):  # what leaves each batch norm has mean 0 and deviation 1, though no weight was trained
            out = model[: i + 1](torch.from_numpy(x)).transpose(0, 1).flatten(1)
            assert out.mean(1).abs().max() < 0.05
            assert (out.std(1) - 1).abs().max() < 0.05
    assert all(m.momentum == 0.1 for m in model if isinstance(m, nn.BatchNorm2d))


def test_without_epochs_a_quantized_network_is_calibrated_and_frozen() -> None:
    x, y = toy(200)
    model = model_of(batch_norm=True)
    fit(model, x, y, TrainConfig(epochs=0, batch_size=64))
    net = quantized(model, 8, 8)
    before = net.layers[0].weight.detach().clone()  # type: ignore[union-attr,operator]
    fit(net, x, y, TrainConfig(epochs=0))
    assert net.frozen
    assert not net.training
    assert torch.equal(before, net.layers[0].weight)  # type: ignore[arg-type]
    difference = predict(net, x) - predict(model, x)
    assert np.abs(difference).max() < 0.2 * predict(model, x).std()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"epochs": -1}, "train: epochs -1; expected 0 or more"),
        ({"loss": "mae"}, "train: loss 'mae'; expected cross_entropy or mse"),
        ({"batch_size": 0}, "train: batch_size 0; expected 1 or more"),
        ({"observe_every": 0}, "train: observe_every 0"),
        ({"lr": 0.0}, "train: lr 0.0; expected a positive number"),
        ({"lr": float("nan")}, "train: lr nan; expected a positive number"),
        ({"scale_lr": -1.0}, "train: scale_lr -1.0; expected a positive number"),
        ({"weight_decay": -1.0}, "train: weight_decay -1.0; expected 0 or more"),
        ({"l1": float("inf")}, "train: l1 inf; expected 0 or more"),
        ({"freeze": 1.5}, "train: freeze 1.5; expected a fraction of the epochs, 0 to 1"),
        ({"device": "tpu"}, "train: device 'tpu'; expected auto, cpu or cuda"),
    ],
)
def test_bad_configurations_are_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TrainConfig(**values)


def test_the_device_is_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TrainConfig(device="cpu").torch_device().type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert TrainConfig().torch_device().type == "cuda"
    assert TrainConfig(device="cuda").torch_device().type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert TrainConfig().torch_device().type == "cpu"
    with pytest.raises(
        ValueError, match="device 'cuda' asked for, but torch finds no CUDA device; use 'auto' or 'cpu'"
    ):
        TrainConfig(device="cuda").torch_device()


# ----------------------------------------------------------------------------------------------------------- evaluation


def test_prediction_restores_the_mode_and_does_not_depend_on_batches() -> None:
    x, y = toy(300)
    for model in (model_of(dropout=0.5, batch_norm=True), quantized(model_of(dropout=0.5, batch_norm=True))):
        if isinstance(model, QuantNetwork):
            model.calibrate(torch.from_numpy(x))
        model.train()
        whole = predict(model, x)
        assert model.training
        model.eval()
        np.testing.assert_allclose(predict(model, x, batch_size=7), whole, rtol=1e-5, atol=1e-6)
        assert not model.training
        assert evaluate(model, x, y) == (whole.argmax(1) == y).mean()


def test_ties_go_to_the_first_class() -> None:
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    assert evaluate(model, np.ones((4, 2)), np.array([0, 0, 0, 1])) == 0.75


def test_evaluation_refuses_no_samples_and_mismatches() -> None:
    x, y = toy(5)
    with pytest.raises(ValueError, match="evaluate: no samples; expected at least one"):
        evaluate(model_of(), x[:0], y[:0])
    with pytest.raises(ValueError, match=r"evaluate: 5 samples with labels of shape \(1,\); expected one for each"):
        evaluate(model_of(), x, y[:1])


def test_predictions_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="predict: no samples; expected at least one"):
        predict(nn.Sequential(nn.Linear(2, 2)), np.zeros((0, 2)))
