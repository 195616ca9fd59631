"""Nodes of constants alone: computed as any executor does, before anything is known of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from hawq_flow.from_onnx.refusals import Refuse
from hawq_flow.from_onnx.tensors import Const, Known


def folded(proto: onnx.NodeProto, opset: int, found: Sequence[Known | None]) -> list[Const]:
    """A standard node of constants, by ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    names = [name for name in proto.input if name]
    arrays = [v.array for v in found if isinstance(v, Const)]
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in dict.fromkeys(names)]
    outs = [helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in proto.output if name]
    graph = helper.make_graph([proto], "fold", infos, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
    except Exception as error:  # whatever the operator's implementation raises
        raise Refuse(f"cannot be computed from its constants ({error})") from error
    return [Const(np.asarray(array)) for array in results]


def constant_of(attributes: Mapping[str, Any]) -> NDArray[Any]:
    """The array of a Constant node."""
    for name, value in attributes.items():
        if name == "value":
            return np.asarray(numpy_helper.to_array(value))
        if name in ("value_float", "value_floats"):
            return np.array(value, dtype=np.float32)
        if name in ("value_int", "value_ints"):
            return np.array(value, dtype=np.int64)
    raise Refuse(f"a Constant with {', '.join(attributes) or 'nothing'}; expected numbers")
