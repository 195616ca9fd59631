"""A network's inputs from the files that commands are given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hawq_flow.network import IntegerNetwork
    from hawq_flow.numeric import IntArray


def network_inputs(
    network: IntegerNetwork, path: Path, raw: bool, labels: Path | None = None, *, fewest: int = 1
) -> tuple[dict[str, IntArray], IntArray | None]:
    """The network's input integers from a file, and class numbers where there are any.

    ``raw``: real numbers, quantized as the network's inputs say. ``fewest``: classes that labels may count at least,
    however few elements the outputs have.
    """
    from hawq_flow.flow.rows import load_data
    from hawq_flow.interpret import check_inputs

    shapes = {spec.name: spec.shape for spec in network.inputs}
    classes = min(math.prod(network.values[spec.name].shape) for spec in network.outputs)
    arrays, found = load_data(path, labels, shapes, max(classes, fewest))
    if raw:
        return {spec.name: spec.integers(arrays[spec.name]) for spec in network.inputs}, found
    return check_inputs(network, arrays), found
