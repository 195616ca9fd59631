"""The jet simulation: observables on jets that can be worked out by hand, grooming, and the shipped file."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

JETS = Path(__file__).resolve().parents[1] / "experiments" / "jets"
REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "jets"


def _module() -> ModuleType:
    """Import the script: experiments are no package."""
    spec = importlib.util.spec_from_file_location("jets_simulate", JETS / "simulate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


simulate = _module()
needs_fastjet = pytest.mark.skipif(
    importlib.util.find_spec("fastjet") is None, reason="fastjet is not installed (extra `simulate`)"
)
needs_pythia = pytest.mark.skipif(
    importlib.util.find_spec("pythia8mc") is None, reason="pythia8mc is not installed (extra `simulate`)"
)
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="the real jets, which may not be shipped, are not here")


def _massless(pt: list[float], rapidity: list[float], phi: list[float]) -> np.ndarray:
    p, y, f = np.array(pt), np.array(rapidity), np.array(phi)
    return np.stack([p * np.cos(f), p * np.sin(f), p * np.sinh(y), p * np.cosh(y)], axis=1)


def _named(jet: np.ndarray, groomed: np.ndarray | None = None) -> dict[str, float]:
    values = simulate.observables(jet, jet if groomed is None else groomed)
    return dict(zip(simulate.FEATURES, values.tolist(), strict=True))


def _by_loops(pt: np.ndarray, y: np.ndarray, phi: np.ndarray) -> dict[str, float]:
    """The definitions once more, as written in the papers, without a clever line."""
    z = pt / pt.sum()

    def theta(i: int, j: int) -> float:
        turn = math.remainder(phi[i] - phi[j], 2 * math.pi)
        return math.hypot(y[i] - y[j], turn)

    out = {}
    for b in (0, 1, 2):
        out[f"e2_{b}"] = sum(z[i] * z[j] * theta(i, j) ** b for i, j in itertools.combinations(range(len(z)), 2))
        out[f"e3_{b}"] = out[f"e3_1_{b}"] = out[f"e3_2_{b}"] = 0.0
        for i, j, k in itertools.combinations(range(len(z)), 3):
            sides = sorted([theta(i, j), theta(i, k), theta(j, k)])
            weight = z[i] * z[j] * z[k]
            out[f"e3_{b}"] += weight * math.prod(sides) ** b
            out[f"e3_1_{b}"] += weight * sides[0] ** b
            out[f"e3_2_{b}"] += weight * (sides[0] * sides[1]) ** b
    return out


def test_a_jet_of_two_particles() -> None:
    got = _named(_massless([300, 100], [0.1, 0.1], [0.0, 0.4]))
    assert got["c1_b0_mmdt"] == pytest.approx(3 / 16)
    assert got["c1_b1_mmdt"] == pytest.approx(3 / 16 * 0.4)
    assert got["c1_b2_mmdt"] == pytest.approx(3 / 16 * 0.16)
    assert got["zlogz"] == pytest.approx(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert got["multiplicity"] == 2
    # m^2 = 2 pT1 pT2 (cosh dy - cos dphi)
    assert got["mass_mmdt"] == pytest.approx(math.sqrt(2 * 300 * 100 * (1 - math.cos(0.4))))
    three_point = [name for name in simulate.FEATURES if name[:2] in ("c2", "d2", "m2", "n2")]
    assert len(three_point) == 10
    assert all(got[name] == 0 for name in three_point)


def test_a_jet_of_three_particles() -> None:
    # Sides 0.3, 0.4, 0.5; equal momenta, so every pair has weight 1/9 and the triple 1/27.
    got = _named(_massless([50, 50, 50], [0.0, 0.3, 0.0], [0.0, 0.0, 0.4]))
    e2_1, e2_2 = 1.2 / 9, 0.5 / 9
    e3_1, e3_2 = 0.06 / 27, 0.0036 / 27
    expected = {
        "zlogz": -math.log(3),
        "c1_b0_mmdt": 1 / 3,
        "c1_b1_mmdt": e2_1,
        "c1_b2_mmdt": e2_2,
        "c2_b1_mmdt": e3_1 / e2_1**2,
        "c2_b2_mmdt": e3_2 / e2_2**2,
        "d2_b1_mmdt": e3_1 / e2_1**3,
        "d2_b2_mmdt": e3_2 / e2_2**3,
        "d2_a1_b1_mmdt": e3_1 / e2_1**3,
        "d2_a1_b2_mmdt": e3_1 / e2_2**1.5,
        "m2_b1_mmdt": 0.3 / 27 / e2_1,
        "m2_b2_mmdt": 0.09 / 27 / e2_2,
        "n2_b1_mmdt": 0.12 / 27 / e2_1**2,
        "n2_b2_mmdt": 0.0144 / 27 / e2_2**2,
    }
    assert {name: got[name] for name in expected} == pytest.approx(expected)


def test_a_jet_of_one_particle_has_zero_ratios() -> None:
    got = _named(_massless([900, 10, 20], [0, 0.3, 0.2], [0, 0.1, 0.2]), _massless([900], [0], [0]))
    assert got["multiplicity"] == 3
    assert got["mass_mmdt"] == pytest.approx(0, abs=1e-3)
    assert all(value == 0 for name, value in got.items() if name.endswith("_mmdt") and name != "mass_mmdt")


jets = st.integers(2, 9).flatmap(
    lambda n: st.tuples(
        *(
            st.lists(st.floats(low, high, allow_subnormal=False), min_size=n, max_size=n).map(np.array)
            for low, high in ((1.0, 500.0), (-0.6, 0.6), (-math.pi, math.pi))
        )
    )
)


@given(jets)
@settings(deadline=None)
def test_correlators_agree_with_loops(jet: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    got = simulate.correlators(*jet)
    want = _by_loops(*jet)
    for name in ("e2", "e3", "e3_1", "e3_2"):
        for exponent, value in getattr(got, name).items():
            assert value == pytest.approx(want[f"{name}_{exponent}"], rel=1e-9, abs=1e-12), (name, exponent)


@given(jets, st.floats(0.1, 10), st.floats(-7, 7), st.floats(-1, 1))
@settings(deadline=None)
def test_scale_rotation_and_boost_change_nothing(
    jet: tuple[np.ndarray, np.ndarray, np.ndarray], scale: float, turn: float, boost: float
) -> None:
    pt, y, phi = jet
    here, there = simulate.correlators(pt, y, phi), simulate.correlators(pt * scale, y + boost, phi + turn)
    for name in ("e2", "e3", "e3_1", "e3_2"):
        assert getattr(there, name) == pytest.approx(getattr(here, name), rel=1e-6, abs=1e-9)


@given(jets, st.floats(0.05, 0.95))
@settings(deadline=None)
def test_infrared_and_collinear_safety(jet: tuple[np.ndarray, np.ndarray, np.ndarray], fraction: float) -> None:
    """Neither a very soft particle nor a collinear splitting changes a correlator with exponent above 0."""
    pt, y, phi = jet
    here = simulate.correlators(pt, y, phi)
    soft = simulate.correlators(np.append(pt, 1e-9), np.append(y, 0.5), np.append(phi, 1.0))
    split = simulate.correlators(
        np.concatenate([[pt[0] * fraction, pt[0] * (1 - fraction)], pt[1:]]), np.append(y[0], y), np.append(phi[0], phi)
    )
    for name in ("e2", "e3", "e3_1", "e3_2"):
        for exponent, value in getattr(here, name).items():
            assert getattr(soft, name)[exponent] == pytest.approx(value, abs=1e-6)
            if exponent:
                assert getattr(split, name)[exponent] == pytest.approx(value, abs=1e-9)


def test_triples_are_every_triple_once() -> None:
    for n in range(1, 8):
        pairs, triples, sides = simulate._pairs_and_triples(n)
        assert [tuple(t) for t in triples.T] == list(itertools.combinations(range(n), 3))
        named = [tuple(p) for p in pairs.T]
        for (i, j, k), (a, b, c) in zip(triples.T, sides.T, strict=True):
            assert (named[a], named[b], named[c]) == ((i, j), (i, k), (j, k))


def test_correlators_refuse_what_is_no_jet() -> None:
    with pytest.raises(ValueError, match=r"shapes \(2,\), \(2,\) and \(3,\); expected one shape \(n,\) for all three"):
        simulate.correlators(np.ones(2), np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match=r"transverse momenta sum to 0\.0; expected a positive sum"):
        simulate.correlators(np.zeros(2), np.ones(2), np.ones(2))


@given(st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-20), st.integers(2, 24))
def test_rounding_keeps_its_bits(value: float, bits: int) -> None:
    out = float(simulate.round_to_bits(np.array([value]), bits)[0])
    assert abs(out - value) <= abs(value) * 2.0**-bits
    mantissa = math.frexp(out)[0] * 2**bits
    assert mantissa == int(mantissa)
    assert out == float(simulate.round_to_bits(np.array([out]), bits)[0])


def test_recipes_are_checked_and_their_seeds_differ() -> None:
    with pytest.raises(ValueError, match="jets is 7; expected a positive multiple of 5"):
        simulate.Recipe(jets=7)
    with pytest.raises(ValueError, match="block is 0; expected at least 1"):
        simulate.Recipe(block=0)
    with pytest.raises(ValueError, match="significant_bits is 25; expected 2 to 24"):
        simulate.Recipe(significant_bits=25)
    with pytest.raises(ValueError, match="count is 60001; expected 1 to 60000"):
        simulate.simulate(simulate.Recipe(), 60_001)
    seeds = [s for c in simulate.CLASSES for b in range(100) for s in simulate.Recipe().seeds(c, b)]
    assert len(set(seeds)) == len(seeds)


def test_written_bytes_are_the_same_twice(tmp_path: Path) -> None:
    values = simulate.round_to_bits(np.random.default_rng(0).normal(size=(50, 16)), 16)
    for name in ("one", "two"):
        simulate.write_parquet(values, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert np.array_equal(simulate.read_parquet(tmp_path / "one"), values)


# --- grooming --------------------------------------------------------------------------------------------------------


@needs_fastjet
def test_grooming_drops_soft_branches_until_a_hard_one() -> None:
    jet = _massless([3, 400, 250, 1], [0.7, 0.0, 0.3, -0.5], [0.5, 0.0, 0.0, 0.4])
    assert np.array_equal(simulate.groom(jet, 0.1), jet[[1, 2]])
    # 250 / 650 = 0.38: a threshold above it leaves the hardest particle.
    assert np.array_equal(simulate.groom(jet, 0.4), jet[[1]])
    assert np.array_equal(simulate.groom(jet, 0.0), jet)
    assert np.array_equal(simulate.groom(jet[[1]], 0.1), jet[[1]])


@needs_fastjet
@given(jets)
@settings(deadline=None, max_examples=50)
def test_grooming_keeps_some_particles_unchanged(jet: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    momenta = _massless(*(list(v) for v in jet))
    kept = simulate.groom(momenta, 0.1)
    assert 1 <= len(kept) <= len(momenta)
    rows = {tuple(row) for row in momenta.tolist()}
    assert all(tuple(row) in rows for row in kept.tolist())


# --- the shipped file ------------------------------------------------------------------------------------------------


def test_the_shipped_file_is_the_recorded_one() -> None:
    note = json.loads((JETS / "jets.json").read_text(encoding="utf-8"))
    path = JETS / note["file"]
    assert simulate.sha256(path) == note["sha256"]
    assert path.stat().st_size == note["bytes"] < 5_000_000
    values = simulate.read_parquet(path)
    recipe = simulate.read_recipe(JETS / "jets.json")
    assert recipe == simulate.Recipe()
    assert values.shape == (recipe.jets, 16)
    assert np.isfinite(values).all()
    assert np.array_equal(values, simulate.round_to_bits(values.astype(np.float64), recipe.significant_bits))
    for i, name in enumerate(simulate.CLASSES):
        assert np.median(values[i::5, 14]) == pytest.approx(note["medians"][name]["mass_mmdt"], rel=1e-3)


@needs_real
def test_shipped_jets_look_like_real_ones() -> None:
    values = simulate.read_parquet(JETS / "jets.parquet").astype(np.float64)
    real = np.loadtxt(REAL / "hlf_100_features.dat")
    difference = np.abs(np.corrcoef(values.T) - np.corrcoef(real.T))
    assert difference.mean() < 0.08
    assert difference.max() < 0.35


@needs_real
@needs_fastjet
def test_observables_of_real_constituents() -> None:
    """The recorded observables of real jets, which another program computed."""
    lists = np.load(REAL / "constituents_32.npy").astype(np.float64)
    with (REAL / "jets3000_hlf_derived.csv").open(encoding="utf-8") as stream:
        header = next(stream).strip().split(",")
        rows = [line.strip().split(",") for line in stream]
    assert tuple(header[:16]) == simulate.FEATURES
    for row in range(0, 3000, 10):
        pt, eta, phi = lists[row][lists[row][:, 0] > 0].T
        jet = _massless(list(pt), list(eta), list(phi))
        got = simulate.observables(jet, simulate.groom(jet, 0.1))
        assert got == pytest.approx([float(value) for value in rows[row][:16]], rel=2e-5, abs=1e-4)


@pytest.mark.slow
@needs_fastjet
@needs_pythia
def test_200_jets_come_out_again() -> None:
    simulate.check(200)


@pytest.mark.slow
@needs_fastjet
@needs_pythia
def test_a_difference_is_named(tmp_path: Path) -> None:
    recipe = simulate.Recipe(jets=5, block=1, multiple_interactions=False)
    values = simulate.simulate(recipe)
    values[2, 14] += 1
    path = tmp_path / "jets.parquet"
    simulate.write_parquet(values, path)
    note = simulate.describe(recipe, values, path)
    (tmp_path / "jets.json").write_text(json.dumps(note), encoding="utf-8")
    with pytest.raises(ValueError, match=r"1 of 5 regenerated .* jet 2 \(class w\), mass_mmdt: made .*recorded"):
        simulate.check(5, tmp_path)
