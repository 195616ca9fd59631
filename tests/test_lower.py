"""The bridge: what the quantized module computes in evaluation is what the integer network means, value by value."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hawq_flow import interpret
from hawq_flow.lower import lower, with_softmax
from hawq_flow.network import (
    Dense,
    InputSpec,
    IntegerNetwork,
    NetworkError,
    OutputSpec,
    Requantize,
    Reshape,
    verify,
)
from hawq_flow.numeric import IntType, Overflow, Rounding
from hawq_flow.plan import BitPlan, LayerBits
from hawq_flow.quant import QuantConfig, QuantNetwork, quantize
from hawq_flow.topology import identifier, read
from hawq_flow.train import TrainConfig, fit


class Dotted(nn.Module):
    """Names with dots, functions in forward, a layer without bias and an image for an input."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 7, bias=False), nn.BatchNorm1d(7))
        self.head = nn.ModuleDict({"out": nn.Linear(7, 3)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head["out"](torch.relu(self.body(torch.flatten(x, 1))))


def plain(**options: Any) -> nn.Sequential:
    norm, dropout, bias = options.get("batch_norm", False), options.get("dropout", 0.0), options.get("bias", True)
    layers: list[nn.Module] = [nn.Linear(6, 8, bias=bias)]
    layers += [nn.BatchNorm1d(8)] if norm else []
    layers += [nn.ReLU()]
    layers += [nn.Dropout(dropout)] if dropout else []
    layers += [nn.Linear(8, 5, bias=bias)]  # no ReLU: a signed activation between layers
    layers += [nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3, bias=bias)]
    return nn.Sequential(*layers)


def flat() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Flatten(), nn.Linear(6, 3))


def trained(
    model: nn.Module,
    weight: Any = 4,
    activation: Any = 5,
    inputs: int = 8,
    output: int = 10,
    shape: tuple[int, ...] | None = None,
    epochs: int = 2,
    damage: str = "",
    **config: Any,
) -> tuple[QuantNetwork, torch.Tensor]:
    torch.manual_seed(0)
    topology = read(model, shape)
    layers = {}
    for stage in topology.layers:
        n = stage.outputs

        def pick(bits, n=n):
            return tuple(bits[i % len(bits)] for i in range(n)) if isinstance(bits, tuple) else bits

        layers[stage.name] = LayerBits(pick(weight), pick(activation))
    layers[topology.output] = LayerBits(layers[topology.output].weight, output)
    net = quantize(model, BitPlan.of({"x": inputs}, layers), QuantConfig(**config), input_shape=shape)
    with torch.no_grad():
        if damage == "zero":
            for layer in net.layers:
                layer.weight.zero_()  # type: ignore[operator,union-attr]
        elif damage == "dead":
            net.layers[0].weight.zero_()  # type: ignore[operator,union-attr]
            net.layers[0].bias.fill_(-3.0)  # type: ignore[operator,union-attr]
        elif damage == "channel":
            net.layers[0].weight[1].zero_()  # type: ignore[operator,union-attr,index]
    x = torch.randn(96, *topology.input_shape) * 1.7 + 0.2
    y = np.arange(96) % 3
    if epochs:
        fit(net, x.numpy(), y, TrainConfig(epochs=epochs, batch_size=32, lr=5e-3))
    else:
        net.calibrate(x)
        net.freeze()
        net.eval()
    return net, x


def equal(net: QuantNetwork, x: torch.Tensor) -> IntegerNetwork:
    """Assert that every integer of evaluation is the interpreter's, and the logits its output times one scale."""
    network = lower(net)
    # Twice the range: the input saturates too.
    data = torch.cat([x, x * 4, torch.zeros_like(x[:1]), x[:8] * 1e6])
    integers = network.inputs[0].integers(data.numpy())
    expected = net.integers(data)
    found = interpret.trace(network, integers)
    assert set(expected) == set(found)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value.numpy(), err_msg=name)
    reference = interpret.reference(network, integers)
    assert all((reference[name] == found[name]).all() for name in found)
    output = network.outputs[0]
    logits = net.eval()(data)
    assert logits.dtype == torch.float64
    np.testing.assert_array_equal(logits.numpy(), output.scale * (found[output.name] - output.zero_point))
    assert output.scale.shape == output.zero_point.shape == ()  # one common scale: the integer argmax is the argmax
    np.testing.assert_array_equal(found[output.name].argmax(1), logits.argmax(1).numpy())
    verify(network)
    return network


GRID = [
    {"per_channel": p, "asymmetric": a, "rounding": r, "learn_scales": ls, "batch_norm": bn}
    for p, a, r, ls, bn in itertools.product((True, False), (True, False), Rounding, (True, False), (True, False))
]


@pytest.mark.parametrize("options", GRID, ids=lambda o: "-".join(str(getattr(v, "value", v)) for v in o.values()))
def test_evaluation_is_the_integer_network(options: dict[str, Any]) -> None:
    options = dict(options)
    equal(*trained(plain(batch_norm=options.pop("batch_norm"), dropout=0.2), **options))


@pytest.mark.parametrize("bits", range(1, 25))
def test_every_width_of_multipliers(bits: int) -> None:
    network = equal(*trained(plain(), multiplier_bits=bits, epochs=1))
    for op in network.ops:
        if isinstance(op, Requantize):
            assert int(op.multiplier.max()) < 2**bits


@pytest.mark.parametrize("width", range(2, 17))
def test_every_width_of_weights_activations_and_inputs(width: int) -> None:
    for asymmetric in (False, True):
        net, x = trained(plain(), width, width, width, width, epochs=1, asymmetric=asymmetric, multiplier_bits=8)
        network = equal(net, x)
        for op in network.ops:
            if isinstance(op, Dense):
                assert np.abs(op.weight).max() <= 2 ** (width - 1) - 1
            elif isinstance(op, Requantize):
                assert op.type.bits == width
        assert network.inputs[0].type.bits == width


@pytest.mark.parametrize("observer", ["minmax", "moving_average", "percentile", "mse"])
@pytest.mark.parametrize("learn_scales", [True, False])
def test_every_observer(observer: str, learn_scales: bool) -> None:
    for asymmetric in (False, True):
        options = {"input_observer": observer, "activation_observer": observer, "percentile": 98.0}
        equal(*trained(plain(), learn_scales=learn_scales, asymmetric=asymmetric, **options))


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_widths_of_each_channel(per_channel: bool, asymmetric: bool) -> None:
    network = equal(
        *trained(plain(batch_norm=True), (2, 3, 7, 5), (3, 8, 2), asymmetric=asymmetric, per_channel=per_channel)
    )
    first, requant = network.ops[:2]
    assert isinstance(first, Dense)
    assert isinstance(requant, Requantize)
    assert requant.type.bits == (3, 8, 2, 3, 8, 2, 3, 8)
    assert (np.abs(first.weight).max(axis=1) <= [1, 3, 63, 15, 1, 3, 63, 15]).all()


@pytest.mark.parametrize("damage", ["zero", "dead", "channel"])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_dead_layers_and_zero_weights(damage: str, asymmetric: bool) -> None:
    for weight_scale in ("max", "mse"):
        options: dict[str, Any] = {"damage": damage, "asymmetric": asymmetric, "weight_scale": weight_scale}
        network = equal(*trained(plain(), epochs=0, **options))
        weight = network.ops[0].weight  # type: ignore[union-attr]
        assert (weight[1] == 0).all()
        equal(*trained(plain(), learn_scales=False, **options))


def test_flattened_images_and_names_with_dots() -> None:
    network = equal(*trained(flat(), shape=(1, 4, 4)))
    assert [op.name for op in network.ops] == ["_0", "_1", "_1_requant", "_4", "_4_requant"]
    assert isinstance(network.ops[0], Reshape)
    assert network.inputs[0].shape == (1, 4, 4)
    network = equal(*trained(Dotted(), shape=(1, 4, 4), asymmetric=True))
    assert [op.name for op in network.ops] == [
        "flatten",
        "body_0",
        "body_0_requant",
        "head_out",
        "head_out_requant",
    ]
    assert [op.layer for op in network.ops] == ["", "body.0", "body.0", "head.out", "head.out"]
    assert identifier("head.out") == "head_out"


def test_without_biases() -> None:
    network = equal(*trained(plain(bias=False), epochs=0))
    assert (network.ops[0].bias == 0).all()  # type: ignore[union-attr]


def test_biases_beyond_24_bits_are_the_same_everywhere() -> None:
    model = plain()
    with torch.no_grad():
        model[0].bias.mul_(3e5)
    net, x = trained(model, 12, 16, 16, 16, epochs=0, activation_observer="percentile", percentile=60.0)
    net.layers[0].frozen_scale.mul_(2.0**-9)  # type: ignore[operator,union-attr]
    net.layers[0].shift.sub_(9).clamp_(min=0)  # type: ignore[operator,union-attr]
    network = equal(net, x)
    assert (np.abs(network.ops[0].bias) > 1 << 24).any()  # type: ignore[union-attr]


def test_what_is_copied() -> None:
    net, _ = trained(plain(), asymmetric=True, rounding=Rounding.HALF_UP)
    mean, std = np.arange(6.0), np.arange(1.0, 7.0)
    network = lower(net, mean=mean, std=std, metadata={"classes": "a,b,c", "title": "t"})
    spec = network.inputs[0]
    assert (spec.name, spec.shape, spec.type) == ("x", (6,), net.input_type)
    assert float(spec.scale) == float(net.input_scale)
    assert int(spec.zero_point) == int(net.input_zero_point) != 0
    assert (spec.mean == mean).all()
    assert (spec.std == std).all()
    assert network.metadata == (("classes", "a,b,c"), ("title", "t"))
    requants = [op for op in network.ops if isinstance(op, Requantize)]
    assert all(op.rounding is Rounding.HALF_UP and op.overflow is Overflow.SATURATE for op in requants)
    assert [int(op.offset) for op in requants] == [entry.offset for entry in net.integer_layers()]
    raw = np.random.default_rng(0).normal(size=(20, 6)) * std + mean
    standardized = torch.from_numpy((raw - mean) / std)
    found = interpret.run(network, spec.integers(raw))
    np.testing.assert_array_equal(found, net.integers(standardized)[network.outputs[0].name].numpy())


def test_lowering_twice_gives_the_same_network() -> None:
    net, _ = trained(plain())
    assert lower(net) == lower(net)
    assert lower(net).digest == lower(net).digest


def test_networks_that_are_not_frozen_are_refused() -> None:
    model = plain()
    net = quantize(model, BitPlan.homogeneous(read(model).shapes, 4, 4))
    net.calibrate(torch.randn(20, 6))
    with pytest.raises(ValueError, match=r"scales are not frozen; train it with train.fit, or call freeze"):
        lower(net)


def test_what_could_overflow_is_refused() -> None:
    net, _ = trained(plain(), 24, 24, 24, 24, epochs=0, multiplier_bits=24)
    with pytest.raises(NetworkError, match=r"may reach \d+ .*beyond the 2\^62"):
        lower(net)


def test_a_bad_standardization_is_refused() -> None:
    net, _ = trained(plain(), epochs=0)
    with pytest.raises(NetworkError, match="input 'x': std must be positive and finite"):
        lower(net, std=np.zeros(6))
    with pytest.raises(NetworkError, match="input 'x': mean of shape"):
        lower(net, mean=np.zeros(5))


def test_a_softmax_can_follow_a_trained_network() -> None:
    net, x = trained(plain(), output=16)
    network = lower(net)
    longer = with_softmax(network, table_bits=10, output_bits=12)
    rows = network.inputs[0].integers(x.numpy())
    logits, probabilities = interpret.run(network, rows), interpret.run(longer, rows)
    assert np.array_equal(probabilities, interpret.reference(longer, rows)[longer.outputs[0].name])
    exact = torch.softmax(torch.from_numpy(float(network.outputs[0].scale) * logits), 1).numpy()
    assert np.abs(probabilities * float(longer.outputs[0].scale) - exact).max() < 0.01
    assert len({tuple(row) for row in probabilities.tolist()}) > 10
    assert longer.metadata == network.metadata
    with pytest.raises(ValueError, match=r"expected a vector of signed logits"):
        with_softmax(longer)
    for widths in ({"table_bits": 1}, {"table_bits": 15}, {"output_bits": 17}):
        with pytest.raises(ValueError, match="expected 2 to 14 and 1 to 16"):
            with_softmax(network, **widths)


def test_a_softmax_reads_the_range_that_logits_reach() -> None:
    """A type far wider than its values costs no accuracy."""
    one, zero = np.asarray(1), np.asarray(0)
    ops = (
        Dense("d", "x", np.eye(3, dtype=np.int64), np.zeros(3, np.int64)),
        Requantize("wide", "d", one, zero, zero, IntType(16, True)),
    )
    network = IntegerNetwork((InputSpec("x", (3,), IntType(8, True)),), ops, (OutputSpec("wide", np.asarray(0.05)),))
    x = np.random.default_rng(0).integers(-128, 128, (100, 3))
    longer = with_softmax(network)
    exact = torch.softmax(torch.from_numpy(0.05 * x), 1).numpy()
    found = interpret.run(longer, x) * float(longer.outputs[0].scale)
    assert np.abs(found - exact).max() < 0.01
