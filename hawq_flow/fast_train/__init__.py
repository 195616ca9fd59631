"""Quantized training of dense networks, compiled: fake quantization, its gradients and Adam fused in C++.

``fit`` trains a :class:`hawq_flow.quant.QuantNetwork` in place by the formulas of :mod:`hawq_flow.quant` and the loop
of :mod:`hawq_flow.train`; what it leaves is what ``train.fit`` would, but for the rounding of float32 sums, and is
evaluated, lowered and certified as ever. For networks this small a training step in torch is a hundred calls, each of
which costs more than what it computes, and every value goes through memory. Here a block of rows stays in the cache
through all layers and back, and a product's results stay in registers::

    for each batch:   snap the scales (every `refresh` steps), quantize and fold the weights
      for each block of rows:   gather; forwards; loss; backwards; add to the weights' gradients
                      gradients of the scales (LSQ, arXiv:1902.08153), Adam (arXiv:1412.6980)

``supported`` says what torch's path must do. ``kernels``, ``layers`` and ``network`` hold the C++, ``build`` compiles
it with g++ for this processor, ``native`` is a network on its side, ``training`` the loop.
"""

from hawq_flow.fast_train.training import fit, fit_many, supported

__all__ = ["fit", "fit_many", "supported"]
