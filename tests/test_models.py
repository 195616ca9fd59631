"""The shipped models: shapes, sizes as their docstrings state, gradients everywhere, and what is said without one."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hawq_flow.model_file import ModelError, build

MODELS = Path(__file__).parent.parent / "models"
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "autoencoder": ((640,), (640,)),
    "digits_cnn": ((1, 8, 8), (10,)),
    "digits_mlp": ((64,), (10,)),
    "digits_resnet": ((1, 8, 8), (10,)),
    "ds_cnn": ((1, 49, 10), (12,)),
    "econt": ((1, 8, 8), (64,)),
    "jet_cnn": ((3, 16), (5,)),
    "jet_deepsets": ((3, 16), (5,)),
    "jet_mlp": ((16,), (5,)),
    "mobilenet": ((3, 96, 96), (2,)),
    "resnet": ((3, 224, 224), (1000,)),
    "resnet8": ((3, 32, 32), (10,)),
}
"""Shapes of one input and one output of every model that needs nothing but torch."""
HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None


def stated(name: str) -> tuple[int, int]:
    """(parameters, multiply-accumulates) that a model's docstring states."""
    found = re.search(r"([\d,]+) parameters, ([\d,]+) multiply-accumulates", (MODELS / f"{name}.py").read_text())
    assert found, f"{name}.py: no 'N parameters, M multiply-accumulates' in its docstring"
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def sizes(model: nn.Module, shape: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
    """(parameters, multiply-accumulates of dense layers and convolutions, shape of the output) for one sample."""
    macs = 0

    def count(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        nonlocal macs
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        macs += math.prod(weight.shape) * math.prod(output.shape[2:])

    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            module.register_forward_hook(count)
    with torch.no_grad():
        out = model.eval()(torch.zeros(1, *shape))
    return sum(p.numel() for p in model.parameters()), macs, tuple(out.shape[1:])


def test_every_model_file_is_tested() -> None:
    assert {path.stem for path in MODELS.glob("*.py")} == {*CASES, "resnet18"}


@pytest.mark.parametrize("name", CASES)
def test_sizes_are_as_stated(name: str) -> None:
    shape, output = CASES[name]
    parameters, macs, found = sizes(build(MODELS / f"{name}.py", {}, 0), shape)
    assert (parameters, macs) == stated(name)
    assert found == output


@pytest.mark.parametrize("name", [name for name in CASES if name != "resnet"])
def test_every_parameter_learns(name: str) -> None:
    """A layer that is built and never called, or a dead branch, would have no gradient."""
    model = build(MODELS / f"{name}.py", {}, 0)
    torch.manual_seed(0)
    model(torch.randn(8, *CASES[name][0])).square().mean().backward()
    for parameter, tensor in model.named_parameters():
        assert tensor.grad is not None, parameter
    assert all(p.grad is not None and bool(p.grad.any()) for n, p in model.named_parameters() if n.endswith("weight"))


def test_models_know_no_bit_widths_and_not_the_package() -> None:
    for path in MODELS.glob("*.py"):
        text = path.read_text()
        assert "hawq_flow" not in text, path
        assert not re.search(r"\bbits?\b", text), path


def test_the_encoder_alone_keeps_its_names() -> None:
    whole, encoder = (build(MODELS / "econt.py", {"decoder": d}, 0).state_dict() for d in (True, False))
    assert set(encoder) == {"conv.weight", "conv.bias", "latent.weight", "latent.bias"} < set(whole)
    assert all(torch.equal(encoder[name], whole[name]) for name in encoder)


def test_the_order_of_particles_does_not_matter_to_deepsets() -> None:
    model = build(MODELS / "jet_deepsets.py", {}, 0).eval()
    x = torch.randn(4, 3, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(x), model(x.flip(2)))


@pytest.mark.skipif(HAS_TORCHVISION, reason="torchvision is installed here: its absence cannot be tested")
def test_without_torchvision_the_fix_is_said() -> None:
    with pytest.raises(
        ModelError, match=r"failed: ImportError: torchvision cannot be imported .*pip install 'hawq-flow\["
    ):
        build(MODELS / "resnet18.py", {}, 0)


@pytest.mark.skipif(not HAS_TORCHVISION, reason="torchvision is not installed (extra `torchvision`)")
def test_torchvisions_resnet18_is_the_plain_one() -> None:
    theirs, ours = build(MODELS / "resnet18.py", {}, 0), build(MODELS / "resnet.py", {}, 0)
    assert {k: v.shape for k, v in theirs.state_dict().items()} == {k: v.shape for k, v in ours.state_dict().items()}
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))
    assert sizes(theirs, (3, 224, 224)) == (*stated("resnet18"), (1000,))
