"""What the mixed plan buys on the jets: every plan trained from several float networks, on the same test jets.

For each seed the whole road up to the integer networks runs (`hawq-flow run --until lower`), and each integer network
is evaluated on every test jet. Two standard errors go with a difference of accuracies:

* over jets: the standard error of the mean, over test jets, of the per-jet difference averaged over seeds. It is paired
  (both networks see the same jets) and holds the noise of a finite test set and, averaged, of the seeds;
* over seeds: the standard error of the mean over seeds of the paired difference. It holds training noise alone.

Writes results.csv (one row a seed and plan) and prints the table. Run it by `make study`.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from hawq_flow import store
from hawq_flow.config import load
from hawq_flow.flow import Flow
from hawq_flow.interpret import run
from hawq_flow.plan import bops
from hawq_flow.summary import BLUE, GREY, ORANGE, STYLE, save, widths
from hawq_flow.train import predict

HERE = Path(__file__).parent
Correct = dict[str, NDArray[np.float64]]


def one_seed(experiment: Path, seed: int, out: Path) -> tuple[list[dict[str, object]], Correct, Flow]:
    """Results of one seed: a row for each plan, and for each plan whether every test jet was classified correctly."""
    config = dataclasses.replace(load(experiment), seed=seed)
    flow = Flow(config, out / f"seed{seed}")
    flow.run("lower")
    labels = flow.split.test.y
    correct: Correct = {"float": predict(flow.float_model(), flow.standardized["test"]).argmax(axis=1) == labels}
    rows: list[dict[str, object]] = [{"seed": seed, "plan": "float", "accuracy": float(correct["float"].mean())}]
    for name in flow.plan_names:
        network, plan = flow.network(name), flow.plan(name)
        integers = network.inputs[0].integers(flow.split.test.x)
        correct[name] = run(network, integers).argmax(axis=1) == labels
        zeros = flow.qat(name).json("result.json")["zero_fraction"]
        rows.append(
            {
                "seed": seed,
                "plan": name,
                "accuracy": float(correct[name].mean()),
                "bops": bops(plan, flow.topology.shapes),
                "sparse_bops": bops(plan, flow.topology.shapes, zeros),
                "widths": widths(plan),
                "network": network.digest[:16],
            }
        )
    return rows, {name: values.astype(np.float64) for name, values in correct.items()}, flow


def difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of a - b in points, and its standard errors over jets and over seeds; both (seeds, jets) of 0 and 1."""
    d = 100.0 * (a - b)
    jets = d.mean(axis=0)
    seeds = d.mean(axis=1)
    over_seeds = float(seeds.std(ddof=1) / np.sqrt(len(seeds))) if len(seeds) > 1 else float("nan")
    return float(d.mean()), float(jets.std(ddof=1) / np.sqrt(len(jets))), over_seeds


def figure(table: pd.DataFrame, mixed: list[str], jets: int) -> Figure:
    """Mean accuracy of every plan over seeds against its BOPs, with the standard error over seeds."""
    with mpl.rc_context(STYLE):
        picture = Figure(figsize=(6.8, 4.2), layout="constrained")
        axes = picture.subplots()
        groups = table.groupby("plan", sort=False)
        mean, error, cost = 100 * groups["accuracy"].mean(), 100 * groups["accuracy"].sem(), groups["bops"].mean()
        axes.axhline(mean["float"], color=GREY, ls="--", lw=1.2, label="float")
        axes.axhspan(mean["float"] - error["float"], mean["float"] + error["float"], color=GREY, alpha=0.2, lw=0)
        even = [name for name in mean.index if name not in (*mixed, "float")]
        axes.errorbar(cost[even], mean[even], error[even], fmt="o-", color=BLUE, capsize=3, label="one width for all")
        axes.errorbar(
            cost[mixed], mean[mixed], error[mixed], fmt="D", color=ORANGE, capsize=3, ms=7, label="mixed (Hessian)"
        )
        for name in even:
            place = (cost[name], mean[name])
            axes.annotate(name.upper(), place, xytext=(7, -13), textcoords="offset points", color=BLUE)
        for name in mixed:
            place = (cost[name], mean[name])
            axes.annotate(name, place, xytext=(-5, 9), textcoords="offset points", color=ORANGE, ha="right")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f}k")
        axes.set_xlabel("bit operations an inference (BOPs)")
        axes.set_ylabel(f"test accuracy (%), {jets:,} jets, mean of {table['seed'].nunique()} seeds")
        axes.set_title("Integer jet taggers: what the bits buy")
        axes.margins(x=0.1, y=0.12)
        axes.legend(frameon=False, loc="lower right")
    return picture


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--experiment", type=Path, default=HERE / "experiment.toml")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "study")
    parser.add_argument("--results", type=Path, default=HERE / "results.csv")
    parser.add_argument("--figure", type=Path, default=HERE.parent.parent / "docs" / "img" / "accuracy.png")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(highlight=False, width=160)
    rows: list[dict[str, object]] = []
    correct: list[Correct] = []
    names: list[str] = []
    for seed in range(arguments.seeds):
        found, per_jet, flow = one_seed(arguments.experiment, seed, arguments.out)
        names = flow.plan_names
        rows += found
        correct.append(per_jet)
        console.print(f"seed {seed}: " + ", ".join(f"{row['plan']} {row['accuracy']:.2%}" for row in found))
    table = pd.DataFrame(rows)
    store.write_atomic(arguments.results, table.to_csv(index=False, float_format="%.6g"))
    stacked = {name: np.stack([entry[name] for entry in correct]) for name in ["float", *names]}
    costs = table.groupby("plan")["bops"].mean()
    top = costs[names[0]]
    console.print(
        f"\n{arguments.seeds} seeds, {stacked['float'].shape[1]:,} test jets; differences in points, with the "
        "standard errors over jets / over seeds"
    )
    console.print(f"{'plan':8} {'accuracy':>9} {'to float':>22} {'BOPs':>10} {'of ' + names[0]:>8}")
    console.print(f"{'float':8} {stacked['float'].mean():9.2%}")
    for name in names:
        mean, jets, seeds = difference(stacked[name], stacked["float"])
        console.print(
            f"{name:8} {stacked[name].mean():9.2%} {mean:+8.2f} ± {jets:.2f} / {seeds:.2f} {costs[name]:10,.0f} "
            f"{costs[name] / top:8.1%}"
        )
    mixed = list(load(arguments.experiment).allocate.named_budgets)
    even = [name for name in names if name not in mixed]
    save(figure(table, mixed, stacked["float"].shape[1]), arguments.figure)
    for name in mixed:
        # The homogeneous plans on either side: the one it should beat, and the one it should come near at less cost.
        for word, other in (
            ("next below", max((n for n in even if costs[n] < costs[name]), key=lambda n: costs[n], default=None)),
            ("next above", min((n for n in even if costs[n] >= costs[name]), key=lambda n: costs[n], default=None)),
        ):
            if other is None:
                continue
            mean, jets, seeds = difference(stacked[name], stacked[other])
            console.print(
                f"{name} - {other} (homogeneous, {word}, {costs[other] / top:.1%}): {mean:+.2f} ± {jets:.2f} over jets "
                f"({mean / jets:+.1f} standard errors), ± {seeds:.2f} over seeds ({mean / seeds:+.1f})"
            )


if __name__ == "__main__":
    main()
