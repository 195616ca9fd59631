"""IntegerNetwork -> standard ONNX: the plan, the table, the canonical file, and what it says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx import helper

from hawq_flow.network import IntegerNetwork
from hawq_flow.to_onnx.activations import Form, published
from hawq_flow.to_onnx.eight_bit import require_eight_bit
from hawq_flow.to_onnx.plan import Dialect, Plan, choose, plan_network
from hawq_flow.to_onnx.table import translation
from hawq_flow.to_qonnx import NotExact
from hawq_flow.to_qonnx.exporting import BATCH, canonical, exported, modelled


def export(
    network: IntegerNetwork,
    dialect: Dialect | str | None = None,
    *,
    eight_bit: bool = False,
    functions: Form = "table",
    forms: Mapping[str, Callable[..., Any]] | None = None,
) -> onnx.ModelProto:
    """The network as pre-quantized ONNX of standard operators; the same network gives the same bytes.

    Parameters
    ----------
    dialect:
        The arithmetic of rescales; None: the first that is proven exact (:func:`choose`).
    eight_bit:
        Insist that every tensor between layers is int8 or uint8, and every layer's operands are.
    functions:
        How tables of tanh and sigmoid are written (:mod:`hawq_flow.to_onnx.activations`): as they are, or in a
        published form where it gives every entry.
    forms:
        By name of any other Lookup, a function that writes its nodes in place of a Gather.

    Returns
    -------
    A model whose inputs and outputs (batch, *shape) have the narrowest integer type of ONNX that holds theirs; every IR
    value is a tensor of its own name.

    Raises
    ------
    NotExact
        Naming every op that the dialect could round wrongly or that is not of 8 bits, or what else has no exact form;
        or if the onnx installed does not know the dialect's opset.
    """
    forms = {**published(network, functions), **(forms or {})}
    made = plan_network(network, choose(network) if dialect is None else Dialect(dialect), forms)
    if eight_bit:
        require_eight_bit(network, made)
    known = onnx.defs.onnx_opset_version()
    if known < made.opset:
        raise NotExact(
            f"dialect {made.dialect.value!r} is written in opset {made.opset}, and onnx {onnx.__version__} knows "
            f"opsets to {known}; install a newer onnx"
        )
    graph = canonical(network, exported(network, translation(made)), _element_types(network, made))
    model = modelled(network, graph, {"": made.opset}, "the integer types of the graph", _facts(network, made))
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    for info in inferred.graph.value_info:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param:  # inference forgets which symbol it was; there is one
                dim.dim_param = BATCH
    onnx.checker.check_model(inferred)
    return inferred


def _element_types(network: IntegerNetwork, made: Plan) -> dict[str, int]:
    names = [spec.name for spec in network.inputs] + [spec.name for spec in network.outputs]
    return {name: helper.np_dtype_to_tensor_dtype(made.container(name)) for name in names}


def _facts(network: IntegerNetwork, made: Plan) -> dict[str, str]:
    """What the graph alone does not say: the dialect, its proof, and the true type of every value."""
    worst = max(made.bits, key=lambda name: made.bits[name], default=None)
    proof = (
        "no value is rescaled"
        if worst is None
        else f"the largest numerator that decides a result, of {worst}, needs {made.bits[worst]} bits"
    )
    return {
        "hawq_flow.dialect": made.dialect.value,
        "hawq_flow.proof": proof,
        "hawq_flow.types": json.dumps({name: str(value.type) for name, value in network.values.items()}),
    }


def traced(model: onnx.ModelProto, network: IntegerNetwork) -> onnx.ModelProto:
    """A copy of which every op's value is an output, in the network's order: to find where a difference begins.

    Of a model that another tool has changed: the values that it still forms, with a type that it tells.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    formed = {name for node in model.graph.node for name in node.output}
    del copy.graph.output[:]
    copy.graph.output.extend(known[op.name] for op in network.ops if op.name in formed and op.name in known)
    return copy
