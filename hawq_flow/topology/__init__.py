"""What a float torch model is made of: its operations in order, read with torch.fx, or a refusal by name.

A supported model is a directed acyclic graph of *stages*. A stage is one operation with what folds into it:

* ``linear`` and ``conv`` (one and two dimensions): a layer with weights, then optionally batch norm, ReLU or
  ReLU6, dropout;
* ``add``, ``concat``: several values brought to one scale; ``average``: windows summed and divided;
* ``activation``: a ReLU or ReLU6 that stands alone; ``table``: any other function of one element; ``softmax``;
* ``max``, ``upsample``, ``pad``, ``reshape``: integers moved or picked, the scale stays.

Modules with weights are used once. Modules without may be called any number of times: every call is a stage of its own,
called by the name torch.fx gives it. In-place operations on the model's own intermediates are read as what they mean:
whoever reads that value later reads the result. Everything else is refused, with the name of the module or function and
the way out.

Batch norm after a layer is an affine map per output channel, so it folds into the layer (Jacob et al.,
arXiv:1712.05877)::

    gamma (W x + b - mean) / sqrt(var + eps) + beta = (s W) x + s (b - mean) + beta,   s = gamma / sqrt(var + eps)

Modules: ``stages`` (what a model is made of), ``operations`` (modules, functions and methods as calls), ``windows``
(their settings), ``reading`` (the graph, node by node), ``fusing`` (batch norm, activations, dropout join their stage),
``floats`` (stages in float arithmetic), ``folding`` (batch norm into weights).
"""

from hawq_flow.topology.floats import evaluate, stage_output, sum_windows
from hawq_flow.topology.folding import batch_norm_factor, fold_batch_norm
from hawq_flow.topology.reading import read
from hawq_flow.topology.stages import (
    INPUT,
    PASSING,
    REQUANT,
    BatchNorm,
    Layer,
    Stage,
    Topology,
    UnsupportedModelError,
    identifier,
)

__all__ = [
    "INPUT",
    "PASSING",
    "REQUANT",
    "BatchNorm",
    "Layer",
    "Stage",
    "Topology",
    "UnsupportedModelError",
    "batch_norm_factor",
    "evaluate",
    "fold_batch_norm",
    "identifier",
    "read",
    "stage_output",
    "sum_windows",
]
