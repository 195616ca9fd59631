"""Everything about a project that is not the network."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

BACKENDS = ("Vitis", "Vivado", "Catapult")
IO_TYPES = ("io_parallel", "io_stream")
STRATEGIES = ("Latency", "Resource")
_FILES = re.compile(r"(parameters|defines|ap_(common|decl|fixed|int|private|shift_reg).*|hls_(math|stream))\Z")
"""Headers that a project's own, ``PROJECT.h``, would replace."""
VARIABLE = re.compile(r"(layer|config|[bdepstwyz]|br|th|tl|wr)\d+(_.*)?\Z")
"""Lower-cased names that hls4ml gives to weights, tables, results and the configurations of layers."""
HIDDEN = re.compile(
    r".*_(t|ap)\Z|(ap|af|sc)_.*|(assert|bias|ctor|defines|eof|errno|infinity|max|min|nan|null|parameters"
    r"|stderr|stdin|stdout|stringify)\Z"
)
"""Lower-cased names of types and macros in the generated C++: an input port so called hides one, or is replaced."""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class HlsConfig:
    """Everything about a project that is not the network.

    Attributes
    ----------
    backend:
        'Vitis' (Vitis HLS 2020.2 and later), 'Vivado' (Vivado HLS up to 2020.1) or 'Catapult' (for ASICs, and FPGAs).
    part:
        The FPGA, as the vendor tool names it (``xc...``); for Catapult also the base library of an ASIC
        (``nangate-45nm_beh``).
    clock_period_ns:
        Target clock period in nanoseconds.
    io_type:
        'io_parallel' (all elements at once) or 'io_stream' (AXI streams).
    strategy, reuse_factor:
        hls4ml's 'Latency' or 'Resource', and how often a multiplier is used for one inference. hls4ml takes the nearest
        factor each layer allows; the manifest records what it took.
    project:
        Name of the project and of its top function.
    """

    backend: str = "Vitis"
    part: str = "xcu250-figd2104-2L-e"
    clock_period_ns: float = 5.0
    io_type: str = "io_parallel"
    strategy: str = "Latency"
    reuse_factor: int = 1
    project: str = "network"

    @property
    def asic(self) -> bool:
        """Whether the part is an ASIC library (Catapult alone)."""
        return self.backend == "Catapult" and not self.part.lower().startswith("xc")

    def __post_init__(self) -> None:
        for name, allowed in (("backend", BACKENDS), ("io_type", IO_TYPES), ("strategy", STRATEGIES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"HlsConfig: {name} {getattr(self, name)!r}; expected one of {', '.join(allowed)}")
        if self.reuse_factor < 1 or self.clock_period_ns <= 0:
            raise ValueError(
                f"HlsConfig: reuse_factor {self.reuse_factor}, clock_period_ns {self.clock_period_ns}; "
                "expected a factor of 1 or more and a period above 0"
            )
        if not _PART.match(self.part):
            raise ValueError(
                f"HlsConfig: part {self.part!r}; expected a vendor's part name: letters, digits, hyphens, underscores"
            )
        if not math.isfinite(self.clock_period_ns):
            raise ValueError(f"HlsConfig: clock_period_ns {self.clock_period_ns}; expected a finite period")
        name = self.project.lower()
        if name in RESERVED | {"main", "nnet"}:
            raise ValueError(f"HlsConfig: project {self.project!r} is a word of C++ or of hls4ml; choose another name")
        if _FILES.match(name) or VARIABLE.match(name):
            raise ValueError(
                f"HlsConfig: project {self.project!r}; hls4ml gives that name to a "
                f"{'header' if _FILES.match(name) else 'variable'} of its own; choose another name"
            )
        if not _IDENTIFIER.match(self.project):
            raise ValueError(f"HlsConfig: project {self.project!r}; expected letters, digits, underscores (a C++ name)")


RESERVED = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const
    constexpr continue decltype default delete do double else enum explicit export extern false final float for
    friend goto if import inline int long main module mutable namespace new noexcept not not_eq nullptr operator
    or or_eq override private protected public register requires return short signed sizeof static struct switch
    template this throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq std nnet hls input result size weights bias
    """.split()  # noqa: SIM905 - a table of words
)
"""Names an input port must not have: C++ keywords, and what hls4ml's own types and macros are made of."""
