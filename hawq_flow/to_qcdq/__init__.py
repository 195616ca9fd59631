"""IntegerNetwork -> QCDQ: QuantizeLinear-Clip-DequantizeLinear, in standard ONNX operators alone, exact in onnxruntime.

QCDQ (QONNX, arXiv:2206.07527) writes arbitrary widths without new operators: a value is quantized to 8 bits, clipped to
its true range, and made real again. Units are chosen in which every activation has scale 1, so what a real-valued tool
calls scales are dyadic numbers, exact in float32::

    input       x -> QuantizeLinear(1) [-> Clip] -> DequantizeLinear(1)
    Dense       MatMul(x, DequantizeLinear(int8 W, s)) -> Add(DequantizeLinear(int32 b, s))
    Conv        Conv(x, DequantizeLinear(int8 W, s), DequantizeLinear(int32 b, s))
    Requantize  [Mul(m * 2^-c)] -> QuantizeLinear(1) [-> Clip] -> DequantizeLinear(1)               half to even
                ... [-> Add(1/2)] -> Floor -> QuantizeLinear ...                                    half up, floor
                ... -> Round or Floor -> Add(offset) -> QuantizeLinear ...                          with a zero point
                Cast(double) -> Mul -> Round or Floor [-> Add(offset)] -> Cast(float) -> QuantizeLinear ...
    others      as in to_qonnx; SumPool's ones through DequantizeLinear

``s = m * 2^-c`` an output where one Requantize alone reads the layer: the layer then yields ``acc * m * 2^-c`` and
needs no Mul. Else ``s = 1``. Clip is left out where the container's own ends are the type's; channels of different
widths have Max and Min; 9 to 16 bits travel in 16 (opset 21), their bounds met before QuantizeLinear, as no Clip takes
16 bits. Wider ones, up to 24, are rounded and clipped in float32, without a pair.

Exactness. In a layer with scales every product and partial sum is an integer times 2^-c, of magnitude at most
``bound * m``: exact in float32 below 2^24, in any order. Where that is too large the sum is formed as integers and
multiplied after (float32, or float64 where 24 bits do not hold the product). QuantizeLinear divides by 1, rounds half
to even and saturates. Everything else is refused at once, each value with the bits it needs.

Why it survives onnxruntime's default level. That level replaces DequantizeLinear-Conv-QuantizeLinear by QLinearConv and
the like: int32 sums times ``s`` in float32, rounded half to even. With real scales that product differs from the
graph's own arithmetic; with dyadic ones both are exact, so they are equal. Two of its steps must be kept away:
``plan.PAIR`` (kernels that saturate) and ``plan.storage`` (int8 beside 16 bits). Tests run both levels and check that
integer kernels were really in use.
"""

from hawq_flow.to_qcdq.exporting import execute, export, runtime
from hawq_flow.to_qcdq.plan import plan_network

__all__ = ["execute", "export", "plan_network", "runtime"]
