"""Fits: coefficients that are known come back, held-out projects are held out, users' reports move the estimates."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from hawq_flow.estimate import (
    EstimateError,
    HardwareConfig,
    LayerFeatures,
    calibrate,
    dense_features,
    estimate_layers,
    markdown,
    shipped,
)
from hawq_flow.estimate.baselines import compare
from hawq_flow.estimate.calibrating import ENOUGH
from hawq_flow.estimate.coefficients import Spread
from hawq_flow.estimate.data import Fixed, Measured, rows
from hawq_flow.estimate.figures import open_comparison, open_frame, predicted_against_measured, save
from hawq_flow.estimate.fit import OPEN, OPERATIONS, fit, open_model, open_rows, operation_rows
from hawq_flow.estimate.fitting import Held, error, fit_hls, held_out, predict, weighted_quantile
from hawq_flow.estimate.pairs import pairs
from hawq_flow.estimate.solving import held_out as held_out_lines
from hawq_flow.estimate.solving import project_weights, solve
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec
from hawq_flow.numeric import IntType
from hawq_flow.report import HlsReport, Resources, Timing

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "calibration"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no shared/data/calibration beside the repository")

# --------------------------------------------------------------------------------------------------- the solver


def test_known_coefficients_come_back_despite_outliers() -> None:
    rng = np.random.default_rng(0)
    amounts = rng.uniform(1, 1000, (200, 3))
    truth = np.array([2.0, 0.0, 0.5])
    measured = amounts @ truth * rng.normal(1.0, 0.02, 200)
    measured[:10] *= 20  # reports of something else
    found = solve(amounts, measured, [f"p{i}" for i in range(200)])
    assert found == pytest.approx(truth, abs=0.03)
    assert (found >= 0).all()


def test_projects_weigh_the_same_however_many_rows_they_have() -> None:
    assert project_weights(["a", "b", "a", "a"]).tolist() == [1 / 3, 1.0, 1 / 3, 1 / 3]
    # 99 rows of one project say 1, one row each of three others says 2
    amounts = np.full((102, 1), 1000.0)
    measured = np.r_[np.full(99, 1000.0), np.full(3, 2000.0)]
    found = solve(amounts, measured, ["one"] * 99 + ["a", "b", "c"])
    assert found[0] == pytest.approx(2.0, abs=0.1)


def test_held_out_rows_are_not_seen() -> None:
    amounts = np.full((6, 1), 1000.0)
    measured = np.array([1000.0, 1000.0, 1000.0, 1000.0, 5000.0, 5000.0])
    predicted = held_out_lines(amounts, measured, ["a", "a", "b", "b", "c", "c"])
    assert predicted[4:] == pytest.approx([1000.0, 1000.0], rel=1e-6)
    with pytest.raises(ValueError, match="every row is of project 'a'; expected at least two"):
        held_out_lines(amounts, measured, ["a"] * 6)


def test_quantiles_of_weighted_rows() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    assert [weighted_quantile(values, weights, level) for level in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1, 1, 2, 2, 3]


def test_errors_are_relative_above_a_floor_and_cycles_are_cycles() -> None:
    assert error("lut", 1000, 1100) == pytest.approx(0.1)
    assert error("dsp", 0, 1) == pytest.approx(1 / 20)
    assert error("latency_cycles", 10, 12.5) == 2.5


# ------------------------------------------------------------------------------------------------ the tables' traps


def test_types_and_modules_are_read() -> None:
    assert Fixed.parse("nnet::array<ap_ufixed<12,3,AP_RND_CONV,AP_SAT>, 8*1>") == Fixed(12, 3, False, True)
    assert Fixed.parse("ap_fixed<16,6>") == Fixed(16, 6, True, False)
    assert Fixed.parse("float") is None
    assert Fixed.of_module("relu_ap_fixed_16_4_5_3_0_ap_ufixed_8_1_4_0_0_relu_config4_s") == [
        Fixed(16, 4, True, False),
        Fixed(8, 1, False, True),
    ]


@pytest.fixture(scope="module")
def published() -> list[Measured]:
    return rows(DATA)


@needs_data
def test_one_network_is_one_project_however_often_it_was_built(published: list[Measured]) -> None:
    found = published
    projects = {row.project for row in found if not row.weights_known}
    assert {"ArgyKokk jet_tagging", "Hector-Plata model_1", "nrp-nautilus model_1"} <= projects
    assert not any("reuse" in project for project in projects)
    jets = [row for row in found if row.project == "ArgyKokk jet_tagging" and len(row.layers) > 1]
    assert {row.hardware.multipliers for row in jets} == {"dsp", "fabric"}
    assert {row.hardware.reuse("config2") for row in jets} == {1, 2, 100}
    # a published design: 16-64-32-32-5 with ReLUs between and a softmax after
    assert [layer.kind for layer in jets[0].layers] == ["product", "rescale"] * 3 + ["product", "softmax"]


@needs_data
def test_dsps_of_the_search_are_the_hard_products(published: list[Measured]) -> None:
    """The physics before any fit: at reuse factor 1 the number of DSP blocks is a count over the weights."""
    searched = [row for row in published if row.hardware == HardwareConfig(1, "latency", 5.0, "xcvu13p")]
    wide = [row for row in searched if row.layers[0].weight_bits >= 10]
    assert len(wide) == 11
    off = [abs(row.layers[0].counts.hard / float(row.dsp or 0) - 1) for row in wide]
    assert max(off) < 0.06
    assert all(row.layers[0].counts.hard == row.dsp == 0 for row in searched if row.layers[0].weight_bits <= 6)


@needs_data
def test_logic_synthesis_is_about_half_of_csynth() -> None:
    found = pairs(DATA)
    latency = [pair for pair in found if pair.strategy == "latency"]
    assert len(latency) >= 5
    assert 0.3 < float(np.median([pair.lut for pair in latency])) < 0.7
    assert all(pair.dsp >= 0.5 for pair in found)


# ------------------------------------------------------------------------------------------------- what ships


@pytest.mark.skipif(not OPEN.is_file(), reason="no lines of experiments/calibrate.py")
def test_the_open_stage_is_fitted_to_the_lines_that_are_there() -> None:
    model, _ = open_model(open_rows(OPEN), operation_rows(OPERATIONS))
    assert dataclasses.asdict(model) == dataclasses.asdict(shipped().models["open"])
    assert model.design["lut"].median < 0.05
    assert model.layer["lut"].median < 0.10
    assert model.design["latency_cycles"].median == 0


@pytest.mark.slow
@needs_data
@pytest.mark.skipif(not OPEN.is_file(), reason="no lines of experiments/calibrate.py")
def test_a_refit_gives_the_shipped_coefficients() -> None:
    coefficients, held = fit(DATA, OPEN)
    assert coefficients.to_json() == shipped().to_json()
    designs = [each for each in held["csynth.latency"] if len(each.row.layers) > 1]
    found = compare(designs)["lut"]
    assert found["ours"].rows < 0.15
    assert found["ours"].rows < found["BOPs"].rows
    assert found["ours"].rows < found["EBOPs"].rows


def test_what_ships_says_how_wrong_it_was_and_where_it_came_from() -> None:
    for key, model in shipped().models.items():
        assert model.sources, key
        for spread in (*model.layer.values(), *model.design.values()):
            assert spread.low90 <= spread.low68 <= spread.high68 <= spread.high90
            assert spread.rows >= spread.projects >= 1
        for terms in model.coefficients.values():
            assert all(value >= 0 for value in terms.values())
    design = shipped().models["csynth.latency"].design
    assert design["lut"].median < 0.15


# ------------------------------------------------------------------------------------------------ calibration


def layers_of(seed: int, bits: int = 5) -> tuple[LayerFeatures, ...]:
    rng = np.random.default_rng(seed)
    n_in, n_out = int(rng.integers(8, 48)), int(rng.integers(8, 48))
    most = 2 ** (bits - 1) - 1
    return (dense_features("d", rng.integers(-most, most + 1, (n_out, n_in)), 8),)


def sample(
    seed: int, factor: float, hardware: HardwareConfig | None = None
) -> tuple[tuple[LayerFeatures, ...], HardwareConfig, HlsReport]:
    """A report of a tool that takes ``factor`` times what is estimated."""
    hardware = hardware or HardwareConfig()
    layers = layers_of(seed)
    total = estimate_layers(layers, hardware).total
    used = Resources(lut=total.lut.value * factor, ff=total.ff.value * factor, dsp=0.0)
    report = HlsReport(
        "csynth", "Vitis HLS", "2024.1", used=used, timing=Timing(latency_cycles_max=3), digest=f"network {seed}"
    )
    return layers, hardware, report


def test_a_few_reports_fit_factors_drawn_towards_one(tmp_path: Path) -> None:
    found = calibrate([sample(seed, 2.0) for seed in range(4)], "mine")
    model = found.coefficients.models["csynth.latency"]
    # 4 reports of twice the estimate, drawn towards 1 by as much as two reports: 2^(4 / 6), less the error's floor
    assert model.scale["lut"] == pytest.approx(2 ** (4 / 6), rel=0.02)
    assert model.coefficients == shipped().models["csynth.latency"].coefficients
    assert found.before["lut"] == pytest.approx(0.5, abs=0.02)
    assert found.after["lut"] < found.before["lut"] - 0.15
    assert "4 reports of 4 networks: a factor for each figure is fitted" in found.notes[0]
    assert "error bars are as before" in found.notes[1]
    found.coefficients.save(tmp_path / "mine.json")
    fresh = estimate_layers(layers_of(9), HardwareConfig(), coefficients=found.coefficients)
    assert fresh.total.lut.value == pytest.approx(
        estimate_layers(layers_of(9), HardwareConfig()).total.lut.value * model.scale["lut"]
    )
    assert fresh.coefficients.startswith("mine ")
    text = markdown(found)
    assert "| lut | 50.0% |" in text or "| lut | 49." in text
    assert "network 3" in text


def test_one_report_says_that_nothing_was_held_out() -> None:
    found = calibrate([sample(0, 2.0)], "mine")
    assert found.after == {}
    assert "reports of one network only: there is no error of designs left out" in found.notes[1]


def test_many_reports_fit_coefficients() -> None:
    found = calibrate([sample(seed, 3.0) for seed in range(ENOUGH)], "mine")
    model = found.coefficients.models["csynth.latency"]
    assert f"{ENOUGH} reports of {ENOUGH} networks: coefficients and factors are fitted" in found.notes[0]
    assert found.after["lut"] < 0.10 < found.before["lut"]
    assert model.design["lut"].projects == ENOUGH
    assert model.coefficients["lut"]["sum"] > 2 * shipped().models["csynth.latency"].coefficients["lut"]["sum"]


def test_reports_that_do_not_belong_together() -> None:
    one, (layers, hardware, report) = sample(0, 1.0), sample(1, 1.0)
    with pytest.raises(
        EstimateError,
        match="stage, strategy and device family are fitted together; found csynth latency ultrascale, open",
    ):
        calibrate([one, (layers, hardware, dataclasses.replace(report, stage="open"))], "mine")
    with pytest.raises(EstimateError, match="found none"):
        calibrate([], "mine")
    with pytest.raises(EstimateError, match="a report of stage 'cosim' has no resources; give reports of csynth"):
        calibrate([(layers, hardware, dataclasses.replace(report, stage="cosim"))], "mine")
    network = IntegerNetwork(
        (InputSpec("x", (2,), IntType(5, True)),),
        (Dense("d", "x", np.array([[3, 1]]), np.zeros(1, np.int64)),),
        (OutputSpec("d"),),
    )
    with pytest.raises(EstimateError, match="the report is of network network 1, not of"):
        calibrate([(network, hardware, report)], "mine")
    assert calibrate([(network, hardware, dataclasses.replace(report, digest=network.digest))], "mine").held
    own = dataclasses.replace(report, digest=network.digest)
    with pytest.raises(EstimateError, match="layer 'dd', which the design does not have; did you mean 'd'"):
        calibrate([(network, HardwareConfig({"dd": 2}), own)], "mine")


def test_what_differs_is_not_fitted_by_one_factor() -> None:
    layers, hardware, report = sample(0, 1.0)
    stages = [dataclasses.replace(report, stage=stage) for stage in ("synthesis", "implementation")]
    with pytest.raises(EstimateError, match="found implementation latency ultrascale, synthesis latency ultrascale"):
        calibrate([(layers, hardware, each) for each in stages], "mine")
    with pytest.raises(EstimateError, match="found csynth latency 7series, csynth latency ultrascale"):
        calibrate([(layers, hardware, report), (layers, HardwareConfig(part="xc7z020"), report)], "mine")


@pytest.mark.parametrize(
    ("used", "text"),
    [
        (Resources(), "network 0.* has none of the figures lut, ff, dsp, bram18, latency_cycles; leave it out"),
        (Resources(lut=-500.0), r"network 0.* says lut is -500.0; expected a number of at least 0"),
        (Resources(lut=float("nan")), "network 0.* says lut is nan; expected a number of at least 0"),
    ],
)
def test_reports_that_say_nothing_or_nonsense(used: Resources, text: str) -> None:
    layers, hardware, report = sample(0, 1.0)
    with pytest.raises(EstimateError, match=text):
        calibrate([(layers, hardware, dataclasses.replace(report, used=used, timing=Timing()))], "mine")


def test_two_reports_of_one_design_are_one() -> None:
    once, twice = (calibrate([sample(0, 2.0)] * number, "mine").coefficients for number in (1, 2))
    assert twice.models["csynth.latency"].scale == once.models["csynth.latency"].scale


def test_exact_reports_give_exact_coefficients() -> None:
    """A tool that pays for full adders alone: nothing of what ships comes back."""
    model = shipped().models["csynth.latency"]
    costs = {**dict.fromkeys(model.coefficients["lut"], 0.0), "sum": 1.5}
    truth = dataclasses.replace(model, coefficients={**model.coefficients, "lut": costs})
    coefficients = dataclasses.replace(shipped(), models={**shipped().models, "csynth.latency": truth})
    samples = []
    for seed in range(ENOUGH + 1):  # one is left out
        layers = layers_of(seed, 3 + seed % 5)
        used = Resources(lut=estimate_layers(layers, HardwareConfig(), coefficients=coefficients).total.lut.value)
        samples.append((layers, HardwareConfig(), HlsReport("csynth", "a tool", used=used, digest=f"network {seed}")))
    found = calibrate(samples, "mine")
    new = found.coefficients.models["csynth.latency"]
    assert {name: new.coefficients["lut"][name] for name in ("sum", "simple")} == {"sum": 1.5, "simple": 0.0}
    assert new.scale["lut"] == 1.0
    assert found.after["lut"] == pytest.approx(0, abs=1e-4)


def test_fits_of_hls_rows_come_back() -> None:
    """Rows made by the shipped model, all projects but one: the held-out one is predicted."""
    truth = dataclasses.replace(shipped(), name="truth")
    made = []
    for seed in range(12):
        row = Measured(f"p{seed}", f"p{seed}", "csynth", "0", layers_of(seed, 3 + seed % 5), HardwareConfig(), False)
        figures = predict(truth, "csynth", row)
        made.append(
            dataclasses.replace(
                row, lut=figures["lut"], ff=figures["ff"], dsp=0.0, latency_cycles=figures["latency_cycles"]
            )
        )
    for each in held_out(made, "csynth", fit_hls):
        assert each.predicted["lut"] == pytest.approx(each.row.lut, rel=0.05)
        assert each.predicted["latency_cycles"] == pytest.approx(each.row.latency_cycles, abs=0.2)


# ---------------------------------------------------------------------------------------------------- figures


def test_figures_are_drawn_and_the_same_twice(tmp_path: Path) -> None:
    made = [
        Measured(
            f"p{seed}", f"p{seed}", "csynth", "0", layers_of(seed), HardwareConfig(), True, 5000.0 + seed, 300.0, 0.0
        )
        for seed in range(4)
    ]
    held = [Held(row, predict(shipped(), "csynth", row)) for row in made]
    spreads: dict[str, Spread] = dict(shipped().models["csynth.latency"].design)
    for name in ("a.png", "b.png"):
        save(predicted_against_measured(held, spreads, ("lut", "ff"), "mine"), tmp_path / "figures" / name)
    one, two = ((tmp_path / "figures" / name).read_bytes() for name in ("a.png", "b.png"))
    assert one == two
    assert len(one) > 5000


@pytest.mark.skipif(not OPEN.is_file(), reason="no lines of experiments/calibrate.py")
def test_the_table_of_the_open_road(tmp_path: Path) -> None:
    lines = [json.loads(text) for text in OPEN.read_text().splitlines()]
    _, held = open_model(open_rows(OPEN), operation_rows(OPERATIONS))
    table = open_frame(lines, held)
    assert list(table["plan"]) == sorted(line["seed"] for line in lines)
    assert (table["lut_estimated"] / table["lut"] - 1).abs().median() < 0.10
    save(open_comparison(table), tmp_path / "open.svg")
    assert (tmp_path / "open.svg").stat().st_size > 5000
