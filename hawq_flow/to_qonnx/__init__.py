"""IntegerNetwork -> QONNX, through torch: the same integers, now in a graph that other tools read.

The graph lives in the integer domain. No node carries a real scale: every tensor holds whole numbers (or, between a
product and its rounding, dyadic fractions), every Quant has scale 1 and zero point 0, and the real meaning of inputs
and outputs stands in the model's metadata. One IR op becomes one group of nodes::

    input       x                          -> Quant(bits of the input's type)                      (a declaration)
    Dense       W -> Quant(narrowest) ; MatMul(x, W) -> Add(bias) [-> Quant(declared accumulator)]
    Conv        W -> Quant(narrowest) ; Conv(x, W, bias)          [-> Quant(declared accumulator)]
    Requantize  Mul(m / 2^c) -> Quant(out, ROUND)                                              half to even
                Mul(m / 2^c) -> Quant(out, FLOOR)                                              floor
                Mul(m / 2^c) -> Add(1/2) -> Quant(out, FLOOR)                                  half up
                ... -> Quant(wide, rounding) -> Add(offset) -> Quant(out, ROUND)               with a zero point
                ... -> Quant(wide, rounding) [-> Add(offset)] -> Max(low) -> Min(high) -> Quant(widest channel)
    SumPool     ones -> Quant(1 bit unsigned) ; Conv(x, ones), depthwise
    MaxPool, Pad, Concat, Reshape          the node of that name
    Upsample    Resize(scales), nearest, asymmetric, floor
    Add         Add -> Add ...             one fewer than operands
    Subtract, Multiply                     Sub, Mul
    ReduceMax, ReduceSum                   the node of that name, keepdims
    Lookup      [Sub(start) ->] Cast(int64) -> Gather(table)

(a factor of exactly 1 is left out, and with it the rounding)

QONNX's two other quantizers are written on request: BipolarQuant of scale 1 for weights that are all -1 or +1 (else a
narrow Quant of two bits, as for ternary ones), Trunc for rescales that only drop low bits. qonnx's executor and hls4ml
give equal results for both forms of the weights; hls4ml has no Trunc.

Quant rounds and saturates, so an unsigned Quant is ReLU; a separate Relu would only widen what hls4ml stores. The
offset is added after rounding because the two do not commute on ties: rint(0.5) + 1 = 1, rint(0.5 + 1) = 2.

An operand taken twice by one op passes through an Identity the second time (qonnx's renaming needs it).
A constant of one number a channel has shape (channels,), (channels, 1) or (channels, 1, 1) by the rank of the value.
A Lookup is standard ONNX: qonnx's own nearest node, MultiThreshold, says monotone functions alone.

The road is torch.onnx.export: :class:`QonnxModule` calls one torch custom op for each IR op, and
:data:`TRANSLATION` is the one table of symbolic functions that turn these into QONNX nodes. The exported graph is then
rebuilt in a canonical form (names of the IR, constants as initializers, no stack traces or machine paths), so that the
same network gives the same bytes.

Exactness. An operation on integers of magnitude below 2^p is exact in a float with p bits of mantissa, in any order
of summation (onnxruntime convolves by sums of products on a CPU; a test holds it to that). :func:`precision_bits`
bounds every intermediate of the emitted nodes; :func:`execute` uses qonnx's own executor, which works in float32
(p = 24), only where that bound allows it, and otherwise evaluates the very same graph node by node in float64
(p = 53) or in the extended precision of the platform (p = 64 on x86), and says which.
What the graph cannot express exactly is refused with :class:`NotExact`, naming the op.

Modules: ``plan`` (what each op needs, refusals), ``ops`` (the custom ops), ``module``, ``symbolic`` (their nodes),
``exporting`` (the canonical file), ``evaluation`` (the graph in numpy), ``execution`` (proof and choice of float).
"""

from hawq_flow.to_qonnx.evaluation import evaluate
from hawq_flow.to_qonnx.execution import Execution, execute, float32_exact, precision_bits
from hawq_flow.to_qonnx.exporting import BATCH, export, save, with_batch
from hawq_flow.to_qonnx.module import QonnxModule
from hawq_flow.to_qonnx.plan import (
    NotExact,
    RequantizePlan,
    check,
    declared_accumulator,
    plan_requantize,
    quant_type,
    weight_type,
)
from hawq_flow.to_qonnx.symbolic import TRANSLATION

__all__ = [
    "BATCH",
    "TRANSLATION",
    "Execution",
    "NotExact",
    "QonnxModule",
    "RequantizePlan",
    "check",
    "declared_accumulator",
    "evaluate",
    "execute",
    "export",
    "float32_exact",
    "plan_requantize",
    "precision_bits",
    "quant_type",
    "save",
    "weight_type",
    "with_batch",
]
