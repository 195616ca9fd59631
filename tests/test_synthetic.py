"""Made-up, recorded and simulated data: shapes, structure to learn from, and every refusal."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hawq_flow.data import AbsentDataError, DataError, Split, Standardization, load
from hawq_flow.data.field import FILES, VARIABLE

ROOT = Path(__file__).parent.parent
IMAGES: dict[str, Any] = {"shape": [3, 12, 10], "samples": 120, "classes": 4}


def images(**changes: Any) -> Split:
    return load("synthetic:images", **{**IMAGES, **changes})


# --- synthetic -------------------------------------------------------------------------------------------------------


def test_images_have_the_shape_classes_and_seed_asked_for() -> None:
    split = images()
    assert split.shape == (3, 12, 10)
    assert split.classes == ("0", "1", "2", "3")
    assert (len(split.train), len(split.val), len(split.test)) == (84, 12, 24)
    assert split.features == ()
    assert split.scale == "shared"
    assert images().digest == split.digest != images(seed=1).digest
    flat = split.train.x.reshape(len(split.train), -1)
    assert len(np.unique(flat, axis=0)) == len(flat)


def test_images_of_one_direction_resemble_each_other() -> None:
    """The direction is in the two-point correlations: the best class by its mean power spectrum beats chance by far."""
    split = images(shape=[1, 24, 24], samples=800)

    def spectrum(x: np.ndarray) -> np.ndarray:
        power = abs(np.fft.rfft2(x[:, 0])) ** 2
        return power.reshape(len(x), -1) / power.sum(axis=(1, 2))[:, None]

    train, test = spectrum(split.train.x), spectrum(split.test.x)
    means = np.stack([train[split.train.y == c].mean(axis=0) for c in range(4)])
    found = ((test[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (found == split.test.y).mean() > 0.8


def test_faulty_machines_go_to_the_test_part_and_stand_out() -> None:
    split = load("synthetic:machine", samples=2000, normal=["healthy"])
    assert split.shape == (640,)
    assert split.features[129] == "frame1_band1"
    faulty = split.anomalous(split.test)
    assert not split.anomalous(split.train).any()
    assert not split.anomalous(split.val).any()
    assert faulty.sum() == 300
    x = split.standardization().apply(split.test.x)
    # Distance from the healthy subspace of 8 directions: what an autoencoder of 8 numbers can at best ignore.
    train = split.standardization().apply(split.train.x)
    _, _, directions = np.linalg.svd(train, full_matrices=False)
    rest = x - x @ directions[:8].T @ directions[:8]
    error = (rest**2).mean(axis=1)
    assert np.median(error[faulty]) > 1.1 * np.median(error[~faulty])


def test_sensors_hold_shares_of_the_charge() -> None:
    split = load("synthetic:sensor", samples=300)
    assert split.shape == (1, 8, 8)
    assert split.classes == ("1", "2", "3")
    assert split.train.x.sum(axis=(1, 2, 3)) == pytest.approx(1)
    assert split.train.x.min() == 0
    occupied = [(split.train.x[split.train.y == c] > 0.02).mean() for c in range(3)]
    assert occupied[0] < occupied[1] < occupied[2]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("pictures", {}, "no synthetic data of that name; expected one of images, machine, sensor"),
        ("images", {"samples": 0}, "`samples` is 0; expected how many examples to make"),
        ("images", {"shape": None}, r"`shape` is left out; expected \[channels, height, width\]"),
        ("images", {"shape": [3, 12]}, r"`shape` is \[3, 12\]; expected \[channels"),
        ("images", {"shape": [3, 12, 0]}, r"`shape` is \[3, 12, 0\]; expected \[channels"),
        ("images", {"classes": 1}, "`classes` is 1; expected 2 or more"),
        ("images", {"features": ["a"]}, "`features` or `label` given; expected neither"),
        ("sensor", {"classes": 0}, "`shape` or `classes` given; expected neither: they are fixed"),
        ("machine", {"shape": None}, "`shape` or `classes` given; expected neither"),
    ],
)
def test_what_cannot_be_made_is_refused(name: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError, match=f"^synthetic:{name}: .*{expected}"):
        load(f"synthetic:{name}", **{**IMAGES, **options})


# --- shapes, standardization, anomalies -------------------------------------------------------------------------------


def test_digits_as_images() -> None:
    flat, split = load("digits"), load("digits", shape=[1, 8, 8])
    assert split.train.x.shape == (1259, 1, 8, 8)
    assert (split.train.x.reshape(-1, 64) == flat.train.x).all()
    assert split.features == flat.features
    assert split.digest != flat.digest
    assert split.standardization() == flat.standardization()
    for shape in ([8, 9], [-8, -8], [64, 0]):
        with pytest.raises(
            DataError, match=r"digits: `shape` \[.*\] for examples of 64 values; expected sizes of 1 or"
        ):
            load("digits", shape=shape)


def test_standardization_by_channel() -> None:
    split = images(standardize="channel")
    fitted = split.standardization()
    assert fitted.mean.shape == fitted.std.shape == (3, 1, 1)
    out = fitted.apply(split.train.x)
    assert out.mean(axis=(0, 2, 3)) == pytest.approx(np.zeros(3), abs=1e-12)
    assert out.std(axis=(0, 2, 3)) == pytest.approx(np.ones(3))
    # Whatever the order of the elements in memory, the digest tells the three ways apart.
    assert len({images(standardize=s).digest for s in ("feature", "channel", "shared")}) == 3
    with pytest.raises(DataError, match=r"standardization: examples of shape \(2, 12, 10\); expected \(3, 1, 1\)"):
        fitted.apply(split.train.x[:, :2])
    with pytest.raises(DataError, match=r"examples of shape \(12, 10\)"):
        fitted.apply(split.train.x[:, 0])
    with pytest.raises(
        DataError, match=r"digits: standardization by channel of examples of shape \(64,\); expected \("
    ):
        load("digits", standardize="channel")


def test_constant_pixels_and_channels_are_named() -> None:
    with pytest.raises(DataError, match=r"constant columns in .*: 'pixel_0_0' \(always 0.0\).* by channel or shared"):
        load("digits", standardize="feature")
    x = images().train.x[:3].copy()
    x[:, 1] = 2.0
    with pytest.raises(DataError, match=r"1 constant column in the 3 .*: channel 1 \(always 2.0\)"):
        Standardization.fit(x, scale="channel")


def test_anomalies_are_all_tested_on_and_never_trained_on() -> None:
    whole, split = load("digits"), load("digits", normal=["0", "3"])
    assert set(split.train.y) == set(split.val.y) == {0, 3}
    assert (split.anomalous(split.test) == ~np.isin(split.test.y, [0, 3])).all()
    rows = sum(map(len, (whole.train, whole.val, whole.test)))
    assert sum(map(len, (split.train, split.val, split.test))) == rows
    assert not whole.anomalous(whole.test).any()
    with pytest.raises(DataError, match="digits: `normal` names '11'; expected classes of '0', '1'"):
        load("digits", normal=["11"])
    with pytest.raises(DataError, match="digits: `normal` names every class; leave one out as the anomaly"):
        load("digits", normal=list("0123456789"))


def test_sizes_of_made_up_data_are_refused_elsewhere() -> None:
    for name in ("samples", "classes"):
        with pytest.raises(DataError, match=f"digits: `{name}` given; expected it for synthetic data only"):
            load("digits", **{name: 3})


# --- recordings -------------------------------------------------------------------------------------------------------


def _recordings(folder: Path) -> None:
    """Small files in the formats of the recordings."""
    rng = np.random.default_rng(0)
    for name in FILES.values():
        (folder / name).parent.mkdir(exist_ok=True)
    (folder / FILES["toyadmos"]).write_text(" ".join(f"{v:.4f}" for v in rng.normal(size=9 * 640)))
    beats = [",".join([*(f"{v:.6e}" for v in rng.normal(size=140)), str(1 + i % 3)]) for i in range(30)]
    (folder / FILES["ecg5000"]).write_text(
        "% about\n@Relation ECG\n@attribute att1 numeric\n@data\n\n" + "\n".join(beats)
    )
    np.savez(folder / FILES["wakeword"], specs=rng.random((12, 30, 1, 40)), labels=np.arange(12.0) % 3)


def test_recordings_are_read_from_the_folder_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    _recordings(tmp_path)
    split = load("field:toyadmos", root=tmp_path.parent, folder=tmp_path.name)
    assert split.shape == (640,)
    assert split.classes == ("recorded",)
    assert sum(map(len, (split.train, split.val, split.test))) == 9
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    beats = load("field:ecg5000")
    assert beats.shape == (1, 140)
    assert beats.classes == ("abnormal", "normal")
    assert sum(int((part.y == 1).sum()) for part in (beats.train, beats.val, beats.test)) == 10
    words = load("field:wakeword")
    assert (words.shape, words.classes, words.features) == ((1, 30, 40), ("0", "1", "2"), ())


def test_recordings_that_are_absent_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(
        AbsentDataError, match=rf"field:toyadmos: no folder named; .*`folder` in \[data\], or {VARIABLE}"
    ):
        load("field:toyadmos")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(AbsentDataError, match=r"field:ecg5000: no file .*ECG5000_TRAIN.arff; expected the folder that"):
        load("field:ecg5000")
    with pytest.raises(DataError, match="field:birds: no such recording; expected one of field:toyadmos, field:ecg"):
        load("field:birds")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("toyadmos", b"1 2 three", "cannot be read: .*three.*; expected the file as published"),
        ("toyadmos", b"1 2 3", r"holds an array of shape \(1, 3\); expected 640 values an example"),
        ("toyadmos", b"", "expected 640 values an example"),
        ("ecg5000", b"@data\n1,2,3\n", r"shape \(1, 3\); expected 141 values an example"),
        ("ecg5000", b"@data\n1,2\n1\n", "cannot be read: .*; expected the file as published"),
        ("wakeword", b"PK", "cannot be read"),
    ],
)
def test_damaged_recordings_are_refused(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    _recordings(tmp_path)
    (tmp_path / FILES[name]).write_bytes(content)
    with pytest.raises(DataError, match=f"^field:{name}: .*{expected}"):
        load(f"field:{name}", folder=tmp_path)


# --- jets' constituents -----------------------------------------------------------------------------------------------

FOLDER = ROOT / "experiments" / "jet_constituents"


@pytest.fixture(scope="module")
def simulate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("constituents_simulate", FOLDER / "simulate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_shipped_constituents_are_whole_and_are_the_shipped_jets(simulate: ModuleType) -> None:
    note = json.loads((FOLDER / "constituents.json").read_text())
    assert simulate.sha256(FOLDER / note["file"]) == note["sha256"]
    with np.load(FOLDER / note["file"], allow_pickle=False) as arrays:
        x, jet = arrays["x"], arrays["jet"]
    assert x.shape == (note["jets"], 3, 16) == (20_000, 3, 16)
    assert x.dtype == np.int16
    assert (jet == np.tile(list("gqwzt"), 4000)).all()
    assert (np.diff(x[:, 0], axis=1) <= 0).all()  # falling pT
    # Row r is the jet of row r of jets.parquet: its multiplicity is 16 or more where no slot is empty.
    from hawq_flow.data.files import read_parquet

    many = read_parquet("jets", ROOT / "experiments/jets/jets.parquet", ["multiplicity"], "class").x[:20_000, 0]
    full = (x != 0).any(axis=1).all(axis=1)
    assert (full == (many >= 16)).all()


def test_particles_by_hand(simulate: ModuleType) -> None:
    def momentum(pt: float, eta: float, phi: float) -> list[float]:
        return [pt * math.cos(phi), pt * math.sin(phi), pt * math.sinh(eta), pt * math.cosh(eta)]

    # Two equal particles on both sides of the cut in phi, and a soft one on the axis.
    jet = np.array([momentum(1, 0.5, math.pi), momentum(50, 0.5, math.pi - 0.1), momentum(50, 0.5, -math.pi + 0.1)])
    found = simulate.particles(jet) * np.array(simulate.STEPS)[:, None]
    assert found[0, :4] == pytest.approx([math.log(50), math.log(50), 0, 0], abs=2**-13)
    assert sorted(found[2, :2]) == pytest.approx([-0.1, 0.1], abs=2**-15)
    assert found[2, 2:] == pytest.approx(0, abs=2**-15)
    assert abs(found[1]).max() < 0.01
    many = np.array([momentum(1 + i, 0.01 * i, 0.0) for i in range(20)])
    assert simulate.particles(many)[0].tolist() == [round(math.log(20 - i) * 2**12) for i in range(16)]


def test_simulated_constituents_come_out_again(simulate: ModuleType) -> None:
    pytest.importorskip("pythia8mc", reason="needs the extra `simulate`")
    made = simulate.simulate_block((simulate.Recipe(jets=20_000), "w", 0, 3))
    with np.load(FOLDER / "constituents.npz", allow_pickle=False) as arrays:
        assert (arrays["x"][2::5][:3] == made).all()
