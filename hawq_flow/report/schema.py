"""One schema for the figures of every tool: :class:`HlsReport`.

A figure that a report does not hold is None, never 0; a figure that it holds keeps the unit that its name says. Figures
of different stages never share a column: HLS estimates (``csynth``) of LUTs are about twice those of logic synthesis.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

Stage = Literal["csynth", "cosim", "synthesis", "implementation", "open"]
"""HLS estimate; RTL simulation by the vendor; vendor logic synthesis; placed and routed; Yosys, not Vivado."""

NOT_MET = "timing not met"
"""The note of a report with a negative slack, or that says so."""

ONE_LATENCY = "csynth.rpt prints one latency and one interval: both ends have it"
"""The note of a report with ``one_latency``."""


class ReportError(ValueError):
    """A report that is truncated, empty, foreign or mixed up; names file, line, what was found and what expected."""


class Foreign(ReportError):
    """A file that is no report of any kind known here: nothing in it says what it is."""


class NoFigures(ReportError):
    """A file that is in order, but of a kind that holds none of the schema's figures; the text says what it is."""


@dataclass(frozen=True)
class Resources:
    """What a design, or one module of it, takes of a device; or what a device has.

    Attributes
    ----------
    lut, lut_logic, lut_memory:
        Look-up tables in all, as logic, and as memory (distributed RAM and shift registers).
    ff:
        Flip-flops; Vivado's registers, among which are latches, if a design has any.
    dsp:
        DSP blocks under whatever name: DSP48E, DSP48E1, DSP48E2, DSP58, "DSPs".
    bram18:
        Block RAM in units of 18 Kbit: csynth's figure as it stands, Vivado's tiles of 36 Kbit times two.
    ramb36, ramb18:
        Block RAM primitives, where a report tells them apart.
    uram, carry:
        UltraRAM blocks; carry chain primitives (CARRY4, CARRY8).
    """

    lut: float | None = None
    lut_logic: float | None = None
    lut_memory: float | None = None
    ff: float | None = None
    dsp: float | None = None
    bram18: float | None = None
    ramb36: float | None = None
    ramb18: float | None = None
    uram: float | None = None
    carry: float | None = None

    def figures(self) -> dict[str, float]:
        """The figures that are there, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Timing:
    """Latency and interval in clock cycles and in ns, and clocks; None where not reported (or not finite: "?")."""

    latency_cycles_min: int | None = None
    latency_cycles_max: int | None = None
    latency_ns_min: float | None = None
    latency_ns_max: float | None = None
    interval_cycles_min: int | None = None
    interval_cycles_max: int | None = None
    clock_target_ns: float | None = None
    clock_estimate_ns: float | None = None
    clock_uncertainty_ns: float | None = None
    wns_ns: float | None = None
    tns_ns: float | None = None
    whs_ns: float | None = None


@dataclass(frozen=True)
class Row:
    """One module of a report: its name, instance path where told, and its figures."""

    module: str
    instance: str | None = None
    used: Resources = Resources()
    timing: Timing = Timing()


@dataclass(frozen=True)
class HlsReport:
    """What one tool said of one design at one stage, from one or several of its report files.

    Attributes
    ----------
    stage, tool, version, part, date:
        ``tool`` is "Vivado HLS", "Vitis HLS", "Vivado", "Yosys"...; ``version`` as in "2020.1"; ``part`` in the full
        spelling where the report has it (xcu250-figd2104-2L-e); ``date`` as ISO 8601 text.
    top:
        The top module of the report's design.
    used, available:
        Totals of the design and of the device.
    timing, power_w:
        Clock, latency, interval and slack; total on-chip power.
    modules:
        Rows of sub-modules, in the report's order.
    sources:
        Names of the files it was read from.
    digest:
        Digest of the integer network that the design was made from, where known.
    notes:
        What a reader of the figures must know: black boxes left out, a clock that is not the only one, timing not met.
    available_slr:
        What one die (SLR) of a device of several has, where the report says so; ``available`` is the whole device.
    project:
        Folder of the project the report was found in, where reports were gathered from folders.
    one_latency:
        Whether its file prints one latency and one interval, which both ends are then: the design's are around them.
    """

    stage: Stage
    tool: str
    version: str | None = None
    part: str | None = None
    date: str | None = None
    top: str | None = None
    used: Resources = Resources()
    available: Resources = Resources()
    timing: Timing = Timing()
    power_w: float | None = None
    power_dynamic_w: float | None = None
    power_static_w: float | None = None
    modules: tuple[Row, ...] = ()
    sources: tuple[str, ...] = ()
    digest: str | None = None
    notes: tuple[str, ...] = ()
    available_slr: Resources = Resources()
    project: str | None = None
    one_latency: bool = False
