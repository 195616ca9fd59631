"""Windows that slide over the space of a value: shapes, and patches as views, for convolutions and pools alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.network.values import NetworkError, Shape, dims


def set_window(op: Any, kernel: Shape) -> None:
    """Check and normalize ``op.stride`` and ``op.padding`` against a kernel: positive strides, pads below the kernel.

    A window that lies in the padding alone would have no maximum, and no sum that depends on the data.
    """
    rank = len(kernel)
    for name, length in (("stride", rank), ("padding", 2 * rank)):
        values = tuple(int(n) for n in getattr(op, name))
        object.__setattr__(op, name, values)
        if len(values) != length:
            raise NetworkError(
                f"{op.name}: {name} {values} for a kernel ({dims(kernel)}); expected {length} numbers"
                + (": all beginnings, then all ends" if name == "padding" else "")
            )
    if min(op.stride) < 1 or min(kernel) < 1:
        raise NetworkError(f"{op.name}: kernel ({dims(kernel)}) with stride {op.stride}; expected 1 or more")
    if min(op.padding) < 0 or any(pad >= kernel[i % rank] for i, pad in enumerate(op.padding)):
        raise NetworkError(
            f"{op.name}: padding {op.padding} with kernel ({dims(kernel)}); expected 0 to one less than the kernel. "
            "Put a Pad before it for more"
        )


def window_shape(name: str, shape: Shape, kernel: Shape, stride: Shape, padding: Shape) -> Shape:
    """Positions of a window along each axis of space of a value (channels, *space), or ``NetworkError``."""
    rank = len(kernel)
    result = []
    for i, size in enumerate(shape[1:]):
        room = size + padding[i] + padding[rank + i] - kernel[i]
        if room < 0:
            raise NetworkError(
                f"{name}: a kernel of {kernel[i]} on {size} elements with padding {padding[i]} and {padding[rank + i]} "
                f"(axis {i} of space); the window does not fit once"
            )
        result.append(room // stride[i] + 1)
    return tuple(result)


def padded(x: NDArray[Any], padding: Sequence[int], fill: int) -> NDArray[Any]:
    """``x`` (n, channels, *space) with ``fill`` around its space; ``x`` itself when there is no padding."""
    if not any(padding):
        return x
    rank = len(padding) // 2
    widths = [(0, 0), (0, 0), *((padding[i], padding[rank + i]) for i in range(rank))]
    return np.pad(x, widths, constant_values=fill)


def patches(
    x: NDArray[Any], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], fill: int = 0
) -> NDArray[Any]:
    """Every window's elements: (n, channels, *space) -> a view (n, channels, *kernel, *positions)."""
    rank = len(kernel)
    axes = tuple(range(2, 2 + rank))
    view = np.lib.stride_tricks.sliding_window_view(padded(x, padding, fill), tuple(kernel), axes)
    view = view[(slice(None), slice(None), *(slice(None, None, step) for step in stride))]
    # sliding_window_view puts the window last; the kernel goes before the positions, as in a matrix product.
    return np.asarray(np.moveaxis(view, range(2 + rank, 2 + 2 * rank), range(2, 2 + rank)))
