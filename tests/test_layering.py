"""The direction of dependencies, read from the syntax trees of the package: DESIGN's table, enforced.

A *unit* is a module of ``hawq_flow`` or one of its sub-packages (``quant``, ``to_hls``). ``UNITS`` says what each may
import of the others; a new unit is added here, with what it may see, or the test fails.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "hawq_flow"

UNITS: dict[str, set[str]] = {
    # integers
    "numeric": set(),
    "runtime": set(),
    "document": set(),
    "images": {"numeric"},
    "plan": {"document"},
    "network": {"numeric", "plan"},
    "interpret": {"network", "numeric"},
    "to_qonnx": {"interpret", "network", "numeric"},
    "to_hls": {"interpret", "network", "numeric", "to_qonnx", "tools"},
    "to_onnx": {"interpret", "network", "numeric", "runtime", "to_qonnx"},
    "to_qcdq": {"interpret", "network", "numeric", "runtime", "to_qonnx"},
    "to_finn": {"interpret", "network", "numeric", "to_qonnx"},
    "from_onnx": {"interpret", "network", "numeric", "runtime"},
    "check_hls": {"from_onnx", "network", "numeric", "to_hls", "to_qonnx"},
    "to_cpp": {"images", "interpret", "network", "numeric", "tools"},
    "equality": {"interpret", "network", "numeric", "to_cpp", "to_hls", "to_onnx", "to_qonnx", "to_rtl"},
    "handover": {
        "equality",
        "images",
        "interpret",
        "network",
        "numeric",
        "prove",
        "report",
        "store",
        "to_cpp",
        "to_hls",
        "to_rtl",
        "tools",
        "trace",
    },
    "costs": {"network", "numeric", "plan"},
    "coverage": {"network", "numeric"},
    "prove": {"coverage", "equality", "interpret", "network", "numeric"},
    "trace": {"coverage", "document", "images", "interpret", "network", "numeric", "store"},
    "upsets": {"interpret", "network", "numeric", "store"},
    # hardware
    "report": {"document"},
    "devices": {"document"},
    "synthesis": {"devices", "document", "report", "store", "tools"},
    "to_rtl": {"images", "interpret", "network", "numeric", "report", "store", "tools"},
    "estimate": {"devices", "document", "network", "numeric", "plan", "report", "store", "to_rtl"},
    # training
    "topology": {"plan"},
    "quant": {"numeric", "plan", "topology"},
    "train": {"quality", "quant"},
    "fast_train": {"numeric", "quant", "store", "tools", "topology", "train"},
    "sensitivity": {"document", "plan", "topology"},
    "allocate": {"document", "plan"},
    # the bridge
    "lower": {"network", "numeric", "quant", "topology"},
    "baseline": {"network", "numeric", "topology"},
    # services
    "tools": set(),
    "store": set(),
    "model_file": {"store"},
    "data": {"store"},
    "reporter": set(),
    "quality": set(),
    "summary": {"coverage", "plan", "quality"},
    "config": {"plan", "quant", "synthesis", "to_hls", "to_onnx", "to_rtl", "train"},
    "choose": {"allocate", "config", "estimate", "plan", "quant", "sensitivity", "to_hls", "topology"},
    "supported": {"lower", "network", "plan", "quant", "to_hls", "to_onnx", "to_qcdq", "to_qonnx", "topology"},
}
"""What each unit may import; ``flow`` may import all of these, and ``cli`` those and ``flow``."""

ONLY_IN: dict[str, set[str]] = {
    "torch": {
        "topology",
        "quant",
        "train",
        "fast_train",
        "sensitivity",
        "to_qonnx",
        "to_onnx",
        "to_qcdq",
        "to_finn",
        "baseline",
        "choose",
        "supported",
        "model_file",
        "flow",
        "cli",
    },
    "hls4ml": {"to_hls"},
    "qonnx": {"to_qonnx", "from_onnx", "to_hls"},
    "pyhessian": {"sensitivity"},
    "brevitas": set(),
    "models": set(),
    "experiments": set(),
    "benchmarks": set(),
    "tests": set(),
}
"""Packages that few units may import."""

PURE: dict[str, set[str]] = {"numeric": {"numpy"}, "plan": set(), "network": {"numpy"}, "interpret": {"numpy"}}
"""Units that import the standard library and these packages alone."""

WITHOUT_TORCH = (
    "numeric",
    "plan",
    "network",
    "interpret",
    "allocate",
    "store",
    "tools",
    "data",
    "reporter",
    "summary",
    "coverage",
    "quality",
)
"""Units that must not reach torch through anything they import either."""


LOADERS = {"model_file": {"importlib.util"}}
"""Units that load a file as a module: model_file, the user's model."""


@dataclass(frozen=True)
class Import:
    """One import: the unit and line it stands in, and the dotted name imported."""

    unit: str
    line: int
    name: str

    @property
    def internal(self) -> str:
        """The unit of hawq_flow it names, or ''."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == "hawq_flow" and len(parts) > 1 else ""


@lru_cache
def imports_of(unit: str, source: str) -> tuple[list[Import], list[str]]:
    """Every import of a source text, anywhere in it, and its violations of form."""
    found: list[Import] = []
    wrong: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(unit, node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                wrong.append(f"{unit}:{node.lineno}: a relative import; write the full name")
                continue
            module = node.module or ""
            if module == "hawq_flow":
                found += [Import(unit, node.lineno, f"hawq_flow.{alias.name}") for alias in node.names]
            else:
                found.append(Import(unit, node.lineno, module))
                if module == "importlib":
                    found += [Import(unit, node.lineno, f"importlib.{alias.name}") for alias in node.names]
            if any(alias.name == "*" for alias in node.names):
                wrong.append(f"{unit}:{node.lineno}: a star import; name what is used")
        elif isinstance(node, ast.Name) and node.id in ("__import__", "exec", "eval"):
            wrong.append(
                f"{unit}:{node.lineno}: {node.id}; imports must be statements that a reader (and this test) sees"
            )
        elif isinstance(node, ast.Attribute) and node.attr in ("import_module", "modules", "__import__"):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            loads = base == "sys" and unit in LOADERS  # clears what a user's model file imported
            if (base in ("importlib", "sys", "builtins") and not loads) or node.attr == "import_module":
                wrong.append(f"{unit}:{node.lineno}: {base}.{node.attr}; imports must be statements")
    return found, wrong


def violations(unit: str, source: str) -> list[str]:
    """What one source text of a unit does against the rules."""
    found, wrong = imports_of(unit, source)
    wrong = list(wrong)
    allowed = set(UNITS) if unit in ("flow", "cli") else UNITS.get(unit, set())
    allowed = allowed | {"cli": {"flow"}, "__main__": {"cli"}}.get(unit, set()) | {unit, "__version__"}
    sides = set()
    for entry in found:
        where, top = f"{unit}:{entry.line}: imports {entry.name}", entry.name.split(".")[0]
        if entry.internal and entry.internal not in allowed:
            wrong.append(
                f"{where}; it may import of hawq_flow {', '.join(sorted(allowed - {unit, '__version__'})) or 'nothing'}"
            )
        if entry.internal in ("quant", "network"):
            sides.add(entry.internal)
        if top in ONLY_IN and unit not in ONLY_IN[top]:
            wrong.append(f"{where}; only {', '.join(sorted(ONLY_IN[top])) or 'no module'} may")
        if unit in PURE and top not in sys.stdlib_module_names and top not in PURE[unit] | {"hawq_flow"}:
            wrong.append(f"{where}; it may import the standard library and {', '.join(PURE[unit]) or 'nothing else'}")
        harmless = {"importlib", "importlib.metadata", "importlib.resources", *LOADERS.get(unit, ())}
        if top == "importlib" and entry.name not in harmless:
            wrong.append(f"{where}; only model_file loads files as modules (the user's model)")
        if top in ("runpy", "pkgutil", "imp"):
            wrong.append(f"{where}; imports must be statements")
    if len(sides) == 2 and unit not in ("lower", "flow", "supported"):
        wrong.append(f"{unit}: imports both quant and network; only lower (and flow) may")
    return wrong


def sources() -> list[tuple[str, Path]]:
    """(unit, file) of every Python file of the package."""
    result = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        result.append(("__init__" if parts == ("__init__",) else parts[0], path))
    return result


def test_there_is_something_to_walk() -> None:
    units = {unit for unit, _ in sources()}
    assert {"numeric", "plan", "network", "interpret", "quant", "train", "lower", "topology", "to_qonnx"} <= units


@pytest.mark.parametrize("unit", sorted({unit for unit, _ in sources()}))
def test_every_unit_keeps_to_the_direction_of_dependencies(unit: str) -> None:
    assert unit in UNITS or unit in ("flow", "cli", "__init__", "__main__"), (
        f"hawq_flow/{unit} is new: add it to UNITS in {Path(__file__).name}, with what it may import"
    )
    wrong = [v for name, path in sources() if name == unit for v in violations(unit, path.read_text())]
    assert not wrong, "\n".join(wrong)


def graph() -> dict[str, set[str]]:
    """What each unit imports of the others, as it is."""
    result: dict[str, set[str]] = {}
    for unit, path in sources():
        found, _ = imports_of(unit, path.read_text())
        result.setdefault(unit, set()).update({e.internal for e in found if e.internal} - {unit, "__version__"})
    return result


def reach(edges: dict[str, set[str]], start: str) -> set[str]:
    """Every unit that importing ``start`` imports, itself included."""
    seen, waiting = set(), [start]
    while waiting:
        unit = waiting.pop()
        if unit not in seen:
            seen.add(unit)
            waiting += edges.get(unit, set())
    return seen


def test_the_graph_of_units_has_no_cycle() -> None:
    edges = graph()
    assert not [unit for unit, targets in edges.items() if any(unit in reach(edges, target) for target in targets)]


@pytest.mark.parametrize(
    "unit", [unit for unit in WITHOUT_TORCH if (ROOT / unit).is_dir() or (ROOT / f"{unit}.py").is_file()]
)
def test_no_way_leads_from_the_integers_to_torch(unit: str) -> None:
    users = {
        name
        for name, path in sources()
        if any(e.name.split(".")[0] == "torch" for e in imports_of(name, path.read_text())[0])
    }
    assert users >= {"quant", "train"}
    assert not reach(graph(), unit) & users


def test_nobody_but_cli_imports_flow_and_nobody_imports_cli() -> None:
    edges = graph()
    assert {unit for unit, targets in edges.items() if "flow" in targets} <= {"cli"}
    assert [unit for unit, targets in edges.items() if "cli" in targets] == ["__main__"]


def test_models_know_nothing_of_the_package() -> None:
    files = sorted((ROOT.parent / "models").glob("*.py"))
    assert files
    for path in files:
        names = {entry.name.split(".")[0] for entry in imports_of("models", path.read_text())[0]}
        assert "hawq_flow" not in names, path


# ------------------------------------------------------------------------------------------ the walker itself can fail


@pytest.mark.parametrize(
    ("unit", "source", "text"),
    [
        (
            "numeric",
            "import torch",
            "numeric:1: imports torch; only baseline, choose, cli, fast_train, flow, model_file",
        ),
        ("numeric", "import scipy.linalg", "it may import the standard library and numpy"),
        ("numeric", "from hawq_flow.plan import bops", "it may import of hawq_flow nothing"),
        ("plan", "import numpy", "it may import the standard library and nothing else"),
        ("network", "def f():\n    from torch import nn", "network:2: imports torch"),
        ("interpret", "if TYPE_CHECKING:\n    import hawq_flow.quant", "imports hawq_flow.quant; it may import of"),
        ("interpret", "from hawq_flow import quant", "imports hawq_flow.quant"),
        ("quant", "from hawq_flow.network import Dense", "imports hawq_flow.network; it may import"),
        (
            "train",
            "from hawq_flow.quant import a\nfrom hawq_flow.network import b",
            "train: imports both quant and network",
        ),
        ("equality", "from hawq_flow.quant import QuantNetwork", "imports hawq_flow.quant"),
        ("allocate", "import torch", "imports torch"),
        ("allocate", "from hawq_flow.train import fit", "it may import of hawq_flow document, plan"),
        ("lower", "import torch", "imports torch"),
        ("equality", "import hls4ml", "imports hls4ml; only to_hls may"),
        ("equality", "from qonnx.core import modelwrapper", "imports qonnx.core; only from_onnx, to_hls, to_qonnx may"),
        ("train", "import pyhessian", "imports pyhessian; only sensitivity may"),
        ("flow", "from models import jet_mlp", "imports models; only no module may"),
        ("store", "from hawq_flow.flow import Flow", "imports hawq_flow.flow"),
        ("flow", "from hawq_flow.cli import main", "imports hawq_flow.cli"),
        ("quant", "from . import observe", "quant:1: a relative import; write the full name"),
        ("quant", "from ..network import Dense", "a relative import"),
        ("quant", "from hawq_flow.plan import *", "a star import"),
        ("quant", "import importlib\nimportlib.import_module('hawq_flow.network')", "importlib.import_module"),
        ("quant", "from importlib import import_module", "imports importlib.import_module; only model_file"),
        ("quant", "import importlib.util", "only model_file loads files as modules"),
        ("quant", "__import__('hawq_flow.network')", "__import__; imports must be statements"),
        ("quant", "exec('import torch')", "exec; imports must be statements"),
        ("quant", "import sys\nsys.modules['hawq_flow.network']", "sys.modules"),
        ("quant", "import pkgutil", "imports pkgutil; imports must be statements"),
    ],
)
def test_violations_are_seen(unit: str, source: str, text: str) -> None:
    assert any(text in found for found in violations(unit, source)), violations(unit, source)


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("lower", "from hawq_flow.quant import a\nfrom hawq_flow.network import b"),
        ("flow", "from hawq_flow.quant import a\nfrom hawq_flow.network import b\nimport torch"),
        ("model_file", "import importlib.util\nimport sys\nsys.modules['x']"),
        ("store", "import importlib.metadata\nfrom importlib import metadata"),
        ("cli", "from hawq_flow import __version__\nfrom hawq_flow.flow import Flow"),
        ("quant", "from hawq_flow.quant.layer import x\nmodel.eval()"),
        ("numeric", "import numpy as np\nimport math"),
    ],
)
def test_what_is_allowed_is_not_held_against_anyone(unit: str, source: str) -> None:
    assert violations(unit, source) == []
