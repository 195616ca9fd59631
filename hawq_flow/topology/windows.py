"""Settings of layers, pools, paddings and upsamplings, checked and brought to one form.

Paddings are all beginnings, then all ends, one an axis of space (torch's own functions mix three orders).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from hawq_flow.topology.stages import INPUT, Layer, Stage, UnsupportedModelError


def _each(value: Any, rank: int, what: str, name: str) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(values) == 1:
        values *= rank
    if len(values) != rank or not all(isinstance(n, int) and not isinstance(n, bool) for n in values):
        raise UnsupportedModelError(f"{what}: {name} {value!r}; expected one integer, or {rank}")
    return values


def positions(
    what: str, shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[int, ...]:
    """Output positions along each axis of space, or an error when the window does not fit once."""
    rank = len(kernel)
    result = tuple((n + padding[i] + padding[rank + i] - kernel[i]) // stride[i] + 1 for i, n in enumerate(shape[1:]))
    if min(result) < 1:
        raise UnsupportedModelError(
            f"{what}: a window of {tuple(kernel)} on a value of shape {tuple(shape)} with padding {tuple(padding)}; it "
            "does not fit once: give larger inputs or a smaller window"
        )
    return result


def layer(name: str, what: str, module: Layer, source: str, shape: tuple[int, ...]) -> Stage:
    """The stage of a linear layer or a convolution that reads a value of ``shape``."""
    if isinstance(module, nn.Linear):
        if shape != (module.in_features,):
            rest = (
                "; for the same layer at every position use nn.Conv1d(kernel_size=1) on (channels, positions)"
                if len(shape) > 1 and shape[-1] == module.in_features
                else ""
            )
            fix = "give the input's shape, or put a Flatten before the layer" + rest
            if len(shape) == 1 and source != INPUT:
                fix = f"{shape[0]} features arrive: make it nn.Linear({shape[0]}, {module.out_features})"
            raise UnsupportedModelError(
                f"layer {name!r}: reads a value of shape {shape}, expected ({module.in_features},); {fix}"
            )
        return Stage(name, "linear", (source,), (module.out_features,), name, what, module)
    rank = 1 if isinstance(module, nn.Conv1d) else 2
    if len(shape) != rank + 1 or shape[0] != module.in_channels:
        raise UnsupportedModelError(
            f"layer {name!r}: reads a value of shape {shape}, expected ({module.in_channels}, "
            f"{', '.join(['n'] * rank)}), channels first: transpose the data to that, or reshape before the layer"
        )
    if set(module.dilation) != {1}:
        raise UnsupportedModelError(
            f"layer {name!r}: dilation {tuple(module.dilation)}; expected 1: use a larger kernel, or stride"
        )
    if module.padding_mode != "zeros":
        raise UnsupportedModelError(f"layer {name!r}: padding_mode {module.padding_mode!r}; expected 'zeros'")
    kernel, stride = tuple(module.kernel_size), tuple(module.stride)
    if module.padding == "same":
        begin = tuple((k - 1) // 2 for k in kernel)
        padding = begin + tuple(k - 1 - b for k, b in zip(kernel, begin, strict=True))
    elif module.padding == "valid":
        padding = (0,) * (2 * rank)
    else:
        padding = (*module.padding, *module.padding)
    space = positions(what, shape, kernel, stride, padding)
    return Stage(
        name,
        "conv",
        (source,),
        (module.out_channels, *space),
        name,
        what,
        module,
        kernel=kernel,
        stride=stride,
        padding=padding,
        groups=module.groups,
    )


def _spatial(what: str, shape: tuple[int, ...], wanted: int | None = None) -> int:
    rank = len(shape) - 1
    if wanted is not None and rank != wanted:
        raise UnsupportedModelError(
            f"{what}: works in {wanted} dimensions of space, on a value of shape {shape}; use the one of {rank}"
            if rank in (1, 2)
            else f"{what}: on a value of shape {shape}; expected (channels, length) or (channels, height, width)"
        )
    if rank not in (1, 2):
        raise UnsupportedModelError(
            f"{what}: on a value of shape {shape}; expected (channels, length) or (channels, height, width)"
        )
    return rank


def _sizes(what: str, value: Any, rank: int) -> tuple[Any, ...]:
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(sizes) == 1:
        sizes *= rank
    if len(sizes) != rank:
        raise UnsupportedModelError(f"{what}: {value!r} for {rank} axes of space; expected one number, or {rank}")
    return sizes


def pool(what: str, kind: str, settings: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Fields of a max or average stage from torch's settings."""
    rank = _spatial(what, shape, settings.get("rank"))
    kernel = _each(settings["kernel_size"], rank, what, "kernel_size")
    given = settings.get("stride")
    stride = kernel if given in (None, (), []) else _each(given, rank, what, "stride")
    pads = _each(settings["padding"], rank, what, "padding")
    if set(_each(settings.get("dilation", 1), rank, what, "dilation")) != {1}:
        raise UnsupportedModelError(f"{what}: dilation {settings['dilation']}; expected 1")
    if settings.get("return_indices"):
        raise UnsupportedModelError(f"{what}: return_indices is not supported; expected False")
    if kind == "average" and any(pads) and not settings.get("count_include_pad", True):
        raise UnsupportedModelError(
            f"{what}: count_include_pad=False with padding divides by another number at every border; use "
            "count_include_pad=True, or no padding"
        )
    padding = (*pads, *pads)
    space = positions(what, shape, kernel, stride, padding)
    if settings.get("ceil_mode") and any(
        (n + 2 * p - k) % s for n, p, k, s in zip(shape[1:], pads, kernel, stride, strict=True)
    ):
        raise UnsupportedModelError(
            f"{what}: ceil_mode=True with windows {kernel}, stride {stride} that do not tile {shape[1:]}; use "
            "ceil_mode=False, or pad"
        )
    fields: dict[str, Any] = {
        "shape": (shape[0], *space),
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
    }
    if kind == "average":
        size = 1
        for k in kernel:
            size *= k
        fields["divisor"] = int(settings.get("divisor_override") or size)
        if fields["divisor"] < 1:
            raise UnsupportedModelError(f"{what}: divisor_override {fields['divisor']}; expected 1 or more")
    return fields


def adaptive(what: str, settings: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Fields of an adaptive pool: windows of one size, or refused."""
    rank = _spatial(what, shape, settings.get("rank"))
    sizes = _sizes(what, settings["output_size"], rank)
    sizes = tuple(n if s is None else s for s, n in zip(sizes, shape[1:], strict=True))
    if any(s < 1 or n % s for s, n in zip(sizes, shape[1:], strict=True)):
        raise UnsupportedModelError(
            f"{what}: pools {shape[1:]} to {sizes}, windows of uneven size; expected an output size that divides the "
            "input's, such as 1"
        )
    kernel = tuple(n // s for s, n in zip(sizes, shape[1:], strict=True))
    return pool(what, settings["pool"], {"kernel_size": kernel, "padding": 0, **settings}, shape)


def reduce(what: str, settings: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Fields of a mean, sum or maximum over axes of space; ``to`` is the shape asked for."""
    rank = _spatial(what, shape)
    dims = settings["dim"] if isinstance(settings["dim"], (tuple, list)) else (settings["dim"],)
    axes = {axis % (rank + 2) for axis in dims if isinstance(axis, int)}
    if not axes or len(axes) != len(dims) or min(axes) < 2:
        raise UnsupportedModelError(
            f"{what}: reduces axes {tuple(dims)} of a value of shape (n, {', '.join(map(str, shape))}); expected axes "
            "of space, 2 and up"
        )
    kernel = tuple(n if i in axes else 1 for i, n in enumerate(shape[1:], start=2))
    kind = "max" if settings["reduction"] == "max" else "average"
    fields = pool(what, kind, {"kernel_size": kernel, "padding": 0}, shape)
    if settings["reduction"] == "sum":
        fields["divisor"] = 1
    kept = fields["shape"]
    to = kept if settings["keepdim"] else tuple(n for i, n in enumerate(kept, start=1) if i not in axes)
    return {**fields, "to": to}


def upsample(what: str, settings: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Whole repetitions along each axis of space, or refused."""
    rank = _spatial(what, shape)
    if settings["mode"] not in ("nearest", "nearest-exact"):
        raise UnsupportedModelError(f"{what}: mode {settings['mode']!r}; expected 'nearest' (integers are repeated)")
    if settings["size"] is not None:
        sizes = _sizes(what, settings["size"], rank)
        factors = tuple(s / n for s, n in zip(sizes, shape[1:], strict=True))
    else:
        factors = _sizes(what, settings["scale_factor"], rank)
    if not all(factor is not None and factor >= 1 and float(factor).is_integer() for factor in factors):
        raise UnsupportedModelError(f"{what}: enlarges by {factors}; expected whole factors of 1 or more")
    return tuple(int(factor) for factor in factors)


def pad(what: str, settings: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """All beginnings, then all ends, from torch's (last axis first, begin and end together)."""
    rank = _spatial(what, shape)
    pads = settings["pad"]
    pads = (pads,) * (2 * rank) if isinstance(pads, int) else tuple(pads)
    if settings["mode"] != "constant" or settings["value"] not in (None, 0, 0.0):
        raise UnsupportedModelError(
            f"{what}: pads with mode {settings['mode']!r} and value {settings['value']}; expected zeros"
        )
    if len(pads) % 2 or len(pads) > 2 * rank or any(not isinstance(n, int) or n < 0 for n in pads):
        raise UnsupportedModelError(
            f"{what}: padding {pads} of a value of shape {shape}; expected begin and end of up to {rank} axes of "
            "space, 0 or more"
        )
    pads += (0,) * (2 * rank - len(pads))
    begins, ends = pads[0::2][::-1], pads[1::2][::-1]
    return (*begins, *ends)
