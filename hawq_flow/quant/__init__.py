"""Integer-only quantization-aware training (QAT): observers, quantizers, and the trainable integer network.

The scheme is HAWQ-v3's (arXiv:2011.10680), with learned step sizes (LSQ, arXiv:1902.08153). A layer with weights
``W``, bias ``b``, input scale ``S_x`` and output scale ``S_a`` computes, for output channel ``c``::

    q_w = clip(round(W_c / S_w,c))          q_b = round(b_c / (S_w,c * S_x))
    acc = q_w . (q_x - z_x) + q_b           q_a = clip(round(M_c * acc) + z_a)

Every rescale ``M_c = m / 2^k`` is dyadic, and it is *snapped first*: ``M_c`` is the dyadic number nearest to
``S_w,c * S_x / S_a`` with a multiplier of the chosen bits, and then the weight scale follows, ``S_w,c := M_c * S_a
/ S_x``, and with it the bias grid ``S_w,c * S_x = M_c * S_a``. So snapping costs nothing that training does not see.
(Where several values meet there is no scale left to follow: a sum's branches take their multipliers as snapped, so give
residual networks six bits or more.)

**Training** runs on integer-valued floats. The activation that travels is ``q - z``; the scales are folded into
the weights, ``v = (M q_w) . (q_x - z_x) + M q_b`` and ``q_a - z_a = clip(round(v))``, so that the forward pass is one
matrix product and one fused quantizer a layer, and computes the deployed integers whenever float32 holds them.
Gradients are straight-through inside the clipping range and zero outside. With ``s = S_x / S_a``::

    dL/dW       = g_w * s * [W / S_w inside the range]          g_w = dL/d(M q_w)
    dL/dlog S_a = - sum g_w * (M q_w) - sum g_b * (M q_b)       (this layer's half)
    dL/dlog S_x = + sum g_w * (M q_w)                           (the consumer's half)
    dL/dlog S_w = sum g_w * (M q_w - s W [inside])              (per channel)

The first two together are exactly LSQ's gradient of the activation's step, at the price of two small sums.

**Batch norm** is folded into the weights during training, with the batch's statistics until :meth:`freeze`, with the
running ones after it. **Freezing** fixes dyadic scales, batch-norm statistics and folding; the weights go on training.

**Evaluation** runs the integers themselves in float64, asserts by bounds that all stay below 2^53, and is the integer
network: lowering changes nothing.
"""

from hawq_flow.quant.grid import Grid
from hawq_flow.quant.joints import softmax_steps
from hawq_flow.quant.layer import IntegerLayer, QuantLayer, activation_type, snap
from hawq_flow.quant.network import QuantNetwork, quantize
from hawq_flow.quant.observe import Observer, ObserverKind, QuantConfig
from hawq_flow.quant.steps import IntegerStep, requantize_step
from hawq_flow.topology import REQUANT

__all__ = [
    "REQUANT",
    "Grid",
    "IntegerLayer",
    "IntegerStep",
    "Observer",
    "ObserverKind",
    "QuantConfig",
    "QuantLayer",
    "QuantNetwork",
    "activation_type",
    "quantize",
    "requantize_step",
    "snap",
    "softmax_steps",
]
