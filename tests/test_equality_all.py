"""The table of every experiment's proof: what passes, what is skipped and why, what fails the run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "experiments" / "equality_all.py"
TOML = """name = "{name}"
[data]
source = "{source}"
shape = [1, 6, 5]
samples = 40
classes = 2
[model]
file = "model.py"
arguments = {{ offset = {offset} }}
[train]
epochs = 0
[qat]
epochs = 0
[plans]
homogeneous = [8]
mixed = false
"""
MODEL = """{imports}
from torch import nn
def build(offset):
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2))
    nn.init.constant_(model[0].bias, offset)
    return model
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with experiments of its own: good, dead (constant), nowhere (no data), absent, broken."""
    spec = importlib.util.spec_from_file_location("equality_all", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "equality_all", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.delenv("HAWQ_FLOW_FIELD", raising=False)
    for name, source, imports, offset in (
        ("good", "synthetic:images", "", 0.1),
        ("dead", "synthetic:images", "", -50.0),
        ("nowhere", "field:toyadmos", "", 0.1),
        ("absent", "synthetic:images", "import a_package_of_nobody", 0.1),
        ("broken", "synthetic:images", "1 / 0", 0.1),
    ):
        (tmp_path / name).mkdir()
        text = TOML.format(name=name, source=source, offset=offset)
        if source.startswith("field"):
            text = text.replace("samples = 40\nclasses = 2\n", "")
        (tmp_path / name / "experiment.toml").write_text(text)
        (tmp_path / name / "model.py").write_text(MODEL.format(imports=imports))
    return module


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["equality_all.py", *arguments])
    try:
        script.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_every_experiment_has_its_row(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(script, monkeypatch) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len({line.count("|") for line in lines}) == 1
    rows = {cells[1]: cells for cells in ([cell.strip() for cell in line.split("|")] for line in lines[2:])}
    assert rows["good"][2:6] == [
        "int8",
        "8",
        "qat, interpreter, qonnx, onnx-plain, onnx-optimized, onnx-reference",
        "0",
    ]
    assert rows["good"][9].endswith("2 of 2 vary")
    assert "FAILED: plan int8: output '_3_requant': none of its 2 elements varies over 8 rows" in lines[-1 - 2]
    assert rows["nowhere"][4].startswith("skipped: field:toyadmos: no folder named")
    assert rows["absent"][4].startswith("skipped: model: ")
    assert "No module named 'a_package_of_nobody'" in rows["absent"][4]
    assert rows["broken"][4].startswith("FAILED: model: ")


def test_some_experiments_elsewhere(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "elsewhere"
    assert run(script, monkeypatch, "good", "nowhere", "--out", str(out)) == 0
    table = capsys.readouterr().out
    assert "| good | int8 | 8 |" in table
    assert "broken" not in table
    assert (out / "good" / "equality" / "int8" / "equality.json").is_file()
    assert not (tmp_path / "good" / "run").exists()
    assert run(script, monkeypatch, "god") == 2
    assert "no experiment god; there are absent, broken, dead, good, nowhere" in capsys.readouterr().err
