"""The ``[synthesis]`` table: which steps, with which programs, within which limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

STEPS = ("csynth", "cosim", "export", "synthesis", "implementation")
"""What can be run, in the order in which it is."""
NEEDS = {"csynth": None, "cosim": "csynth", "export": "csynth", "synthesis": "csynth", "implementation": "synthesis"}
"""The step whose result each one starts from."""
VIVADO_STEPS = ("synthesis", "implementation")
"""Steps of Vivado; the others are of an HLS tool."""
FLATTEN = ("rebuilt", "full", "none")


@dataclass(frozen=True)
class SynthesisConfig:
    """How vendor tools are run. All of it can be left out.

    Attributes
    ----------
    steps:
        Of ``csynth`` (C to RTL, with estimates), ``cosim`` (RTL simulation of the test vectors, compared with the
        network's integers), ``export`` (an IP archive), ``synthesis`` (Vivado logic synthesis out of context) and
        ``implementation`` (placed and routed). Run in this order; a step needs the one it starts from.
    power:
        Also Vivado's power report, in ``synthesis`` and ``implementation``: vectorless, at the tool's default activity.
    vivado_hls, vitis_hls, vitis_run, vivado:
        Programs; a name is looked up on PATH, '' is the usual name.
    time_limit_s, memory_limit_gb:
        Of one step, with all processes it starts; GB of 10^9 bytes, 0 for no limit of memory.
    licences:
        How many tools run at once on this machine, over all processes of ``hawq_flow`` that share ``licence_folder``
        (default: a folder of the user's among the temporary files).
    licence_retries, licence_wait_s:
        How often a step that found no licence is tried again, and the wait before the first retry in seconds; each
        further wait is twice as long, up to a quarter of an hour.
    threads:
        Vivado's ``general.maxThreads``, 1 to 32; 0 leaves it as the tool has it.
    flatten:
        Vivado's ``-flatten_hierarchy``: 'rebuilt' (its default), 'full' or 'none' (figures by module are then exact).
    keep_work:
        Keep the folder in which the tools worked also when all went well.
    """

    steps: tuple[str, ...] = ("csynth",)
    power: bool = False
    vivado_hls: str = ""
    vitis_hls: str = ""
    vitis_run: str = ""
    vivado: str = ""
    time_limit_s: float = 14400.0
    memory_limit_gb: float = 0.0
    licences: int = 1
    licence_folder: str = ""
    licence_retries: int = 5
    licence_wait_s: float = 60.0
    threads: int = 0
    flatten: str = "rebuilt"
    keep_work: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        unknown = [step for step in self.steps if step not in STEPS]
        if unknown or not self.steps or len(set(self.steps)) != len(self.steps):
            raise ValueError(f"synthesis: steps {list(self.steps)}; expected some of {', '.join(STEPS)}, each once")
        for step in self.steps:
            if NEEDS[step] is not None and NEEDS[step] not in self.steps:
                raise ValueError(f"synthesis: step {step!r} starts from {NEEDS[step]!r}; add it to steps")
        object.__setattr__(self, "steps", tuple(step for step in STEPS if step in self.steps))
        for name, low in (("time_limit_s", 0.0), ("licence_wait_s", 0.0)):
            value = getattr(self, name)
            if not math.isfinite(value) or value <= low:
                raise ValueError(f"synthesis: {name} {value}; expected seconds above 0")
        if not math.isfinite(self.memory_limit_gb) or self.memory_limit_gb < 0:
            raise ValueError(
                f"synthesis: memory_limit_gb {self.memory_limit_gb}; expected GB above 0, or 0 for no limit"
            )
        if self.licences < 1 or self.licence_retries < 0:
            raise ValueError(
                f"synthesis: licences {self.licences}, licence_retries {self.licence_retries}; expected at least 1, 0"
            )
        if not 0 <= self.threads <= 32:
            raise ValueError(f"synthesis: threads {self.threads}; Vivado takes 1 to 32 (0: as it is set)")
        if self.flatten not in FLATTEN:
            raise ValueError(f"synthesis: flatten {self.flatten!r}; expected one of {', '.join(FLATTEN)}")

    @property
    def memory_bytes(self) -> int | None:
        """The limit of memory in bytes, None for none."""
        return int(self.memory_limit_gb * 1e9) or None
