"""What a run hands over of each network: the contents of its bundle, collected from the run's artifacts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hawq_flow import equality, synthesis
from hawq_flow.config import load
from hawq_flow.flow import Flow
from hawq_flow.flow.exports import Exports
from hawq_flow.flow.hardware import Hardware
from hawq_flow.flow.importing import NAME, Import
from hawq_flow.flow.making import FlowError
from hawq_flow.handover import Contents
from hawq_flow.report import HlsReport

NOT_UNROLLED = "this design is not wholly unrolled: it has no top to simulate"


def of_run(flow: Flow, name: str, *, rows: int | None = None, layer_rows: int | None = None) -> Contents:
    """The bundle of one plan of an experiment; artifacts that are missing are made.

    Parameters
    ----------
    rows:
        Test samples that travel; None: all.
    layer_rows:
        As for :class:`Contents`.

    Raises
    ------
    FlowError
        If there is no such plan, or its representations are not equal.
    """
    if name not in flow.plan_names:
        raise FlowError(f"handover: no plan {name!r}; the experiment has {', '.join(flow.plan_names)}")
    experiment, spec = flow.experiment, flow.network(name).inputs[0]
    backends = experiment.firmware_backends if name in flow.hls_plans else []
    raw = flow.split.test.x[:rows]
    built = name in experiment.rtl_plans
    rtl = flow.design(name) if built else None
    without = "" if built else "the plan is none of [rtl] in the experiment"
    if rtl is not None and rtl.text is None:
        rtl, without = None, NOT_UNROLLED
    result = {key: value for key, value in flow.qat(name).json("result.json").items() if key != "loss"}
    return Contents(
        name=f"{experiment.name}-{name}",
        rows={spec.name: spec.integers(raw)},
        raw=np.asarray(raw, dtype=np.float64),
        projects={backend: flow.hls(name, backend).path / "project" for backend in backends},
        rtl=rtl,
        without_rtl=without,
        plan=flow.plan_artifact(name).json("plan.json"),
        result=result,
        reports=_reports(flow, name, backends, built),
        part=experiment.hls.part,
        clock_period_ns=experiment.hls.clock_period_ns,
        layer_rows=layer_rows,
        **_proved(flow, name),
    )


def of_import(found: Import, name: str, *, rows: int | None = None, layer_rows: int | None = None) -> Contents:
    """The bundle of an imported network, called ``name``; ``rows``, ``layer_rows`` as for :func:`of_run`."""
    config = found.config
    return Contents(
        name=name,
        rows={key: array[:rows] for key, array in found.integers.items()},
        projects={backend: found.hls(NAME, backend).path / "project" for backend in config.backends},
        without_rtl="imported networks are not made into Verilog by hawq-flow import; see hawq-flow rtl",
        part=config.hls.part,
        clock_period_ns=config.hls.clock_period_ns,
        layer_rows=layer_rows,
        reports=_vendors(found, NAME, config.backends),
        **_proved(found, NAME),
    )


def _proved(flow: Any, name: str) -> dict[str, Any]:
    """What every network has: itself, its models, its certificate; ``FlowError`` when that is not clean."""
    certificate = flow.equality(name).json("equality.json")
    try:
        equality.require(certificate)
    except equality.EqualityError as error:
        raise FlowError(f"handover: {name}: {error}") from error
    return {
        "network": flow.network(name),
        "certificate": certificate,
        "coverage": flow.equality(name).json("coverage.json"),
        "qonnx": flow.qonnx(name).file("model.onnx").read_bytes(),
        "onnx": flow.onnx(name).file("model.onnx").read_bytes(),
    }


def _vendors(flow: Exports, name: str, backends: Sequence[str]) -> tuple[HlsReport, ...]:
    """What vendor tools said of a network's projects, as far as they were asked."""
    return tuple(r for backend in backends for r in synthesis.reports(flow.hls(name, backend).path / "project"))


def _reports(flow: Hardware, name: str, backends: Sequence[str], built: bool) -> tuple[HlsReport, ...]:
    """What vendor tools and Yosys said of a plan, as far as they were asked."""
    found = _vendors(flow, name, backends)
    if built and not flow.without_yosys and not flow.synthesized(name).reason:
        found += (flow.synthesized(name).report(),)
    return found


def experiment_of(place: Path) -> Path:
    """The experiment's TOML that a path stands for: itself, its folder, or the folder its firmware goes to.

    Raises
    ------
    FlowError
        If it is none of these.
    """
    if place.is_file() or (place / "experiment.toml").is_file():
        return place
    if not place.is_dir():
        raise FlowError(f"handover: {place}: no such file or folder; give an experiment's TOML, or its firmware folder")
    for file in _experiments(place.resolve()):
        experiment = load(file)
        folder = experiment.firmware.folder if experiment.firmware is not None else ""
        if folder and (experiment.folder / folder).resolve() == place.resolve():
            return file
    raise FlowError(
        f"handover: {place}: no experiment near it has it as [firmware] folder; give the experiment's TOML instead"
    )


def _experiments(place: Path) -> Iterator[Path]:
    for above in (place, *place.parents):
        yield from sorted(above.glob("experiments/*/experiment.toml"))
        if os.path.ismount(above) or (above / "pyproject.toml").is_file():
            return
