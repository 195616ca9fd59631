"""``csynth.xml`` and ``NAME_csynth.xml``: the same estimates as the ``.rpt``, in XML, of Vivado HLS and Vitis HLS.

Vitis HLS adds ``ModuleInformation``, the figures of every module, and ``RTLDesignHierarchy``, which tells instances.
``*_export.xml``, of the export with logic synthesis or implementation, is read here too: it has the same form of
resources.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hawq_flow.report.csynth_rpt import version_of
from hawq_flow.report.figures import HLS_RESOURCES, complete, date_of, parsed, part_of, resources
from hawq_flow.report.schema import NOT_MET, HlsReport, Resources, Row, Stage, Timing
from hawq_flow.report.text import quoted
from hawq_flow.report.values import count, nanoseconds, number, whole
from hawq_flow.report.xml import Element

FIRST_VITIS = (2020, 2)
"""Vivado HLS ended with 2020.1; its XML and that of Vitis HLS 2020.1 differ by ``FlowTarget``."""

FIRST_TIMES = (2019, 2)
"""From this version at the latest, latencies are written in cycles and in time."""


def read_csynth_xml(root: Element) -> HlsReport:
    """Totals, device, clock, latency and modules of one ``<profile>``.

    Raises
    ------
    ReportError
        If an element that every version writes is missing, or the row of the top differs from the totals.
    """
    text = root.text
    version = root.need("ReportVersion/Version")
    user, estimates, area = root.need("UserAssignments"), root.need("PerformanceEstimates"), root.need("AreaEstimates")
    part, top = user.need("Part"), user.need("TopModelName").value.strip()
    user.need("TargetClockPeriod"), user.need("ClockUncertainty")
    estimates.need("SummaryOfOverallLatency/Interval-min"), estimates.need("SummaryOfOverallLatency/Interval-max")
    estimates.need("SummaryOfTimingAnalysis/EstimatedClockPeriod")
    number_of = version_of(text, version.index, version.value.strip())
    year, minor = (int(piece) for piece in number_of.split(".")[:2])
    if (year, minor) >= FIRST_TIMES:
        for path in ("Best-caseRealTimeLatency", "Worst-caseRealTimeLatency"):
            estimates.need(f"SummaryOfOverallLatency/{path}")
    used, available = _totals(area.need("Resources")), _totals(area.need("AvailableResources"))
    timing = _timing(estimates, user)
    modules = _modules(root)
    totals = used.figures()
    for row in modules:
        figures = {name: value for name, value in row.used.figures().items() if name in totals}
        if row.module == top and any(value != totals[name] for name, value in figures.items()):
            text.fail(root.need("ModuleInformation").index, f"a module {top!r} of {figures}", f"the totals, {totals}")
    return HlsReport(
        stage="csynth",
        tool="Vitis HLS" if (year, minor) >= FIRST_VITIS or user.find("FlowTarget") is not None else "Vivado HLS",
        version=number_of,
        part=part_of(text, part.index, part.value),
        top=top,
        used=used,
        available=available,
        timing=timing,
        modules=tuple(row for row in modules if row.module != top),
        sources=(text.name,),
    )


def _figure(element: Element, path: str, kind: str) -> float | None:
    found = element.find(path)
    if found is None:
        return None
    return parsed(element.text, found.index, found.value, nanoseconds if kind == "ns" else whole, path)


def _cycles(element: Element, path: str) -> int | None:
    value = _figure(element, path, "cycles")
    return None if value is None else int(value)


def _timing(estimates: Element, clock: Element) -> Timing:
    summary = estimates.need("SummaryOfOverallLatency")
    for path in ("Best-caseLatency", "Worst-caseLatency"):
        summary.need(path)
    return Timing(
        latency_cycles_min=_cycles(summary, "Best-caseLatency"),
        latency_cycles_max=_cycles(summary, "Worst-caseLatency"),
        latency_ns_min=_figure(summary, "Best-caseRealTimeLatency", "ns"),
        latency_ns_max=_figure(summary, "Worst-caseRealTimeLatency", "ns"),
        interval_cycles_min=_cycles(summary, "Interval-min"),
        interval_cycles_max=_cycles(summary, "Interval-max"),
        clock_target_ns=_figure(clock, "TargetClockPeriod", "ns"),
        clock_estimate_ns=_figure(estimates, "SummaryOfTimingAnalysis/EstimatedClockPeriod", "ns"),
        clock_uncertainty_ns=_figure(clock, "ClockUncertainty", "ns"),
    )


def _resources(element: Element) -> Resources:
    return resources(
        element.text,
        element.index,
        [
            (HLS_RESOURCES[child.tag], parsed(element.text, child.index, child.value, count, child.tag))
            for child in element.children
            if child.tag in HLS_RESOURCES
        ],
    )


def _totals(element: Element) -> Resources:
    return complete(element.text, element.index, _resources(element), f"an element <{element.tag}>")


def _modules(root: Element) -> list[Row]:
    instances = _instances(root)
    rows = []
    for module in root.all("ModuleInformation/Module"):
        name = module.need("Name").value.strip()
        estimates = module.need("PerformanceEstimates")
        clock = estimates.need("SummaryOfTimingAnalysis")
        timing = _timing(estimates, clock)
        if timing.interval_cycles_min is None:
            # A module's row has one interval, the initiation interval of its pipeline: a range "2 ~ 5", or a number.
            low, high = _interval(estimates.need("SummaryOfOverallLatency"))
            timing = replace(timing, interval_cycles_min=low, interval_cycles_max=high)
        paths = instances.get(name, [])
        used = _resources(module.need("AreaEstimates/Resources"))
        rows.append(Row(name, paths[0] if len(paths) == 1 else None, used, timing))
    return rows


def _interval(summary: Element) -> tuple[int | None, int | None]:
    found = summary.find("PipelineInitiationInterval")
    if found is None:
        return None, None
    match = re.fullmatch(r"\s*(\d+)\s*(?:~|to|-)\s*(\d+)\s*", found.value, re.ASCII)
    if match:
        return int(match[1]), int(match[2])
    value = parsed(found.text, found.index, found.value, whole, "PipelineInitiationInterval")
    return value, value


def _instances(root: Element) -> dict[str, list[str]]:
    """Module -> paths of its instances, ``top/a/b``."""
    paths: dict[str, list[str]] = {}

    def visit(element: Element, path: str) -> None:
        for instance in element.all("InstancesList/Instance"):
            below = f"{path}/{instance.need('InstName').value.strip()}"
            paths.setdefault(instance.need("ModuleName").value.strip(), []).append(below)
            visit(instance, below)

    top = root.find("RTLDesignHierarchy/TopModule")
    if top is not None:
        visit(top, top.need("ModuleName").value.strip())
    return paths


def read_export_xml(root: Element) -> HlsReport:
    """``*_export.xml``, ``export_syn.xml``, ``export_impl.xml``: after logic synthesis, or after implementation.

    The part, the date and the slacks are given where the version writes them.

    Raises
    ------
    ReportError
        If it does not tell which of both it is, has no resources or clock, or does not say whether timing is met in
        words known here.
    """
    text = root.text
    run, version = root.need("RunData/RUN_TYPE"), root.need("RunData/VIVADO_VERSION")
    stages: dict[str, Stage] = {"synth": "synthesis", "syn": "synthesis", "impl": "implementation"}
    stage = stages.get(run.value.strip().lower())
    if stage is None:
        text.fail(run.index, f"a run of type {quoted(run.value)}", "synth or impl")
    timing = root.need("TimingReport")
    target, achieved = timing.need("TargetClockPeriod"), timing.need("AchievedClockPeriod")
    match = re.match(r"v?\.?(\d{4}\.\d+(\.\d+)?)", version.value.strip(), re.ASCII)
    if match is None:
        text.fail(version.index, quoted(version.value), "a version like v.2020.1")
    available = root.find("AreaReport/AvailableResources")
    said = {item.attributes.get("NAME", "").lower(): item for item in root.all("GeneralInfo/item")}
    part, written = said.get("target device"), said.get("report date") or said.get("date")
    date, notes = date_of(written.attributes.get("VALUE") if written else None)
    wns, tns = (
        None if (found := timing.find(name)) is None else parsed(text, found.index, found.value, number, name)
        for name in ("WNS_FINAL", "TNS_FINAL")
    )
    met = timing.find("TIMING_MET")
    if met is not None and met.value.strip().upper() not in ("TRUE", "FALSE"):
        text.fail(met.index, f"TIMING_MET {quoted(met.value)}", "TRUE or FALSE")
    if (met is not None and met.value.strip().upper() == "FALSE") or (wns is not None and wns < 0):
        notes = (*notes, NOT_MET)
    return HlsReport(
        stage=stage,
        tool="Vivado",
        version=match[1],
        part=None if part is None else part_of(text, part.index, part.attributes.get("VALUE", "")),
        date=date,
        used=_totals(root.need("AreaReport/Resources")),
        available=_totals(available) if available is not None else Resources(),
        timing=Timing(
            clock_target_ns=parsed(text, target.index, target.value, nanoseconds, target.tag),
            clock_estimate_ns=parsed(text, achieved.index, achieved.value, nanoseconds, achieved.tag),
            wns_ns=wns,
            tns_ns=tns,
        ),
        sources=(text.name,),
        notes=notes,
    )
