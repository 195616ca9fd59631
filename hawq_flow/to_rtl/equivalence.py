"""Two netlists compared for all inputs: written as BLIF, and given to ABC's combinational equivalence checking.

Registers are written as wires. ABC merges nodes of the two that it proves equal by SAT, from the inputs on; a netlist
keeps the carry chains of the RTL it was made from, so there are many, and whole layers are decided in seconds to
minutes.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hawq_flow import tools
from hawq_flow.to_rtl.cells import ONE, ZERO
from hawq_flow.to_rtl.netlist import Netlist

_EQUAL = re.compile(r"Networks are equivalent", re.IGNORECASE)
_DIFFERENT = re.compile(r"Networks are NOT EQUIVALENT", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """``equal``: True, False, or None where it is not decided, with the ``reason``; ``pattern``: inputs that differ."""

    equal: bool | None
    reason: str
    pattern: dict[str, int] | None = None


def find_abc() -> str | None:
    """ABC: ``yosys-abc`` or ``abc`` on PATH, else the one that pyosys brings; None where there is none."""
    for name in ("yosys-abc", "abc", "berkeley-abc"):
        if (path := shutil.which(name)) is not None:
            return path
    try:
        bundled = Path(str(importlib.metadata.distribution("pyosys").locate_file("pyosys/yosys-abc")))
    except importlib.metadata.PackageNotFoundError:
        return None
    return str(bundled) if bundled.is_file() else None


def equivalent(first: Netlist, second: Netlist, *, time_limit_s: float, memory_limit_gb: float) -> Answer:
    """Whether two netlists of the same ports are equal for all inputs, registers as wires.

    Raises
    ------
    ValueError
        If their ports differ, or one holds multiplier blocks, which have no Boolean network here.
    """
    for ports, others in ((first.inputs, second.inputs), (first.outputs, second.outputs)):
        if {name: len(nets) for name, nets in ports.items()} != {name: len(nets) for name, nets in others.items()}:
            raise ValueError(f"equivalent: {first.name} and {second.name} have different ports")
    for netlist in (first, second):
        if netlist.dsps:
            return Answer(None, f"{len(netlist.dsps)} multiplier blocks, which have no Boolean network here")
    abc = find_abc()
    if abc is None:
        return Answer(None, "no ABC was found: pip install 'hawq-flow[rtl]'")
    with tempfile.TemporaryDirectory(prefix="hawq-flow-equivalence-") as name:
        folder = Path(name)
        (folder / "first.blif").write_text(blif(first))
        (folder / "second.blif").write_text(blif(second))
        run = _abc(abc, "dcec first.blif second.blif", folder, time_limit_s, memory_limit_gb)
        log = run.log.read_text(errors="replace")
        if not run.ok:
            return Answer(None, f"ABC {run.outcome.value.replace('_', ' ')} after {run.seconds:.0f} s")
        if _EQUAL.search(log):
            return Answer(True, "")
        if not _DIFFERENT.search(log):
            return Answer(None, f"ABC did not decide: {log.strip().splitlines()[-1] if log.strip() else 'no word'}")
        # The same again as one network that is 1 where they differ, for the inputs that make it so.
        script = "miter first.blif second.blif; strash; iprove; write_cex -n pattern.txt"
        again = _abc(abc, script, folder, max(time_limit_s - run.seconds, 1e-3), memory_limit_gb)
        found = folder / "pattern.txt"
        if not again.ok or not found.is_file():
            return Answer(False, "they differ; ABC gives no inputs for it")
        bits = re.findall(r"^(\S+)@0=([01])$", found.read_text(), re.MULTILINE)
        return Answer(False, "they differ", {name: int(bit) for name, bit in bits})


def _abc(abc: str, script: str, folder: Path, time_limit_s: float, memory_limit_gb: float) -> tools.Run:
    return tools.run(
        [abc, "-c", script],
        folder=folder,
        timeout_s=time_limit_s,
        memory_bytes=int(memory_limit_gb * 1e9),
        log=folder / "abc.log",
    )


def blif(netlist: Netlist) -> str:
    """A netlist as text in the Berkeley Logic Interchange Format; only nodes that outputs depend on."""
    names = {ZERO: "$false", ONE: "$true"}
    inputs = []
    for port, nets in netlist.inputs.items():
        for i, net in enumerate(nets.tolist()):
            names[net] = f"{port}[{i}]"
            inputs.append(names[net])
    ends = [(f"{port}[{i}]", net) for port, nets in netlist.outputs.items() for i, net in enumerate(nets.tolist())]

    def name(net: int) -> str:
        return names.get(net, f"w{net}")

    lines = [
        f".model {netlist.name}",
        f".inputs {' '.join(inputs)}",
        f".outputs {' '.join(end for end, _ in ends)}",
        ".names $false",
        ".names $true",
        "1",
    ]
    live = netlist.order.live[: len(netlist.kind)].nonzero()[0]
    covers: dict[tuple[int, int], str] = {}
    for k, arity, table, output in zip(
        live.tolist(),
        netlist.arity[live].tolist(),
        netlist.table[live].tolist(),
        netlist.output[live].tolist(),
        strict=True,
    ):
        lines.append(f".names {' '.join(name(net) for net in netlist.pins[k, :arity].tolist())} {name(output)}")
        if (arity, table) not in covers:
            ones = (i for i in range(1 << arity) if table >> i & 1)
            covers[arity, table] = "\n".join("".join(str(i >> j & 1) for j in range(arity)) + " 1" for i in ones)
        if covers[arity, table]:
            lines.append(covers[arity, table])
    for end, net in ends:
        lines += [f".names {name(net)} {end}", "1 1"]
    return "\n".join([*lines, ".end", ""])
