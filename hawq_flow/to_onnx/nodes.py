"""Writing nodes: names, typed constants, casts, clips. What every symbolic function of this package is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper
from onnxscript.values import Opset

from hawq_flow.to_onnx.containers import INT64, Dtype


class Nodes:
    """Writes the nodes of one value: ``name/what`` is what an intermediate or a constant is called.

    The value that a symbolic function returns is named by the canonical form, whatever it was called here.
    """

    def __init__(self, opset: Opset, name: str) -> None:
        self.opset = opset
        self.name = name

    def __call__(self, kind: str, *operands: Any, what: str = "", **attributes: Any) -> Any:
        """One node of type ``kind``; its output is called ``name/what``."""
        value = getattr(self.opset, kind)(*operands, **attributes)
        value = value[0] if isinstance(value, Sequence) else value  # MaxPool offers the winners' places, too
        value.name = f"{self.name}/{what or kind.lower()}"
        value.producer().name = value.name
        return value

    def constant(self, values: ArrayLike, dtype: Dtype, what: str) -> Any:
        """A constant of exactly this dtype; it becomes an initializer called ``name/what``."""
        array = np.ascontiguousarray(np.asarray(values), dtype=dtype).reshape(np.shape(values))
        if not (array == values).all():
            raise ValueError(f"{self.name}/{what}: constants do not fit {dtype}; the plan chose a container too narrow")
        value = self.opset.Constant(value=numpy_helper.from_array(array))
        value.name = f"{self.name}/{what}"
        return value

    def cast(self, x: Any, have: Dtype, want: Dtype, what: str) -> Any:
        """``x`` in another dtype; itself when it has that already."""
        return x if have == want else self("Cast", x, to=helper.np_dtype_to_tensor_dtype(want), what=what)

    def finish(self, x: Any, have: Dtype, want: Dtype) -> Any:
        """``x`` in its container: the last node of a group."""
        return self.cast(x, have, want, "carried")

    def clip(self, x: Any, dtype: Dtype, low: ArrayLike, high: ArrayLike, what: str = "clipped") -> Any:
        """``x`` between two bounds: a Clip, or Max and Min where channels have bounds of their own."""
        low, high = np.asarray(low), np.asarray(high)
        if low.ndim == high.ndim == 0:
            bounds = (self.constant(low, dtype, f"{what}/low"), self.constant(high, dtype, f"{what}/high"))
            return self("Clip", x, *bounds, what=what)
        above = self("Max", x, self.constant(low, dtype, f"{what}/low"), what=f"{what}/above_low")
        return self("Min", above, self.constant(high, dtype, f"{what}/high"), what=what)


def integers(nodes: Nodes, values: Sequence[int], what: str) -> Any:
    """A list of int64: shapes, axes, pads."""
    return nodes.constant(np.array(values, dtype=np.int64), INT64, what)
