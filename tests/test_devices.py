"""Devices: found in any spelling, their files checked, what does not fit said with percentages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hawq_flow import devices
from hawq_flow.devices import Device, DoesNotFit
from hawq_flow.report import Resources

NAMED = ("Alveo U250", "Alveo U50", "VU13P", "KU115", "ZU7EV", "PYNQ-Z2", "VU9P")


def test_the_devices_that_are_described() -> None:
    known = {device.name: device for device in devices.load()}
    assert set(NAMED) <= set(known)
    pynq = known["PYNQ-Z2"]
    assert (pynq.lut, pynq.ff, pynq.dsp, pynq.bram18, pynq.uram) == (53200, 106400, 220, 280, 0)
    assert (pynq.dsp_kind, pynq.slrs, pynq.family) == ("DSP48E1", 1, "zynq")
    u250 = known["Alveo U250"]
    assert (u250.lut, u250.ff, u250.dsp, u250.bram18, u250.uram) == (1728000, 3456000, 12288, 5376, 1280)
    assert u250.slr() == {"lut": 432000, "ff": 864000, "dsp": 3072, "bram18": 1344, "uram": 320}
    # The card's device is a VU13P under another name.
    vu13p = known["VU13P"]
    assert all(getattr(vu13p, name) == getattr(u250, name) for name in devices.RESOURCES)
    for device in known.values():
        assert device.ff == 2 * device.lut  # two flip-flops beside each table, in every family described
        assert all(getattr(device, name) % device.slrs == 0 for name in devices.RESOURCES)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("xc7z020clg400-1", "PYNQ-Z2"),
        ("7z020clg400-1", "PYNQ-Z2"),
        ("XC7Z020-CLG400-1", "PYNQ-Z2"),
        ("xc7z020-clg484-1", "PYNQ-Z2"),
        ("pynq-z2", "PYNQ-Z2"),
        ("xcu250-figd2104-2L-e", "Alveo U250"),
        ("xcu250figd2104-2L", "Alveo U250"),
        ("alveo u250", "Alveo U250"),
        ("xcu50-fsvh2104-2-e", "Alveo U50"),
        ("xcvu9p-flgb2104", "VU9P"),
        ("xcvu9pflgb2104-2", "VU9P"),
        ("xcvu9p", "VU9P"),
        ("xcvu13p-fhgb2104-2-i", "VU13P"),
        ("xcku115-flva1517-2-e", "KU115"),
        ("xczu7ev-ffvc1156-2-e", "ZU7EV"),
        ("xc7z007sclg225-1", "Zynq 7007S"),
    ],
)
def test_parts_in_any_spelling(part: str, name: str) -> None:
    found = devices.find(part)
    assert found is not None
    assert found.name == name


def test_other_parts_are_not_found() -> None:
    # xcu5... is not xcu50, the 7z010 not the 7z020, a VU9P not a VU19P.
    for part in (
        "xcu5-fsvh2104",
        "xcu50c-fsvh2104-2-e",
        "xc7z010clg400-1",
        "xcvu19p-fsva3824-2-e",
        "xcku11p-ffva1156",
        "",
    ):
        assert devices.find(part) is None, part


def test_a_package_in_a_description_is_needed(tmp_path: Path) -> None:
    text = (devices.default_folder() / "vu9p.toml").read_text().replace('["xcvu9p"]', '["xcvu9p-flgb2104"]')
    (tmp_path / "a.toml").write_text(text)
    assert devices.find("xcvu9pflgb2104-2", tmp_path) is not None
    assert devices.find("xcvu9p-flga2104-2-i", tmp_path) is None
    assert devices.find("xcvu9p-flgb21044", tmp_path) is None


SMALL = Device("small", ("xc1",), "zynq", 1000, 2000, 10, 20, 0, 1, ("1",), "DSP48E1", "made up")


def test_fits() -> None:
    assert devices.fits(Resources(lut=1000, ff=2000, dsp=10, bram18=20, uram=0), SMALL) == []
    over = devices.fits(Resources(lut=1500, ff=None, dsp=11, uram=2), SMALL)
    assert [(one.resource, one.used, one.available) for one in over] == [
        ("lut", 1500, 1000),
        ("dsp", 11, 10),
        ("uram", 2, 0),
    ]
    assert [one.resource for one in devices.fits({"lut": 5000.5}, SMALL)] == ["lut"]
    assert SMALL.percent({"lut": 250, "uram": 0, "dsp": None}) == {"lut": 25.0}


def test_what_does_not_fit_is_said_with_percentages() -> None:
    devices.check_fits({"lut": 1000}, SMALL)
    with pytest.raises(DoesNotFit) as caught:
        devices.check_fits(Resources(lut=1500, dsp=11, uram=2), SMALL, "plan int8")
    assert str(caught.value) == (
        "plan int8 does not fit small: LUT 1,500 of 1,000 (150 %); DSP 11 of 10 (110 %); URAM 2 of 0 (it has none); "
        "expected at most 100 %. Take narrower bits, a larger reuse factor or a larger device"
    )


GOOD = """name = "small"
parts = ["xc1"]
family = "zynq"
lut = 1000
ff = 2000
dsp = 10
bram18 = 20
uram = 0
slrs = 1
speed_grades = ["1"]
dsp_kind = "DSP48E1"
source = "made up"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lut = 1000", "luts = 1000", "unknown keys luts, missing keys lut; expected exactly"),
        ("lut = 1000", "lut = 10.5", "found lut = 10.5; expected a whole number of at least 1"),
        ("lut = 1000", "lut = true", "found lut = True; expected a whole number"),
        ("uram = 0", "uram = -1", "found uram = -1; expected a whole number of at least 0"),
        ('parts = ["xc1"]', "parts = []", r"found parts = \[\]; expected a list of texts"),
        ('name = "small"', "name = 3", "found name = 3; expected a text"),
        ("lut = 1000", "lut =", "found no TOML"),
    ],
)
def test_descriptions_are_checked(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "small.toml").write_text(GOOD)
    assert devices.load(tmp_path) == (SMALL,)
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "small.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(ValueError, match=rf"small\.toml: {message}"):
        devices.load(folder)


def test_one_part_is_described_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(GOOD)
    with pytest.raises(ValueError, match=r"b\.toml: found the part xc1, as in a\.toml; expected it once"):
        devices.load(tmp_path)


def test_where_descriptions_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.default_folder() == Path(devices.__file__).resolve().parents[1] / "firmware" / "devices"
    # Installed, the package has no repository around it, and the files are in the installation's share.
    monkeypatch.setattr(devices, "__file__", str(tmp_path / "site" / "hawq_flow" / "devices.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    with pytest.raises(FileNotFoundError, match="expected the TOML files of devices in one of them"):
        devices.default_folder()
    share = tmp_path / "prefix" / "share" / "hawq_flow" / "devices"
    share.mkdir(parents=True)
    assert devices.default_folder() == share
    with pytest.raises(FileNotFoundError, match="found no TOML file"):
        devices.load()
