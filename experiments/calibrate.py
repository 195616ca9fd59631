"""Random bit plans of the jet MLP, synthesized by the open road, against what is estimated before synthesis.

Each plan draws its widths (weights 2-8, activations 3-8 bits a layer, input 6-16 bits), so that bit operations span a
factor of five. The trained float network is quantized under it without retraining (accuracy is not the question here),
lowered, written as Verilog and synthesized by Yosys. A line a plan goes to calibrate.jsonl as soon as it is done: what
was estimated from, and what was measured, module by module. A plan that is there is not made again, so it may be
stopped and run again, until to_rtl changes (netlists of modules that did not change are kept). ``--refresh`` writes
what is estimated from (the layers' features) anew and leaves what was measured. calibrate.csv (estimates of each plan
by coefficients fitted to the others) and docs/img/estimate_open.png are made from these lines.

``--operations`` synthesizes networks of a single op each instead (adders, comparisons, products of two values, tables,
rescales to 1-8 bits) and writes operations.jsonl: what the jet MLP does not have.

`make calibrate` runs it; `python -m hawq_flow.estimate.fit` then fits the open stage's coefficients to the lines.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from hawq_flow import store
from hawq_flow.config import load
from hawq_flow.estimate import HardwareConfig, estimate, features
from hawq_flow.estimate.baselines import ebops
from hawq_flow.estimate.figures import correlations, open_comparison, open_frame, save
from hawq_flow.estimate.fit import open_model, open_rows, operation_rows
from hawq_flow.flow import Flow
from hawq_flow.lower import lower
from hawq_flow.network import (
    Add,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    Multiply,
    Op,
    OutputSpec,
    ReduceMax,
    ReduceSum,
    Requantize,
    Subtract,
    SumPool,
)
from hawq_flow.numeric import IntType
from hawq_flow.plan import BitPlan, LayerBits, LayerShape, bops
from hawq_flow.quant import quantize
from hawq_flow.to_rtl.generate import generate
from hawq_flow.to_rtl.synthesize import OpenSynthesis, RtlSynthesisConfig, synthesize

HERE = Path(__file__).parent
LINES = HERE / "calibrate.jsonl"
OPERATIONS = HERE / "operations.jsonl"
TABLE = HERE / "calibrate.csv"
FIGURE = HERE.parent / "docs" / "img" / "estimate_open.png"
WEIGHT_BITS, ACTIVATION_BITS, INPUT_BITS = (2, 8), (3, 8), (6, 16)
SPREAD = 1.2  # standard deviation, in bits, of a layer's widths around its plan's


def random_plan(shapes: list[LayerShape], seed: int) -> BitPlan:
    """One plan: its mean widths are uniform over the ranges, a layer's are normal around them; 0 and 1 are the ends.

    The width of what leaves the last layer stays 16 bits.
    """
    generator = np.random.default_rng(seed)

    def widths(least: int, most: int, number: int) -> list[int]:
        if seed < 2:
            return [(least, most)[seed]] * number
        drawn = generator.normal(generator.uniform(least, most), SPREAD, number)
        return [int(bits) for bits in np.clip(np.rint(drawn), least, most)]

    weights, activations = widths(*WEIGHT_BITS, len(shapes)), widths(*ACTIVATION_BITS, len(shapes))
    plan = BitPlan.homogeneous(shapes, 8, 8)
    layers = {
        name: LayerBits(weight, bits.activation if bits.activation == 16 else activation)
        for (name, bits), weight, activation in zip(plan.layers, weights, activations, strict=True)
    }
    return BitPlan.of({name: widths(*INPUT_BITS, 1)[0] for name, _ in plan.inputs}, layers)


def quantized(flow: Flow, plan: BitPlan) -> IntegerNetwork:
    """The integer network of the float network under a plan, calibrated and frozen but not trained."""
    model = quantize(flow.float_model(), plan, flow.experiment.quant, input_shape=flow.input_shape)
    rows = flow.standardized["train"][:4096].astype(np.float32)
    model.calibrate(torch.from_numpy(rows))
    model.freeze()
    return lower(model.eval())


def line(seed: int, plan: BitPlan, shapes: list[LayerShape], network: IntegerNetwork, found: OpenSynthesis) -> str:
    """What is kept of one plan, as a line of JSON."""
    report = found.report()
    if report.used.lut is None:
        raise RuntimeError(f"plan {seed}: {found.reason}")
    layers = features(network)
    named = {layer.name: layer for layer in layers}  # ops that are only wires are not there
    kept: dict[str, Any] = {
        "seed": seed,
        "plan": plan.to_dict(),
        "network": network.digest,
        "code": store.code_digest("to_rtl"),
        "tool": report.version,
        "bops": bops(plan, shapes),
        "ebops": ebops(layers),
        "lut": report.used.lut,
        "ff": report.used.ff,
        "dsp": report.used.dsp,
        "latency_cycles": report.timing.latency_cycles_max,
        "seconds": round(sum(module.seconds for module in found.modules), 1),
        "modules": [
            {
                "layers": [dataclasses.asdict(named[name]) for name in module.module.ops if name in named],
                "lut": row.used.lut,
                "ff": row.used.ff,
                "latency_cycles": row.timing.latency_cycles_max,
            }
            for module, row in zip(found.modules, report.modules, strict=True)
        ],
    }
    return json.dumps(kept)


def operations() -> dict[str, IntegerNetwork]:
    """Networks of one op, by what it is: inputs of 4 to 16 bits, random tables and multipliers."""

    def network(op: Op, shape: tuple[int, ...], bits: int, other: int = 0) -> IntegerNetwork:
        widths = {"x": bits, "y": other or bits}
        inputs = tuple(InputSpec(name, shape, IntType(widths[name], True)) for name in dict.fromkeys(op.inputs))
        return IntegerNetwork(inputs, (op,), (OutputSpec(op.name),))

    found: dict[str, IntegerNetwork] = {}
    for bits in (4, 8, 12):
        found[f"add {bits}"] = network(Add("r", ("x", "y")), (8,), bits)
        found[f"subtract {bits}"] = network(Subtract("r", "x", "y"), (8,), bits)
        found[f"multiply {bits}"] = network(Multiply("r", "x", "y"), (4,), bits)
        found[f"multiply {bits} 4"] = network(Multiply("r", "x", "y"), (4,), bits, 4)
        found[f"reduce max {bits}"] = network(ReduceMax("r", "x"), (8,), bits)
        found[f"reduce sum {bits}"] = network(ReduceSum("r", "x"), (8,), bits)
        found[f"max pool {bits}"] = network(MaxPool("r", "x", (2, 2), (2, 2), (0,) * 4), (2, 4, 4), bits)
        found[f"sum pool {bits}"] = network(SumPool("r", "x", (2, 2), (2, 2), (0,) * 4), (2, 4, 4), bits)
    for index, bits in itertools.product((4, 6, 8, 10), (4, 8, 16)):
        steps = np.arange(-(2 ** (index - 1)), 2 ** (index - 1))
        most = 2 ** (bits - 1)
        tables = {
            "random": np.random.default_rng(32 * index + bits).integers(-most, most, steps.size),
            "tanh": np.rint((most - 1) * np.tanh(steps / 2 ** (index - 3))).astype(np.int64),
        }
        for name, values in tables.items():
            found[f"table {name} {index} {bits}"] = network(Lookup("r", "x", values, int(steps[0])), (4,), index)
    for bits, to, signed in itertools.product((8, 12, 16), (1, 2, 3, 4, 5, 6, 8), (False, True)):
        if to > signed:
            multiplier = 2 * np.random.default_rng(32 * bits + to).integers(64, 128, 8) + 1
            shift = np.asarray(bits + 6 - to - signed)  # half of the positive values, or all, do not saturate
            op = Requantize("r", "x", multiplier, shift, np.asarray(0), IntType(to, signed))
            found[f"rescale {bits} {'int' if signed else 'uint'}{to}"] = network(op, (8,), bits)
    return found


def synthesize_operations(path: Path, cache: Path) -> None:
    """Every one of :func:`operations`, a line each."""
    path.unlink(missing_ok=True)
    for name, network in operations().items():
        report = synthesize(generate(network), RtlSynthesisConfig(), cache=cache).report()
        layers = [dataclasses.asdict(layer) for layer in features(network)]
        kept = {"name": name, "tool": report.version, "lut": report.used.lut, "ff": report.used.ff, "layers": layers}
        append(path, json.dumps(kept))


def refreshed(entry: dict[str, Any], network: IntegerNetwork) -> str:
    """A line with its layers' features taken anew from the network that it is of."""
    if network.digest != entry["network"]:
        raise RuntimeError(f"plan {entry['seed']}: its network is another now; make the line anew")
    named = {layer.name: layer for layer in features(network)}
    for module in entry["modules"]:
        module["layers"] = [dataclasses.asdict(named[layer["name"]]) for layer in module["layers"]]
    return json.dumps(entry)


def append(path: Path, text: str) -> None:
    """Add a line, wholly or not at all."""
    with path.open("ab") as file:
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def kept_lines(path: Path) -> list[dict[str, Any]]:
    """The lines that this code made; others, and a last line that a stop cut off, are dropped from the file."""
    if not path.is_file():
        return []
    text = path.read_text()
    code = store.code_digest("to_rtl")
    whole = [entry for entry in text[: text.rfind("\n") + 1].splitlines() if json.loads(entry).get("code") == code]
    if (kept := "".join(f"{entry}\n" for entry in whole)) != text:
        store.write_atomic(path, kept)
    return [json.loads(entry) for entry in whole]


def main() -> None:
    """Make what plans are missing, then the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plans", type=int, default=64, help="how many random plans in all")
    parser.add_argument("--experiment", type=Path, default=HERE / "jets" / "experiment.toml")
    parser.add_argument("--out", type=Path, default=None, help="the experiment's run folder, if not its own")
    parser.add_argument("--cache", type=Path, default=HERE / "jets" / "run" / "open", help="folder of netlists")
    parser.add_argument("--lines", type=Path, default=LINES)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    parser.add_argument("--operations", action="store_true", help="synthesize single ops, not plans")
    parser.add_argument("--refresh", action="store_true", help="take the features of the lines' networks anew")
    arguments = parser.parse_args()
    console = Console()
    torch.set_num_threads(1)
    if arguments.operations:
        arguments.cache.mkdir(parents=True, exist_ok=True)
        synthesize_operations(OPERATIONS, arguments.cache)
        return
    if arguments.refresh:
        flow = Flow(load(arguments.experiment), arguments.out)
        entries = [json.loads(text) for text in arguments.lines.read_text().splitlines()]
        texts = [refreshed(entry, quantized(flow, BitPlan.from_dict(entry["plan"]))) for entry in entries]
        store.write_atomic(arguments.lines, "".join(f"{text}\n" for text in texts))
        return
    done = {entry["seed"] for entry in kept_lines(arguments.lines)}
    missing = [seed for seed in range(arguments.plans) if seed not in done]
    if missing:
        flow = Flow(load(arguments.experiment), arguments.out)
        shapes = list(flow.topology.shapes)
        arguments.cache.mkdir(parents=True, exist_ok=True)
        for seed in missing:
            plan = random_plan(shapes, seed)
            network = quantized(flow, plan)
            found = synthesize(generate(network), RtlSynthesisConfig(), cache=arguments.cache)
            append(arguments.lines, line(seed, plan, shapes, network, found))
            guess = estimate(network, HardwareConfig(), "open").total.lut
            console.print(f"plan {seed}: {found.report().used.lut:,.0f} LUTs, estimated {guess.value:,.0f}")
    _, held = open_model(open_rows(arguments.lines), operation_rows(OPERATIONS))
    table = open_frame(kept_lines(arguments.lines), held)
    table.to_csv(arguments.table, index=False)
    save(open_comparison(table), arguments.figure)
    median = float((table["lut_estimated"] / table["lut"] - 1).abs().median())
    console.print(f"{len(table)} plans, BOPs from {table['bops'].min():,} to {table['bops'].max():,}")
    console.print(f"LUTs of plans held out: median error {median:.1%}")
    for name, value in correlations(table).items():
        console.print(f"rank correlation of LUTs with {name}: {value:.3f}")


if __name__ == "__main__":
    main()
