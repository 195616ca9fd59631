"""Designs with both the HLS tool's estimate and Vivado's logic synthesis: what the one is of the other.

From reuse-factor scans (Vivado 2018.3) and from the reports of published projects, both of one part. Rows whose DSP
blocks differ by far are left out: there, logic synthesis removed what the design did not use, and the ratio says
nothing of the tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hawq_flow.estimate.data import frame
from hawq_flow.estimate.features import EstimateError, Strategy
from hawq_flow.report import same_part, tree

COLUMNS = (
    ("VivadoHlsResourceLut", "VivadoHlsResourceFf", "VivadoHlsResourceDsp"),
    ("HLSResourceLut", "HLSResourceFf", "HLSResourceDsp"),
)
SYNTHESIZED = (
    ("VivadoResourceLut", "VivadoResourceFf", "VivadoResourceDsp"),
    ("ResourceLut", "ResourceFf", "ResourceDsp"),
)
LEAST_DSP_SHARE = 0.5
RESOURCE_PROJECTS = ("hls4ml-pynq", "econ-t")
"""Published projects that use the resource strategy (by their folder's name); the scans all do."""


@dataclass(frozen=True)
class Pair:
    """One design: logic synthesis over csynth, by figure; designs of one project are one project's."""

    project: str
    strategy: Strategy
    lut: float
    ff: float
    dsp: float


def _scans(folder: Path) -> Iterator[Pair]:
    files = sorted((folder / "hls4ml_rf_scans").glob("*.csv"))
    if not files:
        raise EstimateError(f"calibration data: {folder / 'hls4ml_rf_scans'} holds no table; give the folder it is in")
    seen = []
    for path in files:
        table = frame(path).rename(columns=lambda name: name.strip().lstrip("#"))
        for before, after in zip(COLUMNS, SYNTHESIZED, strict=True):
            if set(before + after) <= set(table.columns):
                part = table[["Model", "ReuseFactor", *before, *after]].dropna()
                seen.append(part.set_axis(["model", "reuse", "lut", "ff", "dsp", "lut2", "ff2", "dsp2"], axis=1))
    rows = pd.concat(seen).drop_duplicates()
    for row in rows.to_dict("records"):
        if row["lut"] != row["lut2"] and row["dsp2"] >= LEAST_DSP_SHARE * row["dsp"] > 0 and row["lut2"] > 1000:
            yield Pair(
                f"scan {row['model']}",
                "resource",
                row["lut2"] / row["lut"],
                row["ff2"] / row["ff"],
                row["dsp2"] / row["dsp"],
            )


def _published(folder: Path) -> Iterator[Pair]:
    if not folder.is_dir():
        raise EstimateError(f"calibration data: {folder} is missing; the folder of reports belongs beside the tables")
    reports, _ = tree([folder])
    for before in reports:
        after = [each for each in reports if each.project == before.project and each.stage == "synthesis"]
        if before.stage != "csynth" or len(after) != 1:
            continue
        if not (before.part and after[0].part and same_part(before.part, after[0].part)):
            continue
        one, two = before.used, after[0].used
        if not (one.lut and one.ff and one.dsp and two.lut and two.ff and two.dsp):
            continue
        if one.lut < 1000 or two.dsp < LEAST_DSP_SHARE * one.dsp:
            continue
        name = Path(str(before.project)).name
        strategy: Strategy = "resource" if any(part in name for part in RESOURCE_PROJECTS) else "latency"
        project = "hls4ml-pynq jets" if name.startswith("hls4ml-pynq") else name
        yield Pair(project, strategy, two.lut / one.lut, two.ff / one.ff, two.dsp / one.dsp)


def pairs(folder: Path) -> list[Pair]:
    """All pairs of the tables in ``folder`` and of the reports in ``folder/../reports``."""
    return [*_scans(folder), *_published(folder.parent / "reports")]
