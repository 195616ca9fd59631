"""Straight-through estimators: quantization in the forward pass, its clipping mask in the backward pass.

Rounding has derivative zero almost everywhere, so training passes the gradient straight through it wherever the
rounded value lies inside the clipping range, and stops it outside (Bengio et al., arXiv:1308.3432).

Both quantizers are written as *clip, then round*, with clip bounds one float inside the half-way points: the same
integers as round-then-clip, and the backward pass is one fused kernel on the saved input.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def clip_bound(end: int, dtype: torch.dtype) -> float:
    """The value of ``dtype`` farthest from zero's side that still rounds to ``end``: just inside ``end`` +- 1/2.

    For a range's upper end call it with that end; for its lower end with the negated end, and negate the result.
    """
    bound = torch.tensor(end + 0.5, dtype=torch.float64).to(dtype)
    while float(torch.round(bound)) > end:
        bound = torch.nextafter(bound, torch.tensor(-math.inf, dtype=dtype))
    return float(bound)


class RoundClip(torch.autograd.Function):
    """``clip(round(v), ends)`` for one range; ``low`` and ``high`` are the clip bounds of :func:`clip_bound`."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, low: float, high: float) -> Tensor:
        """Integers as floats, of the shape of ``v``."""
        ctx.save_for_backward(v)
        ctx.bounds = (low, high)
        return torch.clamp(v, low, high).round_()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient where the value was inside."""
        (v,) = ctx.saved_tensors
        return torch.ops.aten.hardtanh_backward(grads[0], v, *ctx.bounds), None, None


class RoundClipChannels(torch.autograd.Function):
    """``clip(round(v), low, high)`` with bounds that are tensors, one entry a channel."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Integers as floats, of the shape of ``v``."""
        rounded = torch.round(v)
        q = torch.minimum(torch.maximum(rounded, low), high)
        ctx.save_for_backward(rounded == q)
        return q

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient where the value was inside."""
        (inside,) = ctx.saved_tensors
        return grads[0] * inside, None, None


class QuantizeWeights(torch.autograd.Function):
    """(W, b) and the logarithms of three scales -> (M q_w, M q_b); gradients as in the package's docstring.

    ``multiplier`` is M (c, 1), ``inverse`` 1 / S_w (c, 1), ``bias_factor`` 1 / (M S_a) (c,), ``top`` the largest
    weight integer (c, 1) or its clip bound as one float, ``ratio`` S_x / S_a, ``inverse_a`` 1 / S_a, and ``down`` what
    is taken off the bias (1/2 turns rounding to nearest into flooring).
    """

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        bias: Tensor,
        log_w: Tensor,
        log_x: Tensor,
        log_a: Tensor,
        multiplier: Tensor,
        inverse: Tensor,
        bias_factor: Tensor,
        top: Tensor | float,
        ratio: float,
        inverse_a: float,
        down: float,
    ) -> tuple[Tensor, Tensor]:
        """Folded weights (c, n) and bias (c,)."""
        scaled = weight * inverse
        if isinstance(top, float):
            q = torch.clamp(scaled, -top, top).round_()
            mask = scaled
        else:
            rounded = scaled.round_()
            q = torch.minimum(torch.maximum(rounded, -top), top)
            mask = rounded == q
        folded = q.mul_(multiplier)
        folded_bias = torch.round(bias * bias_factor).mul_(multiplier[:, 0])
        ctx.save_for_backward(weight, folded, folded_bias, mask)
        ctx.top, ctx.ratio, ctx.inverse_a, ctx.per_channel = top, ratio, inverse_a, log_w.shape[0] > 1
        return folded, folded_bias - down if down else folded_bias

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of W, b, log S_w, log S_x and log S_a."""
        g_w, g_b = grads
        weight, folded, folded_bias, mask = ctx.saved_tensors
        if isinstance(ctx.top, float):
            passed = torch.ops.aten.hardtanh_backward(g_w, mask, -ctx.top, ctx.top).mul_(ctx.ratio)
        else:
            passed = (g_w * mask).mul_(ctx.ratio)
        grad_bias = g_b * ctx.inverse_a
        rest: tuple[Tensor | None, ...] = (None, None, None)
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3] or ctx.needs_input_grad[4]:
            through = (g_w * folded).sum(dim=1, keepdim=True)
            total = through.sum()
            grad_log_w = through - (passed * weight).sum(dim=1, keepdim=True)
            if not ctx.per_channel:
                grad_log_w = grad_log_w.sum(dim=0, keepdim=True)
            rest = (grad_log_w, total, -total - torch.dot(g_b, folded_bias))
        return (passed, grad_bias, *rest, None, None, None, None, None, None, None)
