"""From sensitivities to plans: terms measured with the experiment's own quantizers, budgets by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hawq_flow import allocate, choose
from hawq_flow.config import AllocateConfig, ConfigError, PlansConfig, build
from hawq_flow.plan import bops, mean_weight_bits, weight_bits
from hawq_flow.quant import QuantConfig, QuantNetwork, quantize
from hawq_flow.sensitivity import Sensitivity, measure
from hawq_flow.topology import Topology, evaluate, read


@pytest.fixture(scope="module")
def problem() -> tuple[nn.Module, Topology, np.ndarray, Sensitivity]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    x = np.random.default_rng(0).normal(size=(400, 6))
    y = torch.from_numpy(np.random.default_rng(1).integers(0, 3, 400))
    return model, read(model), x, measure(model, torch.from_numpy(x.astype(np.float32)), y)


def _terms(problem: tuple[nn.Module, Topology, np.ndarray, Sensitivity], **options: object) -> allocate.Terms:
    _, topology, x, measured = problem
    return choose.terms(topology, x, measured, AllocateConfig(**options), QuantConfig())  # type: ignore[arg-type]


def test_activation_errors_are_those_of_calibration(
    problem: tuple[nn.Module, Topology, np.ndarray, Sensitivity],
) -> None:
    """The first layer's term equals the error that a calibrated network of that width makes in its first activation."""
    model, topology, x, _ = problem
    term = _terms(problem).activations["0"]
    for bits in (3, 6):
        plan = choose.homogeneous_plan(topology.shapes, bits, PlansConfig(input_bits=24))
        network: QuantNetwork = quantize(model, plan)
        network.calibrate(torch.from_numpy(x))
        layer = network.layers[0]
        scale = float(layer.log_scale.detach().double().exp())  # type: ignore[operator, union-attr]
        a = evaluate(topology, torch.from_numpy(x), ["0"])["0"].numpy()
        error = float(((np.clip(np.rint(a / scale), 0, 2**bits - 1) * scale - a) ** 2).sum() / len(a))
        assert term.errors[bits] == pytest.approx(error, rel=1e-3)


def test_output_has_no_term_and_emphasis_multiplies(
    problem: tuple[nn.Module, Topology, np.ndarray, Sensitivity],
) -> None:
    one, three = _terms(problem), _terms(problem, activation_emphasis=3.0)
    assert set(one.activations) == {"0", "2"}
    for name in one.activations:
        assert three.activations[name].trace == pytest.approx(3 * one.activations[name].trace)
    assert three.weights == one.weights


@pytest.mark.parametrize("options", [{"bops": 0.5}, {"bops": None, "mean_bits": 4.2}, {"bops": 0.7, "mean_bits": 4.0}])
def test_budgets_hold(
    problem: tuple[nn.Module, Topology, np.ndarray, Sensitivity], options: dict[str, float | None]
) -> None:
    shapes, plans = problem[1].shapes, PlansConfig()
    config = AllocateConfig(**options)  # type: ignore[arg-type]
    found, front = choose.mixed_plan(shapes, _terms(problem), config, plans, "mixed")
    assert (front is not None) == (set(options) == {"bops"})
    if config.bops is not None:
        reference = bops(choose.homogeneous_plan(shapes, 8, plans), shapes)
        assert bops(found.plan, shapes) <= options["bops"] * reference * (1 + 1e-9)  # type: ignore[operator]
    if config.mean_bits is not None:
        assert mean_weight_bits(found.plan, shapes) <= config.mean_bits


def test_named_and_absolute_budgets(problem: tuple[nn.Module, Topology, np.ndarray, Sensitivity]) -> None:
    shapes, plans, terms = problem[1].shapes, PlansConfig(), _terms(problem)
    reference = bops(choose.homogeneous_plan(shapes, 8, plans), shapes)
    config = AllocateConfig(bops={"small": 0.4, "large": 0.8 * reference}, fixed={"4": 8}, tied=(("0", "2"),))
    small, _ = choose.mixed_plan(shapes, terms, config, plans, "small")
    large, _ = choose.mixed_plan(shapes, terms, config, plans, "large")
    assert bops(small.plan, shapes) <= 0.4 * reference < bops(large.plan, shapes) <= 0.8 * reference
    assert small.objective > large.objective
    for found in (small, large):
        assert found.plan["4"].weight == 8
        assert found.plan["0"].weight == found.plan["2"].weight
        assert weight_bits(found.plan, shapes) > 0


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"bops": {}}, "bops is an empty table"),
        ({"bops": {"int8": 0.5}}, "plan name 'int8'; expected letters"),
        ({"bops": {"a b": 0.5}}, "plan name 'a b'"),
        ({"bops": {"lean": 0.0}}, "bops of plan 'lean' 0.0; expected above 0"),
        ({"lut": {}}, "lut is an empty table"),
        ({"ff": {"int4": 0.5}}, "ff: plan name 'int4'; expected letters"),
        ({"latency_cycles": {"lean": 0.0}}, "latency_cycles of plan 'lean' 0.0; expected above 0"),
        ({"dsp": {"lean": -1.0}, "stage": "csynth"}, "dsp of plan 'lean' -1.0; expected above 0"),
        ({"dsp": {"lean": 3.0}}, "estimated without DSPs; set stage = 'csynth' or 'synthesis'"),
        (
            {"bops": {"a": 0.5, "b": 0.4}, "lut": {"a": 0.5, "c": 0.4}},
            "lut is a table of plans a, c, bops of a, b; every table of budgets names all mixed plans: give each the",
        ),
        ({"lut": {"a": "0.5"}}, "allocate: lut.a: found '0.5'; expected float"),
        ({"lut": 0.0}, "lut 0.0; expected above 0"),
        ({"activation_emphasis": 0.0}, "activation_emphasis 0.0; expected above 0"),
    ],
)
def test_bad_budgets_are_refused(section: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build(AllocateConfig, section, "allocate")


def test_one_is_the_whole_of_the_reference_and_a_little_more_is_absolute(
    problem: tuple[nn.Module, Topology, np.ndarray, Sensitivity],
) -> None:
    shapes, plans, terms = problem[1].shapes, PlansConfig(), _terms(problem)
    whole, _ = choose.mixed_plan(shapes, terms, AllocateConfig(bops=1.0), plans, "mixed")
    assert all(bits.weight == 8 for _, bits in whole.plan.layers)
    with pytest.raises(allocate.InfeasibleError, match=r"bops <= 1\.01 is exceeded"):
        choose.mixed_plan(shapes, terms, AllocateConfig(bops=1.01), plans, "mixed")


def test_the_default_budget_gives_way_to_another() -> None:
    assert AllocateConfig().named_budgets == {"mixed": 0.6}
    assert AllocateConfig(mean_bits=4.0).named_budgets == {"mixed": None}
    assert AllocateConfig(mean_bits=4.0, bops=0.5).named_budgets == {"mixed": 0.5}


def test_budgets_of_hardware_are_numbers_or_tables_of_plans() -> None:
    config = AllocateConfig(bops={"b": 0.3, "a": 0.6}, lut={"a": 0.5, "b": 900.0}, ff=0.7)
    assert config.names == ("b", "a")
    assert config.hardware_budgets == ("lut", "ff")
    assert config.hardware_limits("a") == {"lut": 0.5, "ff": 0.7}
    assert config.of("b") == AllocateConfig(bops=0.3, lut=900.0, ff=0.7)
    alone = AllocateConfig(dsp={"none": 0, "some": 40.0}, stage="csynth")
    assert alone.named_budgets == {"none": None, "some": None}, "no budget of BOPs beside another"
    assert AllocateConfig(lut={"a": 0.5, "b": 0.4}, bops=0.6).named_budgets == {"a": 0.6, "b": 0.6}
    assert AllocateConfig().of("mixed") == AllocateConfig(bops=0.6), "another default would be another plan"


def test_convolutions_and_sums_are_chosen_for() -> None:
    """A residual network: a term for every layer's weights and for every activation that is read, or joins one."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(1, 4, 3)
            self.fc = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.relu(self.b(torch.relu(self.a(x))) + self.c(x))
            return self.fc(h.mean((2, 3)))

    torch.manual_seed(0)
    model = Residual().eval()
    x = np.random.default_rng(0).normal(size=(200, 1, 6, 5))
    y = torch.arange(200) % 3
    topology = read(model, (1, 6, 5))
    measured = measure(model, torch.from_numpy(x.astype(np.float32)), y)
    terms = choose.terms(topology, x, measured, AllocateConfig(), QuantConfig())
    assert set(terms.weights) == {"a", "b", "c", "fc"}
    assert set(terms.activations) == {"a", "b", "c"}
    found, front = choose.mixed_plan(topology.shapes, terms, AllocateConfig(bops=0.5), PlansConfig(), "mixed")
    reference = bops(choose.homogeneous_plan(topology.shapes, 8, PlansConfig()), topology.shapes)
    assert bops(found.plan, topology.shapes) <= 0.5 * reference
    assert front is None or front.best(0.5 * reference).plan == found.plan
    assert quantize(model, found.plan, input_shape=(1, 6, 5))


def test_layers_that_meet_choose_one_width() -> None:
    """What a concatenation makes is as wide as one of its layers, so they are as wide as each other."""

    class Meeting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Conv1d(2, 2, 1) for _ in range(4))
            self.fc = nn.Linear(30, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.relu(self.b(torch.relu(self.a(x)))) + self.c(x)
            return self.fc(torch.cat([h, torch.relu(self.d(x)), x], 1).flatten(1))

    torch.manual_seed(0)
    model, x = Meeting().eval(), np.random.default_rng(0).normal(size=(200, 2, 5))
    topology = read(model, (2, 5))
    assert choose.joined_layers(topology.shapes) == [("b", "c", "d")]
    measured = measure(model, torch.from_numpy(x.astype(np.float32)), torch.arange(200) % 3)
    terms = choose.terms(topology, x, measured, AllocateConfig(), QuantConfig())
    for budget in (0.4, 0.6, 0.8):
        plan = choose.mixed_plan(topology.shapes, terms, AllocateConfig(bops=budget), PlansConfig(), "mixed")[0].plan
        assert len({plan[name].activation for name in ("b", "c", "d")}) == 1


def test_the_error_of_a_layer_read_by_a_table_is_the_tables() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 3)).eval()
    x = np.random.default_rng(0).normal(size=(300, 4)) * 20
    errors = choose.activation_errors(read(model), x, (2, 8), QuantConfig())
    assert set(errors) == {"0"}
    assert errors["0"][2] < 6 * (0.5 / 3) ** 2, "sigmoid's output lies in 0..1; its input reaches far beyond"
