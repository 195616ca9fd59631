"""The smallest models that hls4ml refuses or crashes on: what it raises, and what the preflight says of them."""

from __future__ import annotations

import numpy as np
from check_hls_models import HALVES, PLANE, POINT, VECTOR, Case, _bad, _twice, _variable, bipolar, c, d, flat, signs
from stock_hls4ml import QONNX

TROUBLE: list[Case] = [
    # quantizers
    *(
        _bad(
            f"rounding {mode}",
            VECTOR,
            lambda g, mode=mode: g.quant(d(g), mode=mode),
            "refused",
            f"Rounding mode {mode} not supported",
            f"hls4ml raises 'Rounding mode {mode} not supported in Quant node. Only ROUND and FLOOR supported.'",
        )
        for mode in ("CEIL", "HALF_UP", "HALF_EVEN", "HALF_DOWN", "UP", "DOWN")
    ),
    _bad(
        "narrow and unsigned",
        VECTOR,
        lambda g: g.quant(d(g), signed=0, narrow=1),
        "refused",
        "Narrow mode is only supported for singed numbers",
        "narrow and unsigned",
    ),
    _bad("variable scale", VECTOR, lambda g: g.quant(d(g), scale=_variable(g)), "crash", "IndexError", "its scale 's'"),
    _bad("variable zero", VECTOR, lambda g: g.quant(d(g), zero=_variable(g)), "crash", "IndexError", "its zero point"),
    _bad("variable bits", VECTOR, lambda g: g.quant(d(g), bits=_variable(g)), "crash", "IndexError", "its bit width"),
    _bad(
        "bits by channel", VECTOR, lambda g: g.quant(d(g), [4, 5, 6]), "refused", "Only scalar bitwidth", "3 bit widths"
    ),
    _bad("bits (1,1)", VECTOR, lambda g: g.quant(d(g), [[4.0]]), "crash", "TypeError", "a bit width of shape (1, 1)"),
    _bad(
        "bits (1,) behind a convolution",
        PLANE,
        lambda g: g.quant(c(g), [8.0]),
        "crash",
        "TypeError",
        "as many dimensions as the tensor",
    ),
    _bad(
        "bits of weights (1,1,1,1)", PLANE, lambda g: g.quant(c(g, bits=[[[[4.0]]]])), "crash", "TypeError", "bit width"
    ),
    _bad(
        "scale (1,1)", VECTOR, lambda g: g.quant(d(g), scale=[[0.5]]), "crash", "TypeError", "a scale of shape (1, 1)"
    ),
    _bad("scale (1,1) of thirds", VECTOR, lambda g: g.quant(d(g), scale=[[0.3]]), "crash", "ValueError", "a scale of"),
    _bad(
        "half behind a convolution",
        PLANE,
        lambda g: g.quant(c(g), scale=[0.5]),
        "crash",
        "TypeError",
        "as many dimensions as the tensor",
    ),
    _bad(
        "half behind a convolution, flattened",
        PLANE,
        lambda g: flat(g, g.quant(c(g), scale=[0.5])),
        "crash",
        "TypeError",
        "as many dimensions as the tensor",
    ),
    _bad(
        "half, read twice",
        PLANE,
        lambda g: _twice(g, g.quant(c(g), scale=[0.5]), lambda t: g.op("Add", g.quant(g.conv(t, POINT)), t)),
        "crash",
        "TypeError",
        "a scale of shape (1)",
    ),
    _bad(
        "in front (1,1,1,1)", PLANE, lambda g: g.conv(g.quant("x", scale=[[[[0.5]]]])), "crash", "TypeError", "a scale"
    ),
    _bad(
        "channels in front",
        PLANE,
        lambda g: g.conv(g.quant("x", scale=[[[[0.5]], [[0.25]]]])),
        "crash",
        "ValueError: The truth value",
        "a scale of shape (1, 2, 1, 1)",
    ),
    _bad(
        "channels in front (2,1,1)",
        PLANE,
        lambda g: g.conv(g.quant("x", scale=[[[0.5]], [[0.25]]])),
        "crash",
        "could not be broadcast",
        "does not broadcast to the tensor as hls4ml stores it",
    ),
    _bad(
        "bipolar scale (1,3)",
        VECTOR,
        lambda g: g.dense(bipolar(g, d(g), [HALVES]), np.ones((3, 2))),
        "crash",
        "ValueError",
        "a scale of shape (1, 3)",
    ),
    # constants
    *(
        _bad(
            f"weight scales {shape} of {values}",
            VECTOR,
            lambda g, v=values, s=shape: g.quant(d(g, scale=np.reshape(v, s))),
            "crash",
            "IndexError: list index out of range",
            "weight scales for each channel",
        )
        for values in (HALVES, [0.3, 0.2, 1.0])
        for shape in ((3,), (1, 3))
    ),
    _bad(
        "transposed weights by channel",
        VECTOR,
        lambda g: g.quant(
            g.op(
                "MatMul",
                g.quant("x"),
                g.op(
                    "Transpose", g.quant(g.constant(g.integers(3, 4)), 4, scale=np.reshape(HALVES, (3, 1))), perm=[1, 0]
                ),
            )
        ),
        "crash",
        "IndexError",
        "weight scales for each channel",
    ),
    _bad(
        "bipolar weights by channel",
        VECTOR,
        lambda g: g.quant(g.op("MatMul", g.quant("x"), signs(g, [HALVES]))),
        "crash",
        "IndexError",
        "weight scales for each channel",
    ),
    _bad(
        "convolution by channel with bias",
        PLANE,
        lambda g: g.quant(c(g, None, g.constant([1.0, 2, 3]), scale=np.reshape(HALVES, (3, 1, 1, 1)))),
        "crash",
        "IndexError",
        "weight scales for each channel beside a bias",
    ),
    _bad(
        "convolution by input channel",
        PLANE,
        lambda g: g.quant(c(g, scale=np.reshape([0.5, 0.25], (1, 2, 1, 1)))),
        "crash",
        "IndexError",
        "hls4ml can move only scales for each output channel",
    ),
    _bad(
        "convolution by channel, scaled input",
        PLANE,
        lambda g: g.quant(g.conv(g.quant("x", scale=0.3), scale=np.reshape(HALVES, (3, 1, 1, 1)))),
        "crash",
        "IndexError",
        "beside a scale on the value",
    ),
    *(
        _bad(
            f"depthwise scale {np.size(scale)}",
            PLANE,
            lambda g, s=scale: g.quant(c(g, g.integers(2, 1, 3, 3), group=2, scale=s)),
            "crash",
            "could not be broadcast",
            "a depthwise convolution with such a weight scale",
        )
        for scale in (0.3, np.reshape([0.5, 0.25], (2, 1, 1, 1)))
    ),
    _bad(
        "thirds with a zero point on weights",
        VECTOR,
        lambda g: g.quant(d(g, scale=0.3, zero=1)),
        "crash",
        "IndexError",
        "weights with zero point 1: hls4ml cannot move it",
        "Quant",
    ),
    *(
        _bad(
            f"bias scale .3 on weights {scale}",
            VECTOR,
            lambda g, s=scale: g.quant(g.op("Add", d(g, scale=s), g.quant(g.constant([1.0, 2, 3]), scale=0.3))),
            "crash",
            "IndexError",
            "is quantized with scale 0.3, no single power of two",
        )
        for scale in (1.0, 0.5)
    ),
    _bad(
        "bias on the product of scales",
        VECTOR,
        lambda g: g.quant(
            g.op(
                "Add",
                g.dense(g.quant("x", scale=0.3), scale=0.3),
                g.quant(g.constant([1.0, 2, 3]), scale=np.float32(0.3) * np.float32(0.3)),
            )
        ),
        "crash",
        "IndexError",
        "is quantized with scale 0.09",
    ),
    *(
        _bad(
            f"{op} by a quantized third",
            VECTOR,
            lambda g, op=op: g.quant(g.op(op, d(g), g.quant(g.constant([1.0, 2, 3]), scale=0.3))),
            "crash",
            "IndexError",
            "no single power of two",
        )
        for op in ("Mul", "Sub")
    ),
    _bad(
        "bias of a convolution",
        PLANE,
        lambda g: g.quant(c(g, None, g.quant(g.constant([1.0, 2, 3]), scale=0.3), scale=0.5)),
        "crash",
        "IndexError",
        "is quantized with scale 0.3",
    ),
    *(
        _bad(
            f"{op} before a MatMul",
            VECTOR,
            lambda g, op=op: g.quant(g.dense(g.op(op, g.quant("x"), g.constant(0.5)))),
            "crash",
            "Unexpected new precision type",
            f"{op} by a constant straight in front of matmul",
        )
        for op in ("Mul", "Div")
    ),
    _bad(
        "Mul by channel before a square MatMul",
        VECTOR,
        lambda g: g.quant(g.dense(g.op("Mul", g.quant("x"), g.constant([0.5, 1, 2, 3])), g.integers(4, 4))),
        "crash",
        "Unexpected new precision type",
        "Mul by a constant straight in front",
    ),
    *(
        _bad(
            f"{op} before a Conv",
            PLANE,
            lambda g, op=op: g.quant(g.conv(g.op(op, g.quant("x"), g.constant(0.5)))),
            "crash",
            "Unexpected new precision type",
            f"{op} by a constant straight in front of conv",
        )
        for op in ("Mul", "Div")
    ),
    *(
        _bad(
            f"{op} by (1,1)",
            VECTOR,
            lambda g, op=op: g.quant(g.op(op, d(g), g.constant([[0.5]]))),
            "crash",
            "more dimensions than allowed",
            "a constant of shape (1, 1)",
        )
        for op in ("Mul", "Add", "Sub", "Div")
    ),
    *(
        _bad(
            f"{op} by {np.shape(values)} behind a Conv",
            PLANE,
            lambda g, op=op, v=values: g.quant(g.op(op, c(g), g.constant(v))),
            "crash",
            "more dimensions than allowed",
            "which the conversion to channels last gives as many dimensions as the tensor",
        )
        for op in ("Mul", "Add", "Sub", "Div")
        for values in ([0.25], np.full((3, 1, 1), 0.25), np.full((1, 3, 1, 1), 0.25))
    ),
    *(
        _bad(
            f"{op} a scalar behind a Conv",
            PLANE,
            lambda g, op=op: g.quant(g.op(op, c(g), g.constant(0.25))),
            "crash",
            "could not be broadcast",
            "a scalar straight behind a Conv",
        )
        for op in ("Add", "Sub")
    ),
    _bad(
        "Mul a scalar behind a Conv of floats",
        PLANE,
        lambda g: g.quant(g.op("Mul", c(g, kind=None), g.constant(0.25))),
        "crash",
        "could not be broadcast",
        "a scalar straight behind a Conv",
    ),
    _bad(
        "constant / value",
        VECTOR,
        lambda g: g.quant(g.op("Div", g.constant(2.0), d(g))),
        "crash",
        "IndexError",
        "divided by",
    ),
    *(
        _bad(
            f"{op} with a constant",
            VECTOR,
            lambda g, op=op: g.quant(g.op(op, g.quant(d(g)), g.constant(5.0))),
            "crash",
            "IndexError",
            f"{op} with a constant",
        )
        for op in ("Max", "Min")
    ),
    _bad(
        "constant on the left",
        (1, 4),
        lambda g: g.quant(g.op("MatMul", g.quant(g.constant(g.integers(5, 1)), 4), g.quant("x"))),
        "crash",
        "AssertionError",
        "the constant stands on the left",
    ),
    # layers
    *(
        _bad(
            f"Conv without {name}",
            PLANE,
            lambda g, name=name: g.quant(c(g, without=[name])),
            "refused",
            f"Required attribute {name} unspecified",
            f"no attribute '{name}'",
        )
        for name in ("kernel_shape", "strides", "pads", "dilations")
    ),
    _bad(
        "Conv without group",
        PLANE,
        lambda g: g.quant(c(g, without=["group"])),
        "crash",
        "TypeError: int()",
        "no attribute",
    ),
    _bad(
        "auto_pad",
        PLANE,
        lambda g: g.quant(c(g, without=["pads"], auto_pad="SAME_UPPER")),
        "refused",
        "Required attribute pads",
        "it has auto_pad SAME_UPPER",
    ),
    _bad(
        "dilated", (1, 2, 9, 9), lambda g: g.quant(c(g, dilations=[2, 2])), "crash", "array split", "dilations [2, 2]"
    ),
    _bad(
        "two groups of four",
        (1, 4, 7, 5),
        lambda g: g.quant(c(g, g.integers(4, 2, 3, 3), group=2)),
        "refused",
        "Depth multiplier must be an integer",
        "2 groups of 4 channels",
    ),
    _bad(
        "three dimensions",
        (1, 2, 5, 5, 5),
        lambda g: g.quant(c(g, g.integers(3, 2, 3, 3, 3))),
        "crash",
        "only available for 3D and 4D",
        "convolves 3 dimensions",
    ),
    *(
        _bad(
            f"MaxPool without {name}",
            PLANE,
            lambda g, name=name: g.pool(g.quant("x"), without=[name]),
            "refused",
            f"Required attribute {name} unspecified",
            f"no attribute '{name}'",
        )
        for name in ("pads", "strides")
    ),
    _bad(
        "uneven pads",
        PLANE,
        lambda g: g.pool(g.quant("x"), pads=[1, 1, 0, 0]),
        "crash",
        "Uneven padding",
        "pads [1, 1, 0",
    ),
    _bad(
        "MaxPool of one dimension",
        (1, 2, 8),
        lambda g: g.op("MaxPool", g.quant("x"), kernel_shape=[2], strides=[2], pads=[0, 0]),
        "crash",
        'Attribute "pad_left" of layer',
        "one-dimensional",
    ),
    _bad(
        "AveragePool",
        PLANE,
        lambda g: g.op("AveragePool", c(g), kernel_shape=[1, 1], strides=[1, 1], pads=[0] * 4),
        "refused",
        "convert the model to channels-last",
        "no channels-last AveragePool",
    ),
    *(
        _bad(
            f"{op} of three",
            VECTOR,
            lambda g, op=op: g.op(op, *(g.quant(d(g)) for _ in range(3)), **({"axis": 1} if op == "Concat" else {})),
            "refused",
            "Merging more than two tensors",
            "3 operands",
        )
        for op in ("Concat", "Sum")
    ),
    _bad(
        "Concat with a constant",
        VECTOR,
        lambda g: g.op("Concat", g.quant("x"), g.constant([[1.0, 2]]), axis=1),
        "crash",
        "IndexError",
        "an operand is constant",
    ),
    *(
        _bad(
            f"Resize, region {bool(region)}",
            PLANE,
            lambda g, region=region: g.op(
                "Resize", g.quant("x"), g.constant([]) if region else "", g.constant([1.0, 1, 2, 2]), mode="nearest"
            ),
            "crash",
            "empty array is ambiguous" if region else "Could not find the shape for input",
            "hls4ml fails on Resize",
        )
        for region in (True, False)
    ),
    *(
        _bad(
            f"Pad {name}",
            shape,
            lambda g, given=given, mode=mode, after=after, shape=shape: (g.conv if after else g.quant)(
                g.op(
                    "Pad",
                    g.quant("x"),
                    g.constant([0] * (2 * len(shape) - 1) + [1], np.int64),
                    *([g.constant(given)] if given is not None else []),
                    mode=mode,
                )
            ),
            kind,
            raised,
            says,
        )
        for name, shape, given, mode, after, kind, raised, says in (
            ("with 3", PLANE, 3.0, "constant", True, "refused", "Only constant value of 0", "pads with 3"),
            (
                "reflecting",
                PLANE,
                None,
                "reflect",
                True,
                "refused",
                "Unsupported padding mode",
                "padding mode: reflect",
            ),
            ("of a vector", VECTOR, None, "constant", False, "refused", "Unsupported input shape", "pads 1 dimensions"),
            ("before a Conv", PLANE, 0.0, "constant", True, "crash", "Error", "beside convolutions"),
        )
    ),
    _bad(
        "PRelu", VECTOR, lambda g: g.quant(g.op("PRelu", d(g), g.constant([0.5]))), "crash", "IndexError", "its slopes"
    ),
    # the graph
    *(
        _bad(
            f"{op} of the same",
            VECTOR,
            lambda g, op=op: _twice(
                g, g.quant(d(g)), lambda t: g.op(op, t, t, **({"axis": 1} if op == "Concat" else {}))
            ),
            "crash",
            "Could not find the shape for input",
            "twice; qonnx renames one",
        )
        for op in ("Add", "Concat")
    ),
    _bad("no batch", (4,), lambda g: g.quant(d(g)), "crash", "IndexError", "hls4ml takes the first dimension", "Input"),
    _bad(
        "sizes without numbers",
        (1, 2, "h", "w"),
        lambda g: g.quant(c(g)),
        "crash",
        "negative dimensions",
        "a dimension without a number",
        "Input",
    ),
    _bad(
        "an output and its Quant",
        VECTOR,
        lambda g: _twice(g, d(g), lambda t: [t, g.quant(t)]),
        "crash",
        "Remove leaf node",
        "hls4ml merges the two",
    ),
    _bad(
        "an output inside convolutions",
        PLANE,
        lambda g: _twice(g, g.quant(c(g)), lambda t: [t, g.quant(g.conv(t, POINT))]),
        "crash",
        "Must have >1 consumer",
        "the conversion to channels last stops",
    ),
    _bad(
        "an output inside convolutions, moved up",
        PLANE,
        lambda g: _twice(g, g.quant(c(g)), lambda t: [t, g.quant(g.conv(g.quant(g.op("Relu", t)), POINT))]),
        "crash",
        "Must have >1 consumer",
        "the conversion to channels last stops",
    ),
    # operators
    *(
        _bad(
            op,
            VECTOR,
            lambda g, op=op, given=given: g.quant(g.op(op, g.quant(d(g)), **given)),
            "refused",
            f"ERROR: Unsupported operation type: {op}",
            f"Unsupported operation type: {op}",
            op,
        )
        for op, given in (
            *((op, {}) for op in ("Round", "Floor", "Clip", "Abs", "Neg", "Sqrt", "Exp", "Erf", "Sign", "HardSigmoid")),
            *((op, {}) for op in ("HardSwish", "LogSoftmax", "Celu")),
            ("Cast", {"to": 1}),
            ("ReduceMean", {"keepdims": 1}),
        )
    ),
    *(
        _bad(
            op,
            VECTOR,
            lambda g, op=op, axes=axes, dtype=dtype: g.op(op, g.quant(d(g)), g.constant(axes, dtype)),
            "refused",
            f"Unsupported operation type: {op}",
            f"Unsupported operation type: {op}",
            op,
        )
        for op, axes, dtype in (("Unsqueeze", [2], np.int64), ("Gather", [0], np.int64))
    ),
    _bad(
        "QuantizeLinear",
        VECTOR,
        lambda g: g.op(
            "DequantizeLinear",
            g.op("QuantizeLinear", "x", g.constant(0.5), g.constant(0, np.int8)),
            g.constant(0.5),
            g.constant(0, np.int8),
        ),
        "refused",
        "Unsupported operation type: QuantizeLinear",
        "Unsupported operation type: QuantizeLinear",
        "QuantizeLinear",
    ),
    _bad(
        "weights through DequantizeLinear",
        VECTOR,
        lambda g: g.op(
            "MatMul",
            g.quant("x"),
            g.op("DequantizeLinear", g.constant(g.integers(4, 3), np.int8), g.constant(0.5), g.constant(0, np.int8)),
        ),
        "refused",
        "Unsupported operation type: DequantizeLinear",
        "Unsupported operation type: DequantizeLinear",
        "DequantizeLinear",
    ),
    _bad(
        "Trunc",
        VECTOR,
        lambda g: g.op("Trunc", d(g), *map(g.constant, (1.0, 0.0, 8.0, 4.0)), domain=QONNX, rounding_mode="FLOOR"),
        "refused",
        "Unsupported operation type: Trunc",
        "Unsupported operation type: Trunc",
        "Trunc",
    ),
    _bad(
        "MatMulInteger",
        VECTOR,
        lambda g: g.op("MatMulInteger", g.op("Cast", g.quant("x"), to=3), g.constant(g.integers(4, 3), np.int8)),
        "refused",
        "Unsupported operation type: Cast",
        "Unsupported operation type: MatMulInteger",
        "MatMulInteger",
    ),
    *(
        _bad(
            f"Gemm {name}",
            VECTOR,
            lambda g, given=given, bias=bias, rows=rows: g.quant(
                g.op(
                    "Gemm",
                    g.quant("x"),
                    g.quant(g.constant(g.integers(rows, 3)), 4),
                    *([g.constant([1.0, 2, 3])] if bias else []),
                    **given,
                )
            ),
            "crash",
            "Error|Fail",
            "qonnx's GemmToMatMul",
            "Gemm",
        )
        for name, given, bias, rows in (
            ("without bias", {}, False, 4),
            ("transA", {"transA": 1}, True, 1),
            ("beta", {"beta": 0.5}, True, 4),
        )
    ),
    _bad(
        "Gemm, weights by channel",
        VECTOR,
        lambda g: g.quant(
            g.op(
                "Gemm",
                g.quant("x"),
                g.quant(g.constant(g.integers(3, 4)), 4, scale=np.reshape(HALVES, (3, 1))),
                g.constant([1.0, 2, 3]),
                transB=1,
            )
        ),
        "crash",
        "IndexError",
        "weight scales for each channel",
        "MatMul",
    ),
]
