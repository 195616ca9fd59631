"""Sensitivities of convolutional and residual networks: exact by brute force, bounds, choices, refusals."""

from __future__ import annotations

import copy
import math
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from brute_hessian import Loss, brute_hessian, brute_module_activation, seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from hawq_flow.sensitivity import cost, measure
from hawq_flow.sensitivity.gradients import LayerForm
from hawq_flow.sensitivity.hutchinson import largest_batch
from hawq_flow.sensitivity.linearity import compile_program
from hawq_flow.sensitivity.loss import loss_factor, loss_sketch
from hawq_flow.sensitivity.program import Convolution, Weights


class Block(nn.Module):
    """A residual network as torchvision writes it: one in-place ReLU for every call, ``out += identity``."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 3, padding=1, bias=False)
        self.conv1 = nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.Identity()
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.bn2 = nn.Identity()
        self.down = nn.Sequential(nn.Conv2d(3, 4, 1, stride=2), nn.Identity())
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        identity = self.down(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        out = self.relu(out)
        return self.fc(self.pool(out).view(out.size(0), -1))


class Branches(nn.Module):
    """Concatenation, upsampling, padding, functional pools and clips, and reductions."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(1, 2, 3, padding=1)
        self.right = nn.Conv2d(1, 2, 2, stride=2)
        self.join = nn.Conv2d(4, 3, (2, 3), groups=1)
        self.head = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        left = functional.hardtanh(self.left(x), -0.3, 0.6)
        right = functional.interpolate(functional.leaky_relu(self.right(x), 0.1), scale_factor=2, mode="nearest")
        both = torch.cat([left, right], dim=1)
        both = functional.max_pool2d(functional.pad(both, (1, 0, 0, 1)), 2, 1)
        z = torch.relu(self.join(both))
        means, largest, most = z.mean((2, 3)), z.amax(dim=(-1, -2)), functional.adaptive_max_pool2d(z, 1).flatten(1)
        return self.head(torch.cat((means, largest, most), 1))


class Sets(nn.Module):
    """A pointwise layer at every element of a set, then means and maxima over the set."""

    def __init__(self) -> None:
        super().__init__()
        self.phi1, self.phi2 = nn.Conv1d(3, 5, 1), nn.Conv1d(5, 4, 1)
        self.rho = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.phi2(torch.relu(self.phi1(x))))
        return self.rho(torch.cat([x.mean(2), x.amax(2)], -1))


@dataclass(frozen=True)
class Case:
    """A network, the shape of its samples, and the module whose output is each layer's activation."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    activations: dict[str, str] = field(default_factory=dict)
    loss: str = "cross_entropy"


CASES: dict[str, Case] = {
    "stride, padding, groups, max pool": Case(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0)),
            nn.ReLU(inplace=True),
            nn.MaxPool2d((1, 2), padding=(0, 1)),
            nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        (2, 5, 4),
        {"x": "", "0": "1", "3": "5", "6": "6"},
    ),
    "depthwise separable, ReLU6, average pools": Case(
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3, stride=2, padding=1),
            nn.ReLU6(inplace=True),
            nn.Conv2d(3, 6, 3, padding=1, groups=3),
            nn.ReLU6(),
            nn.Conv2d(6, 4, 1, stride=2),
            nn.Hardtanh(-0.2, 0.3),
            nn.AvgPool2d(2, stride=1, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(4, 4),
        ),
        (1, 7, 6),
        {"x": "", "0": "1", "2": "3", "4": "5", "10": "10"},
    ),
    "one dimension, same padding of an even kernel": Case(
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 4, padding="same"),
            nn.LeakyReLU(0.2),
            nn.MaxPool1d(3, 2, padding=1),
            nn.Conv1d(4, 4, 3, stride=2, padding=1, groups=4),
            nn.Dropout1d(),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(2),
            nn.Flatten(),
            nn.Linear(8, 3),
        ),
        (2, 13),
        {"x": "", "0": "1", "3": "5", "8": "8"},
    ),
    "residual": Case(Block, (2, 6, 5), {"x": "", "conv2": "bn2", "down.0": "down.1", "fc": "fc"}),
    "concatenation": Case(Branches, (1, 4, 6), {"x": "", "head": "head"}),
    "a set": Case(Sets, (3, 4), {"x": "", "rho": "rho"}),
    "autoencoder, mean squared error": Case(
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.ZeroPad2d((0, 1, 1, 0)),
            nn.Conv2d(2, 1, 3),
        ),
        (1, 6, 4),
        {"x": "", "0": "1", "4": "4"},
        "mse",
    ),
    "dense autoencoder, mean squared error": Case(
        lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 6)),
        (6,),
        {"x": "", "0": "1", "2": "3", "4": "4"},
        "mse",
    ),
}


def sample(case: Case, model: nn.Module, n: int, seed: int = 1) -> tuple[Tensor, Tensor, Loss]:
    """Samples, labels or targets, and the loss."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *case.shape, generator=generator)
    with torch.no_grad():
        shape = copy.deepcopy(model).eval().float()(x[:2].clone()).shape[1:]
    if case.loss == "mse":
        return x, torch.randn(n, *shape, generator=generator, dtype=torch.float64), functional.mse_loss
    return x, torch.randint(0, shape[0], (n,), generator=generator), functional.cross_entropy


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("name", CASES)
def test_exact_is_the_dense_hessian(name: str) -> None:
    """Traces, diagonals, eigenvalues and activations of every layer, against double backward in float64."""
    case = CASES[name]
    model = seeded(case.build).double().train()
    x, y, loss = sample(case, model, 12)
    found = measure(
        model,
        x,
        y,
        method="exact",
        loss=case.loss,
        diagonals=True,
        eigenvalue_tolerance=1e-9,  # type: ignore[arg-type]
    )
    plain = measure(model, x, y, method="exact", loss=case.loss, eigenvalue_samples=0)  # type: ignore[arg-type]
    assert found.layers
    for layer in found.layers:
        dense = brute_hessian(model, layer.name, x, y, loss)
        scale = float(dense.diagonal().max())
        assert scale > 0, "the test's layer is dead"
        assert layer.trace == pytest.approx(float(dense.trace()), rel=1e-9)
        assert plain.layer(layer.name).trace == pytest.approx(layer.trace, rel=1e-9)
        assert layer.diagonal is not None
        np.testing.assert_allclose(layer.diagonal.ravel(), dense.diagonal().numpy(), rtol=1e-9, atol=1e-12 * scale)
        assert layer.top_eigenvalue == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=1e-8)
        assert layer.estimator_error == 0.0
    for activation, module in case.activations.items():
        expected = brute_module_activation(model, module, x, y, loss)
        assert found.activation(activation).trace == pytest.approx(expected, rel=1e-9), activation


@dataclass(frozen=True)
class Layer:
    """One random layer: a convolution, what follows it, and whether it is added to its input or joined with it."""

    channels: int
    kernel: int
    stride: int
    padding: int
    grouped: bool
    after: str
    pool: str
    merge: str


AFTER: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "relu6": nn.ReLU6,
    "leaky": lambda: nn.LeakyReLU(0.3),
    "none": nn.Identity,
}
POOLS: dict[str, Callable[[], nn.Module]] = {
    "none": nn.Identity,
    "max": lambda: nn.MaxPool2d(2),
    "average": lambda: nn.AvgPool2d(2, 1),
    "upsample": lambda: nn.Upsample(scale_factor=(1, 2)),
}
LAYERS = st.builds(
    Layer,
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 1),
    st.booleans(),
    st.sampled_from(sorted(AFTER)),
    st.sampled_from(sorted(POOLS)),
    st.sampled_from(["none", "add", "join"]),
)


class Random(nn.Module):
    """A random network of :class:`Layer`, on samples (2, 5, 6)."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.layers = layers
        x = torch.zeros(1, 2, 5, 6)
        for i, layer in enumerate(layers):
            self._add(i, layer, x.shape[1])
            if layer.pool in ("max", "average") and min(self._apply_layer(i, layer, x, pool=False).shape[2:]) < 2:
                self.add_module(f"pool{i}", nn.Identity())
            x = self._apply_layer(i, layer, x)
        self.head = nn.Linear(x[0].numel(), 3)

    def _add(self, i: int, layer: Layer, inputs: int) -> None:
        outputs = inputs if layer.merge == "add" else layer.channels * (inputs if layer.grouped else 1)
        if layer.merge == "add":
            conv = nn.Conv2d(inputs, outputs, 3, padding=1, groups=inputs if layer.grouped else 1)
        else:
            same = layer.merge == "join"
            conv = nn.Conv2d(
                inputs,
                outputs,
                3 if same else layer.kernel,
                1 if same else layer.stride,
                1 if same or layer.kernel > 1 else layer.padding,
                groups=inputs if layer.grouped else 1,
            )
        self.add_module(f"conv{i}", conv)
        self.add_module(f"after{i}", AFTER[layer.after]())
        self.add_module(f"pool{i}", POOLS[layer.pool]())

    def _apply_layer(self, i: int, layer: Layer, x: Tensor, *, pool: bool = True) -> Tensor:
        y = getattr(self, f"conv{i}")(x)
        if layer.merge == "add":
            y += x
        y = getattr(self, f"after{i}")(y)
        if layer.merge == "join":
            y = torch.cat([x, y], 1)
        return getattr(self, f"pool{i}")(y) if pool else y  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = self._apply_layer(i, layer, x)
        return self.head(torch.flatten(x, 1))  # type: ignore[no-any-return]


@settings(max_examples=15, deadline=None)
@given(st.lists(LAYERS, min_size=1, max_size=3), st.integers(0, 1000))
def test_random_networks_are_exact(layers: list[Layer], seed: int) -> None:
    model = seeded(lambda: Random(layers), seed).double()
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 2, 5, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (5,), generator=generator)
    found = measure(model, x, y, method="exact", eigenvalue_samples=0)
    for i in range(len(layers)):
        expected = float(brute_hessian(model, f"conv{i}", x, y).trace())
        assert found.layer(f"conv{i}").trace == pytest.approx(expected, rel=1e-8, abs=1e-14)


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("name", CASES)
def test_float32_agrees_with_float64(name: str) -> None:
    case = CASES[name]
    model = seeded(case.build)
    x, y, _ = sample(case, model, 40)
    single = measure(model, x, y, method="exact", loss=case.loss, eigenvalue_samples=0)  # type: ignore[arg-type]
    double = measure(
        copy.deepcopy(model).double(),
        x,
        y,
        method="exact",
        loss=case.loss,
        eigenvalue_samples=0,  # type: ignore[arg-type]
    )
    for a, b in zip(single.layers + single.activations, double.layers + double.activations, strict=True):
        assert a.trace == pytest.approx(b.trace, rel=1e-6)
        assert a.sampling_error == pytest.approx(b.sampling_error, rel=1e-4, abs=1e-8 * b.trace)


GEOMETRIES = st.tuples(
    st.integers(1, 2),  # axes
    st.integers(1, 3),  # groups
    st.integers(1, 2),  # input channels of a group
    st.integers(1, 3),  # output channels of a group
    st.tuples(st.integers(1, 3), st.integers(1, 3)),  # kernel
    st.tuples(st.integers(1, 3), st.integers(1, 2)),  # stride
    st.tuples(st.integers(0, 2), st.integers(0, 1)),  # padding
    st.booleans(),  # many columns: the other way to squares
    st.integers(0, 1000),
)


@settings(max_examples=30, deadline=None)
@given(GEOMETRIES)
def test_gradients_of_single_samples_are_autograds(geometry: Any) -> None:
    """Both ways to ``|G|^2``, and ``G`` itself, for any convolution."""
    axes, groups, inputs, outputs, kernel, stride, padding, many, seed = geometry
    kernel, stride, padding = (v[:axes] for v in (kernel, stride, padding))
    operation = Convolution("conv", kernel, stride, padding, groups)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(groups * outputs, inputs, *kernel, generator=generator, dtype=torch.float64)
    x = torch.randn(2, groups * inputs, *(6, 5)[:axes], generator=generator, dtype=torch.float64)
    weights = Weights({"conv": weight}, {"conv": None})
    output = operation.forward([x], weights)
    form = LayerForm.of(operation, tuple(weight.shape), tuple(output.shape[1:]))
    u = torch.randn(2, 20 if many else 2, *output.shape[1:], generator=generator, dtype=torch.float64)
    expected = torch.stack(
        [
            torch.stack(
                [
                    torch.func.vjp(
                        lambda w, i=i: operation.forward([x[i : i + 1]], Weights({"conv": w}, {"conv": None})), weight
                    )[1](u[i, k][None])[0].flatten()
                    for k in range(u.shape[1])
                ]
            )
            for i in range(2)
        ]
    )
    torch.testing.assert_close(form.gradients(x, u), expected, rtol=1e-10, atol=1e-10)
    squares = expected.square().sum(2)
    torch.testing.assert_close(form.squares(x, u, each=True), squares, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(form.squares(x, u), squares.sum(1), rtol=1e-9, atol=1e-9)
    back = torch.func.vjp(lambda v: operation.forward([v], weights), x)[1]
    (found,) = operation.adjoint(u, [x], [True], weights)
    assert found is not None
    torch.testing.assert_close(found[:, 0], back(u[:, 0])[0], rtol=1e-10, atol=1e-10)


def test_both_ways_to_squares_are_taken() -> None:
    """Few positions and many channels: gram; many positions: the gradient itself."""

    def form(positions: int) -> LayerForm:
        return LayerForm(Convolution("conv", (1,), (1,), (0,), 1), (64, 64, 1), 1, 64, 64, positions)

    assert form(4).gram(9)
    assert not form(4000).gram(9)
    assert form(1).factorized
    gradient, gram = form(4).multiplications(9)
    assert (gradient, gram) == (9 * 64 * 64 * 5, 16 * (9 * 64 + 64 + 1))


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of tensors that live at once, beyond those there were."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata
                if key not in self.live and storage.nbytes():
                    self.live[key] = storage.nbytes()
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._free, key)
        return result

    def _free(self, key: int) -> None:
        self.now -= self.live.pop(key, 0)


def many_outputs() -> nn.Module:
    """200 outputs: 199 columns."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 200),
    )


@pytest.mark.parametrize("method", ["exact", "sketch"])
@pytest.mark.parametrize("megabytes", [2, 8])
def test_memory_stays_within_its_limit(monkeypatch: pytest.MonkeyPatch, method: Any, megabytes: int) -> None:
    """Chunks of samples and of columns; the traces do not depend on them (those of a sketch on its signs alone)."""
    model = seeded(many_outputs).double()
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(10, 3, 16, 16, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 200, (10,), generator=generator)
    options: dict[str, Any] = {"method": method, "eigenvalue_samples": 0, "max_iterations": 40}
    whole = measure(model, x, y, **options)
    monkeypatch.setattr("hawq_flow.sensitivity.cost.MEMORY", megabytes << 20)
    program = compile_program(model, (3, 16, 16), "x")
    forms = cost.forms(program, Weights.of(model, program.layers, torch.float64))
    chunk = cost.chunk(program, forms, 199, 8, to_input=True)
    assert 1 < chunk.columns < 199
    assert chunk.bytes <= megabytes << 20
    with PeakMemory() as memory:
        pieces = measure(model, x, y, **options)
    assert memory.peak <= megabytes << 20
    assert memory.peak > (megabytes << 20) / 8, "the prediction is far too high"
    for a, b in zip(whole.layers + whole.activations, pieces.layers + pieces.activations, strict=True):
        if method == "exact":
            assert a.trace == pytest.approx(b.trace, rel=1e-10)
        else:
            assert abs(a.trace - b.trace) < 5 * math.hypot(a.estimator_error, b.estimator_error)


def test_eigenvalues_in_several_runs_and_of_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeded(many_outputs).double()
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(12, 3, 8, 8, generator=generator), torch.randint(0, 200, (12,), generator=generator)
    options: dict[str, Any] = {"method": "exact", "activations": False, "eigenvalue_tolerance": 1e-8}
    whole = measure(model, x, y, **options)
    assert whole.reason == ""
    monkeypatch.setattr("hawq_flow.sensitivity.cost.MEMORY", 6 << 20)
    pieces = measure(model, x, y, **options)
    samples = pieces.layers[0].eigenvalue_samples
    assert 4 <= samples < 12
    assert pieces.reason == f"eigenvalues are of {samples} samples, not 12: memory or budget"
    monkeypatch.undo()
    few = measure(model, x[:samples], y[:samples], **options)
    for a, b in zip(pieces.layers, few.layers, strict=True):
        assert a.top_eigenvalue == pytest.approx(b.top_eigenvalue, rel=1e-9)
    without = measure(model, x, y, **{**options, "budget": 1.0})
    assert all(layer.top_eigenvalue is None and layer.eigenvalue_samples == 0 for layer in without.layers)
    assert without.reason == (
        "eigenvalues are left out: within memory and budget they would be of fewer than 4 samples"
    )


@pytest.mark.parametrize("name", ["residual", "concatenation", "a set", "dense autoencoder, mean squared error"])
def test_a_sketch_is_within_its_stated_error(name: str) -> None:
    case = CASES[name]
    model = seeded(case.build)
    x, y, _ = sample(case, model, 400)
    exact = measure(model, x, y, method="exact", loss=case.loss)  # type: ignore[arg-type]
    rough = measure(
        model,
        x,
        None if case.loss == "mse" else y,
        method="sketch",
        loss=case.loss,
        relative_error=0.02,
        seed=4,  # type: ignore[arg-type]
    )
    assert (rough.method, rough.reason) == ("sketch", "")
    for a, b in zip(exact.layers + exact.activations, rough.layers + rough.activations, strict=True):
        assert (a.name, b.method, b.converged) == (b.name, "sketch", True)
        assert 0 <= b.estimator_error <= 0.02 * b.trace
        assert abs(a.trace - b.trace) <= 4 * b.estimator_error + 1e-6 * a.trace
        assert b.sampling_error == pytest.approx(a.sampling_error, rel=0.5, abs=2 * b.estimator_error)
    for c, d in zip(exact.layers, rough.layers, strict=True):
        assert c.top_eigenvalue == pytest.approx(d.top_eigenvalue, rel=1e-5)  # double backward, so independent
    again = measure(
        model,
        x,
        None if case.loss == "mse" else y,
        method="sketch",
        loss=case.loss,
        relative_error=0.02,
        seed=4,  # type: ignore[arg-type]
    )
    assert again == rough
    stopped = measure(model, x, y, method="sketch", loss=case.loss, relative_error=1e-9, max_iterations=3)  # type: ignore[arg-type]
    assert any(not layer.converged for layer in stopped.layers)
    assert all(layer.iterations == 3 for layer in stopped.layers)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(0, 1000), st.sampled_from(["cross_entropy", "mse"]))
def test_a_sketch_of_the_factor_is_the_factor_times_signs(outputs: int, seed: int, loss: Any) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(4, outputs, generator=generator, dtype=torch.float64) * 5
    factor = loss_factor(z, loss)
    found = loss_sketch(z, loss, 3, generator)
    # Solve for the signs that the sketch used: F has full column rank.
    signs = torch.linalg.lstsq(factor.transpose(1, 2), found.transpose(1, 2)).solution
    torch.testing.assert_close(signs.abs(), torch.ones_like(signs), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loss_factor(z, loss, 1, 2), factor[:, 1:2])


def test_the_method_is_chosen_by_predicted_cost() -> None:
    model = seeded(many_outputs)
    x, y = torch.randn(16, 3, 8, 8), torch.arange(16)
    options: dict[str, Any] = {"eigenvalue_samples": 0, "activations": False, "max_iterations": 4}
    cheap = measure(model, x, y, **options)
    assert cheap.method == "exact"
    figures = r"exact takes about \d\.\de\+\d\d operations \(199 passes\), a sketch \d\.\de\+\d\d \(4 passes\)"
    assert re.fullmatch(figures + r"; the budget is 1\.0e\+13", cheap.reason)
    dear = measure(model, x, y, budget=1e3, **options)
    assert dear.method == "sketch"
    assert re.fullmatch(figures + r"; the budget is 1\.0e\+03, which ends the sketch at 2", dear.reason)
    assert {layer.iterations for layer in dear.layers} == {2}
    assert not all(layer.converged for layer in dear.layers)
    enough = measure(model, x, y, budget=float(re.findall(r"\d\.\de\+\d\d", dear.reason)[1]) * 1.1, **options)
    assert enough.method == "sketch"
    assert re.fullmatch(figures + r"; the budget is \d\.\de\+\d\d", enough.reason)
    assert {layer.iterations for layer in enough.layers} == {4}
    narrow = measure(seeded(Block), torch.randn(16, 2, 6, 5), torch.arange(16) % 3, budget=1.0, **options)
    assert narrow.method == "exact"  # two columns cost less than four probes
    assert narrow.reason.endswith("; exact is the cheaper")
    assert measure(model, x, y, budget=1e3, method="exact", **options).method == "exact"
    assert measure(model, x, y, budget=1e3, diagonals=True, **options).method == "exact"


def test_predicted_operations_of_a_layer() -> None:
    """By hand: a 1x1 convolution of 2 to 3 channels over 4 positions, then 12 features to 2."""
    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.Flatten(), nn.Linear(12, 2))
    program = compile_program(model, (2, 4), "x")
    forms = cost.forms(program, Weights.of(model, program.layers, torch.float32))
    forward, backward = cost.operations(program, forms, 1, to_input=False)
    assert forward == 2 * 6 * 4 + 12 + 2 * 24
    conv_squares = min(1 * 6 * 5, 16 * (3 + 2 + 1))
    assert backward == 2 * 24 + 2 * min(24 * 2, 2 + 12 + 1) + 12 + 2 * conv_squares
    assert cost.operations(program, forms, 1, to_input=True)[1] == backward + 2 * 6 * 4


def smooth() -> nn.Module:
    """Not piecewise linear."""
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.Hardswish(inplace=True),
        nn.Conv2d(2, 2, 3, stride=2, groups=2),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


@pytest.mark.parametrize("limit", [1 << 30, 1 << 15])
def test_hutchinson_of_convolutions_in_bounded_batches(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("hawq_flow.sensitivity.cost.MEMORY", limit)
    model = seeded(smooth)
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(64, 1, 5, 5, generator=generator), torch.randint(0, 3, (64,), generator=generator)
    double = copy.deepcopy(model).double()
    assert (largest_batch(double, x.double(), y, "cross_entropy") < 8) == (limit < 1 << 20)
    found = measure(model, x, y, relative_error=0.1, max_iterations=100, eigenvalue_tolerance=1e-7)
    assert found.reason == "'1' (Hardswish) is not known to be piecewise linear"
    for layer in found.layers:
        dense = brute_hessian(model, layer.name, x, y)
        assert abs(layer.trace - float(dense.trace())) < 4 * layer.estimator_error
        assert layer.top_eigenvalue == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=1e-6)
    entry = found.activation("2")
    assert abs(entry.trace - brute_module_activation(model, "3", x, y)) < 4 * entry.estimator_error


def test_hutchinson_of_a_mean_squared_error() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4)))
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    found = measure(model, x, x, loss="mse", relative_error=0.1, max_iterations=100)
    assert found.method == "hutchinson"
    for layer in found.layers:
        dense = brute_hessian(model, layer.name, x, x.double(), functional.mse_loss)
        assert abs(layer.trace - float(dense.trace())) <= 4 * layer.estimator_error + 1e-12
        assert layer.top_eigenvalue == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=1e-6)
    entry = found.activation("0")
    expected = brute_module_activation(model, "1", x, x.double(), functional.mse_loss)
    assert abs(entry.trace - expected) <= 4 * entry.estimator_error + 1e-12


def test_the_method_forced_on_a_residual_network_agrees() -> None:
    """PyHessian through an in-place ReLU that is called three times, and ``out += identity``."""
    model = seeded(Block)
    x, y, _ = sample(CASES["residual"], model, 64)
    exact = measure(model, x, y, method="exact")
    rough = measure(model, x, y, method="hutchinson", relative_error=0.1, max_iterations=64)
    for a, b in zip(exact.layers + exact.activations, rough.layers + rough.activations, strict=True):
        assert a.name == b.name
        assert abs(a.trace - b.trace) < 4 * b.estimator_error


class Forward(nn.Module):
    """A convolution, a linear layer, and a function between them."""

    def __init__(self, between: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.fc, self.scale = nn.Conv1d(2, 2, 1), nn.Linear(8, 3), nn.Parameter(torch.ones(2, 4))
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.between(self, self.conv(x)).flatten(1))


def stale(_: Any, x: Tensor) -> Tensor:
    view = x.view(x.size(0), -1)
    x.relu_()
    return view


REFUSED: dict[str, tuple[Callable[[Any, Tensor], Tensor], str]] = {
    "product": (
        lambda m, x: x * x,
        r"'mul' \(mul\): not supported in forward\(\); a constant factor .*; products of values are",
    ),
    "number": (lambda m, x: x * 2, r"'mul' \(mul\): not supported in forward\(\)"),
    "difference": (lambda m, x: 1.0 - x, r"'sub' \(sub\): not supported in forward\(\); subtract in the weights"),
    "parameter": (lambda m, x: x + m.scale, r"'scale' \(scale\): a parameter or buffer not supported in forward\(\)"),
    "shapes": (lambda m, x: x + x.mean(2, keepdim=True), r"adds values of shapes \(2, 4\), \(2, 1\); expected equal"),
    "batch": (lambda m, x: x + x.sum(0), r"reduces axes \(0,\) of a value .*; expected axes of space"),
    "permuted": (lambda m, x: x.permute(1, 0, 2), r"'permute' \(permute\): not supported in forward\(\)"),
    "merged": (lambda m, x: x.view(-1, 4).reshape(-1, 8), r"reshapes \(batch, 2, 4\) to \(-1, 4\)"),
    "softmax": (lambda m, x: torch.softmax(x, 1), r"'softmax' \(softmax\) is not known to be piecewise linear"),
    "table": (lambda m, x: functional.elu(x), r"'elu' \(elu\) is not known to be piecewise linear"),
    "stale": (stale, r"'flatten' \(flatten\): reads 'view', a view of a tensor that .* has since overwritten"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_piecewise_linear_is_named(name: str) -> None:
    between, message = REFUSED[name]
    model = seeded(lambda: Forward(between))
    x, y = torch.randn(4, 2, 4), torch.arange(4) % 3
    with pytest.raises(ValueError, match=f"the exact method does not hold for this network: .*{message}"):
        measure(model, x, y, method="exact")
    with pytest.raises(ValueError, match=f"the sketch method does not hold for this network: .*{message}"):
        measure(model, x, y, method="sketch")


KEPT: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "in place": lambda m, x: (functional.relu_(x), x + x)[1],
    "sizes": lambda m, x: x.reshape(x.shape[0], x.shape[1] * x.shape[2]).unsqueeze(1).squeeze(1),
    "clipped": lambda m, x: functional.hardtanh(x, -0.4, 0.4),
    "clipped to six": lambda m, x: functional.relu6(x) + x,
    "positional in place": lambda m, x: (functional.leaky_relu(x, 0.3, True), x)[1],
    "doubled": lambda m, x: torch.add(x, x.contiguous()),
    "pooled": lambda m, x: functional.max_pool1d(x, 3, 1, padding=1),
    "averaged": lambda m, x: functional.avg_pool1d(x, 3, 1, 1) + functional.adaptive_avg_pool1d(x, 4),
}


@pytest.mark.parametrize("name", KEPT)
def test_forms_of_the_forward_pass(name: str) -> None:
    model = seeded(lambda: Forward(KEPT[name])).double()
    x = torch.randn(16, 2, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y = torch.arange(16) % 3
    found = measure(model, x, y, method="exact", activations=False)
    for layer in found.layers:
        assert layer.trace == pytest.approx(float(brute_hessian(model, layer.name, x, y).trace()), rel=1e-9)
        assert layer.trace > 0


def test_an_activation_is_the_tensor_that_is_quantized() -> None:
    """A ReLU after a max pool joins the layer before it, as in quantization: the same as the ReLU first."""
    after = seeded(lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.MaxPool1d(2), nn.ReLU(), nn.Flatten(), nn.Linear(9, 3)))
    assert isinstance(after, nn.Sequential)
    before = nn.Sequential(after[0], nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), after[4])
    x, y = torch.randn(20, 2, 8, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 3
    first, second = (measure(model.double(), x, y, method="exact") for model in (before, after))
    assert second == first
    assert second.activation("0").size == 3 * 6
    assert second.activation("0").trace == pytest.approx(brute_module_activation(before, "1", x, y), rel=1e-9)


def test_the_input_may_not_be_changed_in_place() -> None:
    model = seeded(lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Conv1d(2, 1, 2), nn.Flatten(), nn.Linear(3, 3)))
    x, y = torch.randn(8, 2, 4), torch.arange(8) % 3
    before = x.clone()
    with pytest.raises(ValueError, match=r"'0' \(ReLU\): writes into the network's input"):
        measure(model, x, y, method="exact")
    assert measure(model, x, y, activations=False, max_iterations=2, eigenvalue_samples=0).method == "hutchinson"
    assert torch.equal(x, before)


def test_losses_and_targets_that_are_refused() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4)))
    x = torch.randn(8, 4)

    def fails(text: str, y: Tensor | None, **options: Any) -> None:
        with pytest.raises(ValueError, match=text):
            measure(model, x, y, **options)

    fails("loss 'hinge'; expected 'cross_entropy' or 'mse'", x, loss="hinge")
    fails(r"y is None; expected \(8,\) and torch.int64, one label for each sample", None)
    fails(r"y has shape \(8, 3\).* targets of the outputs' shape, \(8, 4\)", x[:, :3], loss="mse")
    fails("dtype torch.int64; a mean squared error expects", torch.zeros(8, 4, dtype=torch.int64), loss="mse")
    fails("1 of 32 targets are not finite", torch.where(x == x.max(), torch.inf, x), loss="mse")
    fails(r"y is None, but the Hessian of this network depends on its targets \('1' \(Tanh\) is not", None, loss="mse")
    fails("relative_error 0; expected a positive number", x, loss="mse", relative_error=0)
    fails("diagonals come from the exact method only, and '1' \\(Tanh\\)", x, loss="mse", diagonals=True)
    with pytest.raises(ValueError, match=r"the model returns shape \(2,\) for 2 samples; expected outputs of shape"):
        measure(nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), x, x, loss="mse")
