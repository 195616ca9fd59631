"""Other tools' quantized ONNX -> IntegerNetwork: QONNX, QuantizeLinear-DequantizeLinear, pre-quantized integer graphs.

The maths. A quantized model computes with real numbers that lie on grids. Reading it keeps, for every tensor, integers
of the network and their exact meaning, ``real = scale * integer + offset`` with rationals for scale and offset (every
float32 constant is one). A layer of weights ``s_w q`` on an input ``s_x a`` is an integer sum with scale ``s_w s_x``;
biases, batch norms and products with constants only change the meaning. A quantizer then asks for

    level = clip(R(M a + beta), low, high)          M = s_w s_x / s_out, any real number

and the network must compute it with integers. M need not be dyadic for that: over the proven interval of ``a`` the
quantizer is a staircase, and an integer multiplier, shift and bias with the same thresholds *are* the same function.
``fitting`` finds the simplest, in one Requantize where that is possible, else in two or three; so scales of float32
models are carried exactly. Where no such rescale exists, or a bias would have to be rounded, the node is refused,
unless the user accepts a bound (``snap``); then each change is recorded with what it does, integer by integer.

Float32 executors round every product and sum; the network computes the numbers of the file without that rounding.
:func:`compare` runs both on the same rows and counts where they differ.

What integers cannot carry is refused all at once, by node, with the reason (:class:`ImportRefused`). What a model does
after its last integers (a softmax) is left in float and said.

Modules: ``source`` (the file, checked), ``folding`` (nodes of constants), ``affine`` (rationals), ``tensors`` (what is
known of each tensor), ``elements`` (types that wrap or round, and proof that they do not), ``levels`` and ``fitting``
(staircases, and rescales that equal them), ``building`` (the network as it grows), ``quantizing`` and ``clamping``
(quantizers and clips as ops), ``layers``, ``rules_quant``, ``rules_math``, ``rules_shape`` (one function for each
operator), ``reading`` (the walk), ``result``, ``comparing`` (the certificate), ``refusals``.
"""

from hawq_flow.from_onnx.comparing import compare
from hawq_flow.from_onnx.reading import QUANTIZERS, RULES, fixed_type, read
from hawq_flow.from_onnx.refusals import ImportRefused, Refusal, Snap
from hawq_flow.from_onnx.result import Imported, ImportedInput, ImportedOutput

__all__ = [
    "QUANTIZERS",
    "RULES",
    "ImportRefused",
    "Imported",
    "ImportedInput",
    "ImportedOutput",
    "Refusal",
    "Snap",
    "compare",
    "fixed_type",
    "read",
]
