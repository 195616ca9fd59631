"""``hawq-flow handover``: a run's bundles, written or checked."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hawq_flow.cli.terminal import RichReporter, fail
from hawq_flow.reporter import Reporter

if TYPE_CHECKING:
    from hawq_flow.handover import Contents


def handover(
    what: Annotated[
        Path,
        typer.Argument(
            help="An experiment's TOML or folder, or the folder of its firmware; with --check: a bundle's archive, or "
            "the folder it unpacks to."
        ),
    ],
    plan: Annotated[
        list[str] | None, typer.Option(help="A plan to hand over; may be repeated. Default: those of [firmware].")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the archives; default: the experiment's firmware folder."),
    ] = None,
    run: Annotated[Path | None, typer.Option(help="The run's folder; default: 'run' beside the TOML.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Test samples that travel; default: all.")] = None,
    layer_rows: Annotated[
        int | None, typer.Option(min=1, help="How many of them with every layer's integers; default: up to 256.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Prove a bundle instead of making one.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results only.")] = False,
) -> None:
    """Hand a network over to an FPGA team: one archive that proves itself with a shell and g++, without us.

    What is missing of the run is made first. Each bundle is proved by its own verify.sh before it is written.
    """
    from hawq_flow import handover as bundles

    if check:
        if any(given is not None for given in (plan, out, run, rows, layer_rows)):
            fail("--check takes a bundle and no other option: what is in it was chosen when it was made", code=2)
        found = bundles.check(what, tell=lambda text: None if quiet else typer.echo(text))
        typer.echo(f"{found.name}: proved; network {found.network[:16]}, manifest {found.manifest}")
        return
    import torch

    from hawq_flow.config import load
    from hawq_flow.flow import Flow
    from hawq_flow.flow.handover import experiment_of, of_run
    from hawq_flow.store import locked

    torch.set_num_threads(1)
    experiment = load(experiment_of(what))
    with RichReporter(quiet=quiet) as reporter:
        flow = Flow(experiment, run, reporter)
        names = list(dict.fromkeys(plan or flow.hls_plans))
        if not names:
            fail("the experiment has no [firmware], so it does not say which plans become firmware; give --plan")
        if unknown := [name for name in names if name not in flow.plan_names]:
            fail(f"no plan {', '.join(unknown)}; the experiment has {', '.join(flow.plan_names)}")
        for name in names:
            with locked(flow.out / "run", waiting=lambda: reporter.warning(f"another run is at work in {flow.out}")):
                contents = of_run(flow, name, rows=rows, layer_rows=layer_rows)
            write(contents, out or flow.firmware_folder, reporter)


def write(contents: Contents, folder: Path, reporter: Reporter) -> None:
    """Write one bundle into a folder, and say so."""
    from hawq_flow import handover as bundles

    target = folder / f"{contents.name}{bundles.SUFFIX}"
    digest = bundles.write(contents, target, tell=partial(reporter.stage, contents.name))
    size = target.stat().st_size / 2**20
    reporter.result(
        f"{target}: {size:.1f} MiB, {contents.count:,} rows, proved by its own verify.sh; manifest {digest}"
    )


COMMANDS = {"handover": handover}
