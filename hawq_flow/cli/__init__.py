"""The ``hawq-flow`` command."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

# One thread a worker, for numpy's BLAS as for torch: products are small, and threads that wait for each other on a busy
# machine make them many times slower. It is read when numpy is loaded; what the user has set stays.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import typer  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.markup import escape  # noqa: E402
from rich.table import Table  # noqa: E402
from typer.core import TyperGroup  # noqa: E402

from hawq_flow import __version__  # noqa: E402
from hawq_flow.cli import handover, hardware, observe, upsets  # noqa: E402
from hawq_flow.cli.terminal import RichReporter, fail, writable  # noqa: E402
from hawq_flow.store import MANIFEST, open_artifact, write_atomic  # noqa: E402

TRACEBACK = "HAWQ_FLOW_TRACEBACK"
"""Environment variable: set, an error shows where it was raised."""
FILES_SHOWN = 30
INTERRUPTED = "interrupted; what was finished is kept, and the same command can be given again"


class _Commands(TyperGroup):
    """The commands; an interruption is told before typer ends the program without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail(INTERRUPTED, code=130)


app = typer.Typer(
    cls=_Commands,
    help="A PyTorch network to FPGA firmware, in integers all the way, with proof of equality.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hawq-flow {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def run(
    experiment: Annotated[
        Path, typer.Argument(help="The experiment's TOML, or the folder that holds experiment.toml.")
    ],
    until: Annotated[str, typer.Option(help="Stop after this stage.")] = "report",
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: 'run' beside the TOML.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the experiment's.")] = None,
    synth: Annotated[
        bool,
        typer.Option(
            "--synth",
            help="Synthesize every plan with Yosys, the float network as ap_fixed<16,6>, and plans with a softmax.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results only.")] = False,
) -> None:
    """Do the whole job: data, training, bit plans, integers, QONNX, HLS, RTL, proof of equality, report.

    Stages: data, float, sensitivity, plans, qat, lower, export, hls, rtl, equality, report. A stage whose artifact is
    already there, made from the same inputs by the same code, is skipped.
    """
    import dataclasses

    import torch  # seconds that --help should not take

    from hawq_flow.config import RtlStage, load
    from hawq_flow.flow import Flow

    torch.set_num_threads(1)  # one thread a worker: small networks gain nothing from more, and lose on a shared machine

    config = load(experiment)
    if seed is not None:
        config = dataclasses.replace(config, seed=seed)
    if synth:
        stage = dataclasses.replace(config.rtl or RtlStage(), plans=tuple(config.plan_names), compare=True)
        config = dataclasses.replace(config, rtl=stage)
    with RichReporter(quiet=quiet) as reporter:
        Flow(config, out, reporter).run(until)


@app.command()
def show(path: Annotated[Path, typer.Argument(help="An artifact's folder, or a file in one.")]) -> None:
    """Say what an artifact is, what it was made from and whether its files are whole; or list a run's artifacts."""
    if not path.exists():
        fail(f"{path}: no such file or folder; give a run's folder, an artifact's, or a file in one")
    folder = path if path.is_dir() else path.parent
    if not (folder / MANIFEST).is_file() and (inside := sorted(folder.glob("**/" + MANIFEST))):
        listing = Table("artifact", "stage", "digest", title=escape(str(folder)), title_justify="left")
        for place in inside:
            found = open_artifact(place.parent, check=False)
            listing.add_row(escape(str(place.parent.relative_to(folder))), found.manifest["stage"], found.digest[:16])
        Console().print(listing)
        return
    artifact = open_artifact(folder)
    console = Console()
    manifest = artifact.manifest
    console.print(
        f"[bold]{escape(str(folder))}[/]: artifact of stage [bold]{manifest['stage']}[/], "
        f"digest {artifact.digest[:16]}, whole"
    )
    table = Table(title="made from", show_header=False, title_justify="left")
    for name, value in manifest["depends"].items():
        table.add_row(escape(name), escape(_short(value)))
    console.print(table)
    files = Table("file", "bytes", "sha256", title="files", title_justify="left")
    for name, digest in list(manifest["files"].items())[:FILES_SHOWN]:
        files.add_row(escape(name), f"{(folder / name).stat().st_size:,}", digest[:16])
    console.print(files)
    if len(manifest["files"]) > FILES_SHOWN:
        console.print(f"and {len(manifest['files']) - FILES_SHOWN} more files")
    for name in ("result.json", "data.json", "plan.json", "equality.json"):
        if name in manifest["files"]:
            console.print(f"[bold]{name}[/]")
            content = artifact.json(name)
            content.pop("loss", None)
            console.print_json(json.dumps(content))


@app.command("import")
def import_(
    model: Annotated[Path, typer.Argument(help="A quantized ONNX file: QONNX, QCDQ, or pre-quantized standard ONNX.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for what is made; default: MODEL_run in the current folder.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="NAME=TYPE for an input that the file does not quantize, such as 'x=ap_fixed<16,6>'."
        ),
    ] = None,
    snap: Annotated[
        float | None,
        typer.Option(help="Accept scales changed by at most this part, such as 1e-4, where integers cannot be exact."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Raw inputs in the file's own layout: .npy, .npz with x (and labels y), or text, a row a line; "
            "default: drawn inputs."
        ),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Class numbers of the data: .npy, or text.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Inputs drawn where there is no data.")] = 1000,
    hls: Annotated[
        list[str] | None,
        typer.Option(help="Make an hls4ml project for this back end: Vitis, Vivado, Catapult; may be repeated."),
    ] = None,
    project: Annotated[str, typer.Option(help="Name of the projects and of their top functions.")] = "network",
    part: Annotated[str, typer.Option(help="FPGA of the projects.")] = "xcu250-figd2104-2L-e",
    clock_period_ns: Annotated[float, typer.Option(help="Clock period of the projects.")] = 5.0,
    io_type: Annotated[
        Literal["io_parallel", "io_stream"], typer.Option(help="Interface of the projects.")
    ] = "io_parallel",
    strategy: Annotated[Literal["Latency", "Resource"], typer.Option(help="hls4ml's strategy.")] = "Latency",
    reuse_factor: Annotated[int, typer.Option(help="How often a multiplier is used for one inference.")] = 1,
    hand_over: Annotated[
        bool, typer.Option("--handover", help="Also write the bundle for an FPGA team, PROJECT.tar.gz in the folder.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results only.")] = False,
) -> None:
    """Take in another tool's quantized ONNX file: integers, exports, HLS projects, all proved equal.

    The file becomes an integer network when its scales can be carried exactly; what cannot be carried is listed, node
    by node. Then the same as at the end of a run: QONNX, standard ONNX, projects, certificates, a page.
    """
    import torch

    from hawq_flow.flow.handover import of_import
    from hawq_flow.flow.importing import Import, ImportConfig
    from hawq_flow.to_hls import HlsConfig

    torch.set_num_threads(1)
    backends = [
        {"vitis": "Vitis", "vivado": "Vivado", "catapult": "Catapult"}.get(name.lower(), name) for name in hls or []
    ]
    for backend in backends:
        HlsConfig(backend=backend)  # refused before anything is made
    config = ImportConfig(
        model,
        snap=snap,
        inputs=_pairs(inputs or [], "--input"),
        data=data,
        labels=labels,
        rows=rows,
        backends=tuple(dict.fromkeys(backends)),
        hls=HlsConfig(
            project=project,
            part=part,
            clock_period_ns=clock_period_ns,
            io_type=io_type,
            strategy=strategy,
            reuse_factor=reuse_factor,
        ),
    )
    folder = out if out is not None else Path(f"{model.stem}_run")
    if folder.exists() and not folder.is_dir():
        fail(f"{folder}: is a file; --out names a folder")
    with RichReporter(quiet=quiet) as reporter:
        imported = Import(config, folder, reporter)
        imported.run()
        if hand_over:
            handover.write(of_import(imported, project), folder, reporter)


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    reader: Annotated[Literal["hls4ml"], typer.Option("--for", help="Who is to read it.")] = "hls4ml",
    repair: Annotated[Path | None, typer.Option(help="Write an equal model that hls4ml imports to this file.")] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="As for import; used by --repair.")] = None,
    snap: Annotated[float | None, typer.Option(help="As for import; used by --repair.")] = None,
) -> None:
    """Say in one table what stock hls4ml will refuse or silently get wrong in an ONNX file; repair it.

    Exits with 0 when hls4ml computes the file exactly, with its default precision or the one that is stated; else 1.
    """
    from hawq_flow import check_hls

    if repair is not None:
        writable(repair)
    findings = check_hls.check(model)
    typer.echo(check_hls.markdown(findings), nl=False)
    if repair is None:
        raise typer.Exit(0 if check_hls.exact(findings) else 1)
    repaired, imported = check_hls.repair(model, snap=snap, inputs=_pairs(inputs or [], "--input"))
    write_atomic(repair, repaired.SerializeToString(deterministic=True))
    told = {entry.key: entry.value for entry in repaired.metadata_props}
    typer.echo(f"\n{repair}: an equal model in integers that hls4ml imports, exact with")
    typer.echo(f"default_precision={told['hawq_flow.default_precision']!r}; docs/import.md has the steps.")
    for remark in (*imported.snaps, *imported.notes):
        typer.echo(f"- {remark}")


@app.command()
def export(
    network: Annotated[Path, typer.Argument(help="A saved integer network: run/network/PLAN, or an import's.")],
    form: Annotated[
        Literal["qonnx", "onnx", "qcdq", "finn"],
        typer.Option("--as", help="What to write; onnx is standard and pre-quantized."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The ONNX file to write.")],
    dialect: Annotated[
        Literal["float32", "float64", "integer"] | None,
        typer.Option(help="onnx: arithmetic of rescales; default: the first proven exact."),
    ] = None,
    eight_bit: Annotated[
        bool, typer.Option("--eight-bit", help="onnx: insist on INT8/UINT8 between all layers.")
    ] = False,
    functions: Annotated[
        Literal["table", "int8", "fp16"], typer.Option(help="onnx: how tables of tanh and sigmoid are written.")
    ] = "table",
    bipolar: Annotated[bool, typer.Option("--bipolar", help="qonnx: weights of -1 and +1 as BipolarQuant.")] = False,
    trunc: Annotated[bool, typer.Option("--trunc", help="qonnx: rescales that drop low bits as Trunc.")] = False,
    activations: Annotated[
        Literal["auto", "quant", "thresholds"] | None, typer.Option(help="finn: how rescales are written.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Inputs drawn to prove the file equal before it is written.")] = 1000,
) -> None:
    """Write a saved integer network in an ONNX form, proved equal to the interpreter on drawn inputs."""
    import torch

    from hawq_flow import equality
    from hawq_flow.flow.forms import write_form

    torch.set_num_threads(1)
    given: dict[str, Any] = {
        "dialect": dialect,
        "eight_bit": eight_bit,
        "functions": functions if functions != "table" else None,
        "bipolar": bipolar,
        "trunc": trunc,
        "activations": activations,
    }
    options = {name: value for name, value in given.items() if value}
    writable(out)
    model, certificate = write_form(hardware.saved_network(network), form, options, rows)
    write_atomic(out, model.SerializeToString(deterministic=True))
    typer.echo(equality.markdown(certificate, f"{out}: {form}, on drawn inputs"), nl=False)


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not (found and name and value) or name in pairs:
            fail(f"{option} {text!r}: expected NAME=TYPE, each name once, such as x=ap_fixed<16,6>", code=2)
        pairs[name] = value
    return pairs


@app.command()
def layers() -> None:
    """Try every layer a network may be made of and print which back ends take it (half a minute)."""
    from hawq_flow.supported import table

    typer.echo(table(), nl=False)


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value[:16] if len(value) == 64 else value
    return json.dumps(value, indent=1)


app.add_typer(hardware.hls, name="hls")
for name, command in {**hardware.COMMANDS, **observe.COMMANDS, **upsets.COMMANDS, **handover.COMMANDS}.items():
    app.command(name)(command)


def _ended(number: int, frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP unwind: tools are ended and temporary folders removed on the way out."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    """Run the command; errors of ours become one message and exit status 1 (2 for a wrong command line)."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # what nohup ignores stays ignored
            signal.signal(number, _ended)
    try:
        app()
    except KeyboardInterrupt:
        fail(INTERRUPTED, code=130)
    except Exception as error:
        if os.environ.get(TRACEBACK) or not _ours(error):
            raise
        fail(str(error))


def _ours(error: Exception) -> bool:
    """Whether the error's text was written for the user: a class of ours, or a refusal raised by our own code."""
    if type(error).__module__.startswith("hawq_flow."):
        return True
    if not isinstance(error, (ValueError, RuntimeError, OverflowError, OSError)):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, OSError) or Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])
