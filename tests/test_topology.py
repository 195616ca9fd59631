"""Reading float models: what is supported is read as it is, everything else is refused by name.

The strongest test of reading is :func:`same`: the stages, evaluated one by one, give what the model itself gives.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune

from hawq_flow.topology import (
    INPUT,
    Topology,
    UnsupportedModelError,
    evaluate,
    fold_batch_norm,
    identifier,
    read,
)
from hawq_flow.topology.operations import TABLES


class Net(nn.Module):
    """A model from named layers and a forward function of (self, x)."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def same(model: nn.Module, shape: tuple[int, ...], rows: int = 3) -> Topology:
    """Read a model and hold the stages' values to the model's own output and shapes, in double precision."""
    generator = torch.Generator().manual_seed(0)
    model = copy.deepcopy(model).double()
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            for tensor in (module.running_mean, module.running_var, module.weight, module.bias):
                if tensor is not None:
                    tensor.data.uniform_(0.5, 1.5, generator=generator)
    found = read(model.eval(), shape)
    x = torch.randn(rows, *shape, generator=generator, dtype=torch.float64) * 3
    with torch.no_grad():
        expected = model(x.clone())
        values = evaluate(found, x)
    torch.testing.assert_close(values[found.output], expected, rtol=1e-12, atol=1e-12)
    for stage in found.stages:
        assert tuple(values[stage.name].shape[1:]) == stage.shape, stage.name
        if found.nonnegative(stage.name):
            assert bool((values[stage.name] >= 0).all()), stage.name
    assert found.output_shape == tuple(expected.shape[1:])
    return found


def kinds(found: Topology) -> list[str]:
    return [stage.kind for stage in found.stages]


def refused(model: nn.Module, text: str, shape: tuple[int, ...] | None = None) -> None:
    with pytest.raises(UnsupportedModelError, match=text):
        read(model, shape)


# -------------------------------------------------------------------------------------------------------- what is read


def test_a_sequential_with_everything() -> None:
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(6, 5),
        nn.BatchNorm1d(5),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Identity(),
        nn.Linear(5, 4, bias=False),
        nn.Linear(4, 3),
    )
    found = read(model, (2, 3))
    assert found.input_shape == (2, 3)
    assert found.output == "7"
    flat, first, second, third = found.stages
    assert (flat.name, flat.kind, flat.sources, flat.shape) == ("_0", "reshape", ("x",), (6,))
    assert (first.name, first.sources, first.activation, first.dropout) == ("1", ("_0",), "relu", 0.25)
    assert first.layer is model[1]
    assert first.batch_norm is model[2]
    assert first.batch_norm_name == "2"
    assert (second.name, second.sources, second.activation, second.batch_norm) == ("6", ("1",), "", None)
    assert (third.name, third.sources) == ("7", ("6",))
    assert [(s.name, s.fan_in, s.outputs, s.source, s.positions) for s in found.shapes] == [
        ("1", 6, 5, "x", 1),
        ("6", 5, 4, "1", 1),
        ("7", 4, 3, "6", 1),
    ]


FORWARDS: dict[str, Callable[..., Tensor]] = {
    "modules": lambda self, x: self.b(self.drop(self.act(self.a(self.flat(x))))),
    "functions": lambda self, x: self.b(functional.dropout(functional.relu(self.a(torch.flatten(x, 1))), 0.25)),
    "torch functions": lambda self, x: self.b(self.drop(torch.relu(self.a(torch.flatten(x, start_dim=1))))),
    "keywords": lambda self, x: self.b(
        functional.dropout(input=functional.relu(input=self.a(torch.flatten(input=x, start_dim=1))), p=0.25)
    ),
    "methods": lambda self, x: self.b(self.drop(self.a(x.flatten(1)).relu())),
    "in place": lambda self, x: self.b(self.drop(functional.relu(self.a(x.flatten(start_dim=1)), inplace=True))),
    "dropout before relu": lambda self, x: self.b(self.act(self.drop(self.a(self.flat(x))))),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_every_spelling_gives_the_same_stages(name: str) -> None:
    parts = {
        "a": nn.Linear(6, 4),
        "b": nn.Linear(4, 2),
        "act": nn.ReLU(),
        "drop": nn.Dropout(0.25),
        "flat": nn.Flatten(),
    }
    found = read(Net(FORWARDS[name], **parts), (1, 6))
    flat = found.stages[0]
    assert (flat.kind, flat.sources, flat.shape) == ("reshape", ("x",), (6,))
    assert [(s.name, s.sources, s.activation, s.dropout) for s in found.layers] == [
        ("a", (flat.name,), "relu", 0.25),
        ("b", ("a",), "", 0.0),
    ]


def test_nested_modules_keep_their_qualified_names() -> None:
    model = nn.ModuleDict({"body": nn.Sequential(nn.Linear(3, 4), nn.ReLU()), "head": nn.Linear(4, 2)})
    found = read(Net(lambda self, x: self.net["head"](self.net["body"](x)), net=model))
    assert [s.name for s in found.stages] == ["net.body.0", "net.head"]
    assert found.input_shape == (3,)


def test_names_become_identifiers() -> None:
    assert [identifier(n) for n in ("fc1", "layers.0", "0", "a-b")] == ["fc1", "layers_0", "_0", "a_b"]
    assert identifier("größe") == "gr__e"  # C++ and Verilog names are ASCII


def test_the_model_is_read_not_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()).train()
    before = copy.deepcopy(model.state_dict())
    read(model)
    assert model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


# ------------------------------------------------------------------------------------------ convolutions and their kin


class Block(nn.Module):
    """A residual block as torchvision writes it: one ReLU module called twice, in place, and ``out += identity``."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.down = None
        if stride > 1 or inputs != outputs:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.down is not None:
            identity = self.down(x)
        out += identity
        return self.relu(out)


def test_a_residual_network() -> None:
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)),
        Block(4, 4),
        Block(4, 6, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )
    found = same(model, (3, 33, 29))
    assert kinds(found) == [
        *("conv", "max", "conv", "conv", "add", "conv", "conv", "conv", "add", "average", "reshape", "linear")
    ]
    assert [s.name for s in found.layers] == ["0.0", "1.conv1", "1.conv2", "2.conv1", "2.conv2", "2.down.0", "5"]
    adds = [s for s in found.stages if s.kind == "add"]
    assert [s.activation for s in adds] == ["relu", "relu"]
    assert [s.sources for s in adds] == [("1.conv2", found.stages[1].name), ("2.conv2", "2.down.0")]
    assert [(s.name, s.fan_in, s.outputs, s.source, s.positions, s.joined) for s in found.shapes] == [
        ("0.0", 147, 4, "x", 17 * 15, ("1.conv2",)),
        ("1.conv1", 36, 4, "0.0", 9 * 8, ()),
        ("1.conv2", 36, 4, "1.conv1", 9 * 8, ()),
        ("2.conv1", 36, 6, "1.conv2", 5 * 4, ()),
        ("2.conv2", 54, 6, "2.conv1", 5 * 4, ("2.down.0",)),
        ("2.down.0", 4, 6, "1.conv2", 5 * 4, ()),
        ("5", 6, 5, "2.down.0", 1, ()),
    ]
    assert [stage.name for stage in found.readers[INPUT]] == ["0.0"]
    folded = fold_batch_norm(model, (3, 33, 29))
    x = torch.randn(2, 3, 33, 29)
    with torch.no_grad():
        torch.testing.assert_close(folded(x), model.eval()(x), rtol=1e-4, atol=1e-5)


SHAPED: dict[str, tuple[nn.Module, tuple[int, ...], list[str]]] = {
    "conv1d": (nn.Sequential(nn.Conv1d(2, 3, 4, 3, 2), nn.BatchNorm1d(3), nn.ReLU6()), (2, 11), ["conv"]),
    "same": (nn.Sequential(nn.Conv2d(2, 3, (2, 3), padding="same")), (2, 5, 4), ["conv"]),
    "valid": (nn.Sequential(nn.Conv2d(2, 3, (2, 3), padding="valid")), (2, 5, 4), ["conv"]),
    "depthwise": (nn.Sequential(nn.Conv2d(4, 8, (3, 2), (1, 2), (0, 1), groups=4)), (4, 5, 7), ["conv"]),
    "grouped": (nn.Sequential(nn.Conv1d(4, 6, 3, groups=2, bias=False)), (4, 6), ["conv"]),
    "max pools": (nn.Sequential(nn.Conv1d(1, 2, 1), nn.MaxPool1d(3, 2, 1)), (1, 9), ["conv", "max"]),
    "ceil that tiles": (
        nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(2, ceil_mode=True)),
        (1, 4, 6),
        ["conv", "max"],
    ),
    "averages": (
        nn.Sequential(nn.Conv2d(1, 2, 1), nn.AvgPool2d((3, 2), (2, 1), (1, 0)), nn.ReLU()),
        (1, 7, 5),
        ["conv", "average"],
    ),
    "average 1d": (nn.Sequential(nn.Conv1d(1, 2, 1), nn.AvgPool1d(3, 2, 1)), (1, 8), ["conv", "average"]),
    "divisor": (nn.Sequential(nn.Conv2d(1, 2, 1), nn.AvgPool2d(2, divisor_override=3)), (1, 4, 4), ["conv", "average"]),
    "adaptive": (nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d((2, None))), (1, 6, 5), ["conv", "average"]),
    "adaptive max": (nn.Sequential(nn.Conv1d(1, 2, 1), nn.AdaptiveMaxPool1d(3)), (1, 6), ["conv", "max"]),
    "upsample": (
        nn.Sequential(nn.Conv2d(1, 2, 1), nn.Upsample(scale_factor=(2, 3))),
        (1, 3, 2),
        ["conv", "upsample"],
    ),
    "upsample to": (nn.Sequential(nn.Conv1d(1, 2, 1), nn.Upsample(size=9)), (1, 3), ["conv", "upsample"]),
    "pad": (nn.Sequential(nn.ZeroPad2d((1, 2, 0, 3)), nn.Conv2d(1, 2, 2)), (1, 3, 4), ["pad", "conv"]),
    "decoder": (
        nn.Sequential(nn.Linear(3, 12), nn.Unflatten(1, (2, 3, 2)), nn.ReLU(), nn.Conv2d(2, 1, 2)),
        (3,),
        ["linear", "reshape", "conv"],
    ),
    "softmax": (nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1)), (3,), ["linear", "softmax"]),
    "softmax 2d": (nn.Sequential(nn.Conv2d(3, 4, 1), nn.Softmax(1)), (3, 2, 3), ["conv", "softmax"]),
    "relu of the input": (nn.Sequential(nn.ReLU(), nn.Linear(3, 4)), (3,), ["activation", "linear"]),
    "relu behind a pool": (nn.Sequential(nn.Conv1d(1, 2, 1), nn.MaxPool1d(2), nn.ReLU()), (1, 6), ["conv", "max"]),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
@pytest.mark.parametrize("name", SHAPED)
def test_layers_pools_and_shapes(name: str) -> None:
    model, shape, expected = SHAPED[name]
    assert kinds(same(model, shape)) == expected


@pytest.mark.parametrize("name", TABLES)
def test_functions_of_one_element_become_tables(name: str) -> None:
    module, function, _ = TABLES[name]
    for model in (
        nn.Sequential(nn.Linear(3, 4), module()),
        Net(lambda self, x: function(self.a(x)), a=nn.Linear(3, 4)),
    ):
        found = same(model, (3,))
        assert kinds(found) == ["linear", "table"]
        assert found.stages[1].function_name.split(",")[0] == name
        assert found.only_tables("a" if "a" in found.readers else "0")
    if name == "elu":
        assert "alpha=0.5" in same(nn.Sequential(nn.Linear(3, 4), nn.ELU(0.5)), (3,)).stages[1].function_name


CONVS: dict[str, tuple[Callable[..., Tensor], list[str]]] = {
    "mean": (lambda self, x: self.fc(self.a(x).mean((2, 3))), ["conv", "average", "reshape", "linear"]),
    "mean of one axis": (lambda self, x: self.a(x).mean(-1), ["conv", "average", "reshape"]),
    "mean kept": (lambda self, x: self.a(x).mean([-1, -2], keepdim=True), ["conv", "average"]),
    "sum": (lambda self, x: self.a(x).sum(dim=(2, 3)), ["conv", "average", "reshape"]),
    "amax": (lambda self, x: torch.amax(self.a(x), (2, 3)), ["conv", "max", "reshape"]),
    "view": (lambda self, x: self.fc(functional.adaptive_avg_pool2d(self.a(x), 1).view(x.size(0), -1)), []),
    "view with sizes": (lambda self, x: self.fc(functional.avg_pool2d(self.a(x), (5, 4)).view(-1, 2)), []),
    "reshape by shape": (
        lambda self, x: self.a(x).reshape(x.shape[0], self.a(x).shape[1] if False else 2, 20),
        ["conv", "reshape"],
    ),
    "size arithmetic": (lambda self, x: self.a(x).view(x.size(0), 2, x.size(2) * x.size(3)), ["conv", "reshape"]),
    "reshape to a shape": (lambda self, x: self.a(x).reshape(shape=(x.size(0), 40)), ["conv", "reshape"]),
    "view of a shape": (lambda self, x: (lambda h: h.view(h.shape))(self.a(x)), ["conv"]),
    "squeezes": (lambda self, x: self.fc(functional.adaptive_avg_pool2d(self.a(x), 1).squeeze(3).squeeze(-1)), []),
    "concat": (lambda self, x: torch.cat([self.a(x), self.b(x), x], dim=1), ["conv", "conv", "concat"]),
    "concat from the end": (lambda self, x: torch.cat((self.a(x), self.b(x)), -3), ["conv", "conv", "concat"]),
    "three terms": (lambda self, x: self.a(x) + self.b(x) + self.a3(x), ["conv", "conv", "add", "conv", "add"]),
    "itself": (lambda self, x: (lambda h: h + h)(self.a(x)), ["conv", "add"]),
    "with the input": (lambda self, x: self.a(x) + torch.cat([x, x], 1), ["conv", "concat", "add"]),
    "concat of one": (lambda self, x: torch.cat([self.a(x)], 1), ["conv"]),
    "interpolate": (lambda self, x: functional.interpolate(self.a(x), scale_factor=2), ["conv", "upsample"]),
    "pad": (lambda self, x: functional.pad(self.a(x), (1, 0, 2, 1)), ["conv", "pad"]),
    "pad of one axis": (lambda self, x: functional.pad(self.a(x), [2, 1]), ["conv", "pad"]),
    "read before and after": (lambda self, x: (lambda h: h + torch.relu(h))(self.a(x)), ["conv", "activation", "add"]),
    "twice the same": (
        lambda self, x: torch.relu(self.b2(torch.relu(self.a(x)))),
        ["conv", "conv"],
    ),
    "relu6 of a sum": (lambda self, x: functional.relu6(self.a(x) + self.b(x)), ["conv", "conv", "add"]),
    "hardtanh is relu6": (lambda self, x: functional.hardtanh(self.a(x), 0.0, 6.0), ["conv"]),
    "relu then relu": (lambda self, x: torch.relu(torch.relu(self.a(x)).relu()), ["conv", "activation", "activation"]),
    "clone": (lambda self, x: self.a(x).clone().contiguous().relu_(), ["conv"]),
}


@pytest.mark.parametrize("name", CONVS)
def test_patterns_around_convolutions(name: str) -> None:
    forward, expected = CONVS[name]
    parts = {
        "a": nn.Conv2d(1, 2, 1),
        "b": nn.Conv2d(1, 2, 1),
        "a3": nn.Conv2d(1, 2, 3, padding=1),
        "b2": nn.Conv2d(2, 2, 1),
        "fc": nn.Linear(2, 3),
    }
    found = same(Net(forward, **parts), (1, 5, 4))
    assert not expected or kinds(found) == expected
    names = [value for stage in found.stages for value in stage.values]
    assert len(names) == len(set(names))
    assert all(identifier(value) == value for value in names)


IN_PLACE: dict[str, Callable[..., Tensor]] = {
    "a relu whose result is not used": lambda self, x: (lambda h: (torch.relu_(h), h + self.b(x))[1])(self.a(x)),
    "a sum into the first branch": lambda self, x: (lambda h: (h.add_(self.b(x)), torch.relu(h))[1])(self.a(x)),
    "read before, then overwritten": lambda self, x: (lambda h: self.pool(h) + self.pool(h.relu_()))(self.a(x)),
    "through an identity": lambda self, x: (lambda h: (self.same(h).relu_(), h)[1])(self.a(x)),
    "a module in place": lambda self, x: (lambda h: (self.act(h), h + h)[1])(self.a(x)),
    "a view that is read itself": lambda self, x: (lambda v: (v.relu_(), v)[1])(self.a(x).flatten(1)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operations_mean_what_they_do(name: str) -> None:
    parts = {"a": nn.Conv1d(1, 2, 3), "b": nn.Conv1d(1, 2, 3), "pool": nn.MaxPool1d(2), "same": nn.Identity()}
    same(Net(IN_PLACE[name], **parts, act=nn.ReLU(inplace=True)), (1, 8))


ALIASES: dict[str, Callable[..., Tensor]] = {
    "relu behind a view": lambda self, x: (lambda y: torch.relu(y.view(y.size(0), -1)) + y)(self.fc(x)),
    "relu behind a clone": lambda self, x: (lambda y: torch.relu(y.clone()) + y)(self.fc(x)),
    "relu behind a squeeze": lambda self, x: (lambda y: torch.relu(y.squeeze(1)) + y)(self.fc(x)),
    "relu behind a pool's clone": lambda self, x: (lambda y: (torch.relu(y.clone()) + y).flatten(1))(
        functional.max_pool1d(self.fc(x).unsqueeze(1), 2)
    ),
    "a concatenation of one is a copy": lambda self, x: (lambda y: (torch.cat([y], 1).relu_(), y)[1])(self.fc(x)),
}


@pytest.mark.parametrize("name", ALIASES)
def test_nothing_is_fused_into_what_others_read(name: str) -> None:
    same(Net(ALIASES[name], fc=nn.Linear(6, 6)), (6,))


def test_overwriting_what_dropout_passed_on_is_refused() -> None:
    """In evaluation dropout gives the tensor itself, so whoever reads that tensor would read what was written."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        y = self.fc(x)
        functional.dropout(y, 0.5, training=self.training).relu_()
        return y

    refused(Net(forward, fc=nn.Linear(6, 6)), r"the output: reads 'fc', a view of a tensor that 'relu_' .* overwritten")


def test_a_batch_norm_behind_a_copy_of_what_others_read_is_refused() -> None:
    model = Net(
        lambda self, x: (lambda y: self.norm(torch.flatten(y, 1)) + y)(self.fc(x)),
        fc=nn.Linear(6, 6),
        norm=nn.BatchNorm1d(6),
    )
    refused(model, "layer 'fc' is read before and after it", (6,))


def test_hooks_are_refused() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    prune.random_unstructured(model[0], "weight", 0.5)
    refused(model, r"'0' \(Linear\): has hooks, which a reader of the forward cannot see; make them permanent first")
    prune.remove(model[0], "weight")
    assert kinds(same(model, (6,))) == ["linear"]
    handle = model.register_forward_hook(lambda module, args, out: out * 2)
    refused(model, "Sequential: has hooks")
    handle.remove()
    assert read(model)


def test_the_evaluation_is_what_is_read() -> None:
    model = Net(lambda self, x: self.fc(x) if self.training else torch.relu(self.fc(x)), fc=nn.Linear(3, 2)).train()
    model.fc.eval()
    assert kinds(read(model)) == ["linear"]
    assert read(model).stages[0].activation == "relu"
    assert (model.training, model.fc.training) == (True, False)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (
            nn.MaxPool2d(2),
            r"'1' \(MaxPool2d\): works in 2 dimensions of space, on a value of shape \(4, 8\); use the one of 1",
        ),
        (nn.AvgPool2d(2), "works in 2 dimensions of space"),
        (nn.AdaptiveAvgPool2d(1), "works in 2 dimensions of space"),
        (nn.AdaptiveMaxPool2d(1), "works in 2 dimensions of space"),
        (nn.BatchNorm2d(4), r"'1' \(BatchNorm2d\): on a value of shape \(4, 8\); expected 3 axes, channels first"),
    ],
)
def test_pools_and_norms_of_other_dimensions_are_refused(module: nn.Module, text: str) -> None:
    refused(nn.Sequential(nn.Conv1d(2, 4, 3), module), text, (2, 10))
    other = {"MaxPool2d": nn.MaxPool1d(2), "AvgPool2d": nn.AvgPool1d(2), "BatchNorm2d": nn.BatchNorm1d(4)}
    if type(module).__name__ in other:
        refused(nn.Sequential(nn.Conv2d(2, 4, 3), other[type(module).__name__]), "dimensions", (2, 10, 9))


def test_sizes_of_another_rank_are_refused() -> None:
    refused(
        Net(lambda self, x: functional.interpolate(self.a(x), size=(4, 4, 4)), a=nn.Conv2d(1, 1, 1)),
        r"\(4, 4, 4\) for 2 axes of space; expected one number, or 2",
        (1, 4, 4),
    )


def test_long_chains_of_sums_are_read_in_a_moment() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.fc(x))
            for _ in range(40):
                x = x + x
            return x

    assert read(Chain()).nonnegative(read(Chain()).output)


def test_views_of_overwritten_tensors_are_refused() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        h = self.a(x)
        flat = h.flatten(1)
        h.relu_()
        return self.fc(flat)

    refused(
        Net(forward, a=nn.Conv1d(1, 2, 3), fc=nn.Linear(12, 2)),
        r"'fc' \(Linear\): reads 'flatten', a view of a tensor that 'relu_' \(relu_\) has since overwritten",
        (1, 8),
    )


def test_convolutions_need_the_inputs_shape() -> None:
    refused(nn.Sequential(nn.Conv2d(1, 2, 3)), r"give the input's shape, \(channels, height, width\)")
    refused(nn.Conv2d(1, 2, 3), "a bare nn.Conv2d, which has no name to plan bits for; wrap it: nn.Sequential")


def test_who_may_have_a_zero_point() -> None:
    """Sums, concatenations and averages rescale without a constant, so what they read is symmetric."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        h = self.a(x)
        pooled = self.pool(h)
        return self.fc((self.b(x) + self.c(h)).mean(2)) + self.fc2(pooled.flatten(1))

    parts = {"a": nn.Conv1d(1, 2, 1), "b": nn.Conv1d(1, 2, 1), "c": nn.Conv1d(2, 2, 1), "pool": nn.MaxPool1d(2)}
    found = same(Net(forward, **parts, fc=nn.Linear(2, 3), fc2=nn.Linear(8, 3)), (1, 8))
    assert {name: found.may_shift(name) for name in (INPUT, "a", "b", "c", "pool", "fc", "fc2")} == {
        INPUT: True,
        "a": True,  # read by a layer, and by another behind a pool and a flatten
        "pool": True,
        "b": False,
        "c": False,
        "fc": False,
        "fc2": False,
    }


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Conv1d(3, 3, 1), r"layer '1': reads a value of shape \(3,\), expected \(3, n\), channels first"),
        (nn.Conv3d(3, 3, 1), r"'1' \(Conv3d\): not supported.*one or two dimensions of space"),
        (nn.ConvTranspose2d(3, 3, 1), r"'1' \(ConvTranspose2d\): not supported.*use Upsample"),
        (nn.LogSoftmax(1), r"'1' \(LogSoftmax\): not supported.*end the network on logits"),
        (nn.PReLU(), r"'1' \(PReLU\): not supported.*LeakyReLU with a fixed slope"),
        (nn.LayerNorm(3), r"'1' \(LayerNorm\): not supported.*use batch norm"),
        (nn.LSTM(3, 3), r"'1' \(LSTM\): not supported; see README"),
        (nn.BatchNorm1d(4), r"'1' \(BatchNorm1d\): 4 features on a value of shape \(3,\); expected 3"),
        (nn.MaxPool1d(2), r"'1' \(MaxPool1d\): on a value of shape \(3,\); expected \(channels, length\)"),
        (nn.Softmax(0), r"'1' \(Softmax\): softmax over axis 0 of a value of shape \(n, 3\); expected axis 1"),
    ],
)
def test_modules_are_refused_by_name(module: nn.Module, text: str) -> None:
    refused(nn.Sequential(nn.Linear(3, 3), module, nn.Linear(3, 3)), text)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Conv2d(2, 3, 3, dilation=2), r"layer '1': dilation \(2, 2\); expected 1: use a larger kernel"),
        (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), "layer '1': padding_mode 'reflect'; expected 'zeros'"),
        (nn.Conv2d(4, 3, 3), r"layer '1': reads a value of shape \(2, 7, 5\), expected \(4, n, n\)"),
        (nn.Conv1d(2, 3, 3), r"layer '1': reads a value of shape \(2, 7, 5\), expected \(2, n\)"),
        (nn.Conv2d(2, 3, (8, 1)), r"'1' \(Conv2d\): a window of \(8, 1\) on a value of shape \(2, 7, 5\).*fit once"),
        (nn.Linear(5, 2), r"layer '1': reads a value of shape \(2, 7, 5\).*for the same layer at every position"),
        (nn.MaxPool2d(2, dilation=2), r"'1' \(MaxPool2d\): dilation 2; expected 1"),
        (nn.MaxPool2d(2, return_indices=True), "return_indices is not supported"),
        (nn.MaxPool2d(2, ceil_mode=True), r"ceil_mode=True with windows \(2, 2\), stride \(2, 2\) that do not tile"),
        (
            nn.AvgPool2d(3, padding=1, count_include_pad=False),
            "count_include_pad=False with padding divides by another",
        ),
        (nn.AdaptiveAvgPool2d(2), r"pools \(7, 5\) to \(2, 2\), windows of uneven size; expected an output size that"),
        (nn.Upsample(scale_factor=1.5), r"enlarges by \(1.5, 1.5\); expected whole factors"),
        (nn.Upsample(scale_factor=2, mode="bilinear"), "mode 'bilinear'; expected 'nearest'"),
        (nn.Upsample(size=(20, 20)), "enlarges by .*; expected whole factors"),
        (nn.ConstantPad2d(1, 3.0), "pads with mode 'constant' and value 3.0; expected zeros"),
        (
            nn.ZeroPad2d((1, -1, 0, 0)),
            r"padding \(1, -1, 0, 0\) of a value of shape \(2, 7, 5\); expected begin and end",
        ),
        (nn.Softmax(2), r"softmax over axis 2 of a value of shape \(n, 2, 7, 5\); expected axis 1, the channels"),
        (nn.Flatten(1, 2), r"flattens axes 1 to 2; expected 1 to -1 \(keep the batch\)"),
        (nn.Unflatten(0, (1, 1)), "unflattens axis 0, the batch"),
    ],
)
def test_settings_of_windows_are_refused_by_name(module: nn.Module, text: str) -> None:
    refused(nn.Sequential(nn.Conv2d(1, 2, 1), module), text, (1, 7, 5))


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (lambda self, x: torch.log_softmax(self.a(x), 1), r"\(log_softmax\): not supported.*end the network on logits"),
        (
            lambda self, x: self.a(x) * 2,
            r"\(mul\): not supported in forward\(\); a constant factor belongs into a layer",
        ),
        (lambda self, x: self.a(x) - self.a2(x), r"\(sub\): not supported.*in the weights of the next layer"),
        (
            lambda self, x: self.a(x) + 1,
            r"\(add\): adds 1, which is not the output of a layer; put constants into a bias",
        ),
        (lambda self, x: torch.add(self.a(x), self.a2(x), alpha=2), r"alpha 2; expected 1"),
        (lambda self, x: self.a(x) + self.b(x), r"adds values of shapes \(3,\), \(2,\); expected equal shapes"),
        (lambda self, x: torch.cat([self.a(x), self.a2(x)]), r"along axis 0; expected axis 1, the channels"),
        (lambda self, x: self.a(x)[:, :2], r"\(getitem\): not supported.*slices are not supported"),
        (
            lambda self, x: self.a(x).view(3, -1),
            r"\(view\): reshapes \(batch, 3\) to \(3, -1\); expected the batch kept",
        ),
        (
            lambda self, x: self.a(x).reshape(x.size(0), 2),
            r"to \(batch, 2\); expected the batch kept and the same number",
        ),
        (lambda self, x: self.a(x).squeeze(), "squeezes every axis of one element, a batch of one too; name the axes"),
        (lambda self, x: self.a(x).squeeze(0), "squeezes axis 0, the batch"),
        (lambda self, x: self.a(x).unsqueeze(0), "a new axis before the batch"),
        (lambda self, x: self.a(x).permute(0, 1), r"\(permute\): not supported.*feed the data channels first"),
        (lambda self, x: self.a(x).mean(1), r"\(mean\): on a value of shape \(3,\); expected \(channels, length\)"),
        (
            lambda self, x: functional.linear(x, self.a.weight),
            r"weight.*a parameter or buffer not supported in forward",
        ),
        (lambda self, x: self.a(torch.relu_(x)), r"\(relu_\): writes into the network's input, which belongs to"),
        (lambda self, x: self.a(torch.flatten(x, 1).relu_()), r"\(relu_\): writes into the network's input"),
        (lambda self, x: (self.a(x), self.a2(x)), "forward returns several values; expected one tensor of logits"),
        (lambda self, x: self.a(x) if x.sum() > 0 else self.a2(x), "torch.fx cannot trace its forward .*control flow"),
        (lambda self, x: self.a(self.a(x)), r"'a' \(Linear\): called twice; each layer is used once"),
        (lambda self, x: (self.a2(x), self.a(x))[1], "layer a2: its output is never used; remove the layer"),
        (lambda self, x: (lambda h: (self.a2(h), h)[1])(self.a(x)), "layer 'a': is the output and also read by a2"),
        (lambda self, x: x, "no nn.Linear or convolution between input and output"),
        (lambda self, x: self.a(functional.dropout(x)), r"\(dropout\): dropout must follow a layer"),
        (
            lambda self, x: (lambda h: functional.dropout(h) + self.a2(h))(self.a(x)),
            "dropout must follow a layer and be its only reader",
        ),
        (
            lambda self, x: (lambda h: self.norm(h) + h)(self.a(x)),
            r"'norm' \(BatchNorm1d\): layer 'a' is read before and after it; branches at this point",
        ),
        (
            lambda self, x: self.norm(self.a2(self.norm(self.a(x)))),
            "'norm' .*: called twice; each batch norm is used once",
        ),
    ],
)
def test_functions_and_patterns_are_refused_by_name(forward: Callable[..., Tensor], text: str) -> None:
    refused(Net(forward, a=nn.Linear(3, 3), a2=nn.Linear(3, 3), b=nn.Linear(3, 2), norm=nn.BatchNorm1d(3)), text)


@pytest.mark.parametrize(
    ("start", "end", "shown"), [(0, -1, "0 to -1"), (2, -1, "2 to -1"), (1, 1, "1 to 1"), (1, -2, "1 to -2")]
)
def test_other_flattenings_are_refused(start: int, end: int, shown: str) -> None:
    text = f"flattens axes {shown}; expected 1 to -1 \\(keep the batch\\)"
    refused(nn.Sequential(nn.Flatten(start, end), nn.Linear(4, 2)), text, (2, 2))
    refused(Net(lambda self, x: self.a(torch.flatten(x, start, end)), a=nn.Linear(4, 2)), text, (2, 2))
    refused(Net(lambda self, x: self.a(x.flatten(start, end)), a=nn.Linear(4, 2)), text, (2, 2))


def test_flatten_without_axes_would_join_the_batch() -> None:
    refused(Net(lambda self, x: self.a(torch.flatten(x)), a=nn.Linear(4, 2)), "flattens axes 0 to -1")


def test_batch_norm_must_follow_a_linear_layer() -> None:
    after = "batch norm must directly follow an nn.Linear or a convolution, to fold into it; here it follows"
    refused(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.BatchNorm1d(3)), rf"'2' \(BatchNorm1d\): {after} a ReLU")
    refused(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)), f"{after} the input. Put it behind the layer before")
    refused(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3)), f"'2' .*{after} something else")
    refused(
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        "has no running statistics to fold; use track_running_stats=True",
    )


def test_two_inputs_are_refused() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.a(x)

    refused(Two(), "input 'mask': a second input; models have one input here")


def test_shapes_are_followed() -> None:
    refused(
        nn.Sequential(nn.Linear(4, 2)),
        r"layer '0': reads a value of shape \(4, 4\), expected \(4,\).*put a Flatten",
        (4, 4),
    )
    refused(
        nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 2)), r"layer '1': reads a value of shape \(3,\), expected \(4,\)"
    )
    refused(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), r"reads a value of shape \(6,\), expected \(4,\)", (2, 3))
    assert read(nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), (1, 2, 3)).input_shape == (1, 2, 3)


def test_names_that_become_one_identifier_are_refused() -> None:
    nested = nn.ModuleDict({"b": nn.Linear(3, 3)})
    model = Net(lambda self, x: self.a_b(self.a["b"](x)), a=nested, a_b=nn.Linear(3, 3))
    refused(model, "layers whose names become the same identifier 'a_b'; rename one")
    refused(
        Net(lambda self, v: self.x(v), x=nn.Linear(3, 3)), "'x' is the name of the network's input; rename the layer"
    )


@pytest.mark.parametrize("other", ["fc_requant", "fc_pad"])
def test_names_of_derived_values_are_not_free(other: str) -> None:
    """A convolution fc also defines the values fc_requant and fc_pad of the integer network."""
    model = Net(lambda self, x: getattr(self, other)(self.fc(x)), fc=nn.Conv1d(3, 3, 1), **{other: nn.Conv1d(3, 3, 1)})
    refused(model, f"same identifier '{other}'; rename one", (3, 4))


# ---------------------------------------------------------------------------------------------------- batch norm fold


def trained(affine: bool = True, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(6, 8, bias=bias),
        nn.BatchNorm1d(8, affine=affine),
        nn.ReLU(),
        nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5, eps=1e-2), nn.Dropout(0.5)),
        nn.Linear(5, 3),
    )
    for _ in range(5):
        model(torch.randn(64, 6) * 3 + 1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d) and module.affine:
                module.weight.normal_()
                module.bias.normal_()
    return model


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_folding_gives_the_same_function(affine: bool, bias: bool) -> None:
    model = trained(affine, bias).double()
    x = torch.randn(200, 6, dtype=torch.float64) * 3
    before = copy.deepcopy(model.state_dict())
    folded = fold_batch_norm(model)
    assert model.training
    assert not folded.training
    assert not any(isinstance(m, nn.BatchNorm1d) for m in folded.modules())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert isinstance(model[1], nn.BatchNorm1d)
    with torch.no_grad():
        torch.testing.assert_close(folded(x), model.eval()(x), rtol=1e-10, atol=1e-10)
    names = [s.name for s in read(folded).stages]
    assert names == [s.name for s in read(model).stages] == ["0", "3.0", "4"]
    assert all(p.requires_grad for p in folded.parameters())


def test_folding_in_float32_is_close() -> None:
    model = trained().eval()
    x = torch.randn(200, 6)
    with torch.no_grad():
        expected = model(x)
        torch.testing.assert_close(
            fold_batch_norm(model)(x), expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max())
        )


def test_folding_tied_weights_folds_each_layer_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4), nn.BatchNorm1d(4)).double()
    model[3].weight = model[0].weight
    with torch.no_grad():
        model[1].weight.fill_(2.0)
        model[4].weight.fill_(3.0)
    model.eval()
    x = torch.randn(50, 4, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(fold_batch_norm(model)(x), model(x))


def test_a_model_without_batch_norm_is_copied() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    folded = fold_batch_norm(model)
    assert folded[0].weight is not model[0].weight  # type: ignore[index]
    assert torch.equal(folded[0].weight, model[0].weight)  # type: ignore[index]
    assert isinstance(read(folded), Topology)


def test_a_layer_may_join_several_sums() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        h = self.a(x)
        return (self.b(h) + h) + (self.c(h) + h)

    found = same(Net(forward, a=nn.Conv1d(1, 1, 1), b=nn.Conv1d(1, 1, 1), c=nn.Conv1d(1, 1, 1)), (1, 4))
    assert {shape.name: shape.joined for shape in found.shapes} == {"a": ("b", "c"), "b": ("c",), "c": ()}
