"""onnxruntime as this project runs it: on the CPU, on one thread, rewriting the graph or not."""

from __future__ import annotations

import onnx
import onnxruntime

ERRORS, FATAL = 3, 4
"""Least severity of what onnxruntime prints."""


def session(model: onnx.ModelProto, *, optimized: bool, prints: int = ERRORS) -> onnxruntime.InferenceSession:
    """A model loaded at onnxruntime's default optimisation level, or at none (ORT_DISABLE_ALL)."""
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = prints
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
