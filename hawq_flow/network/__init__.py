"""The intermediate representation: one immutable network of integers, its meaning bounded by proof.

An :class:`IntegerNetwork` is a tuple of operations in single-assignment form. Every op names its operands and
defines one value, called by the op's own name. Shapes exclude the batch and are channels first. Scales, zero
points and the standardization of the data are annotations on inputs and outputs; they are never operands.

Nothing that can be derived is stored. From the declared input types and the actual integers of every op,
:meth:`IntegerNetwork.values` derives, by interval arithmetic, for every value

* ``low`` and ``high``: what each element can reach, element by element;
* ``type``: the declared type of an input or a requantization, else the narrowest that holds the interval;
* ``bound``: the largest magnitude of *any* intermediate on the way to it (partial sums of a dot product in any
  order, the product before a shift), which tells every back end what word it needs: float32 carries integers
  below 2^24 exactly, float64 below 2^53, int64 below 2^62.

:func:`verify` proves that a network is well formed and cannot overflow. An op joins the closed union
:data:`Op` by defining ``inputs``, ``shape`` and ``derive``; storing, loading and the digest read its fields.

Modules: ``values`` (what is derived, shared proofs), ``windows`` (sliding windows), ``specs`` (inputs and outputs),
``layers``, ``shaping``, ``arithmetic`` (the ops), ``meaning`` (the union, and every op in plain int64), ``graph``.
"""

from hawq_flow.network.arithmetic import MAX_TABLE, Add, Lookup, Multiply, ReduceMax, ReduceSum, Subtract
from hawq_flow.network.graph import FORMAT_VERSION, IntegerNetwork, verify
from hawq_flow.network.layers import Conv, Dense, Requantize
from hawq_flow.network.meaning import OPS, Op, forward
from hawq_flow.network.shaping import Concat, MaxPool, Pad, Reshape, SumPool, Upsample
from hawq_flow.network.specs import InputSpec, OutputSpec
from hawq_flow.network.values import LIMIT, NetworkError, Shape, Value
from hawq_flow.network.windows import padded, patches, window_shape

__all__ = [
    "FORMAT_VERSION",
    "LIMIT",
    "MAX_TABLE",
    "OPS",
    "Add",
    "Concat",
    "Conv",
    "Dense",
    "InputSpec",
    "IntegerNetwork",
    "Lookup",
    "MaxPool",
    "Multiply",
    "NetworkError",
    "Op",
    "OutputSpec",
    "Pad",
    "ReduceMax",
    "ReduceSum",
    "Requantize",
    "Reshape",
    "Shape",
    "Subtract",
    "SumPool",
    "Upsample",
    "Value",
    "forward",
    "padded",
    "patches",
    "verify",
    "window_shape",
]
