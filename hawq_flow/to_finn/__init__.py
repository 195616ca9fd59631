"""IntegerNetwork -> QONNX that FINN takes, and FINN's rules as a check on any QONNX model.

FINN (AMD's dataflow compiler) reads QONNX by ``ConvertQONNXtoFINN``: weights' quantizers are folded, activations'
become MultiThreshold nodes, which count the thresholds that x reaches; streamlining then moves every factor and
bias into the thresholds until integers alone are left. What it accepts is narrower than QONNX; :func:`check` states
each rule with its source. The variant keeps to them with every scale 1, as in ``to_qonnx``::

    input       an integer datatype by annotation                       (no unsigned Quant is taken without a Relu)
    Dense       MatMul(x, Quant or BipolarQuant of W) [-> Add(bias (1, outputs))]
    Conv        Conv(x, Quant or BipolarQuant of W) [-> Add(bias (1, outputs, 1, 1))]; groups are written out in zeros
    Requantize  [Mul(m * 2^-c) ->] [Add(nudge) ->] Quant(signed)                      form "quant"
                [Mul(m * 2^-c) ->] [Add(nudge) ->] Relu -> Quant(unsigned)
                MultiThreshold(thresholds a channel, bias = the type's lowest)        form "thresholds"
                [Mul(m) ->] [Add(offset)], rounding and clipping nothing              form "affine"
                nothing, in the thresholds of the rescales that alone read it         form "absorbed"
    SumPool     AveragePool -> Mul(k^2) -> Trunc(FLOOR)                               form "trunc", with its Requantize
                Conv(x, ones), depthwise, elsewhere
                Mul -> Quant of more than 8 bits, at the end alone: for the host      form "host"
    MaxPool, Concat (channels), Reshape (flattening), Resize (nearest), Add          the node of that name

Exactness. A Quant becomes thresholds at half steps, reached from below or *at* them: FINN rounds ties up where Quant
rounds them to even. A Requantize is written as Quant only where the two are provably one function on the interval of
what it reads: thresholds of both roundings are computed in integers and compared; half up and floor are moved off
their ties by a nudge of less than the grid of the products, ``2^-(c+1)`` (minus 1/2 for floor). And the products must
fit 24 bits, since FINN divides thresholds in float32. Everywhere else its thresholds are written out, which expresses
any rising rescale exactly, and any of another's result: any rounding, zero points, sums up to 24 bits. Trunc (version
1) drops low bits; the bits before are chosen such that QuantAvgPool2d, which derives its shift from them, shifts as
meant. A wide rescale at the end that needs more than float32, falls, or has a zero point is no node at all: the graph
ends on the sums, and the rescale is in the metadata, with the scale and zero point of its result.
"""

from hawq_flow.to_finn.exporting import execute, export
from hawq_flow.to_finn.plan import plan_network
from hawq_flow.to_finn.rules import Violation, check

__all__ = ["Violation", "check", "execute", "export", "plan_network"]
