"""Sensitivities: exact traces against brute-force Hessians in float64, Hutchinson within its error, refusals."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from brute_hessian import brute_activation, brute_hessian, seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.sensitivity import Sensitivity, measure
from hawq_flow.sensitivity.eigenvalues import top_eigenvalue
from hawq_flow.sensitivity.loss import loss_factor


def mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for i, (n, m) in enumerate(itertools.pairwise(sizes)):
            layers += [nn.Linear(n, m), *([activation()] if i < len(sizes) - 2 else [])]
        return nn.Sequential(*layers)

    return seeded(build)


def data(n: int, features: int, classes: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, features, generator=generator), torch.randint(0, classes, (n,), generator=generator)


class Residual(nn.Module):
    """A residual network in forward(): functional ReLU, addition, dropout, flatten, LeakyReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(6, 5)
        self.mid = nn.Linear(5, 5)
        self.leaky = nn.LeakyReLU(0.2)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(5, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.inp(torch.flatten(x, 1)))
        return self.out(self.drop(self.leaky(self.mid(h) + h)))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.Identity])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_exact_traces_diagonals_and_eigenvalues_are_those_of_the_dense_hessian(
    dtype: torch.dtype, tolerance: float, activation: type[nn.Module]
) -> None:
    model = mlp(4, 7, 6, 3, activation=activation).to(dtype)
    x, y = data(60, 4, 3)
    found = measure(model, x, y, method="exact", diagonals=True, eigenvalue_tolerance=1e-8)
    assert found.method == "exact"
    assert [layer.name for layer in found.layers] == ["0", "2", "4"]
    for layer in found.layers:
        dense = brute_hessian(model, layer.name, x, y)
        assert layer.trace == pytest.approx(float(dense.trace()), rel=tolerance)
        assert layer.diagonal is not None
        np.testing.assert_allclose(layer.diagonal.ravel(), dense.diagonal().numpy(), rtol=3 * tolerance, atol=1e-15)
        assert layer.top_eigenvalue == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=1e-9)
        assert layer.eigenvalue_residual is not None
        assert layer.eigenvalue_residual <= 1e-8 * float(layer.top_eigenvalue or 0)
        assert (layer.estimator_error, layer.converged, layer.samples) == (0.0, True, 60)
        assert layer.mean_trace == layer.trace / layer.parameters


def test_exact_activation_traces_are_those_of_the_dense_hessian() -> None:
    model = mlp(4, 7, 6, 3).double()
    x, y = data(20, 4, 3)
    found = measure(model, x, y, activations=True)
    assert isinstance(model, nn.Sequential)
    double = copy.deepcopy(model).double()
    assert [entry.name for entry in found.activations] == ["x", "0", "2", "4"]
    for name, start in (("x", 0), ("0", 2), ("2", 4), ("4", 5)):  # after the ReLU; the logits last
        a = double[:start](x.double()).detach()
        entry = found.activation(name)
        assert entry.trace == pytest.approx(brute_activation(double[start:], a, y), rel=1e-9)
        assert entry.size == a.shape[1]


def test_exact_on_a_residual_network_with_dropout_in_training_mode() -> None:
    model = seeded(Residual).double().train()
    x, y = data(40, 6, 4)
    found = measure(model, x.reshape(40, 2, 3), y, method="exact", input_name="jets")
    for layer in found.layers:
        assert layer.trace == pytest.approx(float(brute_hessian(model, layer.name, x, y).trace()), rel=1e-9)
    double = copy.deepcopy(model).double().eval()
    h = functional.relu(double.inp(x.double())).detach()
    tail = lambda v: double.out(double.leaky(double.mid(v) + v))  # noqa: E731
    assert found.activation("inp").trace == pytest.approx(brute_activation(tail, h, y), rel=1e-9)
    assert found.activations[0].name == "jets"
    assert found.activations[0].size == 6


def test_sampling_error_is_the_per_sample_spread() -> None:
    model = mlp(4, 7, 3)
    x, y = data(30, 4, 3)
    per_sample = [float(brute_hessian(model, "0", x[i : i + 1], y[i : i + 1]).trace()) for i in range(30)]
    found = measure(model, x, y).layer("0")
    assert found.sampling_error == pytest.approx(np.std(per_sample, ddof=1) / np.sqrt(30), rel=1e-6)


def test_many_chunks_agree_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp(4, 7, 6, 3).double()
    x, y = data(101, 4, 3)
    whole = measure(model, x, y, diagonals=True)
    monkeypatch.setattr("hawq_flow.sensitivity.cost.CHUNK_ELEMENTS", 100)
    pieces = measure(model, x, y, diagonals=True)
    for a, b in zip(whole.layers + whole.activations, pieces.layers + pieces.activations, strict=True):
        assert a.trace == pytest.approx(b.trace, rel=1e-12)
        assert a.sampling_error == pytest.approx(b.sampling_error, rel=1e-9)
    assert whole.layers[0].diagonal == pytest.approx(pieces.layers[0].diagonal, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(0, 1000), st.sampled_from([1.0, 30.0, 1000.0]))
def test_loss_factor_factors_the_loss_hessian(classes: int, seed: int, spread: float) -> None:
    """Also where probabilities underflow."""
    logits = torch.randn(5, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * spread
    p = torch.softmax(logits, 1)
    factor = loss_factor(logits)
    assert factor.shape == (5, classes - 1, classes)
    expected = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    torch.testing.assert_close(torch.einsum("nkc,nkd->ncd", factor, factor), expected, rtol=1e-9, atol=1e-14)


def test_top_eigenvalue_of_special_operators() -> None:
    generator = torch.Generator().manual_seed(0)
    cpu = torch.device("cpu")
    assert top_eigenvalue(torch.zeros_like, 5, generator, tolerance=1e-6, device=cpu) == (0.0, 0.0)
    value, residual = top_eigenvalue(lambda v: 3 * v, 5, generator, tolerance=1e-12, device=cpu)
    assert value == pytest.approx(3, rel=1e-12)
    assert residual < 1e-12
    diagonal = torch.tensor([-9.0, 1.0, 2.0], dtype=torch.float64)
    value, _ = top_eigenvalue(lambda v: diagonal * v, 3, generator, tolerance=1e-12, device=cpu)
    assert value == pytest.approx(2, rel=1e-9)


def test_hutchinson_agrees_with_exact_within_its_stated_error() -> None:
    model = mlp(6, 10, 8, 4)
    x, y = data(512, 6, 4)
    exact = measure(model, x, y)
    rough = measure(model, x, y, method="hutchinson", relative_error=0.01, max_iterations=400, seed=3)
    assert (rough.method, rough.reason) == ("hutchinson", "")
    for a, b in zip(exact.layers + exact.activations, rough.layers + rough.activations, strict=True):
        assert a.name == b.name
        assert b.converged
        assert 0 < b.estimator_error <= 0.01 * b.trace
        assert abs(a.trace - b.trace) < 4 * b.estimator_error
        assert b.sampling_error < 4 * a.sampling_error
    for c, d in zip(exact.layers, rough.layers, strict=True):
        assert c.top_eigenvalue == pytest.approx(d.top_eigenvalue, rel=1e-6)
        assert d.iterations % 8 == 0


def test_hutchinson_where_the_identity_does_not_hold() -> None:
    model = mlp(4, 6, 3, activation=nn.Sigmoid)
    x, y = data(200, 4, 3)
    found = measure(model, x, y, relative_error=0.05, max_iterations=400)
    assert found.method == "hutchinson"
    assert found.reason == "'1' (Sigmoid) is not known to be piecewise linear"
    for layer in found.layers:
        dense = brute_hessian(model, layer.name, x, y)
        assert abs(layer.trace - float(dense.trace())) < 4 * layer.estimator_error
        assert layer.top_eigenvalue == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=1e-6)
    double = copy.deepcopy(model).double()
    a = double[:2](x.double()).detach()
    entry = found.activation("0")
    assert abs(entry.trace - brute_activation(double[2:], a, y)) < 4 * entry.estimator_error


def test_too_few_iterations_are_reported() -> None:
    x, y = data(64, 4, 3)
    found = measure(mlp(4, 6, 3), x, y, method="hutchinson", relative_error=1e-6, max_iterations=5)
    assert all(not layer.converged and layer.iterations == 5 for layer in found.layers)


@pytest.mark.parametrize("method", ["exact", "hutchinson"])
def test_the_caller_is_left_alone(method: Any) -> None:
    model = seeded(Residual).train()
    model.inp.requires_grad_(False)
    model.leaky.eval()
    x, y = data(64, 6, 4)
    functional.cross_entropy(model(x), y).backward()
    before = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    modes = [module.training for module in model.modules()]
    state = torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002
    first = measure(model, x, y, method=method, max_iterations=8)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == numpy_state  # noqa: NPY002
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert [p.requires_grad for p in model.inp.parameters()] == [False, False]
    for name, p in model.named_parameters():
        assert (p.grad is None) == (before[name] is None)
        assert p.grad is None or torch.equal(p.grad, before[name])
    assert measure(model, x, y, method=method, max_iterations=8) == first


@pytest.mark.parametrize("method", ["exact", "hutchinson"])
def test_a_dead_layer_has_trace_zero(method: Any) -> None:
    model = mlp(4, 6, 5, 3)
    assert isinstance(model, nn.Sequential)
    nn.init.zeros_(model[2].weight)
    nn.init.constant_(model[2].bias, -1.0)
    x, y = data(64, 4, 3)
    found = measure(model, x, y, method=method, diagonals=method == "exact")
    for name in ("0", "2", "4"):  # nothing passes the ReLU after layer 2, so even layer 4 sees zeros
        layer = found.layer(name)
        assert (layer.trace, layer.estimator_error, layer.sampling_error, layer.top_eigenvalue) == (0, 0, 0, 0)
        assert layer.converged
    assert found.activation("0").trace == 0
    assert found.activation("4").trace > 0


class Untraceable(nn.Module):
    """A forward pass that looks at its data."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) if x.sum() > -1e9 else x


class Twice(nn.Module):
    """One layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(functional.relu(self.fc(x)))


class Unused(nn.Module):
    """A layer that forward() leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.spare = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def tied() -> nn.Module:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second)


def fails(
    text: str, model: nn.Module | None = None, x: Tensor | None = None, y: Tensor | None = None, **options: Any
) -> None:
    samples, labels = data(16, 4, 3)
    with pytest.raises(ValueError, match=text):
        measure(model or mlp(4, 6, 3), samples if x is None else x, labels if y is None else y, **options)


def test_models_that_are_refused() -> None:
    fails(
        r"still has batch norm: 1 \(BatchNorm1d\)\. Fold it",
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)),
    )
    fails(
        r"exact method does not hold for this network: '1' \(Sigmoid\) is not known.*Use method='hutchinson'",
        mlp(4, 6, 3, activation=nn.Sigmoid),
        method="exact",
    )
    fails("exact method does not hold.*Untraceable: torch.fx cannot trace", seeded(Untraceable), method="exact")
    fails(r"exact method does not hold.*'fc' \(Linear\): called twice", seeded(Twice), method="exact")
    fails("the model is a bare Linear, which has no name to plan bits for; wrap it", nn.Linear(4, 3))
    fails(
        r"diagonals come from the exact method only, and '1' \(Sigmoid\) is not known",
        mlp(4, 6, 3, activation=nn.Sigmoid),
        diagonals=True,
    )
    fails(r"forward\(\) does not call spare", seeded(Unused))
    fails("layers '0' and '2' share one weight tensor", seeded(tied))
    fails("no Linear, Conv1d or Conv2d layer", nn.Sequential(nn.ReLU()))
    fails(r"the model returns shape \(2, 1\); expected logits", mlp(4, 6, 1))
    broken = mlp(4, 6, 3)
    nn.init.constant_(broken[0].weight, float("nan"))
    fails("layer '0' has 24 weights that are not finite", broken)


def test_data_that_is_refused() -> None:
    x, y = data(16, 4, 3)
    fails(r"does not take samples of shape \(5,\) \(its first Linear layer takes 4 features\)", x=torch.zeros(16, 5))
    fails(r"x has shape \(16,\)", x=x[:, 0])
    fails("dtype torch.int64; expected", x=y[:, None])
    fails(r"y has shape \(15,\) and dtype torch.int64; expected \(16,\)", y=y[:15])
    fails("dtype torch.int32; expected", y=y.int())
    fails("1 of 64 values of x are NaN or infinite", x=torch.where(x == x.max(), torch.nan, x))
    fails("labels run from 0 to 3; the model's 3 logits expect 0 to 2", y=torch.arange(16) % 4)
    fails("traces of 16 of 16 samples are not finite: the network's values overflow", x=x * 1e38)
    fails("method 'fisher'; expected", method="fisher")
    fails("max_iterations 1; expected at least 2", max_iterations=1)


class Normalized(nn.Module):
    """Layers called in another order than defined, and a layer norm, which topology refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.inp, self.norm = nn.Linear(5, 3), nn.Linear(4, 5), nn.LayerNorm(5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(functional.relu(self.norm(self.inp(x))))


@pytest.mark.parametrize(
    ("build", "layers", "reason"),
    [
        (Untraceable, ["fc"], "Untraceable: torch.fx cannot trace its forward"),
        (Twice, ["fc"], r"'fc' \(Linear\): called twice; each layer is used once"),
        (Normalized, ["inp", "out"], r"'norm' \(LayerNorm\): not supported"),
    ],
)
def test_networks_that_cannot_be_read_are_probed_and_their_activations_left_out(
    build: Callable[[], nn.Module], layers: list[str], reason: str
) -> None:
    model = seeded(build)
    x, y = data(64, 4, 3)
    found = measure(model, x, y, relative_error=0.1, max_iterations=100)
    assert [layer.name for layer in found.layers] == layers
    left_out = "; activations are left out: it is not known where they end"
    assert re.match(f"{reason}.*{left_out}$", found.reason, re.DOTALL)
    for layer in found.layers:
        dense = brute_hessian(model, layer.name, x, y)
        assert layer.method == "hutchinson"
        assert abs(layer.trace - float(dense.trace())) < 4 * layer.estimator_error
    few = {"max_iterations": 2, "eigenvalue_samples": 0}
    asked = measure(model, x, y, method="hutchinson", **few)  # type: ignore[arg-type]
    assert re.match(f"activations are left out: it is not known where they end: {reason}", asked.reason)
    without = measure(model, x, y, activations=False, **few)  # type: ignore[arg-type]
    assert re.match(reason, without.reason)
    assert "left out" not in without.reason
    with pytest.raises(KeyError, match="no activation 'x'; it has none"):
        found.activation("x")
    with pytest.raises(KeyError, match=f"no layer 'fc9'; it has {', '.join(layers)}"):
        found.layer("fc9")


def test_stored_form() -> None:
    x, y = data(64, 4, 3)
    found = measure(mlp(4, 6, 3), x, y, diagonals=True)
    again = Sensitivity.from_json(found.to_json())
    assert again == found
    assert np.array_equal(again.layers[1].diagonal, found.layers[1].diagonal)
    text = found.to_json()

    def broken(message: str, change: Callable[[dict[str, Any]], None]) -> None:
        content = json.loads(text)
        change(content)
        with pytest.raises(ValueError, match=message):
            Sensitivity.from_dict(content)

    broken("version 9; this hawq_flow reads version 1", lambda d: d.update(version=9))
    broken("layer 0: unknown keys bonus, missing keys none", lambda d: d["layers"][0].update(bonus=1))
    broken("layer 1: trace is '3'; expected a finite number", lambda d: d["layers"][1].update(trace="3"))
    broken(
        "layer 1: method is 'guess'; expected 'exact', 'sketch' or 'hutchinson'",
        lambda d: d["layers"][1].update(method="guess"),
    )
    broken("activation 0: size is 0; expected an integer of at least 1", lambda d: d["activations"][0].update(size=0))
    broken("layer 0: a diagonal of 1 values; expected one for each", lambda d: d["layers"][0].update(diagonal=[1.0]))
