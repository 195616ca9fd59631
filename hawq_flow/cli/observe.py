"""``hawq-flow trace``: every integer of a saved network, dumped, compared with a designer's dump, held against data."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from hawq_flow.cli.hardware import saved_network
from hawq_flow.cli.inputs import network_inputs
from hawq_flow.cli.terminal import fail


def trace(
    network: Annotated[Path, typer.Argument(help="A saved integer network: run/network/PLAN, or an import's.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Inputs: .npy, .npz with x (or one array an input), or text, a row a line; integers."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="The data are real numbers: standardize and quantize them first.")
    ] = False,
    forms: Annotated[
        list[str] | None,
        typer.Option(
            "--as", help="Dumps of the integers: npz, csv, parquet, hex, bin, txt; may be repeated. Default: npz, hex."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="First rows that are dumped; statistics are of all.")] = 64,
    word: Annotated[
        int | None,
        typer.Option(min=1, help="Elements in a word of an image; default: a row up to 4,096 bits, else one."),
    ] = None,
    tile: Annotated[
        str | None, typer.Option(help="ROWSxCOLUMNS of a MAC array, such as 16x16: weights in its tiles too.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="A designer's dump to hold against the network, in any form that --as writes, whole or not."),
    ] = None,
    order: Annotated[
        Literal["channels_first", "channels_last"],
        typer.Option(help="Order of a dump's elements: the network's, or that of HLS tools."),
    ] = "channels_first",
    against: Annotated[
        Path | None,
        typer.Option("--against", "--baseline", help="Old inputs: report saturation and drift from them to --data."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results only.")] = False,
) -> None:
    """Show every integer inside a network on given inputs; compare a designer's dump; report drift on new data.

    Every operand, product-sum, accumulator, rescaled value and output of every op goes into a folder: as tables with
    ranges, saturation and rounding counts, as dumps, and as memory images for $readmemh and $readmemb; so do all
    constants. With --compare the exit status is 1 when anything differs, and the first difference is named.
    """
    from hawq_flow import trace as tracing

    if compare is not None and (out is not None or against is not None):
        fail("--compare prints a table: give neither --out nor --against with it", code=2)
    if compare is None and data is None:
        fail("no inputs: give --data FILE (or --compare DUMP, where the dump holds the inputs)", code=2)
    if compare is None and out is None:
        fail("no folder to write: give --out FOLDER", code=2)
    if raw and data is None:
        fail("--raw without --data; it says what the data are", code=2)
    found = saved_network(network)
    inputs = None if data is None else network_inputs(found, data, raw)[0]
    if compare is not None:
        result = tracing.compare(found, inputs, compare, order=order, elements_per_word=word)
        typer.echo(result.markdown(), nl=False)
        if result.first is not None:
            fail(f"{compare}: first difference: {result.first}")
        return
    assert out is not None
    assert inputs is not None
    options = tracing.Options(tuple(dict.fromkeys(forms or ("npz", "hex"))), rows, word, _tile(tile))
    old = None if against is None else network_inputs(found, against, raw)[0]
    artifact = tracing.write(found, inputs, out, options, against=old)
    shown = ["values.md"] if against is None else ["drift.md"]
    if not quiet:
        for name in shown:
            typer.echo(artifact.file(name).read_text(), nl=False)
    counted = len(next(iter(inputs.values())))
    typer.echo(
        f"{out}: {counted:,} rows counted, {min(rows, counted):,} dumped, {len(artifact.manifest['files'])} files"
    )


def _tile(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", text)
    if found is None:
        fail(f"--tile {text!r}: expected ROWSxCOLUMNS of a MAC array, such as 16x16", code=2)
    return int(found[1]), int(found[2])


COMMANDS: dict[str, Callable[..., None]] = {"trace": trace}
"""Commands at the top level, by name."""
