"""The page of a run: numbers as given, figures deterministic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hawq_flow import summary
from hawq_flow.plan import BitPlan, LayerBits


def _plan(bits: int) -> dict[str, Any]:
    plan = BitPlan.of({"x": 16}, {"fc1": LayerBits(bits, bits), "head": LayerBits((bits, 2), 16)})
    return plan.to_dict()


@pytest.fixture
def report() -> dict[str, Any]:
    def figures(bits: int, accuracy: float, cost: float, mismatches: int = 0) -> dict[str, Any]:
        entry = {"mismatches": mismatches, "elements": 5000, "method": "by hand", "first_mismatch": None}
        return {
            "accuracy": accuracy,
            "bops": cost,
            "sparse_bops": cost / 2,
            "weight_bits": 100,
            "equal": not mismatches,
            "plan": _plan(bits),
            "certificate": {"samples": 1000, "backends": {"qonnx": entry}},
        }

    entry = {"estimator_error": 0.0, "sampling_error": 0.1, "top_eigenvalue": None, "method": "exact"}
    return {
        "experiment": "made up",
        "samples": 1000,
        "data": {"source": "here", "samples": {"train": 10}, "features": ["a"], "classes": ["yes", "no"]},
        "float": {"accuracy": 0.8},
        "reference": "int8",
        "mixed": ["lean"],
        "plans": {
            "int8": figures(8, 0.79, 1000.0),
            "int4": figures(4, 0.7, 400.0),
            "lean": figures(5, 0.78, 500.0, 1234),
        },
        "sensitivity": {
            "method": "exact",
            "layers": [{"name": "fc1", "trace": 3.0, "parameters": 6, **entry},
                       {"name": "head", "trace": -1.0, "parameters": 4, **entry}],
            "activations": [{"name": "fc1", "trace": 2.0, "size": 2, **entry}],
        },
        "allocation": {"lean": "the table"},
        "firmware": [
            {
                "plan": "lean",
                "backend": "Vitis",
                "project": "../hls/lean/vitis/project",
                "network": "0123456789abcdef" * 4,
                "part": "xc",
                "clock_period_ns": 5.0,
                "io_type": "io_parallel",
                "strategy": "Resource",
                "reuse_factors": {"fc1": 4, "head": 3},
            }
        ],
        "confusion": {"plan": "lean"},
    }  # fmt: skip


def test_page_says_what_was_computed(report: dict[str, Any]) -> None:
    page = summary.markdown(report)
    assert "| lean | W 5-3.5, A 5, in 16, out 16 | 78.00% | -2.00 | 500 | 50.0% | 250 | 100 |" in page
    assert "One standard error of an accuracy here is 1.26 points." in page
    assert "| lean | qonnx | 1,000 | **1,234** | 5,000 | by hand |" in page
    assert "| int4 | qonnx | 1,000 | 0 | 5,000 | by hand |" in page
    assert "| head | 4 | -1 | 0 | 0.1 |  | exact |" in page
    assert "the table" in page
    assert "`0123456789abcdef` | xc | 5 ns | io_parallel, Resource | 4, 3 |" in page


def test_figures_are_the_same_bytes_twice(report: dict[str, Any], tmp_path: Path) -> None:
    matrix = np.array([[5, 1], [0, 0]])
    for name, make in (
        ("accuracy", lambda: summary.accuracy_figure(report)),
        ("sensitivity", lambda: summary.sensitivity_figure(report)),
        ("confusion", lambda: summary.confusion_figure(matrix, ["yes", "no"], "a title")),
    ):
        summary.save(make(), tmp_path / f"{name}1.png")
        summary.save(make(), tmp_path / f"{name}2.png")
        first = (tmp_path / f"{name}1.png").read_bytes()
        assert first[:4] == b"\x89PNG"
        assert first == (tmp_path / f"{name}2.png").read_bytes()


def test_confusion_counts() -> None:
    matrix = summary.confusion(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2]), 3)
    assert matrix.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
