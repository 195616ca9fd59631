"""Layers and operators: products, convolutions, pools, shapes."""

from __future__ import annotations

from collections.abc import Iterator

from hawq_flow.check_hls.common import REPAIR, Rule, finding, shown
from hawq_flow.check_hls.findings import Finding
from hawq_flow.check_hls.reading import Node, Reading


def _matmul(reading: Reading, node: Node) -> Iterator[Finding]:
    rank = reading.rank(node.inputs[0])
    if not any(reading.fixed(name) for name in node.inputs):
        yield finding(
            node,
            "wrong",
            "multiplies two values: hls4ml has no such layer for ONNX, and its output is left at whatever is in memory",
            "Leave products of two values out of the part that becomes hardware; --repair has no form for them either",
        )
    elif rank is not None and rank > 2 and reading.constant(node.inputs[1]) is not None:
        yield finding(
            node,
            "crash",
            f"multiplies a value of {rank - 1} dimensions (batch excluded): hls4ml counts them all as inputs of one "
            "dense "
            "layer, and the layers behind it no longer fit",
            "Flatten first, or write it as a convolution of kernel 1; --repair has no form for it either",
        )


def _needs(node: Node, *names: str) -> Iterator[Finding]:
    missing = [name for name in names if name not in node.attributes]
    for name in missing[:1]:
        padded = (
            "auto_pad " + str(node.attributes["auto_pad"]) if name == "pads" and "auto_pad" in node.attributes else ""
        )
        yield finding(
            node,
            "crash" if name == "group" else "refused",
            f"no attribute {name!r}"
            + (f" (it has {padded})" if padded else "")
            + ": "
            + (
                "hls4ml fails with 'TypeError: int() argument must be a string'"
                if name == "group"
                else f"qonnx's channels-last conversion raises 'Required attribute {name} unspecified'"
            ),
            f"Write {', '.join(missing)} out, though ONNX has defaults; {REPAIR}",
        )


def _conv(reading: Reading, node: Node) -> Iterator[Finding]:
    shape, weight = reading.shapes.get(node.inputs[0], ()), reading.shapes.get(node.inputs[1], ())
    if len(shape) not in (0, 3, 4):
        yield finding(
            node,
            "crash",
            f"convolves {len(shape) - 2} dimensions: qonnx stops with 'only available for 3D and 4D tensors'",
            "Use one or two dimensions; --repair has no form for it either",
        )
        return
    yield from _needs(node, "kernel_shape", "strides", "pads", "dilations", "group")
    if len(node.inputs) > 2 and not reading.fixed(node.inputs[2]):
        yield finding(
            node,
            "crash",
            "its bias is not constant; hls4ml wants a constant, and fails with 'IndexError'",
            "Add it behind the convolution; --repair needs a constant too",
        )
    if any(n != 1 for n in node.attributes.get("dilations", ())):
        yield finding(
            node,
            "crash",
            f"dilations {list(node.attributes['dilations'])}: hls4ml takes kernel * dilation for the reach of the "
            "kernel, so its "
            "output has another size than the graph's",
            "Use dilation 1, with zeros inside a larger kernel; --repair writes the zeros",
        )
    group, outputs, channels = int(node.attributes.get("group", 1)), (weight or (None,))[0], (*shape, None, None)[1]
    if group > 1 and channels is not None and group != channels:
        yield finding(
            node,
            "refused",
            f"{group} groups of {channels} channels: hls4ml raises 'Depth multiplier must be an integer'",
            "Use one group, or one for each channel; --repair does not: the groups would be wide weights full of zeros",
        )
    elif group > 1 and outputs is not None and outputs != group:
        yield finding(
            node,
            "crash",
            f"{outputs} outputs of {group} depthwise channels: it imports, and its C++ stops with 'only a depth "
            "multiplier of "
            "1 is currently supported'",
            "Use one output for each channel, or a full convolution; --repair does not",
        )


def _normalization(reading: Reading, node: Node) -> Iterator[Finding]:
    for name in node.inputs[1:]:
        if not reading.fixed(name):
            yield finding(
                node,
                "crash",
                f"its parameter {name!r} is not constant; hls4ml fails with 'TypeError: Only constant ... supported'",
                "Export after freezing (evaluation mode); --repair needs constants too",
            )
            return


def _max_pool(reading: Reading, node: Node) -> Iterator[Finding]:
    rank = reading.rank(node.inputs[0])
    if rank == 3:
        yield finding(
            node,
            "crash",
            "one-dimensional: hls4ml raises 'Attribute \"pad_left\" of layer ... not set'",
            "Pool in two dimensions, with kernel (1, n); --repair does not",
        )
        return
    yield from _needs(node, "kernel_shape", "strides", "pads")
    uneven = list(node.attributes.get("pads", ()))
    if uneven[: len(uneven) // 2] != uneven[len(uneven) // 2 :]:
        yield finding(
            node,
            "crash",
            f"pads {uneven}, other at the beginning than at the end: qonnx stops with 'Uneven padding not supported'",
            "Pad evenly, or not at all; --repair does not",
        )
    kernel, strides = list(node.attributes.get("kernel_shape", ())), list(node.attributes.get("strides", ()))
    if any(n != 1 for n in node.attributes.get("dilations", ())):
        yield finding(
            node,
            "wrong",
            f"dilations {list(node.attributes['dilations'])}: hls4ml pools neighbours",
            "Pool without dilation; --repair does not",
        )
    spatial = reading.shapes.get(node.inputs[0], ())[2:]
    pads = list(node.attributes.get("pads", [0] * 2 * len(kernel)))
    if node.attributes.get("ceil_mode") and strides and None not in spatial:
        reach = [n or 1 for n in spatial]
        if any((reach[i] + pads[i] + pads[i + len(kernel)] - k) % strides[i] for i, k in enumerate(kernel)):
            yield finding(
                node,
                "wrong",
                "ceil_mode 1: hls4ml leaves out the last, incomplete windows, so its output is smaller than the "
                "graph's",
                "Pad explicitly, with ceil_mode 0; --repair does not",
            )
    if any(uneven) or (strides and any(k > s for k, s in zip(kernel, strides, strict=False))):
        yield finding(
            node,
            "note",
            f"windows of {kernel} at strides {strides} with pads {pads}, overlapping or padded: exact with "
            "io_parallel; with "
            "io_stream the C++ stops",
            "Use io_parallel, or strides as large as the windows and no pads",
        )


def _average_pool(reading: Reading, node: Node) -> Iterator[Finding]:
    yield finding(
        node,
        "refused",
        "qonnx has no channels-last AveragePool, so hls4ml raises 'Please convert the model to channels-last format'",
        "Sum by a depthwise convolution of ones, and put the division into the next scale; --repair does so",
    )


def _global_pool(reading: Reading, node: Node) -> Iterator[Finding]:
    shape = reading.shapes.get(node.inputs[0], ())
    if len(shape) < 3 or None in shape[1:]:
        return
    if shape[1] != 1 and any(n != 1 for n in shape[2:]):
        yield finding(
            node,
            "wrong",
            f"pools {shown(shape)} channels first, and hls4ml reads its elements as if channels came last: it mixes "
            "channels and places",
            "Sum by a depthwise convolution of ones, and put the division into the next scale; --repair does so for "
            "averages",
        )


def _concat(reading: Reading, node: Node) -> Iterator[Finding]:
    if len(node.inputs) > 2:
        yield finding(
            node,
            "refused",
            f"{len(node.inputs)} operands; hls4ml raises 'ERROR: Merging more than two tensors is not yet supported.'",
            f"Write it two by two; {REPAIR}",
        )
    elif node.op_type == "Concat" and any(reading.constant(name) is not None for name in node.inputs):
        yield finding(
            node,
            "crash",
            "an operand is constant: hls4ml concatenates values only, and fails with 'IndexError'",
            "Let the layer behind it carry the constant's part as a bias; --repair does not",
        )


def _reshape(reading: Reading, node: Node) -> Iterator[Finding]:
    if node.inputs[1] not in reading.constants:
        yield finding(
            node,
            "refused",
            "its target shape is computed; hls4ml raises 'Reshape for ONNX requires the target shape to be a second "
            "input.'",
            "Export with fixed shapes; --repair needs them too",
        )


def _transpose(reading: Reading, node: Node) -> Iterator[Finding]:
    if reading.fixed(node.inputs[0]):
        return
    perm = list(node.attributes.get("perm", ()))
    if not perm:
        reason, kind = "no attribute 'perm' (ONNX reverses all axes); hls4ml fails with 'IndexError'", "crash"
    elif perm[0] != 0:
        reason, kind = f"perm {perm} moves the batch; hls4ml has no axis for it, and moves another", "wrong"
    else:
        return
    yield finding(node, kind, reason, "Keep the batch in front, and write perm out; --repair needs that too")


def _resize(reading: Reading, node: Node) -> Iterator[Finding]:
    given = len(node.inputs) > 1 and bool(node.inputs[1])
    says = "'The truth value of an empty array is ambiguous'" if given else "'Could not find the shape for input'"
    yield finding(
        node,
        "crash",
        "hls4ml fails on Resize as ONNX writes it, "
        f"{'with an empty region of interest' if given else 'without a region'} "
        f"({says})",
        "Resize outside of the network, or repeat rows by a layer of hls4ml's own; hawq_flow's projects have one",
    )


def _pad(reading: Reading, node: Node) -> Iterator[Finding]:
    mode = node.attributes.get("mode", "constant")
    value = reading.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    rank = reading.rank(node.inputs[0])
    if mode != "constant":
        reason, kind = f"hls4ml raises 'Unsupported padding mode: {mode}'", "refused"
    elif len(node.inputs) > 1 and not reading.fixed(node.inputs[1]):
        reason, kind = "its pads are not constant; hls4ml or qonnx fail on its shape", "crash"
    elif value is not None and value.any():
        reason, kind = f"pads with {value.flat[0]:g}; hls4ml raises 'Only constant value of 0 supported'", "refused"
    elif rank is not None and rank not in (3, 4):
        reason, kind = f"pads {rank - 1} dimensions; hls4ml raises 'Unsupported input shape'", "refused"
    elif reading.layout:
        reason = (
            "beside convolutions: hls4ml takes it for channels last, and qonnx leaves it channels first, so that the "
            "wrong "
            "dimensions grow"
        )
        kind = "crash"
    else:
        return
    yield finding(node, kind, reason, "Use the pads of the convolution behind it; --repair does not")


def _softmax(reading: Reading, node: Node) -> Iterator[Finding]:
    yield finding(
        node,
        "wrong",
        "hls4ml reads exponentials and reciprocals from tables of fixed<18,8>, which saturate: probabilities are off "
        "by up "
        "to 1/2, and the largest may no longer be the largest",
        "End the network on the logits (the largest is the class) and take the softmax outside; --repair does so",
    )


def _prelu(reading: Reading, node: Node) -> Iterator[Finding]:
    yield finding(
        node,
        "crash",
        "hls4ml fails to take its slopes from the graph ('IndexError: list index out of range')",
        "Use LeakyRelu or Relu; --repair does not",
    )


RULES: dict[str, tuple[Rule, ...]] = {
    "MatMul": (_matmul,),
    "Conv": (_conv,),
    "BatchNormalization": (_normalization,),
    "MaxPool": (_max_pool,),
    "AveragePool": (_average_pool,),
    "GlobalAveragePool": (_global_pool,),
    "GlobalMaxPool": (_global_pool,),
    "Sum": (_concat,),
    "Concat": (_concat,),
    "Reshape": (_reshape,),
    "Transpose": (_transpose,),
    "Resize": (_resize,),
    "Pad": (_pad,),
    "PRelu": (_prelu,),
    "Softmax": (_softmax,),
}
"""The rules of each layer."""
