"""The ap_fixed baseline in integers: hls4ml's own C++ says the same, and refusals name the stage."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stock_hls4ml import of_torch
from torch import nn

from hawq_flow import interpret
from hawq_flow.baseline import FixedPoint, fixed_point
from hawq_flow.topology import UnsupportedModelError


def model(seed: int = 0, scale: float = 1.0) -> nn.Module:
    torch.manual_seed(seed)
    layers = OrderedDict(
        fc1=nn.Linear(6, 5), bn=nn.BatchNorm1d(5), relu=nn.ReLU(), fc2=nn.Linear(5, 4, bias=False), fc3=nn.Linear(4, 3)
    )
    network = nn.Sequential(layers)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(scale)
    return network.eval()


def test_assigning_truncates_and_wraps() -> None:
    fixed = FixedPoint(8, 4)
    assert fixed.integers([0.0, 1 / 16, 0.99 / 16, -0.01 / 16, 7.9999, 8.0, -8.0, -8.01]).tolist() == [
        0, 1, 0, -1, 127, -128, -128, 127,
    ]  # fmt: skip
    assert str(fixed) == "ap_fixed<8,4>"


@pytest.mark.parametrize(("width", "integer"), [(1, 1), (25, 6), (8, 0), (8, 9), (16, 6.0)])
def test_a_type_that_is_none_is_refused(width: Any, integer: Any) -> None:
    with pytest.raises(ValueError, match="expected a width of 2 to 24 bits"):
        FixedPoint(width, integer)


def test_what_has_no_integer_is_refused() -> None:
    for value in (np.nan, np.inf, 1e300):
        with pytest.raises(ValueError, match="expected finite numbers"):
            FixedPoint().integers([0.0, value])


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_the_network_is_the_formula_in_plain_numpy(scale: float) -> None:
    """Products floored and wrapped one by one, then summed and wrapped; large weights really wrap."""
    float_model, fixed = model(scale=scale), FixedPoint(10, 4)
    network = fixed_point(float_model, (6,), fixed)
    x = np.random.default_rng(0).integers(-512, 512, (200, 6))

    def wrap(v: np.ndarray) -> np.ndarray:
        return (v + 512) % 1024 - 512

    values = x
    state = {name: fixed.integers(tensor.detach().numpy()) for name, tensor in _folded(float_model).items()}
    for i in (1, 2, 3):
        products = wrap((values[:, None, :] * state[f"fc{i}.weight"][None]) >> 6)
        values = wrap(products.sum(2) + state.get(f"fc{i}.bias", 0))
        if i == 1:
            values = np.maximum(values, 0)
    assert np.array_equal(interpret.run(network, x), values)
    assert np.array_equal(interpret.reference(network, x)["fc3"], values)


def _folded(float_model: nn.Module) -> dict[str, torch.Tensor]:
    from hawq_flow.topology import fold_batch_norm

    return dict(fold_batch_norm(float_model, (6,)).named_parameters())


def test_hls4ml_says_the_same(tmp_path: Path) -> None:
    """Stock hls4ml, told nothing but the default precision, compiled by g++."""
    torch.manual_seed(3)
    float_model = nn.Sequential(
        OrderedDict(fc1=nn.Linear(6, 5), relu=nn.ReLU(), fc2=nn.Linear(5, 3))
    ).eval()  # hls4ml folds a batch norm in float32 itself, which differs in the last place
    with torch.no_grad():
        float_model.fc1.weight.mul_(30)  # sums that leave the type
    fixed = FixedPoint()
    network = fixed_point(float_model, (6,), fixed)
    x = np.random.default_rng(1).integers(-(1 << 15), 1 << 15, (500, 6))
    found = of_torch(float_model, x / 1024, tmp_path / "p", str(fixed))
    assert np.array_equal(np.rint(found * 1024).astype(np.int64), interpret.run(network, x))
    wrapped = interpret.reference(network, x)["fc1_product"] >> 10
    assert (np.abs(wrapped) >= 1 << 15).any(), "no product wrapped: the test exercises too little"


def test_other_stages_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"baseline is of linear layers and ReLU; leave it out"):
        fixed_point(nn.Sequential(OrderedDict(conv=nn.Conv1d(2, 3, 2), flat=nn.Flatten())), (2, 4))
    with pytest.raises(UnsupportedModelError, match=r"baseline has no relu6; use ReLU"):
        fixed_point(nn.Sequential(OrderedDict(fc=nn.Linear(2, 3), act=nn.ReLU6())), (2,))
