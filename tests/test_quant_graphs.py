"""Convolutions, sums, pools, tables: their training against the straight-through definition, their integers against it.

Random models go the whole way: read, quantized, calibrated, trained a few steps, frozen, lowered; then every integer of
evaluation is the interpreter's, and in double precision training computes what evaluation does.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from model_strategies import RandomNet, models
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow import interpret
from hawq_flow.lower import lower
from hawq_flow.network import Add, Conv, IntegerNetwork, Lookup, Op, Pad, Requantize, SumPool, verify
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.plan import BitPlan
from hawq_flow.quant import QuantConfig, QuantNetwork, quantize
from hawq_flow.topology import read
from hawq_flow.topology.operations import TABLES


def quantized(
    model: nn.Module,
    shape: tuple[int, ...],
    *,
    weight: int = 4,
    activation: int = 5,
    inputs: int = 8,
    output: int = 10,
    rows: int = 48,
    double: bool = True,
    **config: Any,
) -> tuple[QuantNetwork, Tensor]:
    """A calibrated network and the standardized data it was calibrated on."""
    plan = BitPlan.homogeneous(read(model, shape).shapes, weight, activation, input_bits=inputs, output_bits=output)
    net = quantize(model, plan, QuantConfig(**config), input_shape=shape)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, *shape, generator=generator, dtype=torch.float64) * 2 + 0.3
    if double:
        net.double()
    net.calibrate(x if double else x.float())
    return net, x


def step(net: QuantNetwork, x: Tensor, steps: int = 3, lr: float = 3e-3) -> None:
    """A few steps of training towards nothing in particular."""
    net.train()
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=lr)
    q = net.quantize_input(x)
    for i in range(steps):
        out = net.train_forward(q)
        loss = (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)).sum() + out.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i == steps - 2:
            net.freeze()


def equal(net: QuantNetwork, x: Tensor) -> IntegerNetwork:
    """Every integer of evaluation is the interpreter's and the plain definition's."""
    network = lower(net.eval())
    verify(network)
    data = torch.cat([x, x * 4, torch.zeros_like(x[:1]), x[:8] * 1e6])
    integers = network.inputs[0].integers(data.numpy())
    expected, found = net.integers(data), interpret.trace(network, integers)
    reference = interpret.reference(network, integers)
    assert set(expected) == set(found)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value.numpy(), err_msg=name)
        np.testing.assert_array_equal(found[name], reference[name], err_msg=name)
    spec = network.outputs[0]
    np.testing.assert_array_equal(net(data).numpy(), spec.scale * (found[spec.name] - spec.zero_point))
    return network


def only(network: IntegerNetwork, kind: type[Op]) -> list[Any]:
    return [op for op in network.ops if isinstance(op, kind)]


CONFIGS = st.fixed_dictionaries(
    {
        "asymmetric": st.booleans(),
        "learn_scales": st.booleans(),
        "per_channel": st.booleans(),
        "multiplier_bits": st.sampled_from([1, 2, 8, 16]),
        "rounding": st.sampled_from(Rounding),
        "table_bits": st.sampled_from([4, 8]),
        "weight": st.integers(2, 8),
        "activation": st.integers(2, 8),
        "inputs": st.integers(2, 12),
    }
)


def whole_way(model: tuple[RandomNet, tuple[int, ...]], config: dict[str, Any]) -> None:
    try:
        net, x = quantized(*model, rows=24, **config)
        step(net, x)
    except ValueError as error:  # the one refusal there is: a ReLU6 that multipliers of few bits cannot end at 6
        if config["multiplier_bits"] >= 8 or "ReLU6 behind integers of a much coarser scale" not in str(error):
            raise
        reject()
    with torch.no_grad():
        trained = net.train().train_forward(net.quantize_input(x))
        evaluated = net.eval()(x)
    if config["rounding"] is Rounding.HALF_EVEN:  # training rounds to nearest, even on ties; the others differ there
        torch.testing.assert_close(trained, evaluated, rtol=1e-9, atol=1e-9 * float(evaluated.abs().max() + 1))
    equal(net, x)


@settings(max_examples=25)
@given(models(), CONFIGS)
def test_random_models_go_the_whole_way(model: tuple[RandomNet, tuple[int, ...]], config: dict[str, Any]) -> None:
    whole_way(model, config)


@pytest.mark.slow
@settings(max_examples=600)
@given(models(max_steps=10), CONFIGS)
def test_many_random_models_go_the_whole_way(model: tuple[RandomNet, tuple[int, ...]], config: dict[str, Any]) -> None:
    whole_way(model, config)


# ------------------------------------------------------------------------------------------------ gradients by hand


class Step(torch.autograd.Function):
    """LSQ's quantizer: S * (clip(round(v / S + z)) - z), gradients of v and log S straight-through."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, scale: Tensor, log: Tensor, low: Tensor, high: Tensor) -> Tensor:  # type: ignore[override]
        steps = torch.round(v / scale * 2.0**30) * 2.0**-30  # dyadic sums are ties exactly, whatever v / scale loses
        rounded = torch.round(steps)
        q = torch.minimum(torch.maximum(rounded, low), high)
        # On the edge itself (a tie of dyadic sums) the gradient stops, as a clip's does.
        ctx.save_for_backward(v, scale, q, (steps > low - 0.5) & (steps < high + 0.5))
        ctx.log_shape = log.shape
        return scale * q

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        v, scale, q, inside = ctx.saved_tensors
        log = grad * (scale * q - v * inside)
        return grad * inside, None, log.sum_to_size(ctx.log_shape), None, None


class Residual(nn.Module):
    """Convolutions, a residual sum of unequal scales, a concatenation, an average, a table, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(2, 4, (3, 2), padding=(1, 0))
        self.b = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.c = nn.Conv2d(4, 3, 1)
        self.fc = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.a(x))
        h = torch.relu(self.b(h) + h)
        h = torch.cat([h, torch.tanh(self.c(h))], 1)
        return self.fc(h.mean((2, 3)))


def hand_model(net: QuantNetwork, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """``Residual`` in real units with LSQ's quantizers, on leaf copies of the parameters."""
    leaves = {n: p.detach().clone().requires_grad_(p.requires_grad) for n, p in net.named_parameters()}
    layers = {layer.name: (i, layer) for i, layer in enumerate(net.layers)}
    joints = {part.stage.kind: (i, part) for i, part in enumerate(net.joints)}  # type: ignore[union-attr]
    scales = {"x": net.input_scale}

    def weights(name: str, source: str) -> tuple[Tensor, Tensor, Tensor]:
        i, layer = layers[name]
        m, scale_w, scale_a = layer.scales(scales[source])  # type: ignore[operator]
        scales[name] = scale_a
        w, b = leaves[f"layers.{i}.weight"], leaves[f"layers.{i}.bias"]
        shape = (-1,) + (1,) * (w.ndim - 1)
        top = layer.weight_top.reshape(shape)  # type: ignore[union-attr,operator]
        log = leaves[f"layers.{i}.log_weight_scale"].reshape(shape)
        w = Step.apply(w, scale_w.reshape(shape), log, -top, top)
        return w, b + (torch.round(b / (m * scale_a)) * (m * scale_a) - b).detach(), leaves[f"layers.{i}.log_scale"]

    def ended(v: Tensor, scale: Tensor, log: Tensor, type: IntType) -> Tensor:
        low, high = (torch.tensor(float(end), dtype=v.dtype) for end in type.range)
        return Step.apply(v, scale, log, low, high)

    def layer(name: str, source: str, value: Tensor, **geometry: Any) -> Tensor:
        w, b, log = weights(name, source)
        v = functional.linear(value, w, b) if w.ndim == 2 else functional.conv2d(value, w, b, **geometry)
        return ended(v, scales[name], log, layers[name][1].out_type)  # type: ignore[arg-type]

    def joint(kind: str) -> tuple[Any, Tensor]:
        i, part = joints[kind]
        return part, leaves[f"joints.{i}.log_scale"]

    def nudged(value: Tensor, factor: float, scale: Tensor, target: Tensor) -> Tensor:
        """The operand as the snapped multiplier sees it: M * S_target instead of the true ratio."""
        return value * (factor * target / scale)

    h = layer("a", "x", net.quantize_input(x) * net.input_scale, padding=(1, 0))
    y = layer("b", "a", h, padding=1, groups=4)
    part, log = joint("add")
    scale = torch.tensor(part.scale_value, dtype=torch.float64)
    fine = scale * 2.0**-part.guard
    operands = [
        ended(nudged(v, m, scales[s], fine), fine, log, t)
        for v, m, s, t in zip((y, h), part.factors, ("b", "a"), part.types, strict=True)
    ]
    h = ended(operands[0] + operands[1], scale, log, part.out_type)
    scales["add"] = scale
    z = layer("c", "add", h)
    part, log = joint("table")
    scale_t = torch.tensor(part.scale_value, dtype=torch.float64)
    z = ended(torch.tanh(z), scale_t, log, part.out_type)
    part, log = joint("concat")
    scale_c = torch.tensor(part.scale_value, dtype=torch.float64)
    h = torch.cat(
        [
            ended(nudged(v, m, s, scale_c), scale_c, log, part.operand_type(i))
            for i, (v, m, s) in enumerate(zip((h, z), part.factors, (scale, scale_t), strict=True))
        ],
        1,
    )
    part, log = joint("average")
    scale_m = torch.tensor(part.scale_value, dtype=torch.float64)
    h = ended(h.mean((2, 3)), scale_m, log, part.out_type)
    scales["average"] = scale_m
    return layer("fc", "average", h), leaves


@pytest.mark.parametrize("options", [{}, {"per_channel": False}, {"multiplier_bits": 3}, {"freeze": True}], ids=str)
def test_gradients_equal_the_straight_through_definition(options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    options = dict(options)
    freeze = options.pop("freeze", False)
    net, x = quantized(Residual().double(), (2, 5, 4), **options)
    with torch.no_grad():  # off the calibrated point: some weights and activations clip
        for parameter in net.parameters():
            if parameter.ndim == 0:
                parameter -= 0.2
    if freeze:
        net.freeze()
    net.train()
    out = net.train_forward(net.quantize_input(x))
    weights = torch.randn(out.shape, dtype=torch.float64)
    expected, leaves = hand_model(net, x)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    compared = 0
    for name, parameter in net.named_parameters():
        mine, theirs = parameter.grad, leaves[name].grad
        assert parameter.requires_grad == (mine is not None), name
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-8, msg=lambda m, name=name: f"{name}: {m}")
            compared += int(mine.abs().sum() > 0)
    assert compared >= (16 if not freeze else 8)


def test_batch_norm_of_convolutions_uses_all_positions_until_frozen() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)).double()
    net, x = quantized(model, (2, 5, 4))
    reference = copy.deepcopy(net.layers[0].batch_norm)
    assert isinstance(reference, nn.BatchNorm2d)
    net.train()
    q = net.quantize_input(x)
    net.train_forward(q)
    layer = net.layers[0]
    reference.train()(functional.conv2d(q * net.input_scale, layer.weight, layer.bias))  # type: ignore[arg-type]
    torch.testing.assert_close(layer.batch_norm.running_mean, reference.running_mean)  # type: ignore[union-attr]
    torch.testing.assert_close(layer.batch_norm.running_var, reference.running_var)  # type: ignore[union-attr]
    net.freeze()
    before = layer.batch_norm.running_mean.clone()  # type: ignore[operator,union-attr]
    net.train_forward(q)
    assert torch.equal(before, layer.batch_norm.running_mean)  # type: ignore[arg-type,union-attr]


# ------------------------------------------------------------------------------------------- what the integers mean


@pytest.mark.parametrize("bits", [3, 8])
@pytest.mark.parametrize("multiplier_bits", [1, 8])
def test_relu6_saturates_where_six_is(bits: int, multiplier_bits: int) -> None:
    """No output integer means more than 6, and inputs beyond it reach the largest integer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 2, 1, bias=False), nn.ReLU6(), nn.Conv1d(2, 1, 1))
    with torch.no_grad():
        model[0].weight.fill_(1.0)
    net, _ = quantized(model, (1, 4), activation=bits, multiplier_bits=multiplier_bits)
    net.calibrate(torch.linspace(-20, 20, 4000, dtype=torch.float64).reshape(-1, 1, 4))
    net.freeze()
    network = equal(net, torch.linspace(-20, 20, 400, dtype=torch.float64).reshape(-1, 1, 4))
    scale, top = float(net.layers[0].frozen_scale), net.layers[0].out_type.range[1]  # type: ignore[operator,union-attr]
    assert top * scale <= 6.0 + 1e-12
    assert network.op("_0_requant").type == IntType(bits, False)  # type: ignore[union-attr]
    with torch.no_grad():
        values = net.integers(torch.full((1, 1, 4), 7.0, dtype=torch.float64))["_0_requant"]
    assert (values == top).all()


def test_branches_of_a_sum_are_requantized_each() -> None:
    torch.manual_seed(0)
    net, x = quantized(Residual(), (2, 5, 4), multiplier_bits=8)
    net.freeze()
    network = equal(net, x)
    (total,) = only(network, Add)
    assert total.operands == ("add_in0", "add_in1")
    branches = [network.op(name) for name in total.operands]
    assert all(isinstance(op, Requantize) for op in branches)
    after = network.op("add_requant")
    assert isinstance(after, Requantize)
    assert (int(after.multiplier), int(after.shift)) == (1, 4)  # four guard bits
    values = interpret.trace(network, network.inputs[0].integers(x.numpy()))
    output = net.integer_steps()[1]
    assert output.type.max_bits == 10
    # The sum in real units is the sum of its operands in real units, to half a step of the result and the snapping.
    layers = {layer.name: layer for layer in net.integer_layers()}
    scale = float(net.joints[0].frozen_scale)  # type: ignore[operator,union-attr]
    real = layers["a"].scale * values["a_requant"] + layers["b"].scale * values["b_requant"]
    error = np.abs(scale * values["add_requant"] - np.clip(real, 0, scale * after.type.range[1]))
    assert error.max() <= 0.6 * scale + 2.0**-8 * np.abs(real).max()


class TwoBranches(nn.Module):
    """``activation(a(x) + b(x))``, then a layer."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = lambda h: h) -> None:
        super().__init__()
        self.a, self.b, self.o, self.activation = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), activation

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.activation(self.a(x) + self.b(x)))


def test_branches_that_cancel_are_not_cut() -> None:
    """Operands ten times as large as their sum: nothing saturates before it."""
    torch.manual_seed(0)
    model = TwoBranches()
    with torch.no_grad():
        model.a.weight.copy_(torch.randn(6, 6) * 5)
        model.b.weight.copy_(-model.a.weight + 0.3 * torch.randn(6, 6))
    net, x = quantized(model, (6,), weight=10, activation=12, inputs=12, rows=300)
    net.freeze()
    equal(net, x)
    with torch.no_grad():
        real = model.double()(x)
        error = (net.eval()(x) - real).square().sum() / real.square().sum()
    assert float(error) < 1e-2


@pytest.mark.parametrize("multiplier_bits", [3, 4, 8])
@pytest.mark.parametrize("factor", [0.3, 3.0, 10.0])
def test_relu6_of_a_sum_ends_at_six(multiplier_bits: int, factor: float) -> None:
    torch.manual_seed(0)
    model = TwoBranches(functional.relu6)
    with torch.no_grad():
        model.a.weight.mul_(factor)
        model.b.weight.mul_(factor)
    refused = "'add': ReLU6 behind integers of a much coarser scale needs multipliers of more than"
    if factor >= 2.0 ** (multiplier_bits - 2):  # the operands' steps are too coarse beside 6 / 255
        with pytest.raises(ValueError, match=refused):
            quantized(model, (6,), weight=8, activation=8, multiplier_bits=multiplier_bits)
        return
    net, x = quantized(model, (6,), weight=8, activation=8, multiplier_bits=multiplier_bits)
    net.freeze()
    equal(net, x)
    part = net.joints[0]
    assert float(part.frozen_scale) * part.out_type.range[1] <= 6 + 1e-6  # type: ignore[operator,union-attr]


@pytest.mark.parametrize("multiplier_bits", [4, 5, 8])
def test_relu6_that_stands_alone_ends_at_six(multiplier_bits: int) -> None:
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.o = nn.Conv1d(1, 2, 1), nn.Conv1d(1, 2, 1), nn.Conv1d(4, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(functional.relu6(torch.cat([self.a(x), self.b(x)], 1)))

    model = Net()
    with torch.no_grad():
        model.a.weight.mul_(6)
    net, x = quantized(model, (1, 5), weight=8, activation=6, multiplier_bits=multiplier_bits)
    net.freeze()
    equal(net, x)
    part = next(part for part in net.joints if part.stage.kind == "activation")  # type: ignore[union-attr]
    assert float(part.frozen_scale) * part.out_type.range[1] <= 6 + 1e-6  # type: ignore[operator,union-attr]


def test_averages_divide_exactly() -> None:
    """The scale follows the multiplier: the integer is the mean over windows, correctly rounded in its own unit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 1), nn.AvgPool2d((3, 2), 1, (1, 0)), nn.Flatten(), nn.Linear(45, 2))
    net, x = quantized(model, (1, 5, 4))
    net.freeze()
    network = equal(net, x)
    (pool,) = only(network, SumPool)
    values = interpret.trace(network, network.inputs[0].integers(x.numpy()))
    layers = {layer.name: layer for layer in net.integer_layers()}
    real = functional.avg_pool2d(torch.from_numpy(values["_0_requant"] * layers["0"].scale), (3, 2), 1, (1, 0)).numpy()
    scale = float(net.joints[0].frozen_scale)  # type: ignore[operator,union-attr]
    requant = network.op(pool.name + "_requant")
    assert isinstance(requant, Requantize)
    low, high = requant.type.range
    wanted = np.clip(real / scale, low, high)
    assert np.abs(values[requant.name] - wanted).max() <= 0.5 + 1e-9


@pytest.mark.parametrize("name", sorted(TABLES))
@pytest.mark.parametrize("asymmetric", [False, True])
def test_tables_hold_the_function_rounded_once(name: str, asymmetric: bool) -> None:
    torch.manual_seed(0)
    module, function, _ = TABLES[name]
    model = nn.Sequential(nn.Conv1d(2, 3, 2), module(), nn.Conv1d(3, 2, 2))
    net, x = quantized(model, (2, 6), asymmetric=asymmetric, table_bits=6, activation=7)
    net.freeze()
    network = equal(net, x)
    (table,) = only(network, Lookup)
    layer = net.integer_layers()[0]
    assert layer.type.max_bits == 6
    low, high = layer.type.range
    assert (table.start, table.table.size) == (low, high - low + 1)
    assert table.function.split(",")[0] == name
    part = net.joints[0]
    integers = torch.arange(low, high + 1, dtype=torch.float64)
    real = function((integers - layer.offset) * layer.scale)
    wanted = real / part.frozen_scale + part.zero_point  # type: ignore[operator]
    wanted = wanted.clamp(*part.out_type.range)  # type: ignore[union-attr]
    assert np.abs(table.table - wanted.numpy()).max() <= 0.5 + 1e-9
    assert len(set(table.table.tolist())) > 4


@pytest.mark.parametrize("bits", [4, 8, 12])
@pytest.mark.parametrize("classes", [2, 10, 37])
def test_softmax_in_integers_is_close_to_the_real_one(bits: int, classes: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, classes), nn.Softmax(1))
    with torch.no_grad():
        model[0].weight.mul_(4)
    net, x = quantized(model, (4,), weight=8, output=bits, table_bits=10, rows=200)
    step(net, x)
    network = equal(net, x)
    assert [op.kind for op in network.ops[2:]] == [
        *("ReduceMax", "Subtract", "Lookup", "ReduceSum", "Requantize", "Lookup", "Multiply", "Requantize")
    ]
    spec = network.outputs[0]
    values = interpret.trace(network, network.inputs[0].integers(x.numpy()))
    layer = net.integer_layers()[0]
    exact = torch.softmax(torch.from_numpy(layer.scale * (values["_0_requant"] - layer.offset)), 1).numpy()
    found = spec.scale * values[spec.name]
    assert np.abs(found - exact).max() <= 0.5 * spec.scale + 3e-3
    assert (found.argmax(1) == exact.argmax(1)).mean() > 0.95


def test_zero_points_of_padded_convolutions_become_pads() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, (3, 2), padding=(1, 1)), nn.Conv2d(2, 1, 3, padding=1))
    net, x = quantized(model, (1, 5, 4), asymmetric=True)
    net.freeze()
    network = equal(net, x + 1.0)
    pads, layers = only(network, Pad), net.integer_layers()
    assert [pad.value for pad in pads] == [layers[0].offset, layers[1].offset]
    assert all(pad.value for pad in pads)
    assert all(conv.padding == (0, 0, 0, 0) for conv in only(network, Conv))
    symmetric, x = quantized(model, (1, 5, 4))
    symmetric.freeze()
    network = equal(symmetric, x)
    assert not only(network, Pad)
    assert [conv.padding for conv in only(network, Conv)] == [(0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1)]


def test_sums_have_no_zero_points_on_their_operands() -> None:
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv1d(1, 2, 1), nn.Conv1d(1, 2, 1), nn.Conv1d(2, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.a(x) + self.b(x))

    net, x = quantized(Net(), (1, 5), asymmetric=True)
    net.freeze()
    equal(net, x)
    layers = {layer.name: layer for layer in net.integer_layers()}
    assert layers["a"].offset == layers["b"].offset == 0
    assert layers["a"].type.signed
    assert int(net.joints[0].zero_point) != 0  # type: ignore[operator,union-attr]


def test_per_channel_scales_stay_per_channel() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.Conv2d(4, 4, 1, groups=4), nn.Flatten())
    with torch.no_grad():
        model[0].weight.mul_(torch.tensor([1.0, 0.1, 3.0, 0.01]).reshape(4, 1, 1, 1))
    net, x = quantized(model, (2, 5, 4), multiplier_bits=6)
    net.freeze()
    network = equal(net, x)
    requant = network.op("_0_requant")
    assert isinstance(requant, Requantize)
    assert requant.multiplier.shape == requant.shift.shape == (4, 1, 1)
    factors = np.ldexp(requant.multiplier.astype(float), -requant.shift).ravel()
    assert np.unique(factors).size == 4
    assert factors[0] / factors[3] > 30


def test_dropout_is_in_training_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 4, 1), nn.ReLU(), nn.MaxPool1d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8, 2)
    )
    net, x = quantized(model, (1, 4))
    q = net.quantize_input(x)
    net.train()
    with torch.no_grad():
        assert not torch.equal(net.train_forward(q), net.train_forward(q))
        assert torch.equal(net.eval()(x), net.eval()(x))


@pytest.mark.parametrize("learn", [True, False])
def test_training_a_small_network_learns(learn: bool) -> None:
    """Bars in images, horizontal or vertical: two classes that only a convolution or its like can tell."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 1, 6, 6, generator=generator) * 0.3
    y = torch.arange(400) % 2
    for i, place in enumerate(torch.randint(0, 6, (400,), generator=generator)):
        if y[i]:
            x[i, 0, place] += 1
        else:
            x[i, 0, :, place] += 1
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 2),
    )
    plan = BitPlan.homogeneous(read(model, (1, 6, 6)).shapes, 3, 4, input_bits=6)
    net = quantize(model, plan, QuantConfig(learn_scales=learn), input_shape=(1, 6, 6))
    net.calibrate(x)
    net.train()
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=2e-2)
    q = net.quantize_input(x)
    for i in range(80):
        if i == 60:
            net.freeze()
        if i % 5 == 0:
            net.observe(q)
        loss = functional.cross_entropy(net.train_forward(q), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network = equal(net, x.double())
    found = interpret.run(network, network.inputs[0].integers(x.numpy())).argmax(1)
    assert (found == y.numpy()).mean() > 0.95


def test_evaluation_in_blocks_is_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net, x = quantized(Residual(), (2, 5, 4))
    net.freeze()
    whole, logits = net.integers(x), net.eval()(x)
    monkeypatch.setattr("hawq_flow.quant.network.BLOCK_ELEMENTS", 500)
    parts = net.integers(x)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert torch.equal(net(x), logits)
    assert net(x[:0]).shape == (0, 3)


def test_states_are_restored_with_their_joints() -> None:
    torch.manual_seed(0)
    net, x = quantized(Residual(), (2, 5, 4))
    step(net, x)
    other, _ = quantized(Residual(), (2, 5, 4))
    other.load_state_dict(net.state_dict())
    assert other.frozen
    assert lower(other) == lower(net)


def test_widths_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"table_bits 15; expected 2 to 14 \(a table has 2\^bits entries\)"):
        QuantConfig(table_bits=15)
    model = nn.Sequential(nn.Conv1d(1, 2, 1), nn.AvgPool1d(2))
    plan = BitPlan.homogeneous(read(model, (1, 4)).shapes, 4, 4, output_bits=2)
    assert quantize(model, plan, input_shape=(1, 4))
    torch.manual_seed(0)
    relu = nn.Sequential(nn.Conv1d(1, 2, 1), nn.ReLU(), nn.AvgPool1d(2))
    one = BitPlan.homogeneous(read(relu, (1, 4)).shapes, 4, 4, output_bits=1)
    assert quantize(relu, one, input_shape=(1, 4))

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Conv1d(1, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.a(x)) + x

    plan = BitPlan.homogeneous(read(Sum(), (1, 4)).shapes, 4, 4, output_bits=1)
    with pytest.raises(ValueError, match="'add': an output of 1 bit; signed activations need 2 or more"):
        quantize(Sum(), plan, input_shape=(1, 4))


def test_sums_overflowing_float64_are_refused_by_name() -> None:
    net, x = quantized(Residual(), (2, 5, 4), weight=24, activation=24, inputs=24, multiplier_bits=24)
    net.freeze()
    with pytest.raises(OverflowError, match=r"layer 'a': the product of accumulator and multiplier may reach 2\^\d+"):
        net.eval()(x)


def test_every_option_on_one_residual_network() -> None:
    for asymmetric, per_channel, learn, rounding in itertools.product(
        (False, True), (False, True), (False, True), Rounding
    ):
        torch.manual_seed(1)
        options = {"asymmetric": asymmetric, "per_channel": per_channel, "learn_scales": learn, "rounding": rounding}
        net, x = quantized(Residual(), (2, 5, 4), double=False, **options)
        step(net, x.float())
        equal(net, x)
    assert math.isfinite(float(net(x).abs().max()))


@pytest.mark.parametrize(("module", "bits"), [(nn.Softmax(1), 16), (nn.Sigmoid(), 17)])
def test_tables_over_too_many_bits_are_refused(module: nn.Module, bits: int) -> None:
    model = nn.Sequential(module, nn.Linear(4, 2))
    with pytest.raises(
        ValueError, match=rf"a table over integers of {bits} bits; expected {bits - 1} at most. Give what"
    ):
        quantized(model, (4,), inputs=bits)
