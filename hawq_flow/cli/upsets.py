"""``hawq-flow upsets``: what single flipped bits of a saved network cost, and what triplication would repay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hawq_flow.cli.hardware import saved_network
from hawq_flow.cli.inputs import network_inputs
from hawq_flow.cli.terminal import RichReporter, fail


def upsets(
    network: Annotated[Path, typer.Argument(help="A saved integer network: run/network/PLAN, or an import's.")],
    data: Annotated[
        Path,
        typer.Option(
            help="Inputs: .npy, .npz with x (or one array an input) and, if any, labels y, or text, a row a line; "
            "integers."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path("upsets"),
    labels: Annotated[
        Path | None, typer.Option(help="Class numbers: .npy, or text. Without any: agreement with the healthy network.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="The data are real numbers: standardize and quantize them first.")
    ] = False,
    kinds: Annotated[
        str | None,
        typer.Option(
            help="Words that flip, separated by commas: weight, bias, multiplier, shift, offset, table (memory), "
            "accumulator, activation (registers). Default: all."
        ),
    ] = None,
    layer: Annotated[
        list[str] | None, typer.Option(help="Only this layer, or op; may be repeated. Default: all.")
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(
            help="Flips tried of each bit of each kind of each op, or 'all'. Default: all, where these are at most "
            "100,000; else 200."
        ),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows used, drawn by chance. Default: all.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the rows and flips that are drawn.")] = 0,
    measure: Annotated[
        Literal["accuracy", "agreement", "exact"] | None,
        typer.Option(help="What is lost: right classes, classes of the healthy network, or rows of equal outputs."),
    ] = None,
    output: Annotated[str | None, typer.Option(help="The output that decides. Default: the first.")] = None,
    costs: Annotated[
        Path | None, typer.Option(help="JSON: by layer, what triplicating it costs (LUTs, area). Default: its bits.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results only.")] = False,
) -> None:
    """Flip single bits of a network's integers and measure the loss; rank what would repay triplication.

    Writes upsets.md, upsets.json, upsets.csv, flips.parquet and figures. Configuration memory of an FPGA is not
    modelled: a constant that is dissolved in LUTs fails in other ways than by a flipped bit.
    """
    from hawq_flow import upsets as campaign

    if samples not in (None, "all") and not (samples.isascii() and samples.isdigit()):
        fail(f"--samples {samples!r}: expected a number, or 'all'", code=2)
    many: Any = samples if samples in (None, "all") else int(samples)
    found = saved_network(network)
    inputs, classes = network_inputs(found, data, raw, labels, fewest=2)  # one element decides between two classes
    prices = None if costs is None else _costs(costs)
    with RichReporter(quiet=quiet) as reporter:
        reporter.stage("upsets", f"one bit at a time, of {network}")
        artifact = campaign.make(
            found,
            inputs,
            out,
            classes,
            title=dict(found.metadata).get("plan", network.resolve().name),
            costs=prices,
            kinds=None if kinds is None else tuple(kind.strip() for kind in kinds.split(",")),
            layers=None if layer is None else tuple(layer),
            samples=many,
            rows=rows,
            seed=seed,
            measure=measure,
            output=output,
            progress=lambda done, total: reporter.progress(done, total, f"{done:,} of {total:,} flips of rows"),
            on_reuse=lambda: reporter.stage("upsets", f"{out}: there already, of the same question"),
        )
    written = artifact.json("upsets.json")
    typer.echo(
        f"{out}: {written['flips']:,} of {written['sites']:,} bits flipped on {written['rows']:,} rows, "
        f"{written['measure']} without {written['healthy']:.2%}"
    )
    for name in ("memory", "registers"):
        if name in written:
            total, first = written[name]["total"], written[name]["protection"]["layer"][0]
            typer.echo(
                f"{name}: an upset costs {100 * total['loss']:.3f} ± {100 * total['error']:.3f} points; triplicate "
                f"{first['layer']} first: {first['removed']:.1%} of the risk for {first['cost_part']:.1%} of the "
                f"{'bits' if prices is None else 'cost'}"
            )


def _costs(path: Path) -> dict[str, float]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        fail(f"{path}: not readable as JSON ({error}); expected {{layer: cost}}")
    if not isinstance(found, dict) or not all(type(cost) in (int, float) for cost in found.values()):
        fail(f"{path}: expected {{layer: cost}}, each cost a number")
    return found


COMMANDS: dict[str, Callable[..., None]] = {"upsets": upsets}
"""Commands at the top level, by name."""
