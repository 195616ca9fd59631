"""IntegerNetwork -> pre-quantized ONNX: only standard operators, no side files, the same integers in any runtime.

The *pre-quantized model codified in ONNX* of Hanebutte et al. (arXiv:2110.01730): a hardware compiler finds 8-bit
operands, int32 sums, the integer multiplier and the right shift in the graph, and any runtime computes the network's
integers. Scales, zero points, standardization, the true type of every value and the network's digest stand in the
model's metadata.

The road is that of :mod:`hawq_flow.to_qonnx`: the torch module of custom ops through torch.onnx.export, with a second
table of symbolic functions, rebuilt in the same canonical form. Every value of the IR is a tensor of its own name::

    input       Clip to its type (Identity where the container is the type)
    Dense       MatMulInteger -> Add(bias)                 8-bit operands
                MatMul -> Add(bias)                        wider ones, in int32 or int64
    Conv        ConvInteger -> Add(bias)                   8-bit operands
                Conv(float32)                              wider ones, where every sum is below 2^24 (not in INTEGER)
                BitwiseAnd, Sub, Div -> ConvInteger of each pair of digits -> Mul(256), Add ... -> Add(bias)
    SumPool     as Conv, depthwise, with weights of ones
    declared accumulator: Clip after the bias
    Requantize  FLOAT32  Mul(m) -> Mul(2^-c) -> [Relu] -> QuantizeLinear(scale 1, zero point) -> [Clip]
                FLOAT64  Mul(m) -> Mul(2^-c) -> Round -> [Add(offset)] -> Clip, in double
                INTEGER  Mul(m) -> [Add(2^(c-1) - 1) -> Add(bit c)] -> BitShift(c) -> [Add(offset)] -> Clip, in int64
                a factor of 1: [Add(offset)] -> Clip, in integers
                floor: Floor before QuantizeLinear, or in place of Round; half up: Add(1/2), Floor
    MaxPool     MaxPool on bytes or float32; else, and for strides of one, Max over Slices
    Pad, Concat, Reshape, ReduceMax, ReduceSum             the node of that name
    Upsample    Resize(sizes), nearest; int64 and INTEGER: Gather
    Add, Subtract, Multiply                                Add, Sub, Mul in int32 or int64
    Lookup      [Sub(start)] -> Gather(table)

and Casts between containers. FLOAT32 and FLOAT64 are opset 21; INTEGER is opset 28 (the first whose BitShift takes
signed integers) and has no floating-point tensor at all.

Exactness. Integer nodes are exact by the interval bounds: int32 where no intermediate reaches 2^31, else int64. A
rescale's numerator ``x * m`` has to fit the mantissa of its float, 24 or 53 bits, unless it saturates anyway
(:func:`rescale_bits`); :func:`choose` takes the first dialect in which all of them do, and a dialect that is asked for
and does not hold them is refused. Rounding half to
even on integers: with ``p = x m``, ``q = floor(p / 2^c)`` and ``r = p - q 2^c``, adding ``2^(c-1) - 1 + (q mod 2)``
carries into q exactly when ``r > 2^(c-1)``, or ``r = 2^(c-1)`` and q is odd.

Eight-bit products on processors without VNNI may saturate; ``products`` opens with the rule that no emitted node
breaks (:func:`saturating` finds those of a model that would).

Modules: ``containers``, ``products`` (8-bit products), ``plan`` (dialects, refusals), ``eight_bit``, ``table`` (the
symbolic functions), ``nodes``, ``layers``, ``rescale``, ``shaping`` (what they write), ``exporting``, ``execution``
(onnxruntime, reference evaluator).
"""

from hawq_flow.to_onnx.execution import cpu_flags, evaluate_reference, execute, runtime
from hawq_flow.to_onnx.exporting import export, traced
from hawq_flow.to_onnx.nodes import Nodes
from hawq_flow.to_onnx.plan import Dialect, OpPlan, Plan, choose, plan_network, rescale_bits
from hawq_flow.to_onnx.products import saturates, saturating
from hawq_flow.to_onnx.table import translation
from hawq_flow.to_qonnx import Execution, NotExact, save

__all__ = [
    "Dialect",
    "Execution",
    "Nodes",
    "NotExact",
    "OpPlan",
    "Plan",
    "choose",
    "cpu_flags",
    "evaluate_reference",
    "execute",
    "export",
    "plan_network",
    "rescale_bits",
    "runtime",
    "saturates",
    "saturating",
    "save",
    "traced",
    "translation",
]
