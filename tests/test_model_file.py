"""The user's model file: loaded with its neighbours, seeded, and every failure named."""

from __future__ import annotations

import importlib.metadata
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hawq_flow.model_file import ModelError, build, packages, sources

DRAWS = """
import random
import numpy as np
import torch
from torch import nn

def build():
    layer = nn.Linear(2, 2)
    layer.weight.data[0, 0] = float(np.random.rand())
    layer.weight.data[0, 1] = random.random()
    return nn.Sequential(layer)
"""


def _file(folder: Path, text: str) -> Path:
    path = folder / "model.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "arguments", "error"),
    [
        ("x = 1", {}, r"model\.py has no function build\(\)"),
        ("def build(:", {}, r"model\.py cannot be imported: SyntaxError"),
        ("1 / 0", {}, r"model\.py cannot be imported: ZeroDivisionError"),
        ("def build(): return None", {"depth": 3}, r"refused 'model.arguments': .*unexpected keyword argument 'depth'"),
        ("def build(): return None", {}, r"returned NoneType; expected an nn\.Module"),
        ("def build(): return None + 1", {}, r"build\(\) of .* failed: TypeError: unsupported operand"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, arguments: dict[str, object], error: str) -> None:
    with pytest.raises(ModelError, match=error):
        build(_file(tmp_path, text), arguments, 0)


def test_a_missing_file(tmp_path: Path) -> None:
    for function in (lambda p: build(p, {}, 0), sources, packages):
        with pytest.raises(ModelError, match=r"nowhere\.py does not exist; 'model.file' is relative"):
            function(tmp_path / "nowhere.py")


def test_the_seed_decides_every_generator_and_none_is_disturbed(tmp_path: Path) -> None:
    path = _file(tmp_path, DRAWS)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    first, again, other = (build(path, {}, seed).state_dict()["0.weight"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not (first == other).any()
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert before[2] == random.getstate()


def test_files_beside_it_are_imported_afresh_and_belong_to_its_sources(tmp_path: Path) -> None:
    path = _file(tmp_path, "from torch import nn\nimport sizes\ndef build(): return nn.Linear(sizes.H, 1)")
    (tmp_path / "sizes.py").write_text("from deeper.more import H")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "more.py").write_text("H = 4")
    assert set(sources(path)) == {"model.py", "sizes.py", "deeper/more.py"}
    before = sources(path)
    assert build(path, {}, 0).in_features == 4
    (tmp_path / "deeper" / "more.py").write_text("H = 90  # longer, so that no cached bytecode can be taken for it")
    assert sources(path) != before
    assert build(path, {}, 0).in_features == 90
    assert "sizes" not in sys.modules
    assert str(tmp_path) not in sys.path


def test_packages_it_imports_are_named_with_their_versions(tmp_path: Path) -> None:
    """A model taken from a package changes with the package, though its own file does not."""
    path = _file(
        tmp_path,
        "from __future__ import annotations\nimport os, torch, beside\nfrom folder import thing\nimport sklearn.svm\n"
        "def build():\n    from torchvision_of_nobody.models import resnet\n",
    )
    (tmp_path / "beside.py").write_text("import numpy as np")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thing.py").write_text("")
    assert packages(path) == {
        "numpy": np.__version__,
        "sklearn": importlib.metadata.version("scikit-learn"),
        "torchvision_of_nobody": "absent",
    }
