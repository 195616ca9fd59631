"""Run every experiment to its proof of equality and print one table: what was compared, and what the inputs exercised.

``make equality-all`` runs this. An experiment whose data or package this machine lacks is skipped, with the reason; a
mismatch, a constant or mostly saturated output, or an error fails the run, after all others have run. What earlier
runs left in ``run/`` is reused.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hawq_flow.config import load
from hawq_flow.data import AbsentDataError
from hawq_flow.flow import Flow, FlowError
from hawq_flow.model_file import ModelError
from hawq_flow.reporter import Reporter

HERE = Path(__file__).resolve().parent
COLUMNS = ("experiment", "plan", "rows", "representations", "mismatches", "values", "ties", "saturated", "output", "s")


@dataclass(frozen=True)
class Row:
    """One plan's proof, or why there is none; ``failed`` makes the run fail."""

    cells: tuple[str, ...]
    failed: bool = False


class Stages(Reporter):
    """Tells on the error stream what is being done."""

    def stage(self, name: str, detail: str) -> None:
        """A stage begins its work."""
        print(f"  {name} {detail}", file=sys.stderr, flush=True)


def proofs(folder: Path, out: Path | None) -> list[Row]:
    """Run the experiment in ``folder`` to its equality stage; one row a plan."""
    started = time.perf_counter()
    try:
        flow = Flow(load(folder), out / folder.name if out is not None else None, Stages())
        flow.run("equality")
    except AbsentDataError as error:
        return [_without(folder, f"skipped: {error}")]
    except ModelError as error:
        if isinstance(error.__cause__, ImportError):
            return [_without(folder, f"skipped: {error}")]
        return [_without(folder, str(error), failed=True)]
    except FlowError as error:
        return [*_rows(flow, folder, time.perf_counter() - started), _without(folder, str(error), failed=True)]
    except Exception as error:  # one experiment's failure must not hide the others'
        return [_without(folder, f"{type(error).__name__}: {error}", failed=True)]
    return _rows(flow, folder, time.perf_counter() - started)


def _without(folder: Path, reason: str, *, failed: bool = False) -> Row:
    text = " ".join(reason.replace("|", "/").split())
    return Row((folder.name, "", "", ("FAILED: " if failed else "") + text, *[""] * (len(COLUMNS) - 4)), failed)


def _rows(flow: Flow, folder: Path, seconds: float) -> list[Row]:
    """The rows of the plans whose proof was made; nothing is made here."""
    rows: list[Row] = []
    for name in flow.plan_names:
        place = flow.out / "equality" / name
        if not (place / "equality.json").is_file():
            continue
        artifact = flow.equality(name)
        certificate, covered = artifact.json("equality.json"), artifact.json("coverage.json")
        mismatches = sum(entry["mismatches"] for entry in certificate["backends"].values())
        rows.append(
            Row(
                (
                    folder.name,
                    name,
                    f"{certificate['samples']:,}",
                    ", ".join(certificate["backends"]),
                    f"{mismatches:,}",
                    f"{sum(entry['elements'] for entry in covered.values()):,}",
                    f"{sum(entry['ties'] for entry in covered.values()):,}",
                    f"{sum(entry['saturated'] for entry in covered.values()):,}",
                    _output(flow, name, covered),
                    f"{seconds:.0f}" if not rows else "",
                ),
                failed=mismatches > 0,
            )
        )
    return rows


def _output(flow: Flow, name: str, covered: dict[str, Any]) -> str:
    """What the outputs took on: distinct integers, and how many of their elements vary."""
    return ", ".join(
        f"{covered[spec.name]['distinct']:,} distinct, {covered[spec.name]['varying']:,} of "
        f"{covered[spec.name]['width']:,} vary"
        for spec in flow.network(name).outputs
    )


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *(row.cells for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("experiments", nargs="*", help="their folders' names (default: all)")
    parser.add_argument("--out", type=Path, help="where the runs' folders go (default: 'run' in each experiment)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = sorted(path.parent for path in HERE.glob("*/experiment.toml"))
    unknown = set(options.experiments) - {folder.name for folder in known}
    if unknown:
        parser.error(f"no experiment {', '.join(sorted(unknown))}; there are {', '.join(f.name for f in known)}")
    rows: list[Row] = []
    for folder in known:
        if not options.experiments or folder.name in options.experiments:
            print(folder.name, file=sys.stderr, flush=True)
            rows += proofs(folder, options.out)
    print(table(rows))
    if any(row.failed for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
