"""Vendor tools: projects built here or packed and collected, their reports checked and read. See ``build``, ``pack``.

Modules: ``config`` (the ``[synthesis]`` table), ``project`` (what is built), ``vendor`` (which tool, which version),
``scripts`` (tcl), ``licences``, ``causes`` (log -> outcome), ``results`` (are these reports this run's), ``build``,
``pack`` and ``shell`` (building elsewhere).
"""

from hawq_flow.synthesis.build import Build, Step, build, build_all, reports
from hawq_flow.synthesis.causes import Outcome
from hawq_flow.synthesis.config import STEPS, SynthesisConfig
from hawq_flow.synthesis.pack import collect, pack
from hawq_flow.synthesis.project import Project, SynthesisError

__all__ = [
    "STEPS",
    "Build",
    "Outcome",
    "Project",
    "Step",
    "SynthesisConfig",
    "SynthesisError",
    "build",
    "build_all",
    "collect",
    "pack",
    "reports",
]
