"""The README's Python runs as printed, one block after the other, on networks it could mean."""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

README = Path(__file__).parent.parent / "README.md"


def test_the_python_of_the_readme_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dense, own, load = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    names: dict[str, Any] = {
        "model": nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)),
        "x_train": rng.normal(size=(64, 4)),
        "y_train": rng.integers(0, 3, 64),
        "x_test": rng.normal(size=(10, 4)),
    }
    assert "epochs=60" in dense
    exec(dense.replace("epochs=60", "epochs=3"), names)  # the training's length is all that is changed
    assert names["scores"].shape == (10, 3)
    assert (tmp_path / "firmware" / "mine" / "Makefile").is_file()

    layers = OrderedDict(conv=nn.Conv2d(1, 2, 3), relu=nn.ReLU(), flat=nn.Flatten(), head=nn.Linear(160, 3))
    names |= {
        "model": nn.Sequential(layers),
        "x_train": rng.normal(size=(64, 1, 12, 10)),
        "x_test": rng.normal(size=(10, 1, 12, 10)),
    }
    exec(own, names)
    assert capsys.readouterr().out == "['conv', 'head']\n"
    then = dense[dense.index("fit(trained") : dense.index("write_project(network")]
    exec(then.replace("epochs=60", "epochs=1"), names)
    conv = names["plan"]["conv"]
    assert (conv.weight, conv.activation) == (4, 6)
    assert names["scores"].shape == (10, 3)

    names["network"].save(tmp_path / "run" / "network" / "mixed")
    digest, scores = names["network"].digest, names["scores"]
    names["raw"] = names["x_test"]
    exec(load, names)
    assert names["network"].digest == digest
    np.testing.assert_array_equal(names["scores"], scores)
