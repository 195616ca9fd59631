"""Dense and Conv by matrix products: exact because no partial sum leaves the integers that the float holds.

A term ``w * x`` with x between ``low`` and ``high`` lies between the smaller and the larger of ``w * low`` and
``w * high``. Any partial sum, in whatever order BLAS takes the terms, is a sum over a subset of them, so it lies
between the sum of the negative ends and the sum of the positive ends (:func:`reach`). Below 2^24 float32 holds them
all, below 2^53 float64. (This is up to half of ``Value.bound``, which adds magnitudes whatever their sign.)

Where the whole fan-in goes beyond a float, consecutive *pieces* of it that stay below are multiplied in the narrow
float and added in the next wider type: float32 pieces in float64, float64 pieces in int64. A float32 product costs half
a float64 one (measured: pieces of 64 terms already win), and int64 has no BLAS at all.

A convolution copies its windows (views, ``network.patches``) into a matrix (channels * kernel, positions), some rows of
output at a time so that the matrix stays in the cache. A depthwise one has nothing to multiply a matrix with: it adds
shifted views, tap by tap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hawq_flow.interpret.layout import empty, pad, parts
from hawq_flow.network import Conv, Dense, Value, patches
from hawq_flow.numeric import IntArray, IntType, Overflow, overflow_to

MATRIX_BYTES = 1 << 20
"""Size aimed at for a convolution's matrix of windows: half a second-level cache of today."""
LEAST_PIECE = 64
"""Terms a piece must have on average; shorter ones cost more in additions than they save in products."""
TAP_BYTES = 1 << 17
"""Size aimed at for the sums of a depthwise convolution that are worked on together."""
SINGLE, DOUBLE = 1 << 24, 1 << 53
"""Below these, float32 and float64 hold every integer."""
Step = Callable[..., NDArray[Any]]


@dataclass(frozen=True)
class Products:
    """How a layer multiplies: ``operand`` is the dtype of the products, ``total`` of their sum with the bias.

    ``pieces`` are (terms of the fan-in, weight (groups, outputs, terms) as ``operand``); ``bias`` (groups, outputs, 1)
    is a ``total``, or None when it is zero.
    """

    operand: np.dtype[Any]
    total: np.dtype[Any]
    pieces: tuple[tuple[slice, NDArray[Any]], ...]
    bias: NDArray[Any] | None

    def __call__(self, matrix: NDArray[Any], out: NDArray[Any]) -> None:
        """``out = weight @ matrix + bias``: matrix (groups, fan-in, n) of ``operand``, out (groups, outputs, n)."""
        for i, (terms, weight) in enumerate(self.pieces):
            if self.operand == self.total:
                np.matmul(weight, matrix[:, terms], out=out)
            elif i == 0:
                out[:] = weight @ matrix[:, terms]
            else:  # through the total's dtype: int64 plus float64 would be a float64
                out += (weight @ matrix[:, terms]).astype(self.total, copy=False)
        if self.bias is not None:
            out += self.bias


def plan(weight: IntArray, bias: IntArray, low: IntArray, high: IntArray, bound: int) -> Products:
    """The cheapest exact products of a layer: weight int64 (groups, outputs, fan-in), bias (groups, outputs).

    low and high, int64 (groups, fan-in), are the ends of what each term is multiplied with. ``bound`` is the op's
    ``Value.bound``, which settles the matter alone when it is below 2^24.
    """
    fan_in = weight.shape[2]

    def products(operand: Any, total: Any, slices: Sequence[slice]) -> Products:
        split = tuple((terms, np.ascontiguousarray(weight[:, :, terms], dtype=operand)) for terms in slices)
        added = bias[:, :, None].astype(total) if bias.any() else None
        return Products(np.dtype(operand), np.dtype(total), split, added)

    if bound < SINGLE:
        return products(np.float32, np.float32, [slice(0, fan_in)])
    ends = reach(weight, low, high)
    largest = (ends.sum(axis=3) + np.stack([np.maximum(bias, 0), np.maximum(-bias, 0)])).max()
    for limit, operand, total, most in (
        (SINGLE, np.float32, np.float64, fan_in // LEAST_PIECE),
        (DOUBLE, np.float64, np.int64, fan_in),
    ):
        if largest < limit:
            return products(operand, operand, [slice(0, fan_in)])
        if largest < DOUBLE or total is np.int64:
            slices = cut(ends, limit, most)
            if slices:
                return products(operand, total, slices)
    return products(np.int64, np.int64, [slice(0, fan_in)])


def reach(weight: IntArray, low: IntArray, high: IntArray) -> NDArray[np.float64]:
    """How far each term goes up and down from 0: float64 (2, groups, outputs, fan-in), neither below 0.

    Exact below 2^53, and at least 2^53 where it is rounded; so are sums of it.
    """
    w, least, most = weight.astype(np.float64), low.astype(np.float64)[:, None], high.astype(np.float64)[:, None]
    one, other = w * least, w * most
    return np.stack([np.maximum(np.maximum(one, other), 0), -np.minimum(np.minimum(one, other), 0)])


def cut(ends: NDArray[np.float64], limit: int, most: int) -> list[slice]:
    """The fan-in in consecutive pieces, each as long as its partial sums stay below ``limit`` (at most 2^53).

    Empty when a single term reaches the limit, or when there would be more than ``most`` pieces.
    """
    fan_in = ends.shape[3]
    slices: list[slice] = []
    start = 0
    while start < fan_in:
        sums = np.cumsum(ends[:, :, :, start:], axis=3).max(axis=(0, 1, 2))
        stop = start + int(np.searchsorted(sums, limit))  # the sums never fall, so all before it are below
        if stop == start or len(slices) == most:
            return []
        slices.append(slice(start, stop))
        start = stop
    return slices


def into(acc: NDArray[Any], type: IntType | None, overflow: Overflow, rank: int) -> NDArray[Any]:
    """Finished sums brought into a declared accumulator, in the dtype they have unless they wrap."""
    if type is None:
        return acc
    if overflow is Overflow.WRAP:
        return overflow_to(acc.astype(np.int64), type, overflow, rank)
    # An end that the float would round lies beyond every integer it holds, and cuts nothing before rounding or after.
    low, high = type.low(rank).astype(acc.dtype), type.high(rank).astype(acc.dtype)
    return np.asarray(np.clip(acc, low, high, out=acc))


def dense(op: Dense, x: Value, value: Value) -> Step:
    """``weight @ x + bias`` over rows: x (n, features) -> (n, outputs)."""
    layer = plan(op.weight[None], op.bias[None], x.low[None], x.high[None], value.bound)
    # Rows first: the transposed product reads the rows of a C-ordered x as they lie.
    pieces = [(terms, np.ascontiguousarray(weight[0].T)) for terms, weight in layer.pieces]
    bias = None if layer.bias is None else layer.bias[0, :, 0]

    def step(x: NDArray[Any]) -> NDArray[Any]:
        x = np.asarray(x, dtype=layer.operand)
        acc = (x[:, pieces[0][0]] @ pieces[0][1]).astype(layer.total, copy=False)
        for terms, weight in pieces[1:]:
            acc += (x[:, terms] @ weight).astype(layer.total, copy=False)
        if bias is not None:
            acc += bias
        return into(acc, op.accumulator, op.overflow, rank=1)

    return step


def conv(op: Conv, x: Value, value: Value) -> Step:
    """A convolution: x (n, channels, *space) -> (n, outputs, *positions)."""
    rank = len(op.kernel)
    outputs, terms = op.weight.shape[0], op.weight[0].size
    axes = tuple(range(1, 1 + rank))
    # Padding adds zeros, and a term that is zero is one left out: partial sums are over subsets anyway.
    low, high = (
        np.repeat(end, int(np.prod(op.kernel))).reshape(op.groups, terms)
        for end in (x.low.min(axis=axes), x.high.max(axis=axes))
    )
    weight = op.weight.reshape(op.groups, -1, terms)
    layer = plan(weight, op.bias.reshape(op.groups, -1), low, high, value.bound)
    taps = None
    if op.depthwise and layer.operand == layer.total:
        taps = op.weight[:, 0].reshape(outputs, -1).T.astype(layer.operand)

    def one(x: NDArray[Any], out: NDArray[Any]) -> None:
        """x (channels, *space, n) -> out (outputs, *positions, n), C-ordered."""
        seen = windows(pad(x, op.padding, 0, layer.operand), op.kernel, op.stride)
        if taps is not None:
            _depthwise(seen, taps, op.bias.astype(layer.total), out)
            return
        flat = out.reshape(op.groups, outputs // op.groups, -1)
        lines, width = out.shape[1], flat.shape[2] // out.shape[1]
        block = max(1, MATRIX_BYTES // (seen.itemsize * op.groups * terms * width))
        for line in range(0, lines, block):
            some = seen[(slice(None),) * (1 + rank) + (slice(line, line + block),)]
            matrix = some.reshape(op.groups, terms, -1)  # copies, but for a pointwise convolution
            layer(matrix, flat[:, :, line * width : (line + block) * width])

    def step(x: NDArray[Any]) -> NDArray[Any]:
        out = empty((len(x), *value.shape), layer.total)
        for rows in parts(len(x)):
            one(np.moveaxis(x[rows], 0, -1), np.moveaxis(out[rows], 0, -1))
        return into(out, op.accumulator, op.overflow, rank + 1)

    return step


def windows(x: NDArray[Any], kernel: Sequence[int], stride: Sequence[int]) -> NDArray[Any]:
    """Every window of x (channels, *space, n): a view (channels, *kernel, *positions, n)."""
    rank = len(kernel)
    view = patches(np.moveaxis(x, -1, 0), kernel, stride, (0,) * (2 * rank))
    return np.moveaxis(view, 0, -1)


def _depthwise(seen: NDArray[Any], taps: NDArray[Any], bias: NDArray[Any], out: NDArray[Any]) -> None:
    """Tap by tap, some channels at a time: seen (channels, *kernel, *positions, n), taps (taps, outputs)."""
    channels, outputs = seen.shape[0], out.shape[0]
    share = outputs // channels  # outputs of one channel, side by side
    rank = (seen.ndim - 2) // 2
    taps_at: list[tuple[Any, ...]] = [(slice(None), *at) for at in np.ndindex(*seen.shape[1 : 1 + rank])]
    out = out.reshape(channels, share, *out.shape[1:])
    column = (-1,) + (1,) * (out.ndim - 2)
    block = max(1, TAP_BYTES // max(out[0, 0].nbytes, 1))
    for start in range(0, channels, block):
        some = slice(start, start + block)
        scratch = np.empty(out[some, 0].shape, out.dtype)
        for which in range(share):
            acc = out[some, which]
            for i, at in enumerate(taps_at):
                np.multiply(seen[some][at], taps[i, which::share][some].reshape(column), out=scratch if i else acc)
                if i:
                    acc += scratch
            acc += bias[which::share][some].reshape(column)
