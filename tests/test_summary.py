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


COUNTS = {
    "elements": 70000, "distinct": 65536, "least": -9, "most": 1234, "width": 7, "varying": 6, "ends": 5, "ties": 4,
    "saturated": 3, "rectified": 2,
}  # fmt: skip


ESTIMATE = {
    "lut": [2000.4, 1500.0, 2500.0], "ff": [300.0, 200.0, 400.0], "dsp": [0.0, 0.0, 0.0], "bram18": [0.0, None, None],
    "latency_cycles": [9.0, 7.0, 11.0], "warnings": ["fc1: an odd width"], "coefficients": "made up",
}  # fmt: skip
TOTAL = {"lut": 900, "lut_packed": 1100, "ff": 55, "dsp": 2, "carry8": 30, "levels": 9, "relative_ns": 4.25}


def _synthesized(accuracy: float, total: dict[str, Any] | None, *notes: str) -> dict[str, Any]:
    return {
        "accuracy": accuracy,
        "total": total,
        "latency_cycles": None if total is None else 4,
        "interval_cycles": None if total is None else 1,
        "tool": "Yosys, not Vivado",
        "version": "0.70 (pyosys)",
        "family": "xcup",
        "notes": list(notes),
        "proved": {"netlist": {"mismatches": 0}, "rtl": {"mismatches": 3}},
    }


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
            "coverage": {"fc1": COUNTS},
            "tables": {"tanh": {"function": "tanh", "entries": 256}},
            "estimates": {"csynth": ESTIMATE, "open": {**ESTIMATE, "lut": [1000.0 * bits, None, None]}},
        }

    entry = {"estimator_error": 0.0, "sampling_error": 0.1, "top_eigenvalue": None, "method": "exact"}
    return {
        "experiment": "made up",
        "samples": 1000,
        "measure": "accuracy",
        "trained": True,
        "data": {"source": "here", "samples": {"train": 10}, "features": ["a"], "classes": ["yes", "no"],
                 "shape": [1], "normal": []},
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
        "hardware": {},
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
        "figures": {"accuracy": "accuracy.png"},
    }  # fmt: skip


def test_page_says_what_was_computed(report: dict[str, Any]) -> None:
    page = summary.markdown(report)
    assert "| lean | W 5-3.5, A 5, in 16, out 16 | 78.00% | -2.00 | 500 | 50.0% | 250 | 100 |" in page
    assert "One standard error of an accuracy here is 1.26 points." in page
    assert "| lean | qonnx | 1,000 | **1,234** | 5,000 | by hand |" in page
    assert "| int4 | qonnx | 1,000 | 0 | 5,000 | by hand |" in page
    assert "| head | 4 | -1 | 0 | 0.1 |  | exact |" in page
    assert "the table" in page
    assert "`0123456789abcdef` | xc | 5 ns | io_parallel, Resource | fc1 4, head 3 |" in page
    assert "weights and output, in the order fc1, head. BOPs" in page
    report["firmware"][0]["reuse_factors"] = {"fc1": 4, "head": 4}
    assert "io_parallel, Resource | 4 (all) |" in summary.markdown(report)


def test_perfect_figures_claim_no_certainty(report: dict[str, Any]) -> None:
    for figures in (report["float"], *report["plans"].values()):
        figures |= {"accuracy": 1.0, "auc": 1.0, "auc_error": 0.0}
    page = summary.markdown(report)
    assert "No error of the float network seen in 1,000 samples, which say no more than that." in page
    assert "standard error of an" not in page
    assert "| 100.00% | +0.00 | 1 (no error seen) | 500 |" in page
    assert "± 0.0000" not in page
    report["float"]["accuracy"] = 0.0
    assert "No right answer of the float network seen in 1,000 samples" in summary.markdown(report)


@pytest.mark.parametrize("least", [0.96, 1.0])
def test_no_axis_goes_beyond_what_a_measure_can_be(report: dict[str, Any], least: float) -> None:
    report["float"]["accuracy"] = 1.0
    for plan in report["plans"].values():
        plan["accuracy"] = least
    (axes,) = summary.quality_figure(report).axes
    low, high = axes.get_ylim()
    assert low < 100 * least
    assert high == 100
    labels = [text.get_text() for text in axes.get_legend().get_texts()]  # type: ignore[union-attr]
    assert labels == ["float", "homogeneous", "mixed (Hessian)"]


def test_page_shows_what_was_exercised(report: dict[str, Any]) -> None:
    page = summary.markdown(report)
    assert "| fc1 | 70,000 | 65,536+ | -9 | 1,234 | 6 of 7 | 5 | 4 | 3 | 2 |" in page
    assert "What the inputs exercised in plan lean" in page
    assert "Lookup tables: tanh: tanh, 256 entries." in page
    assert "Not trained" not in page
    assert "here: 10 training, 1,000 test samples, 1 features, classes yes, no." in page


def test_page_without_mixed_plans_firmware_and_training(report: dict[str, Any]) -> None:
    del report["plans"]["lean"], report["sensitivity"], report["allocation"], report["confusion"]
    report |= {"mixed": [], "firmware": [], "trained": False}
    report["data"] |= {"features": [], "shape": [3, 32, 32]}
    page = summary.markdown(report)
    assert "**Not trained**: weights are random and only calibrated; its accuracy says nothing." in page
    assert "1,000 test samples, shape 3 x 32 x 32, classes" in page
    assert not any(title in page for title in ("## Sensitivity", "## Firmware", "## Confusion", "Plan lean"))
    assert "What the inputs exercised in plan int8" in page
    assert summary.quality_figure(report).axes


@pytest.fixture
def reconstruction(report: dict[str, Any]) -> dict[str, Any]:
    """The same report, of an autoencoder that looks for anomalies."""
    for figures, value in ((report["float"], 0.9), *((plan, 0.8) for plan in report["plans"].values())):
        figures.pop("accuracy")
        figures |= {"explained_variance": value, "explained_variance_error": 0.004, "auc": 0.95, "auc_error": 0.012}
    report |= {"measure": "explained_variance", "errors": {"plan": "lean"}}
    report["figures"] = {"explained_variance": "explained_variance.png"}
    report["data"]["normal"] = ["yes"]
    del report["confusion"]
    return report


def test_page_of_an_autoencoder_names_its_measures(reconstruction: dict[str, Any]) -> None:
    page = summary.markdown(reconstruction)
    assert "| plan | widths | explained variance | to float | AUC | BOPs |" in page
    assert (
        "| lean | W 5-3.5, A 5, in 16, out 16 | 0.8000 | -0.1000 | 0.9500 ± 0.0120 | 500 | 50.0% | 250 | 100 |" in page
    )
    assert "| float | float32 | 0.9000 | | 0.9500 ± 0.0120 | | | | |" in page
    assert "One standard error of an explained variance here is 0.0040." in page
    assert "It is that of the normal samples (yes), the only ones trained on" in page
    assert "![Histogram of errors of lean](errors.png)" in page
    assert "accuracy" not in page.lower()
    table = [line for line in page.splitlines() if line.startswith(("| plan | widths", "|---|---|" + "---:|" * 6))]
    assert len({line.count("|") for line in table}) == 1
    for figures in (reconstruction["float"], *reconstruction["plans"].values()):
        del figures["auc"]
    reconstruction["data"]["normal"] = []
    page = summary.markdown(reconstruction)
    assert "AUC" not in page
    assert "| lean | W 5-3.5, A 5, in 16, out 16 | 0.8000 | -0.1000 | 500 |" in page


def test_figures_of_an_autoencoder(reconstruction: dict[str, Any]) -> None:
    axes = summary.quality_figure(reconstruction).axes[0]
    assert axes.get_ylabel() == "test explained variance, 1,000 samples"
    assert 0.9 in axes.get_lines()[0].get_ydata()
    errors = np.array([0.1, 0.2, 0.3, 4.0])
    for anomalous, labels in (([0, 0, 0, 1], ["normal", "anomalous"]), ([0, 0, 0, 0], ["all samples"])):
        axes = summary.errors_figure(errors, np.array(anomalous, dtype=bool), "a title").axes[0]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == labels
        assert sum(patch.get_height() for patch in axes.patches) == 4
    assert summary.errors_figure(np.zeros(3), np.zeros(3, dtype=bool), "nothing to see").axes


def test_measures_in_words() -> None:
    assert summary.show("accuracy", 0.78) == "78.00%"
    assert summary.show("explained_variance", 0.94123) == "explained variance 0.9412"


def test_figures_are_the_same_bytes_twice(report: dict[str, Any], tmp_path: Path) -> None:
    matrix = np.array([[5, 1], [0, 0]])
    for name, make in (
        ("accuracy", lambda: summary.quality_figure(report)),
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


def test_page_says_what_hardware_is_estimated_at(report: dict[str, Any]) -> None:
    page = summary.markdown(report)
    assert "| int8 | csynth | 2,000 (1,500 to 2,500) | 300 (200 to 400) | 0 | 0 | 9 (7 to 11) |" in page
    assert "| int4 | open | 4,000 |" in page
    assert page.count("beyond what was fitted: fc1: an odd width") == 1
    assert "by the open road" not in page


def test_page_says_what_was_synthesized(report: dict[str, Any]) -> None:
    half = {**TOTAL, "lut_packed": 550}
    report["hardware"] = {
        "ap_fixed": _synthesized(0.77, TOTAL),
        "lean": _synthesized(0.78, half, "not unrolled, counted once: a is 1 of 64 positions"),
        "int8": _synthesized(0.79, None, "no totals: fc1: not synthesized: timed out after 600 s"),
    }
    report["figures"] = {"accuracy": "accuracy.png", "hardware": "hardware.png", "sensitivity": "sensitivity.png"}
    page = summary.markdown(report)
    assert "![What each network takes](hardware.png)" in page
    assert "| ap_fixed | 77.00% | 1,100 | 100.0% | 900 | 55 | 2 | 30 | 9 | 4 cycles | 4.2 ns | netlist |" in page
    assert "| lean | 78.00% | 550 | 50.0% |" in page
    assert "| int8 | 79.00% | | | | | | | | | | netlist |" in page, "a missing figure is missing, not 0"
    assert "- int8: no totals: fc1: not synthesized: timed out after 600 s" in page
    assert "- lean: not unrolled, counted once: a is 1 of 64 positions" in page
    figure = summary.hardware_figure(report)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["ap_fixed", "lean"]
