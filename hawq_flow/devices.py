"""Devices: what each has of LUTs, flip-flops, DSP blocks and memories, so that what cannot fit is known beforehand.

One TOML file a device, in ``firmware/devices`` of the repository or ``share/hawq_flow/devices`` of an installation.
Large devices are several dies (SLRs) side by side: a design may use all of them, but what crosses from one to another
is slow, and HLS reports print what one die has beside what all have.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from hawq_flow.document import exact_keys

RESOURCES = {"lut": "LUT", "ff": "FF", "dsp": "DSP", "bram18": "BRAM (18 Kbit)", "uram": "URAM"}
"""Resources that a device is described by -> how a text names them."""


class DoesNotFit(ValueError):
    """A design needs more of something than a device has; the text says of what, how much, and in percent."""


@dataclass(frozen=True)
class Device:
    """One device.

    Attributes
    ----------
    name:
        Of the board or device, as people say it: "PYNQ-Z2".
    parts:
        Parts that are this device, each ``die`` (any package) or ``die-package``.
    family:
        As the vendor's tools name it: "virtexuplus".
    lut, ff, dsp, uram:
        Look-up tables, flip-flops, DSP blocks, UltraRAM blocks of the whole device.
    bram18:
        Block RAM in units of 18 Kbit.
    slrs:
        Dies, alike in what they have.
    speed_grades:
        As in part names: "1", "2", "2L"; a higher number is faster, L has lower power.
    dsp_kind:
        "DSP48E1" multiplies 25 x 18 bits, "DSP48E2" 27 x 18, "DSP58" 27 x 24.
    source:
        Where the figures are from.
    """

    name: str
    parts: tuple[str, ...]
    family: str
    lut: int
    ff: int
    dsp: int
    bram18: int
    uram: int
    slrs: int
    speed_grades: tuple[str, ...]
    dsp_kind: str
    source: str

    def is_named(self, part: str) -> bool:
        """Whether ``part`` is this device in any spelling, or its name."""
        spelled = re.sub(r"^x[caq](?=\w*\d)", "", part.strip().lower())
        if _compact(part) and _compact(part) == _compact(self.name):
            return True
        package = r"[a-z]{2,5}\d{2,4}"
        for entry in self.parts:
            die, _, own = re.sub(r"^x[caq]", "", entry.lower()).partition("-")
            # Without a package in the entry any may follow, or none; never more of the die's name: xcu5 is not xcu50.
            rest = f"-?{re.escape(own)}" if own else f"(-?{package})?"
            if re.match(rf"{re.escape(die)}{rest}(-|$)", spelled):
                return True
        return False

    def percent(self, used: Any) -> dict[str, float]:
        """Percent of each resource that ``used`` takes (as :func:`fits`); what the device has none of is left out."""
        return {
            name: 100 * amount / getattr(self, name)
            for name, amount in _amounts(used).items()
            if getattr(self, name) > 0
        }

    def slr(self) -> dict[str, int]:
        """What one die has of each resource."""
        return {name: getattr(self, name) // self.slrs for name in RESOURCES}


@dataclass(frozen=True)
class Overflow:
    """One resource that does not fit: its name, what is used of it and what there is."""

    resource: str
    used: float
    available: int

    def __str__(self) -> str:
        percent = f"{100 * self.used / self.available:.0f} %" if self.available else "it has none"
        return f"{RESOURCES[self.resource]} {self.used:,.0f} of {self.available:,} ({percent})"


def _compact(text: str) -> str:
    """A name without what spellings differ in: case, hyphens and blanks."""
    return re.sub(r"[-\s_]", "", text.lower())


def _amounts(used: Any) -> dict[str, float]:
    values: Mapping[str, Any] = used if isinstance(used, Mapping) else vars(used)
    return {name: float(values[name]) for name in RESOURCES if values.get(name) is not None}


def default_folder() -> Path:
    """Where the descriptions are: beside the package in a repository, else in the installation's ``share``.

    Raises
    ------
    FileNotFoundError
        If neither is there.
    """
    places = (
        Path(__file__).resolve().parents[1] / "firmware" / "devices",
        Path(sys.prefix) / "share" / "hawq_flow" / "devices",
    )
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f"devices: found neither {places[0]} nor {places[1]}; expected the TOML files of devices in one of them. "
        "Install hawq_flow again, or give a folder"
    )


def load(folder: str | Path | None = None) -> tuple[Device, ...]:
    """Every device that is described in a folder, by file name; default :func:`default_folder`.

    Raises
    ------
    FileNotFoundError
        If there is no such folder or no TOML file in it.
    ValueError
        If a file is no TOML, or a key is missing, unknown or of another type, or two files describe one part.
    """
    return _load(Path(folder) if folder is not None else default_folder())


@lru_cache
def _load(folder: Path) -> tuple[Device, ...]:
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise FileNotFoundError(f"{folder}: found no TOML file; expected one for each device")
    devices = [_read(path) for path in paths]
    owners: dict[str, Path] = {}
    for path, device in zip(paths, devices, strict=True):
        for part in device.parts:
            if owners.setdefault(_compact(part), path) != path:
                raise ValueError(
                    f"{path}: found the part {part}, as in {owners[_compact(part)].name}; expected it once"
                )
    return tuple(devices)


def _read(path: Path) -> Device:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: found no TOML ({error}); expected the description of a device") from None
    exact_keys(data, {field.name for field in fields(Device)}, str(path))
    for name in (*RESOURCES, "slrs"):
        least = 0 if name in ("dsp", "bram18", "uram") else 1
        if type(data[name]) is not int or data[name] < least:
            raise ValueError(f"{path}: found {name} = {data[name]!r}; expected a whole number of at least {least}")
    for name in ("parts", "speed_grades"):
        if not isinstance(data[name], list) or not data[name] or not all(isinstance(v, str) and v for v in data[name]):
            raise ValueError(f"{path}: found {name} = {data[name]!r}; expected a list of texts")
    for name in ("name", "family", "dsp_kind", "source"):
        if not isinstance(data[name], str) or not data[name]:
            raise ValueError(f"{path}: found {name} = {data[name]!r}; expected a text")
    return Device(**{**data, "parts": tuple(data["parts"]), "speed_grades": tuple(data["speed_grades"])})


def find(part: str, folder: str | Path | None = None) -> Device | None:
    """The device of a part in any spelling (``xcvu9p-flgb2104-2-i``, ``xcvu9pflgb2104-2``, ``7z020clg400-1``), or None.

    A device's name is found too (``PYNQ-Z2``).
    """
    return next((device for device in load(folder) if device.is_named(part)), None)


def fits(used: Any, device: Device) -> list[Overflow]:
    """What does not fit, empty if all does.

    Parameters
    ----------
    used:
        A ``report.Resources``, or a mapping of the names in ``RESOURCES``; what is None or absent is not checked.
    device:
        The device, all dies together.
    """
    return [
        Overflow(name, amount, getattr(device, name))
        for name, amount in _amounts(used).items()
        if amount > getattr(device, name)
    ]


def check_fits(used: Any, device: Device, what: str = "the design") -> None:
    """``DoesNotFit`` with every resource that does not fit and its percentage; nothing if all fits."""
    over = fits(used, device)
    if over:
        raise DoesNotFit(
            f"{what} does not fit {device.name}: {'; '.join(map(str, over))}; expected at most 100 %. "
            "Take narrower bits, a larger reuse factor or a larger device"
        )
