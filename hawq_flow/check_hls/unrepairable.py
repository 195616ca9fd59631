"""Files that no repair can help, since their weights are float: every finding says so instead of promising one."""

from __future__ import annotations

import dataclasses
import re

from hawq_flow.check_hls.findings import REFUSED_REPAIR, Finding, listed
from hawq_flow.check_hls.needs import Need
from hawq_flow.check_hls.reading import Reading
from hawq_flow.from_onnx.layers import MOST_BITS, grid_of
from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.from_onnx.tensors import Const


def unquantized(reading: Reading) -> list[str]:
    """The layers whose weights the file holds as float numbers, on no grid that the import finds by itself."""
    found: list[str] = []
    for node in reading.nodes:
        if node.op_type not in ("MatMul", "Conv", "Gemm"):
            continue
        names = [name for name in node.inputs[:2] if name in reading.stored and not _on_grid(reading, name)]
        found += [node.name] if names else []
    return found


def _on_grid(reading: Reading, name: str) -> bool:
    values = reading.constant(name)
    need = None if values is None else Need.of(values)
    if need is None or reading.constants[name].ndim < 2 or need.integer + need.fraction <= MOST_BITS:
        return True  # a few bits, or no numbers: of which other findings speak
    try:
        grid_of(Const(reading.constants[name]))
    except Refuse:
        return False
    return True


def without_repair(finding: Finding, layers: list[str]) -> Finding:
    """A finding of a file that cannot be repaired, with the reason in place of what a repair would do."""
    said = f"; {REFUSED_REPAIR}, whose weights are float ({listed(layers)}): export it with quantizers"
    return dataclasses.replace(finding, fix=re.sub("; --repair.*$", lambda _: said, finding.fix, flags=re.DOTALL))
