"""Bit plans as values, and the one BOPs formula against published figures."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawq_flow.plan import (
    BitPlan,
    LayerBits,
    LayerShape,
    bops,
    layer_bops,
    max_bits,
    mean_bits,
    mean_weight_bits,
    weight_bits,
)

SIZES = (16, 64, 32, 32, 5)
NAMES = ("fc1", "fc2", "fc3", "head")
JETS = [
    LayerShape(name, n, m, source) for name, n, m, source in zip(NAMES, SIZES, SIZES[1:], ("x", *NAMES), strict=False)
]


def homogeneous(weight: int, activation: int, input_bits: int) -> BitPlan:
    return BitPlan.homogeneous(JETS, weight, activation, input_bits=input_bits)


# --------------------------------------------------------------------------------------------------------------- BOPs


@pytest.mark.parametrize(
    ("weight", "activation", "expected"),
    [
        (16, 16, 1_248_032),
        (12, 12, 737_312),
        (8, 8, 362_784),
        (6, 6, 226_592),
        (4, 4, 124_448),
        (8, 11, 477_696),
        (6, 9, 315_968),
        (4, 7, 188_288),
    ],
)
def test_bops_of_the_jet_tagger(weight: int, activation: int, expected: int) -> None:
    """FACTS 30: the first layer's input at the layer's own activation width."""
    assert bops(homogeneous(weight, activation, activation), JETS) == expected


def test_bops_at_32_bits_of_the_formula_alone() -> None:
    """Plans end at 24 bits; the formula does not."""
    assert sum(layer_bops(shape, 32, 32) for shape in JETS) == 4_652_832


def test_an_int16_input_adds_what_its_bits_cost() -> None:
    assert bops(homogeneous(8, 8, 16), JETS) - bops(homogeneous(8, 8, 8), JETS) == 73_728


@pytest.mark.parametrize(("activation", "percent"), [(8, 59.5), (6, 51.6), (4, 43.8)])
def test_the_papers_mixed_plan_against_int8(activation: int, percent: float) -> None:
    layers = {n: LayerBits(w, activation) for n, w in zip(NAMES, (4, 4, 5, 4), strict=True)}
    ratio = bops(BitPlan.of({"x": 16}, layers), JETS) / bops(homogeneous(8, 8, 16), JETS)
    assert round(100 * ratio, 1) == percent


def test_the_outputs_width_enters_no_dot_product() -> None:
    plans = [BitPlan.homogeneous(JETS, 8, 8, output_bits=b) for b in (2, 16)]
    assert plans[0] != plans[1]
    assert bops(plans[0], JETS) == bops(plans[1], JETS)


def test_per_channel_widths_cost_their_sum_over_pairs() -> None:
    shapes = [LayerShape("a", 3, 2, "x"), LayerShape("b", 2, 3, "a")]
    plan = BitPlan.of({"x": 5}, {"a": LayerBits((2, 7), (3, 8)), "b": LayerBits((4, 5, 9), 6)})
    pairs = [(w, 5, 3) for w in (2, 7) for _ in range(3)]
    pairs += [(w, a, 2) for w, a in itertools.product((4, 5, 9), (3, 8))]
    assert bops(plan, shapes) == pytest.approx(sum(w * a + w + a + math.log2(n) for w, a, n in pairs), rel=1e-12)


def test_sparse_bops_drop_products_only() -> None:
    plan = homogeneous(8, 8, 8)
    zeros = {"fc1": 0.5, "head": 1.0}
    lost = 16 * 64 * 0.5 * 64 + 32 * 5 * 64
    assert bops(plan, JETS, zeros) == bops(plan, JETS) - lost
    with pytest.raises(ValueError, match=r"layer 'fc1': zero_fraction 1.5; expected 0 to 1"):
        bops(plan, JETS, {"fc1": 1.5})


def test_sparse_bops_refuse_the_name_of_no_layer() -> None:
    with pytest.raises(ValueError, match="zero_fraction names fc9; the layers are fc1, fc2, fc3, head"):
        bops(homogeneous(8, 8, 8), JETS, {"fc9": 0.5})


def test_positions_multiply_a_convolution() -> None:
    conv = LayerShape("c", 9 * 3, 8, "x", positions=100)
    one = LayerShape("c", 9 * 3, 8, "x")
    assert layer_bops(conv, 4, 6) == pytest.approx(100 * layer_bops(one, 4, 6), rel=1e-12)
    assert layer_bops(one, 4, 6) == 27 * 8 * (24 + 10 + math.log2(27))


def test_weight_bits() -> None:
    plan = BitPlan.of(
        {"x": 16},
        {
            "fc1": LayerBits(4, 6),
            "fc2": LayerBits(5, 6),
            "fc3": LayerBits((2, 3) * 16, 6),
            "head": LayerBits((2, 3, 4, 5, 6), 16),
        },
    )
    total = 16 * 64 * 4 + 64 * 32 * 5 + 32 * (16 * 5) + 32 * 20
    assert weight_bits(plan, JETS) == total
    assert mean_weight_bits(plan, JETS) == total / (16 * 64 + 64 * 32 + 32 * 32 + 32 * 5)
    assert (mean_bits((2, 5)), mean_bits(4), max_bits((2, 5)), max_bits(4)) == (3.5, 4.0, 5, 4)


# --------------------------------------------------------------------------------------------------------------- plans

BITS = st.one_of(st.integers(1, 24), st.lists(st.integers(1, 24), min_size=1, max_size=4).map(tuple))


@given(
    inputs=st.dictionaries(st.text(min_size=1, max_size=6), BITS, min_size=1, max_size=3),
    layers=st.dictionaries(st.text(min_size=1, max_size=6), st.builds(LayerBits, BITS, BITS), min_size=1, max_size=4),
)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_json_round_trip(inputs: dict, layers: dict) -> None:
    plan = BitPlan.of(inputs, layers)
    again = BitPlan.from_json(plan.to_json())
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.to_json() == plan.to_json()


def test_the_json_form_is_the_documented_one() -> None:
    plan = BitPlan.of({"x": 16}, {"fc1": LayerBits((2, 3), 6)})
    assert json.loads(plan.to_json()) == {
        "version": 1,
        "inputs": {"x": 16},
        "layers": {"fc1": {"weight": [2, 3], "activation": 6}},
    }
    assert plan.to_json().endswith("}\n")


def test_homogeneous_gives_the_logits_the_output_width() -> None:
    plan = BitPlan.homogeneous(JETS, 4, 6, input_bits=12, output_bits=10)
    assert plan.inputs == (("x", 12),)
    assert [bits.weight for _, bits in plan.layers] == [4] * 4
    assert [bits.activation for _, bits in plan.layers] == [6, 6, 6, 10]
    assert (plan.input_bits("x"), plan.source_bits("x"), plan.source_bits("fc2")) == (12, 12, 6)


def test_lists_become_tuples_so_that_plans_hash() -> None:
    plan = BitPlan.of({"x": [8, 9]}, {"a": LayerBits([2, 3], [4, 5])})  # type: ignore[arg-type,dict-item]
    assert plan == BitPlan.of({"x": (8, 9)}, {"a": LayerBits((2, 3), (4, 5))})
    assert len({plan}) == 1


@pytest.mark.parametrize("bits", [0, 25, True, 4.0, "4", None, (), (4, 0), (4, "x")])
def test_bad_widths_are_refused_wherever_they_stand(bits: object) -> None:
    text = "an empty list of widths" if bits == () else "expected an integer from 1 to 24"
    with pytest.raises(ValueError, match=f"^weight: .*{text}|^weight: {text}"):
        LayerBits(bits, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^activation: "):
        LayerBits(4, bits)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^bit plan, input 'x': "):
        BitPlan.of({"x": bits}, {"a": LayerBits(4, 4)})  # type: ignore[dict-item]
    data = BitPlan.of({"x": 4}, {"a": LayerBits(4, 4)}).to_dict()
    data["layers"]["a"]["weight"] = list(bits) if isinstance(bits, tuple) else bits
    with pytest.raises(ValueError, match=r"^plan, layer 'a', weight: "):
        BitPlan.from_dict(data)


def test_missing_and_repeated_names_are_refused() -> None:
    bits = LayerBits(4, 4)
    with pytest.raises(ValueError, match="no input named; expected at least one"):
        BitPlan.of({}, {"a": bits})
    with pytest.raises(ValueError, match="no layer named; expected at least one"):
        BitPlan.of({"x": 4}, {})
    with pytest.raises(ValueError, match="layer a named twice; name each once"):
        BitPlan((("x", 4),), (("a", bits), ("a", bits)))
    with pytest.raises(KeyError, match="no layer 'b'; it has a"):
        BitPlan.of({"x": 4}, {"a": bits})["b"]
    with pytest.raises(KeyError, match="'b'"):
        BitPlan.of({"x": 4}, {"a": bits}).source_bits("b")


def test_check_lists_both_sides() -> None:
    plan = BitPlan.of({"x": 16}, {"fc1": LayerBits(4, 4), "fc9": LayerBits(4, 4)})
    with pytest.raises(
        ValueError,
        match=r"the plan's layers are fc1, fc9; the model's are fc1, fc2, fc3, head; only in the plan: fc9; "
        r"only in the model: fc2, fc3, head\. Name every layer",
    ):
        plan.check(JETS)
    plan = BitPlan.of({"y": 16}, {n: LayerBits(4, 4) for n in NAMES})
    with pytest.raises(ValueError, match="the plan's inputs are y; the model's are x; only in the plan: y"):
        plan.check(JETS)
    for function in (bops, weight_bits):
        with pytest.raises(ValueError, match="bit plan does not fit the model"):
            function(plan, JETS)


def test_check_counts_channels() -> None:
    layers = {n: LayerBits(4, 4) for n in NAMES}
    with pytest.raises(
        ValueError, match="layer 'head': 4 weight widths; expected one, or one for each of its 5 output"
    ):
        BitPlan.of({"x": 16}, {**layers, "head": LayerBits((2,) * 4, 4)}).check(JETS)
    with pytest.raises(ValueError, match="layer 'head': 6 activation widths; expected one, or one for each of its 5"):
        BitPlan.of({"x": 16}, {**layers, "head": LayerBits(4, (2,) * 6)}).check(JETS)
    BitPlan.of({"x": 16}, {**layers, "head": LayerBits((2,) * 5, (3,) * 5)}).check(JETS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 2}, "plan: version 2; this hawq_flow reads version 1"),
        ({"extra": 1}, "plan: unknown keys extra, missing keys none; expected exactly inputs"),
        (
            {"layers": {"a": {"weight": 4}}},
            "plan, layer 'a': unknown keys none, missing keys activation",
        ),
        ({"layers": ["a"]}, "plan: layers: found .*expected a table"),
        ({"layers": {"a": 4}}, "plan, layer 'a': .*expected a table"),
        ({"inputs": 4}, "plan: inputs: found 4; expected a table"),
    ],
)
def test_bad_plan_documents_are_refused(change: dict, text: str) -> None:
    data = BitPlan.of({"x": 4}, {"a": LayerBits(4, 4)}).to_dict()
    with pytest.raises(ValueError, match=text):
        BitPlan.from_dict({**data, **change})


def test_text_that_is_no_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="plan: unknown keys none, missing keys inputs, layers, version"):
        BitPlan.from_json("{}")
    with pytest.raises(ValueError, match=r"plan: .*expected a table"):
        BitPlan.from_json("3")
    with pytest.raises(ValueError, match="Expecting property name"):
        BitPlan.from_json("{")


@pytest.mark.parametrize("field", ["fan_in", "outputs", "positions"])
def test_empty_layers_are_refused(field: str) -> None:
    sizes = {"fan_in": 1, "outputs": 1, "positions": 1, field: 0}
    with pytest.raises(ValueError, match=f"layer 'a': {field} is 0; expected at least 1"):
        LayerShape("a", source="x", **sizes)
