"""Commands about hardware: reports, projects built or packed, designs synthesized, estimates made and calibrated."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from hawq_flow.cli.terminal import fail, writable

if TYPE_CHECKING:
    from hawq_flow.network import IntegerNetwork

hls = typer.Typer(help="Run vendor tools on HLS projects, here or elsewhere.", no_args_is_help=True)

Steps = Annotated[
    list[str] | None,
    typer.Option("--step", help="csynth, cosim, export, synthesis, implementation; may be repeated. Default: csynth."),
]
Settings = Annotated[
    Path | None, typer.Option("--config", help="An experiment's TOML whose \\[synthesis] section is taken.")
]
Projects = Annotated[list[Path], typer.Argument(help="HLS projects, or folders that hold some.")]


def _say(text: str) -> None:
    Console(highlight=False).print(text, markup=False, soft_wrap=True)


def _synthesis_config(config: Path | None, steps: list[str] | None) -> Any:
    """The settings of an experiment, or the defaults, with other steps where they are given."""
    from hawq_flow.synthesis import SynthesisConfig

    if config is None:
        settings = SynthesisConfig()
    else:
        from hawq_flow.config import load

        settings = load(config).synthesis
    return dataclasses.replace(settings, steps=tuple(dict.fromkeys(steps))) if steps else settings


def _projects(folders: list[Path]) -> list[Path]:
    """The projects among folders and below them, in order."""
    from hawq_flow.synthesis.project import find

    found: list[Path] = []
    for folder in folders:
        inside = find(folder)
        if not inside:
            fail(
                f"{folder}: no HLS project there or below (packs and results do not count); make one with hawq-flow "
                "run, or import --hls"
            )
        found += inside
    return list(dict.fromkeys(found))


def _ended(builds: Any) -> None:
    """Say how every step of every project ended; exit with 1 when one did not end well."""
    wrong = []
    for built in builds:
        for step in built.steps:
            _say(f"{built.project.folder}: {step}")
            for note in step.notes:
                _say(f"    {note}")
            if step.outcome.value != "ok":
                said = f"\nThe end of its log:\n{step.tail}" if step.tail else ""
                wrong.append(f"{built.project.folder}: {step}{said}")
        for found in built.reports:
            figures = [f"{name} {value:,.0f}" for name, value in found.used.figures().items()]
            if found.timing.latency_cycles_max is not None:
                figures.append(f"latency {found.timing.latency_cycles_max} cycles")
            _say(f"    {found.stage}: {', '.join(figures) or 'no figures'}")
        if built.error is not None:
            wrong.append(f"{built.project.folder}: not built: {built.error}")
            _say(wrong[-1])
    if wrong:
        fail(f"{len(wrong)} steps or projects did not end well. First: {wrong[0]}")


@hls.command("build")
def hls_build(projects: Projects, steps: Steps = None, config: Settings = None) -> None:
    """Run the vendor's tools on projects: our own scripts, limits of time and memory, reports checked and read.

    What is made is kept beside each project, as PROJECT.synthesis/STEP, and reused as long as nothing changed.
    """
    from hawq_flow.synthesis import build_all

    _ended(build_all(_projects(projects), _synthesis_config(config, steps), _say))


@hls.command("pack")
def hls_pack(
    projects: Projects,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    steps: Steps = None,
    config: Settings = None,
) -> None:
    """Make a folder with one script that builds projects on a machine with the vendor's tools, without hawq_flow."""
    from hawq_flow.synthesis import pack

    folder = pack(_projects(projects), out, _synthesis_config(config, steps))
    _say(f"{folder}: run {folder}/build.sh where the tools are, then: hawq-flow hls collect {folder} RUN")


@hls.command("collect")
def hls_collect(
    folder: Annotated[Path, typer.Argument(help="A folder of hls pack, with the results that its script left.")],
    run: Annotated[
        Path, typer.Argument(help="Where the projects are: the run's folder, or the experiment's firmware folder.")
    ] = Path("."),
) -> None:
    """Read the reports of a pack back, matching every network's digest."""
    from hawq_flow.synthesis import collect

    _ended(collect(folder, run))


def reports(
    folders: Annotated[list[Path], typer.Argument(help="Folders of projects, or report files.")],
    form: Annotated[
        Literal["markdown", "csv", "parquet"], typer.Option("--as", help="Form of the table.")
    ] = "markdown",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table to this file.")] = None,
    modules: Annotated[bool, typer.Option("--modules", help="A row for each module instead of each design.")] = False,
) -> None:
    """One tidy table of all reports of HLS and logic synthesis in folder trees, ours or not.

    Files that look like reports and cannot be read are listed on standard error, each with its reason; then the exit
    status is 1. Files without figures (DRC, route status, logs) are only counted.
    """
    from hawq_flow import devices, report

    for path in folders:
        if not path.exists():
            fail(f"{path}: no such file or folder")
    if form == "parquet" and out is None:
        fail("--as parquet needs --out FILE: Parquet is no text", code=2)
    if out is not None:
        writable(out)
    found, refused = report.tree(folders)
    text = report.write_table(report.table(found, devices.find, modules=modules), form, out)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _say(f"{out}: {len(found)} reports")
    errors = [refusal for refusal in refused if not refusal.in_order]
    console = Console(stderr=True, highlight=False)
    if len(refused) > len(errors):
        console.print(f"{len(refused) - len(errors)} files hold no figures (DRC, route status, logs)")
    for refusal in errors:
        console.print(refusal.reason, style="yellow", markup=False, soft_wrap=True)
    if errors or not found:
        fail(f"{len(errors)} files could not be read; {len(found)} reports could")


def rtl(
    network: Annotated[Path, typer.Argument(help="A saved integer network: run/network/PLAN, or an import's.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the Verilog: new, or one that holds just this.")],
    synth: Annotated[bool, typer.Option("--synth", help="Synthesize it with Yosys, and run the netlist.")] = False,
    simulate: Annotated[bool, typer.Option("--simulate", help="Simulate it, clock by clock.")] = False,
    prove: Annotated[bool, typer.Option("--prove", help="Prove it equal to the integers for all inputs.")] = False,
    rows: Annotated[int, typer.Option(min=1, help="Inputs drawn for netlist and simulation.")] = 1000,
    family: Annotated[Literal["xc7", "xcup"], typer.Option(help="7 Series, or UltraScale+.")] = "xcup",
    pipeline: Annotated[
        str, typer.Option(help="'layer': a register a stage; or at most so many adders between registers.")
    ] = "layer",
    dsp_threshold: Annotated[
        int | None, typer.Option(help="Products of values wider than this go to DSPs (Vivado HLS: 11); default: none.")
    ] = None,
    optimizer: Annotated[Literal["shared", "csd", "da4ml"], typer.Option(help="How adders are found.")] = "shared",
) -> None:
    """Write a saved network as pipelined Verilog; with options, synthesize, simulate and prove it.

    Exits with 1 where a module is not synthesized, a result differs or a claim is not proved.
    """
    from hawq_flow import equality
    from hawq_flow.prove import drawn
    from hawq_flow.to_rtl import RtlConfig, generate, write, written
    from hawq_flow.to_rtl.synthesize import RtlSynthesisConfig, synthesize
    from hawq_flow.to_rtl.writing import MANIFEST

    other = f"{out}: exists, and is not this design alone; Verilog is written whole. Remove it or choose another"
    if out.exists() and not (out / MANIFEST).is_file():
        fail(other)
    found = saved_network(network)
    out.parent.mkdir(parents=True, exist_ok=True)
    design = generate(
        found,
        RtlConfig(
            int(pipeline) if pipeline.isascii() and pipeline.isdigit() else pipeline,
            dsp_threshold=dsp_threshold,
            optimizer=optimizer,
        ),
    )
    if not out.exists():
        write(design, out)
    elif not written(design, out):
        fail(other)
    whole = f"latency {design.latency} cycles, interval 1" if design.text is not None else "not wholly unrolled: no top"
    _say(f"{out}: {len(design.modules)} stages, {whole}")
    x = drawn(found, rows)
    made = None
    with tempfile.TemporaryDirectory(prefix="hawq_flow-rtl-") as work:
        backends = {}
        if synth:
            config = RtlSynthesisConfig(family=family, dsp=dsp_threshold is not None)
            made = synthesize(design, config, progress=_say)
            for note in made.notes:
                _say(note)
            if made.total is not None and design.text is not None:
                backends["netlist"] = equality.netlist_backend(found, made)
            elif made.total is not None:
                _say("netlist not compared with the integers: a design that is not wholly unrolled has no top")
        if simulate:
            backends["rtl"] = equality.rtl_backend(found, design, Path(work))
        if backends:
            certificate = equality.certify(found, x, backends)
            typer.echo(equality.markdown(certificate, f"{out}, on drawn inputs"), nl=False)
            equality.require(certificate)
    if prove:
        _prove(found, design, made)
    if made is not None and made.reason:
        fail(f"not synthesized whole, and so no netlist was compared: {made.reason}")


def _prove(network: Any, design: Any, synthesis: Any) -> None:
    """Prove a design, and its netlist if it was synthesized, for all inputs; say what holds."""
    from hawq_flow.to_rtl import formal

    proof = formal.prove(network, design, synthesis=synthesis, progress=_say)
    typer.echo(proof.markdown(), nl=False)
    if not proof.ok:
        fail("not everything is proved; see the table")


def saved_network(folder: Path) -> IntegerNetwork:
    """The network saved in a folder; the command ends with an error that lists those below where there is none."""
    from hawq_flow.network import IntegerNetwork

    if not (folder / "network.json").is_file():
        inside = sorted(folder.glob("**/network.json"))
        if inside:
            fail(f"{folder}: no saved network itself; there are {', '.join(str(path.parent) for path in inside)}")
        fail(f"{folder}: no saved network there or below; give run/network/PLAN, or that of an import")
    return IntegerNetwork.load(folder)


def estimate_(
    network: Annotated[Path, typer.Argument(help="A saved integer network: run/network/PLAN, or an import's.")],
    stage: Annotated[
        Literal["all", "open", "csynth", "synthesis"], typer.Option(help="Whose figures the estimates stand for.")
    ] = "all",
    reuse_factor: Annotated[int, typer.Option(help="How often a multiplier is used for one inference.")] = 1,
    strategy: Annotated[Literal["latency", "resource"], typer.Option(help="hls4ml's strategy.")] = "latency",
    part: Annotated[str, typer.Option(help="The FPGA.")] = "xcu250-figd2104-2L-e",
    clock_period_ns: Annotated[float, typer.Option(help="Clock period.")] = 5.0,
    io_type: Annotated[Literal["io_parallel", "io_stream"], typer.Option(help="Interface.")] = "io_parallel",
    coefficients: Annotated[
        Path | None, typer.Option(help="A file of hawq-flow calibrate; default: those shipped.")
    ] = None,
) -> None:
    """Estimate LUTs, flip-flops, DSPs, block RAM and latency before any synthesis, with error bars."""
    from hawq_flow import devices, estimate

    found = saved_network(network)
    hardware = estimate.HardwareConfig(reuse_factor, strategy, clock_period_ns, part, io_type)
    chosen = estimate.Coefficients.load(coefficients) if coefficients else estimate.shipped()
    stages: list[Literal["open", "csynth", "synthesis"]] = (
        ["csynth", "synthesis", "open"] if stage == "all" else [stage]
    )
    layers = estimate.features(found)
    for each in stages:
        made = estimate.estimate_layers(layers, hardware, each, coefficients=chosen)
        typer.echo(estimate.estimate_markdown(made, devices.find(part)))


def calibrate(
    projects: Annotated[list[Path], typer.Argument(help="HLS projects with results of hls build or hls collect.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the new coefficients (JSON).")],
    networks: Annotated[
        Path, typer.Option(help="Where the saved integer networks are, at any depth: a run's folder.")
    ] = Path("."),
    stage: Annotated[Literal["csynth", "synthesis"], typer.Option(help="Which stage to fit.")] = "csynth",
    name: Annotated[str, typer.Option(help="What the new coefficients are called.")] = "own",
    figure: Annotated[Path | None, typer.Option(help="Picture of predicted against measured (PNG or SVG).")] = None,
) -> None:
    """Fit the estimates to your own collected reports, and show predicted against measured."""
    from hawq_flow import estimate, synthesis
    from hawq_flow.choose import hardware_config
    from hawq_flow.estimate.figures import predicted_against_measured, save
    from hawq_flow.network import IntegerNetwork
    from hawq_flow.to_hls import HlsConfig, read_manifest

    for file in (out, figure):
        if file is not None:
            writable(file)
    saved = {}
    for path in sorted(networks.glob("**/network.json")):
        loaded = IntegerNetwork.load(path.parent)
        saved[loaded.digest] = loaded
    samples = []
    for project in _projects(projects):
        manifest = read_manifest(project)
        wanted = [found for found in synthesis.reports(project) if found.stage == stage]
        if wanted and manifest["digest"] not in saved:
            fail(f"{project}: its network {manifest['digest'][:12]} is not below {networks}; give --networks RUN")
        fields = {field.name for field in dataclasses.fields(HlsConfig)}
        config = HlsConfig(**{key: value for key, value in manifest["config"].items() if key in fields})
        samples += [(saved[manifest["digest"]], hardware_config(config), found) for found in wanted]
    if not samples:
        fail(f"no {stage} report of any project; build them first: hawq-flow hls build, or hls pack and hls collect")
    made = estimate.calibrate(samples, name)
    made.coefficients.save(out)
    typer.echo(estimate.markdown(made), nl=False)
    if figure is not None:
        model = made.coefficients.model(made.stage, samples[0][1])
        save(predicted_against_measured(made.held, model.design, title=f"{name}: {made.stage}"), figure)
    _say(f"{out}: give it to hawq-flow estimate --coefficients, or as coefficients in [allocate]")


COMMANDS: dict[str, Callable[..., None]] = {
    "reports": reports,
    "rtl": rtl,
    "estimate": estimate_,
    "calibrate": calibrate,
}
"""Commands at the top level, by name."""
