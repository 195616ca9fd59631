"""Published synthesis tables, read as rows of a fit: what was built, how, and what the tool reported of it.

The tables are not part of the package: :mod:`hawq_flow.estimate.fit` is given their folder. Their traps, and what is
done about each:

- the same network was built many times (reuse factors, DSP or LUT multipliers, two commits): every row names the real
  *project* it came from, and what is held out is a project, never a row;
- searches list failures and, twice, the same designs: failures and duplicates are dropped;
- the weights are not in the tables, only how many are zero and, in one search, how many CSD digits they have: counts of
  constants are those of weights drawn with these zeros (:func:`hawq_flow.estimate.counts.drawn`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hawq_flow.estimate.counts import Counts, count, drawn, expected
from hawq_flow.estimate.features import EstimateError, HardwareConfig, LayerFeatures, Multipliers

if TYPE_CHECKING:
    import pandas as pd

FIXED = re.compile(r"ap_(u?)fixed<\s*(\d+)\s*,\s*(-?\d+)(?:\s*,\s*(\w+)\s*,\s*(\w+))?")
MODULE_TYPE = re.compile(r"ap_(u?)fixed_(\d+)_(\d+)_(\d)_(\d)_\d")


@dataclass(frozen=True)
class Measured:
    """One row of a fit.

    Attributes
    ----------
    project:
        The real project: rows of one project are held out together.
    name:
        The row's own name: the project's folder and the layer, for messages and figures.
    stage, version:
        Stage and tool version of the figures.
    layers, hardware:
        What was built, and how.
    whole:
        Whether these are figures of a whole design (with registers between layers) or of one module of it.
    lut, ff, dsp, bram18, latency_cycles:
        The figures; None where not reported.
    weights_known:
        Whether the numbers of CSD digits are the actual weights'.
    parts:
        Of a whole design, what its layers' own reports add up to, by figure; None where a layer has no report.
    """

    project: str
    name: str
    stage: str
    version: str
    layers: tuple[LayerFeatures, ...]
    hardware: HardwareConfig
    whole: bool
    lut: float | None = None
    ff: float | None = None
    dsp: float | None = None
    bram18: float | None = None
    latency_cycles: float | None = None
    weights_known: bool = False
    parts: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Fixed:
    """An ap_fixed type: bits in all, integer bits, whether signed, whether it rounds or saturates."""

    bits: int
    integer: int
    signed: bool = True
    rounds: bool = False

    @property
    def fraction(self) -> int:
        """Bits after the binary point."""
        return self.bits - self.integer

    @classmethod
    def parse(cls, text: object) -> Fixed | None:
        """Of ``ap_fixed<16,6>`` or ``ap_ufixed<8,0,AP_RND_CONV,AP_SAT>``, anywhere in the text."""
        found = FIXED.search(str(text))
        if not found:
            return None
        unsigned, bits, integer, rounding, _ = found.groups()
        return cls(int(bits), int(integer), not unsigned, bool(rounding) and rounding.startswith("AP_RND"))

    @classmethod
    def of_module(cls, name: str) -> list[Fixed]:
        """Types in a module's name, in order: ``relu_ap_fixed_16_4_5_3_0_ap_ufixed_8_1_4_0_0_relu_config4_s``."""
        return [
            cls(int(bits), int(integer), not unsigned, quantization != "5")
            for unsigned, bits, integer, quantization, _ in MODULE_TYPE.findall(name)
        ]


def frame(path: Path) -> pd.DataFrame:
    """A table, or ``EstimateError`` naming the file."""
    import pandas as pd  # half a second that only reading tables should take

    if not path.is_file():
        raise EstimateError(f"calibration data: {path} is missing; give the folder that holds hls4ml_layers.csv")
    return pd.read_csv(path, na_values=["?"])


def _search_project(d_in: int, d_out: int) -> str:
    """Layers of one shape are one project of the search: they differ by widths and reuse factor alone."""
    return f"wa-hls4ml-search {d_in}x{d_out}"


def search_rows(folder: Path) -> Iterator[Measured]:
    """Single dense layers of wa-hls4ml-search: Vivado HLS 2020.1, ap_fixed<16,6> inputs, U(-a, a) weights."""
    table = frame(folder / "wa_hls4ml_search" / "results_format_test.csv")
    table = table[table["hls_synth_success"]].drop_duplicates(["model_name", "rf", "strategy"])
    # at reuse factor 1024 hls4ml took the nearest valid one for these layers, which the table does not say
    table = table[(table["strategy"] == "resource") | (table["rf"] < 1024)]
    stats = frame(folder / "wa_hls4ml_search" / "pregen_model_weight_stats.csv").set_index("model_name")
    counted: dict[str, Counts] = {}
    for row in table.to_dict("records"):
        name, n_in, n_out, bits = row["model_name"], int(row["d_in"]), int(row["d_out"]), int(row["prec"])
        known = stats.loc[name]
        if name not in counted:
            # the largest weight says how far the uniform distribution reaches, in steps of 2^-(bits-1)
            reach = float(known["w_absmax"]) * 2.0 ** (bits - 1)
            weights = drawn(n_in, n_out, bits, nonzeros=int(known["nonzeros"]), uniform=reach)
            counted[name] = dataclasses.replace(count(weights, exact=False), digits=int(known["csd_digits"]))
        layer = LayerFeatures(
            name, "product", n_out, 16, 16, n_in, n_out, weight_bits=bits, sum_bits=16, counts=counted[name]
        )
        yield Measured(
            project=_search_project(n_in, n_out),
            name=f"{name} rf {row['rf']} {row['strategy']}",
            stage="csynth",
            version="2020.1",
            layers=(layer,),
            hardware=HardwareConfig(int(row["rf"]), row["strategy"], 5.0, "xcvu13p"),
            whole=True,
            lut=row["LUT_hls"],
            ff=row["FF_hls"],
            dsp=row["DSP_hls"],
            bram18=row["BRAM_18K_hls"],
            latency_cycles=row["WorstLatency_hls"],
            weights_known=True,
        )


def _project_name(repo: str, project: str) -> str:
    """Which network it really is: folders that differ by reuse factor, DSP or LUT, board or commit are one project."""
    name = re.sub(r"(hls4ml_prj\w*|DSP_reuse\d+|LUT_reuse\d+|HLS_MLPs)/?", "", project)
    if "nicologhielmetti" in repo:
        name = "jets"
    if "uw-acme" in repo:
        name = "uplane"
    return f"{repo.split('/')[0]} {name.strip('/. ') or 'model'}".replace("//", "/")


def _config_number(text: str) -> int:
    """The number of ``config12`` in a module's or a config's name; -1 without one."""
    found = re.search(r"config(\d+)", text)
    return int(found[1]) if found else -1


def _multipliers(project: str) -> Multipliers:
    return "dsp" if "DSP_reuse" in project else "fabric" if "LUT_reuse" in project else "auto"


def _dense(config: dict[str, Any], entering: Fixed, leaving: Fixed | None) -> LayerFeatures | None:
    """Features of a dense layer from its hls4ml configuration; None where that is not complete."""
    weight, total = Fixed.parse(config.get("weight_t")), Fixed.parse(config.get("accum_t"))
    try:
        n_in, n_out, zeros = int(config["n_in"]), int(config["n_out"]), int(config["n_zeros"])
    except (KeyError, ValueError):
        return None
    if weight is None or total is None:
        return None
    # generated configurations of pruned tools list more zeros than weights pruned away by their widths: cap
    nonzeros = max(n_in * n_out - zeros, 0)
    counts = expected(n_in, n_out, weight.bits, nonzeros=nonzeros, fraction=weight.fraction)
    bits = leaving.bits if leaving else total.bits
    return LayerFeatures(
        config["name"],
        "product",
        n_out,
        entering.bits,
        bits,
        n_in,
        n_out,
        weight_bits=weight.bits,
        sum_bits=total.bits,
        counts=counts,
    )


def _hardware(row: dict[str, Any], configs: list[dict[str, Any]]) -> HardwareConfig:
    factors = {config["name"]: int(config.get("reuse_factor", 1)) for config in configs}
    strategies = {config.get("strategy", "latency") for config in configs}
    streams = any(config.get("io_type") == "io_stream" for config in configs)
    return HardwareConfig(
        factors,
        "resource" if strategies == {"resource"} else "latency",
        float(row["clk_target"]),
        str(row["part"]),
        "io_stream" if streams else "io_parallel",
        _multipliers(str(row["project"])),
    )


def project_rows(folder: Path) -> Iterator[Measured]:
    """Layers and whole projects of published hls4ml projects: csynth of wholly dense, parallel networks.

    Convolutional and streaming projects are left out: their layers' loops (cycles, FIFOs) are another model.
    """
    modules = frame(folder / "hls4ml_layers.csv")
    projects = frame(folder / "hls4ml_projects.csv")
    for row in projects.to_dict("records"):
        try:
            configs = json.loads(row["layers"])
        except json.JSONDecodeError:  # the table cuts long cells off
            continue
        if not configs or any(config["kind"] != "dense_config" for config in configs):
            continue
        hardware = _hardware(row, configs)
        if hardware.io_type == "io_stream" or hardware.strategy == "resource":
            continue
        own = modules[(modules["commit"] == row["commit"]) & (modules["project"] == row["project"])]
        found = list(_layers_of(row, configs, own.to_dict("records")))
        project = _project_name(str(row["repo"]), str(row["project"]))
        where = f"{project} {row['project']}"
        version = str(row["version"])
        for layer, module in found:
            if module is None:
                continue
            yield Measured(
                project,
                f"{where} {layer.name}",
                "csynth",
                version,
                (layer,),
                hardware,
                False,
                module["LUT"],
                module["FF"],
                module["DSP"],
                module["BRAM_18K"],
                module["lat_max"],
            )
        if found and any(layer.kind == "product" for layer, _ in found):
            yield Measured(
                project,
                where,
                "csynth",
                version,
                tuple(layer for layer, _ in found),
                hardware,
                True,
                row["LUT"],
                row["FF"],
                row["DSP"],
                row["BRAM_18K"],
                row["lat_max"],
                parts=_parts([module for _, module in found]),
            )


def _parts(modules: list[dict[str, Any] | None]) -> dict[str, float] | None:
    """What the modules add up to; None where one is missing."""
    kept = [module for module in modules if module is not None]
    if len(kept) != len(modules):
        return None
    columns = {"lut": "LUT", "ff": "FF", "latency_cycles": "lat_max"}
    return {figure: float(sum(module[column] for module in kept)) for figure, column in columns.items()}


def _layers_of(
    row: dict[str, Any], configs: list[dict[str, Any]], modules: list[dict[str, Any]]
) -> Iterator[tuple[LayerFeatures, dict[str, Any] | None]]:
    """Layers of one project in order, each with its module's row where that can be told."""
    types = json.loads(row["types"])
    current = next((fixed for name, text in types.items() if "input" in name and (fixed := Fixed.parse(text))), None)
    if current is None:
        return
    by_number: dict[int, tuple[str, dict[str, Any]]] = {}
    for config in configs:
        by_number[_config_number(config["name"])] = ("dense", config)
    matched: dict[int, dict[str, Any]] = {}
    for module in modules:
        name = str(module["module"])
        number = _config_number(name)
        if name.startswith("dense"):
            matched[number] = module
        elif name.startswith(("relu_", "softmax")) and number >= 0:
            by_number[number] = ("relu" if name.startswith("relu") else "softmax", module)
            matched[number] = module
    width = 0
    for number in sorted(by_number):
        kind, entry = by_number[number]
        own = matched.get(number)
        named = Fixed.of_module(str(own["module"])) if own else []
        if kind == "dense":
            if len(named) > 1:  # the name of a module has what enters and what leaves it, unless HLS mangled it
                current = named[0]
            leaving = Fixed.parse(types.get(f"layer{number}_t")) or (named[1] if len(named) > 1 else None)
            layer = _dense(entry, current, leaving)
            if layer is None:
                return
            width = layer.n_out
            current = leaving or current
            yield layer, own
        elif kind == "relu":
            if len(named) < 2:
                continue
            features = LayerFeatures(
                f"config{number}", "rescale", width, named[0].bits, named[1].bits, rounds=named[1].rounds
            )
            current = named[1]
            yield features, own
        else:
            yield LayerFeatures(f"config{number}", "softmax", width, current.bits, 16), own


def rows(folder: Path) -> list[Measured]:
    """All rows of the folder, in a fixed order."""
    return [*search_rows(folder), *project_rows(folder)]


def finite(value: float | None) -> bool:
    """Whether a figure is there."""
    return value is not None and math.isfinite(value)
