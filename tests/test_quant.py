"""Quantization-aware training: snapped scales, straight-through gradients against a hand model, exact evaluation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hawq_flow.numeric import IntType, Rounding, nearest_dyadic, significant_bits
from hawq_flow.plan import BitPlan, Bits, LayerBits
from hawq_flow.quant import Observer, QuantConfig, QuantNetwork, activation_type, quantize, snap
from hawq_flow.topology import UnsupportedModelError, read


def mlp(
    seed: int = 0, *, batch_norm: bool = False, bias: bool = True, sizes: Sequence[int] = (6, 8, 5, 3)
) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for i, (n, m) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Linear(n, m, bias=bias))
        if i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(m), nn.ReLU()] if batch_norm else [nn.ReLU()]
    model = nn.Sequential(*layers)
    if batch_norm:
        for _ in range(4):
            model(torch.randn(64, sizes[0]))
    return model


def plan_of(model: nn.Module, weight: Bits, activation: Bits, inputs: int = 8, output: Bits = 10) -> BitPlan:
    stages = read(model).layers
    bits = {s.name: LayerBits(weight, activation) for s in stages}
    bits[stages[-1].name] = LayerBits(weight, output)
    return BitPlan.of({"x": inputs}, bits)


def network(
    model: nn.Module | None = None,
    *,
    weight: Bits = 4,
    activation: Bits = 5,
    inputs: int = 8,
    output: Bits = 10,
    **config: Any,
) -> QuantNetwork:
    """A calibrated network in double precision (so that training is exact enough to compare with anything)."""
    model = model or mlp()
    net = quantize(model, plan_of(model, weight, activation, inputs, output), QuantConfig(**config)).double()
    net.calibrate(data())
    return net


def data(n: int = 64, features: int = 6, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, features, generator=generator, dtype=torch.float64) * 2 + 0.3


# ------------------------------------------------------------------------------------------------------------- snapping


@pytest.mark.parametrize("bits", range(1, 25))
def test_snap_equals_nearest_dyadic(bits: int) -> None:
    rng = np.random.default_rng(bits)
    top = 2.0**bits - 0.5
    values = np.exp2(rng.uniform(-36, math.log2(top) - 1e-6, 1500))
    m, s = nearest_dyadic(values, bits)
    grid = m / np.exp2(s)
    ends = 2.0 ** np.arange(-36, bits)
    ties = (2 ** (bits - 1) + rng.integers(0, 2 ** (bits - 1), 300) + 0.5) * np.exp2(rng.integers(-35, 0, 300))
    values = np.concatenate(
        [values, grid, np.nextafter(grid, 0), np.nextafter(grid, 9e9), ends, np.nextafter(ends, 0), ties]
    )
    values = values[values < top]
    m, s = nearest_dyadic(values, bits)
    found = snap(torch.from_numpy(values), bits).numpy()
    np.testing.assert_array_equal(found, np.ldexp(m.astype(np.float64), -s))


CONFIGS = [
    {"per_channel": p, "asymmetric": a, "learn_scales": ls, "multiplier_bits": b}
    for p, a, ls, b in itertools.product((True, False), (True, False), (True, False), (1, 2, 8, 24))
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "-".join(map(str, c.values())))
def test_the_weight_scale_follows_the_snapped_multiplier(config: dict[str, Any]) -> None:
    """S_w == M * S_a / S_x to the last bit, M of the chosen bits, and weights and biases are rounded on these grids."""
    net = network(**config)
    zero = int(net.input_zero_point)
    for frozen in (False, True):
        if frozen:
            net.freeze()
        scale_in, zero = net.input_scale, int(net.input_zero_point)
        for layer, integers in zip(net.layers, net.integer_layers(), strict=True):
            m, scale_w, scale_a = layer.scales(scale_in)  # type: ignore[operator,misc]
            assert (scale_w == m * scale_a / scale_in).all()
            multiplier, shift = integers.multiplier, integers.shift
            assert (multiplier >= 1).all()
            assert (multiplier < 2 ** config["multiplier_bits"]).all()
            assert (np.ldexp(multiplier.astype(float), -shift) == m.numpy()).all()
            assert integers.scale == float(scale_a)
            top = 2 ** (4 - 1) - 1
            weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()  # type: ignore[operator,union-attr]
            q = np.clip(np.rint(weight / scale_w.numpy()[:, None]), -top, top)
            assert (integers.weight == q).all()
            b = np.rint(bias / (m.numpy() * float(scale_a))) - zero * q.sum(axis=1)
            assert (integers.bias == b.astype(np.float32)).all()
            scale_in, zero = scale_a, integers.offset


def test_biases_have_24_significant_bits_at_most() -> None:
    model = mlp()
    with torch.no_grad():
        model[0].bias.mul_(1e7)
    net = network(model, weight=12, inputs=16, activation=24, output=24)
    net.layers[0].log_scale.data -= 12  # type: ignore[operator,union-attr]
    bias = net.integer_layers()[0].bias
    assert (np.abs(bias) > 1 << 25).any()
    assert (bias == bias.astype(np.float32).astype(np.int64)).all()


def test_a_grid_is_never_much_finer_than_the_accumulators() -> None:
    for bits in (1, 3, 8):
        net = network(multiplier_bits=bits)
        net.layers[0].log_scale.data -= 30  # type: ignore[operator,union-attr]
        layer = net.integer_layers()[0]
        assert np.ldexp(layer.multiplier.astype(float), -layer.shift).max() <= 2.0 ** min(4, bits - 1)


# ------------------------------------------------------------------------------------------------- observers and ranges


def observed(
    kind: str,
    *batches: Sequence[float],
    type: IntType = IntType(8, True, True),  # noqa: B008
    asymmetric: bool = False,
    **config: Any,
) -> Observer:
    observer = Observer(kind, QuantConfig(**config), type, asymmetric)  # type: ignore[arg-type]
    for batch in batches:
        observer.observe(torch.as_tensor(batch))
    return observer


def test_minmax_keeps_the_extremes_and_zero() -> None:
    observer = observed("minmax", [1.0, 2.0], [-3.0, 0.5], [0.0])
    assert (observer.low, observer.high) == (-3.0, 2.0)
    assert observed("minmax", [1.0, 2.0]).low == 0.0
    assert observed("minmax", [-2.0, -1.0]).high == 0.0


def test_moving_average_moves_by_its_momentum() -> None:
    observer = observed("moving_average", [-1.0, 1.0], [-2.0, 3.0], momentum=0.25)
    assert (observer.low, observer.high) == (-1.25, 1.5)


def test_percentile_leaves_tails_out() -> None:
    values = np.arange(-500.0, 501.0)
    observer = observed("percentile", values, percentile=90.0)
    assert (observer.low, observer.high) == pytest.approx((-450.0, 450.0))
    unsigned = observed("percentile", np.arange(0.0, 1001.0), percentile=90.0, type=IntType(8, False))
    assert unsigned.high == pytest.approx(900.0)
    assert observed("percentile", values, percentile=100.0).high == 500.0
    both = observed("percentile", values, percentile=90.0, type=IntType(8, False), asymmetric=True)
    assert (both.low, both.high) == pytest.approx((-450.0, 450.0)), "what may be negative has two tails"


@pytest.mark.parametrize("type", [IntType(3, True, True), IntType(3, False)])
def test_mse_is_no_worse_than_minmax_and_clips_an_outlier(type: IntType) -> None:
    torch.manual_seed(0)
    values = torch.randn(4000, dtype=torch.float64)
    values = values.abs() if not type.signed else values
    values[0] = 30.0

    def error(kind: str) -> float:
        observer = observed(kind, values, type=type)
        scale, zero = observer.grid()
        q = torch.clamp(torch.round(values / scale) + zero, *type.range)
        return float(((q - zero) * scale - values).square().sum())

    assert error("mse") < 0.5 * error("minmax")


def test_mse_of_an_asymmetric_range_sees_both_sides() -> None:
    """A type with a zero point spends its integers on negative values as well; so must the search for its range."""
    torch.manual_seed(0)
    values = torch.randn(4000, dtype=torch.float64) - 1.0

    def error(kind: str) -> float:
        observer = observed(kind, values, type=IntType(6, False), asymmetric=True)
        scale, zero = observer.grid()
        q = torch.clamp(torch.round(values / scale) + zero, 0, 63)
        return float(((q - zero) * scale - values).square().sum())

    assert error("mse") <= error("minmax")


def test_symmetric_and_asymmetric_grids() -> None:
    observer = observed("minmax", [-1.0, 3.0])
    assert observer.grid() == (3.0 / 127, 0)
    unsigned = IntType(8, False)
    assert observed("minmax", [-1.0, 3.0], type=unsigned, asymmetric=True).grid() == (4.0 / 255, 64)
    assert observed("minmax", [-1.0, 3.0], type=unsigned).grid() == (3.0 / 255, 0)
    for asymmetric in (True, False):
        assert observed("minmax", [0.0, 0.0], type=unsigned, asymmetric=asymmetric).grid() == (1 / 255, 0)
    assert observed("minmax", [-5.0, -1.0], type=unsigned, asymmetric=True).grid()[1] == 255


def test_observers_refuse_nothing_and_nan() -> None:
    with pytest.raises(RuntimeError, match="nothing observed yet; calibrate the network on data"):
        observed("minmax").grid()
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="a value is NaN or infinite"):
            observed("minmax", [0.0, bad])


def test_weight_scales_start_where_they_should() -> None:
    model = mlp()
    tops = model[0].weight.detach().abs().amax(dim=1).double()
    net = network(model, weight_scale="max", multiplier_bits=24)
    scale = net.layers[0].log_weight_scale.detach().exp()[:, 0]  # type: ignore[operator,union-attr]
    torch.testing.assert_close(scale, tops / 7, rtol=1e-6, atol=0)
    one = network(model, weight_scale="max", per_channel=False).layers[0].log_weight_scale
    assert one.shape == (1, 1)  # type: ignore[union-attr]
    assert float(one.detach().exp()) == pytest.approx(float(tops.max()) / 7)  # type: ignore[operator,union-attr]

    def error(kind: str, per_channel: bool) -> float:
        layer = network(model, weight=3, weight_scale=kind, per_channel=per_channel, multiplier_bits=24).layers[0]
        step = layer.log_weight_scale.detach().exp()  # type: ignore[operator,union-attr]
        w = layer.weight.detach()  # type: ignore[operator,union-attr]
        return float((torch.clamp(torch.round(w / step), -3, 3) * step - w).square().sum())  # type: ignore[operator]

    for per_channel in (True, False):
        assert error("mse", per_channel) < error("max", per_channel)


def test_one_scale_for_channels_of_different_widths_serves_the_narrowest() -> None:
    """Per-tensor scale with per-channel widths: the order of the channels must not matter."""
    model = nn.Sequential(nn.Linear(6, 4))
    with torch.no_grad():
        model[0].weight[:] = torch.linspace(-1, 0.7, 6)
    errors = []
    for widths in ((2, 8, 8, 8), (8, 8, 8, 2)):
        config = QuantConfig(per_channel=False, multiplier_bits=24)
        net = quantize(model, BitPlan.of({"x": 8}, {"0": LayerBits(widths, 8)}), config)
        net.calibrate(data())
        layer = net.layers[0]
        step = layer.scales(net.input_scale)[1].numpy()  # type: ignore[operator]
        q = net.integer_layers()[0].weight
        errors.append(float(((q * step[:, None] - model[0].weight.detach().numpy()) ** 2).sum()))
    assert errors[0] == pytest.approx(errors[1], rel=1e-4)
    assert errors[0] < 0.75 * float((model[0].weight.detach() ** 2).sum())


# ------------------------------------------------------------------------------------------- gradients: the hand model


class Step(torch.autograd.Function):
    """LSQ's quantizer written from its paper: S * clip(round(v / S)), with its d/dv and d/dlog S."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, step: Tensor, log_step: Tensor, low: float, high: float) -> Tensor:
        # Real units carry rounding errors of 1e-16, and exact ties are common: the quotient is a multiple of 2^-36.
        rounded = torch.round(torch.round(v / step * 2.0**36) / 2.0**36)
        q = torch.clamp(rounded, low, high)
        ctx.save_for_backward(v, step, q, rounded == q)
        ctx.log_shape = log_step.shape
        return step * q

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        v, step, q, inside = ctx.saved_tensors
        log = grad * (step * q - v * inside)  # S * d(S q)/dS = S (q - v/S [inside])
        return grad * inside, None, log.sum_to_size(ctx.log_shape), None, None


def hand_model(net: QuantNetwork, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The whole network in real units, every quantizer LSQ's own, on leaf copies of the parameters."""
    leaves = {n: p.detach().clone().requires_grad_(p.requires_grad) for n, p in net.named_parameters()}
    value = net.quantize_input(x) * float(net.input_scale)
    scale_in = net.input_scale
    for i, layer in enumerate(net.layers):

        def get(name, i=i):
            return leaves[f"layers.{i}.{name}"]

        weight, bias = get("weight"), get("bias")
        norm = layer.batch_norm
        if norm is not None:
            gamma, beta = get("batch_norm.weight"), get("batch_norm.bias")
            y = value @ weight.T + bias
            mean, var = (norm.running_mean, norm.running_var) if layer.frozen else (y.mean(0), y.var(0, unbiased=False))  # type: ignore[union-attr]
            factor = gamma / torch.sqrt(var + norm.eps)  # type: ignore[operator,union-attr]
            weight, bias = weight * factor[:, None], (bias - mean) * factor + beta
        m, scale_w, scale_a = layer.scales(scale_in)  # type: ignore[operator,misc]
        top = layer.weight_top  # type: ignore[union-attr]
        w = Step.apply(weight, scale_w[:, None], get("log_weight_scale"), -top, top)
        grid = m * scale_a
        b = bias + (torch.round(bias / grid) * grid - bias).detach()
        low, high = layer.bounds(weight)  # type: ignore[operator,misc]
        value = Step.apply(value @ w.T + b, scale_a, get("log_scale"), low, high)
        scale_in = scale_a
    return value, leaves


GRADIENT_CONFIGS = [
    {"per_channel": True},
    {"per_channel": False},
    {"asymmetric": True},
    {"multiplier_bits": 1},
    {"multiplier_bits": 24},
    {"learn_scales": False},
    {"weight": (2, 3, 4, 5, 6, 7, 8, 9), "sizes": (6, 8, 8, 8)},
    {"activation": (2, 3, 4, 5, 6, 7, 8, 9), "output": (3, 4, 5, 6, 7, 8, 9, 10), "sizes": (6, 8, 8, 8)},
    {"weight": (2, 3, 4, 5, 6, 7, 8, 9), "sizes": (6, 8, 8, 8), "per_channel": False},
    {"batch_norm": True},
    {"batch_norm": True, "freeze": True},
    {"freeze": True},
    {"weight": 2, "activation": 2, "output": 3},
    {"weight": 8, "activation": 8, "output": 16},
]


@pytest.mark.parametrize("options", GRADIENT_CONFIGS, ids=str)
def test_gradients_equal_the_straight_through_definition(options: dict[str, Any]) -> None:
    """All of them: weights, biases, batch norm, LSQ's gradients of every scale, on a loss that weighs each output."""
    options = dict(options)
    model = mlp(batch_norm=options.pop("batch_norm", False), sizes=options.pop("sizes", (6, 8, 5, 3)))
    freeze = options.pop("freeze", False)
    net = network(model.double(), **options)
    with torch.no_grad():  # off the calibrated point: some weights and activations clip
        for layer in net.layers:
            layer.log_weight_scale -= 0.4  # type: ignore[operator]
            layer.log_scale -= 0.3  # type: ignore[operator]
    if freeze:
        net.freeze()
    net.train()
    x = data(40, seed=5)
    torch.manual_seed(9)
    out = net.train_forward(net.quantize_input(x))
    weights = torch.randn(out.shape, dtype=torch.float64)
    expected, leaves = hand_model(net, x)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    compared = 0
    for name, parameter in net.named_parameters():
        mine, theirs = parameter.grad, leaves[name].grad
        assert (mine is None) == (theirs is None), name
        assert parameter.requires_grad == (mine is not None), name
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-8, msg=lambda m, name=name: f"{name}: {m}")
            compared += int(mine.abs().sum() > 0)
    assert compared >= (6 if options.get("learn_scales", True) and not freeze else 4)


def test_clipping_stops_the_gradient_of_weights_and_activations() -> None:
    model = nn.Sequential(nn.Linear(1, 4, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [0.2], [-0.6], [0.0]]))
    net = network_of(model, LayerBits(3, 4))
    net.input_scale.fill_(0.05)
    layer = net.layers[0]
    with torch.no_grad():
        layer.log_weight_scale.fill_(math.log(0.2))  # integers -3..3: reach 0.6, and 0.7 still rounds inside
        layer.log_scale.fill_(math.log(0.1))  # -7..7: reach 0.7, and 40 * 0.05 * 0.6 is clipped
    net.train()
    out = net.train_forward(torch.tensor([[40.0]], dtype=torch.float64))
    out.sum().backward()
    step = layer.scales(net.input_scale)[1]  # type: ignore[operator]
    inside_weight = (model[0].weight.detach()[:, 0] / step).round().abs() <= 3
    pre = (model[0].weight.detach()[:, 0] / step).round().clamp(-3, 3) * step * 40.0 * float(net.input_scale)
    inside_out = (pre / 0.1).round().abs() <= 7
    gradient = layer.weight.grad[:, 0]  # type: ignore[index,union-attr]
    assert inside_weight.tolist() == [False, True, True, True]
    assert ((gradient != 0) == (inside_weight & inside_out)).all()
    assert bool((gradient != 0).any())
    assert not bool(inside_out.all())


def network_of(model: nn.Module, bits: LayerBits, **config: Any) -> QuantNetwork:
    net = quantize(model, BitPlan.of({"x": 8}, {"0": bits}), QuantConfig(**config)).double()
    net.calibrate(torch.linspace(-1, 1, 41, dtype=torch.float64)[:, None])
    return net


# ------------------------------------------------------------------------------------------- training equals evaluation


@pytest.mark.parametrize("multiplier_bits", [1, 4, 8, 24])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_the_training_forward_is_the_deployed_integers(asymmetric: bool, multiplier_bits: int) -> None:
    for widths in ((2, 2), (4, 5), (8, 8), (6, 12)):
        net = network(weight=widths[0], activation=widths[1], asymmetric=asymmetric, multiplier_bits=multiplier_bits)
        x = data(200, seed=3)
        with torch.no_grad():
            trained = net.train().train_forward(net.quantize_input(x))
            evaluated = net.eval()(x)
        torch.testing.assert_close(trained, evaluated, rtol=1e-12, atol=0)


def test_float32_training_computes_the_same_where_it_holds_the_integers() -> None:
    model = mlp()
    net = quantize(model, plan_of(model, 4, 5), QuantConfig())
    net.calibrate(data())
    x = data(300, seed=4)
    with torch.no_grad():
        trained = net.train().train_forward(net.quantize_input(x))
        evaluated = net.eval()(x)
    assert trained.dtype == torch.float32
    assert evaluated.dtype == torch.float64
    torch.testing.assert_close(trained.double(), evaluated, rtol=1e-6, atol=0)
    double = quantize(model, plan_of(model, 4, 5), QuantConfig()).double()
    double.load_state_dict(net.state_dict())
    assert torch.equal(double.eval()(x), evaluated)  # evaluation is the same whichever dtype trained


@pytest.mark.parametrize("rounding", [Rounding.FLOOR, Rounding.HALF_UP])
def test_other_roundings_train_as_they_deploy_but_for_ties(rounding: Rounding) -> None:
    net = network(rounding=rounding, multiplier_bits=24)
    x = data(400, seed=3)
    with torch.no_grad():
        trained = net.train().train_forward(net.quantize_input(x))
        evaluated = net.eval()(x)
        nearest = network(multiplier_bits=24).eval()(x)
    agree = (trained - evaluated).abs() < 1e-9 * float(evaluated.abs().max())
    assert agree.double().mean() > 0.98
    if rounding is Rounding.FLOOR:
        assert (nearest - evaluated).abs().max() > 0  # FLOOR is really another network


# -------------------------------------------------------------------------------------------------------- states, edges


def test_the_model_is_copied_not_changed() -> None:
    model = mlp(batch_norm=True)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    net = network(model)
    net.train()
    net.train_forward(net.quantize_input(data())).sum().backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 1.0
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_batch_norm_statistics_follow_the_batches_until_frozen() -> None:
    model = mlp(batch_norm=True).double()
    net = network(model)
    reference = nn.BatchNorm1d(8).double()
    reference.load_state_dict(net.layers[0].batch_norm.state_dict())  # type: ignore[operator,union-attr]
    net.train()
    q = net.quantize_input(data())
    net.train_forward(q)
    layer = net.layers[0]
    reference(nn.functional.linear(q * float(net.input_scale), layer.weight, layer.bias))  # type: ignore[arg-type]
    torch.testing.assert_close(layer.batch_norm.running_mean, reference.running_mean)  # type: ignore[union-attr]
    torch.testing.assert_close(layer.batch_norm.running_var, reference.running_var)  # type: ignore[union-attr]
    net.freeze()
    before = layer.batch_norm.running_mean.clone()  # type: ignore[operator,union-attr]
    net.train_forward(q)
    assert torch.equal(before, layer.batch_norm.running_mean)  # type: ignore[arg-type,union-attr]
    assert not any(p.requires_grad for p in layer.batch_norm.parameters())  # type: ignore[union-attr]


def test_dead_layers_and_zero_weights_have_integers() -> None:
    model = mlp()
    with torch.no_grad():
        model[0].weight.zero_()
        model[2].weight[1] = 0
        model[2].bias.fill_(-50.0)  # dead: ReLU gives zeros only
        model[4].weight.zero_()
        model[4].bias.zero_()
    for config in ({}, {"per_channel": False}, {"weight_scale": "max"}, {"asymmetric": True}, {"learn_scales": False}):
        net = network(model, **config)  # type: ignore[arg-type]
        net.freeze()
        assert torch.isfinite(net.eval()(data())).all()
        assert (net.integer_layers()[0].weight == 0).all()
        assert net.zero_fraction()["0"] == 1.0
    silent = network(activation_observer="minmax")
    silent.calibrate(torch.zeros(5, 6, dtype=torch.float64))
    assert torch.isfinite(silent.eval()(data())).all()


def test_zero_fraction_counts_integer_weights() -> None:
    net = network(weight=2)
    for layer in net.integer_layers():
        assert net.zero_fraction()[layer.name] == (layer.weight == 0).sum() / layer.weight.size


def test_load_state_dict_restores_a_network_exactly() -> None:
    net = network(asymmetric=True)
    net.freeze()
    model = mlp(7)
    other = quantize(model, plan_of(model, 4, 5), QuantConfig(asymmetric=True)).double()
    other.load_state_dict(net.state_dict())
    assert other.frozen
    x = data(50)
    assert torch.equal(other.eval()(x), net.eval()(x))


def test_recalibration_reaches_the_next_training_step() -> None:
    net = network()
    net.train()
    net.train_forward(net.quantize_input(data()))
    net.calibrate(data() * 7)
    fresh = network()
    fresh.calibrate(data() * 7)
    # Observers remember what they saw, so only the input's own scale is compared through a whole step.
    fresh.load_state_dict(net.state_dict())
    fresh.train()
    x = data(20) * 7
    with torch.no_grad():
        assert torch.equal(net.train_forward(net.quantize_input(x)), fresh.train_forward(fresh.quantize_input(x)))


def test_too_wide_a_product_is_an_overflow_error() -> None:
    net = network(weight=24, activation=24, inputs=24, output=24, multiplier_bits=24)
    with pytest.raises(
        OverflowError,
        match=r"layer '0': the product of accumulator and multiplier may reach 2\^\d+, beyond the 2\^53 that float64 "
        r"holds; use a multiplier of fewer bits",
    ):
        net.eval()(data())


def test_nan_weights_are_named() -> None:
    net = network()
    with torch.no_grad():
        net.layers[1].bias[0] = math.nan  # type: ignore[operator,index]
    with pytest.raises(ValueError, match="layer '2': a weight or bias is NaN or infinite; training has diverged"):
        net.eval()(data())


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"multiplier_bits": 0}, "multiplier_bits 0; expected 1 to 24"),
        ({"multiplier_bits": 25}, "multiplier_bits 25; expected 1 to 24"),
        ({"percentile": 50.0}, "percentile 50.0; expected above 50 and at most 100"),
        ({"percentile": 100.1}, "percentile 100.1"),
        ({"momentum": 0.0}, "momentum 0.0; expected above 0 and at most 1"),
        ({"input_observer": "max"}, "input_observer 'max'; expected minmax, moving_average, percentile or mse"),
        ({"activation_observer": "max"}, "activation_observer 'max'; expected minmax"),
        ({"weight_scale": "min"}, "weight_scale 'min'; expected max or mse"),
    ],
)
def test_bad_configurations_are_refused(config: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        QuantConfig(**config)


def test_plans_must_fit_the_model() -> None:
    model = mlp()
    with pytest.raises(ValueError, match="the plan's layers are 0, 2; the model's are 0, 2, 4"):
        quantize(model, BitPlan.of({"x": 8}, {"0": LayerBits(4, 4), "2": LayerBits(4, 4)}))
    with pytest.raises(ValueError, match="layer '0': weights of 1 bit; symmetric signed weights need 2 or more"):
        quantize(model, plan_of(model, 1, 4))
    with pytest.raises(ValueError, match="layer '4': an output activation of 1 bit; signed activations need 2 or more"):
        quantize(model, plan_of(model, 4, 4, output=1))
    with pytest.raises(ValueError, match="input 'x': 2 widths; the input has one width for all features"):
        quantize(model, plan_of(model, 4, 4, inputs=(4, 5)))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModelError, match="LogSoftmax"):
        quantize(nn.Sequential(nn.Linear(3, 3), nn.LogSoftmax(1)), plan_of(nn.Sequential(nn.Linear(3, 3)), 4, 4))
    assert network(weight=2, activation=1).layers[0].out_type == IntType(1, signed=False)  # one bit after ReLU is fine


def test_use_before_calibration_is_refused() -> None:
    model = mlp()
    net = quantize(model, plan_of(model, 4, 4))
    assert not net.calibrated
    for call in (lambda: net.quantize_input(data()), net.freeze, net.integer_layers, lambda: net.eval()(data())):
        with pytest.raises(RuntimeError, match=r"network not calibrated: call calibrate\(x\) on training data first"):
            call()
    with pytest.raises(ValueError, match="calibrate: no data; give at least one batch"):
        net.calibrate(torch.zeros(0, 6))


def test_inputs_of_another_shape_are_refused() -> None:
    net = network()
    with pytest.raises(ValueError, match=r"input of shape \(3, 5\); expected \(n, 6\)"):
        net.eval()(torch.zeros(3, 5))


def test_activation_types() -> None:
    assert activation_type(4, relu=True, asymmetric=False) == IntType(4, False)
    assert activation_type(4, relu=False, asymmetric=True) == IntType(4, False)
    assert activation_type((4, 5), relu=False, asymmetric=False) == IntType((4, 5), True, True)


def test_the_shared_zero_point_fits_the_narrowest_channel() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    plan = BitPlan.of({"x": 8}, {"0": LayerBits(8, (8, 3)), "1": LayerBits(8, 8)})
    network = quantize(model, plan, QuantConfig(asymmetric=True))
    network.calibrate(torch.randn(200, 3) - 1.0)
    zero = int(network.layers[0].zero_point)
    assert 0 <= zero <= 7, "0 must be representable in the channel of 3 bits"


def test_calibration_reads_quantized_activations() -> None:
    """The first layer clips at its 51st percentile, so that is the farthest the second can see."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    with torch.no_grad():
        for layer, weight in ((model[0], 1.0), (model[2], -1.0)):
            layer.weight.fill_(weight)
            layer.bias.zero_()
    plan = BitPlan.of({"x": 16}, {"0": LayerBits(8, 4), "2": LayerBits(8, 16)})
    network = quantize(model, plan, QuantConfig(activation_observer="percentile", percentile=51.0, weight_scale="max"))
    network.calibrate(torch.linspace(0, 1, 1001)[:, None])
    first, second = network.layers
    assert first.observer.high == pytest.approx(0.51, abs=2e-3)
    assert second.observer.low == pytest.approx(-0.51, abs=2e-3), "unquantized, it would be -0.755"


def test_the_folded_bias_is_rounded_to_24_bits_after_the_zero_point() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(400, 1))
    with torch.no_grad():
        model[0].weight.fill_(0.01).add_(torch.rand(1, 400) * 1e-4)
        model[0].bias.fill_(0.3)
    plan = BitPlan.of({"x": 16}, {"0": LayerBits(12, 16)})
    network = quantize(model, plan, QuantConfig(asymmetric=True))
    network.calibrate(torch.rand(300, 400) * 7 - 4)
    network.freeze()
    (layer,) = network.integer_layers()
    raw = int(layer.weight.sum()) * int(network.input_zero_point)
    assert abs(raw) > 1 << 24, "the case must need rounding"
    assert significant_bits(layer.bias).max() <= 24


# ------------------------------------------------------------------------------------------------- states and resuming


def test_a_loaded_state_is_what_the_next_step_trains_with() -> None:
    """Constants of training are made anew; what is frozen stays frozen, scales and batch norm included."""
    model = mlp(batch_norm=True)
    first, second = network(model), network(model)
    first.train()
    q = first.quantize_input(data())
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.mul_(1.3)
        expected = first.train_forward(q)
    second.train()
    second.train_forward(q)  # snaps its own scales, for the next ten steps
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        for norm in (m for m in (*first.modules(), *second.modules()) if isinstance(m, nn.BatchNorm1d)):
            norm.momentum = 0.0
        torch.testing.assert_close(second.train_forward(q), expected, rtol=0, atol=0)
    first.freeze()
    second.load_state_dict(first.state_dict())
    frozen = {name for name, p in first.named_parameters() if not p.requires_grad}
    assert {name for name, p in second.named_parameters() if not p.requires_grad} == frozen
    assert any("batch_norm" in name for name in frozen)


def test_another_dtype_makes_the_constants_anew() -> None:
    net = network().train()
    net.train_forward(net.quantize_input(data()))
    net.float()
    assert net.train_forward(net.quantize_input(data())).dtype == torch.float32


def test_a_frozen_network_is_not_calibrated_again() -> None:
    net = network()
    net.freeze()
    with pytest.raises(RuntimeError, match="calibrate: the network is frozen; its scales are what was trained"):
        net.calibrate(data())


def test_a_calibration_of_the_wrong_shape_changes_nothing() -> None:
    model = mlp()
    net = quantize(model, plan_of(model, 4, 5))
    with pytest.raises(ValueError, match=r"input of shape \(4, 7\); expected \(n, 6\)"):
        net.calibrate(torch.zeros(4, 7))
    assert not net.calibrated


def test_the_plan_decides_the_widths_of_a_loaded_state() -> None:
    """Widths are no part of a state: loaded into a wider plan, the same scales are used, and nothing is cut."""
    model = mlp()
    narrow, wide = network(model, weight=3), network(model, weight=8)
    with torch.no_grad():
        narrow.layers[0].log_weight_scale.sub_(2.0)  # type: ignore[operator,union-attr]
    wide.load_state_dict(narrow.state_dict())
    assert np.abs(narrow.integer_layers()[0].weight).max() == 3
    assert np.abs(wide.integer_layers()[0].weight).max() > 3


def test_biases_beyond_float64_are_refused_by_name() -> None:
    net = network()
    with torch.no_grad():
        net.layers[0].log_weight_scale.fill_(math.log(1e-30))  # type: ignore[operator,union-attr]
        net.layers[0].log_scale.fill_(math.log(1e-31))  # type: ignore[operator,union-attr]
        net.layers[0].bias.fill_(1.0)  # type: ignore[operator,union-attr]
    with pytest.raises(OverflowError, match=r"layer '0': a bias of .* steps of its accumulator, beyond the 2\^53"):
        net.eval()(data())
