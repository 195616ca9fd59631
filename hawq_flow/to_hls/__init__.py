"""QONNX + every precision read from the IR -> an hls4ml project; its C simulation on integers. See ``plan``."""

from hawq_flow.to_hls.config import HlsConfig
from hawq_flow.to_hls.csim import Csim, compile_csim, read_manifest
from hawq_flow.to_hls.fixed import FixedType
from hawq_flow.to_hls.graph import Layer, Placed
from hawq_flow.to_hls.layout import Layout
from hawq_flow.to_hls.plan import Design, design
from hawq_flow.to_hls.project import ProjectError, write_project
from hawq_flow.to_hls.texts import MANIFEST, header_folders, reuse

__all__ = [
    "MANIFEST",
    "Csim",
    "Design",
    "FixedType",
    "HlsConfig",
    "Layer",
    "Layout",
    "Placed",
    "ProjectError",
    "compile_csim",
    "design",
    "header_folders",
    "read_manifest",
    "reuse",
    "write_project",
]
