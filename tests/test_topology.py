"""Reading float models: what is supported is read as it is, everything else is refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hawq_flow.topology import Topology, UnsupportedModelError, fold_batch_norm, identifier, read


class Net(nn.Module):
    """A model from named layers and a forward function of (self, x)."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


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
    first, second, third = found.stages
    assert (first.name, first.source, first.relu, first.dropout, first.flattened) == ("1", "x", True, 0.25, True)
    assert first.linear is model[1]
    assert first.batch_norm is model[2]
    assert first.batch_norm_name == "2"
    assert (second.name, second.source, second.relu, second.batch_norm, second.flattened) == (
        "6",
        "1",
        False,
        None,
        False,
    )
    assert (third.name, third.source) == ("7", "6")
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
    assert [(s.name, s.source, s.relu, s.dropout, s.flattened) for s in found.stages] == [
        ("a", "x", True, 0.25, True),
        ("b", "a", False, 0.0, False),
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


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Conv1d(3, 3, 1), r"'1' \(Conv1d\): not supported; a dense network is made of Linear, BatchNorm1d"),
        (nn.Conv2d(3, 3, 1), r"'1' \(Conv2d\): not supported"),
        (nn.Softmax(1), r"'1' \(Softmax\): not supported.*end the network on logits and apply it outside"),
        (nn.LogSoftmax(1), r"'1' \(LogSoftmax\): not supported.*end the network on logits"),
        (nn.Sigmoid(), r"'1' \(Sigmoid\): not supported.*end the network on logits"),
        (nn.ReLU6(), r"'1' \(ReLU6\): not supported"),
        (nn.GELU(), r"'1' \(GELU\): not supported"),
        (nn.LayerNorm(3), r"'1' \(LayerNorm\): not supported"),
        (nn.BatchNorm2d(3), r"'1' \(BatchNorm2d\): not supported"),
        (nn.LSTM(3, 3), r"'1' \(LSTM\): not supported"),
    ],
)
def test_modules_are_refused_by_name(module: nn.Module, text: str) -> None:
    refused(nn.Sequential(nn.Linear(3, 3), module, nn.Linear(3, 3)), text)


@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (
            lambda self, x: torch.softmax(self.a(x), 1),
            r"'softmax' \(softmax\): not supported.*end the network on logits",
        ),
        (lambda self, x: self.a(x).sigmoid(), r"'sigmoid' \(sigmoid\): not supported.*end the network on logits"),
        (lambda self, x: torch.tanh(self.a(x)), r"\(tanh\): not supported in forward\(\)"),
        (lambda self, x: self.a(x) + self.a2(x), r"\(add\): not supported"),
        (lambda self, x: self.a(x) * 2, r"\(mul\): not supported"),
        (lambda self, x: torch.cat([self.a(x), self.a2(x)], 1), r"\(cat\): not supported"),
        (lambda self, x: self.a(x.view(-1, 3)), r"\(view\): not supported.*write torch.flatten\(x, 1\)"),
        (lambda self, x: self.a(x.reshape(x.shape[0], 3)), r"\(getattr\): not supported.*write torch.flatten"),
        (lambda self, x: functional.linear(x, self.a.weight), r"weight.*not supported in forward"),
        (lambda self, x: functional.leaky_relu(self.a(x)), r"leaky_relu.*not supported"),
        (lambda self, x: (self.a(x), self.a2(x)), "forward returns several values; expected one tensor of logits"),
        (lambda self, x: self.a(x) if x.sum() > 0 else self.a2(x), "torch.fx cannot trace its forward .*control flow"),
        (lambda self, x: self.a(self.a(x)), r"'a' \(Linear\): called twice; each layer is used once"),
        (lambda self, x: (self.a2(x), self.a(x))[1], "layer a2: its output is never used; remove the layer"),
        (lambda self, x: (lambda h: (self.a2(h), h)[1])(self.a(x)), "layer 'a': is the output and also read by a2"),
        (lambda self, x: x, "no nn.Linear between input and output"),
        (lambda self, x: self.a(functional.relu(x)), r"\(relu\): applied to the network's input; it must follow"),
        (lambda self, x: self.a(functional.dropout(x)), r"\(dropout\): dropout must follow a layer"),
        (lambda self, x: (lambda h: (torch.relu(h), self.a2(h))[1])(self.a(x)), "'a' is read before and after it"),
        (
            lambda self, x: (lambda h: (functional.dropout(h), self.a2(h))[1])(self.a(x)),
            "dropout must follow a layer and be its only reader",
        ),
        (
            lambda self, x: (lambda h: (torch.relu(torch.flatten(h, 1)), self.a2(h))[1])(self.a(x)),
            "'a' is read before and after it",
        ),
    ],
)
def test_functions_and_patterns_are_refused_by_name(forward: Callable[..., Tensor], text: str) -> None:
    refused(Net(forward, a=nn.Linear(3, 3), a2=nn.Linear(3, 3)), text)


@pytest.mark.parametrize(
    ("start", "end", "shown"), [(0, -1, "0 to -1"), (2, -1, "2 to -1"), (1, 2, "1 to 2"), (1, -2, "1 to -2")]
)
def test_other_flattenings_are_refused(start: int, end: int, shown: str) -> None:
    text = f"flattens axes {shown}; expected 1 to -1 \\(keep the batch\\)"
    refused(nn.Sequential(nn.Flatten(start, end), nn.Linear(4, 2)), text, (2, 2))
    refused(Net(lambda self, x: self.a(torch.flatten(x, start, end)), a=nn.Linear(4, 2)), text, (2, 2))
    refused(Net(lambda self, x: self.a(x.flatten(start, end)), a=nn.Linear(4, 2)), text, (2, 2))


def test_flatten_without_axes_would_join_the_batch() -> None:
    refused(Net(lambda self, x: self.a(torch.flatten(x)), a=nn.Linear(4, 2)), "flattens axes 0 to -1")


def test_batch_norm_must_follow_a_linear_layer() -> None:
    after = "batch norm must directly follow an nn.Linear, to fold into it; here it follows"
    refused(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.BatchNorm1d(3)), rf"'2' \(BatchNorm1d\): {after} a ReLU")
    refused(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)), f"{after} something else")
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


@pytest.mark.parametrize("other", ["fc_requant", "fc_flat", "x_flat"])
def test_names_of_derived_values_are_not_free(other: str) -> None:
    """Layer fc also defines the values fc_requant and fc_flat of the integer network."""
    model = Net(
        lambda self, x: getattr(self, other)(self.fc(torch.flatten(x, 1))),
        fc=nn.Linear(3, 3),
        **{other: nn.Linear(3, 3)},
    )
    if other == "x_flat":
        assert [s.name for s in read(model).stages] == ["fc", "x_flat"]
    else:
        refused(model, f"same identifier '{other}'; rename one")


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
