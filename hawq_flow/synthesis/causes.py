"""From a tool's end and its log to one typed outcome and the cause that is known.

Vendor tools end with exit code 0 after a crash, and with 1 for everything else; what happened stands in the log. The
texts looked for are those of the tools' own messages. A licence message counts only where the tool failed: logs of
good runs tell of licences that were tried and not needed.
"""

from __future__ import annotations

import enum
import re

from hawq_flow import tools


class Outcome(enum.Enum):
    """How a step ended."""

    OK = "ok"
    TOOL_ERROR = "tool error"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    DISK_FULL = "disk full"
    LICENCE = "licence"
    MISSING_TOOL = "missing tool"
    MISSING_PART = "missing part"
    NO_REPORT = "no report"
    WRONG_REPORT = "wrong report"
    DIFFERENT = "different"
    DOES_NOT_FIT = "does not fit"
    NOT_RUN = "not run"


_PART = re.compile(
    r"\[HLS 200-1023\]|Part '[^']*' is not installed|\[Coretcl 2-106\]|Specified part could not be found"
    r"|Part '[^']*' not found|'set_part': Argument '[^']*' requires a value|\[Device 21-436\]|No parts matched"
)
_LICENCE = (
    (
        re.compile(r"No such feature exists|licen[cs]e[^\n]{0,80}does not support this version|:-5,", re.I),
        "not licensed: the licence file has no such feature, or not for this version",
        False,
    ),
    (
        re.compile(r"licen[cs]e[^\n]{0,60}\bexpired|feature has expired|:-10,", re.I),
        "the licence has expired",
        False,
    ),
    (
        re.compile(
            r"cannot connect to (?:the )?(?:licen[cs]e )?server|:-(?:15|16|96|97),"
            r"|licen[cs]e server[^\n]{0,60}(?:down|not respond|unreachable|timed? ?out)",
            re.I,
        ),
        "the licence server cannot be reached: is it up, and does XILINXD_LICENSE_FILE or LM_LICENSE_FILE name it?",
        True,
    ),
    (
        re.compile(r"number of users already reached|all licen[cs]es? (?:are |is )?(?:in use|taken)|:-4,", re.I),
        "all licences are in use",
        True,
    ),
    (
        re.compile(
            r"\[Common 17-345\]|valid license was not found|licen[cs]e (?:checkout|check-out|check)[^\n]{0,40}fail"
            r"|(?:failed|unable|could not)[^\n]{0,30}(?:obtain|get|check ?out)[^\n]{0,20}licen[cs]e|flexnet"
            r"|LM_LICENSE_FILE",
            re.I,
        ),
        "no licence was given for the tool or the device",
        True,
    ),
)
_CRASH = re.compile(
    r"Abnormal program termination|Segmentation fault|^segfault in |core dumped|hs_err_pid\d+|Stack dump:"
    r"|An unexpected error has occurred|terminate called",
    re.M,
)
_MEMORY = re.compile(r"^(?:.*:\s+(?:\d+ )?)?Killed\b|std::bad_alloc|out of memory|cannot allocate memory", re.M | re.I)
_DISK = re.compile(r"no space left on device|disk quota exceeded", re.I)
_KNOWN = (
    (
        re.compile(r"bad lexical cast|ERROR: '2[2-9]\d{8}' is an invalid argument"),
        "export fails since 2022 in versions before 2021.2: a date no longer fits; install the vendor's y2k22 patch",
    ),
    (
        re.compile(r"Stop unrolling loop|\[XFORM 203-504\]"),
        "a loop is too large to be unrolled: take a larger reuse factor, or the strategy Resource",
    ),
    (
        re.compile(r"co-simulation finished: FAIL|C/RTL co-simulation[^\n]{0,40}FAIL"),
        "the RTL simulation gave other results than the C simulation",
    ),
    (re.compile(r"couldn't open display|cannot open display", re.I), "the tool wants a display: run it in batch mode"),
)
_ERROR = re.compile(r"^(?:CRITICAL )?ERROR: ?(?!hawq_flow)(.*)", re.M)


def diagnose(run: tools.Run, text: str, finished: bool) -> tuple[Outcome, str]:
    """The outcome of a run, and its cause in words ('' when ok).

    Parameters
    ----------
    run:
        How the program ended.
    text:
        Its whole log.
    finished:
        Whether the script's last line was printed.
    """
    if run.outcome is tools.Outcome.MISSING:
        return Outcome.MISSING_TOOL, f"{run.command[0]} is not there any more"
    if run.outcome is tools.Outcome.TIMED_OUT:
        return Outcome.TIMED_OUT, f"stopped after {run.seconds:.0f} s; raise time_limit_s in [synthesis]"
    if run.outcome is tools.Outcome.OUT_OF_MEMORY and run.cause:
        return Outcome.OUT_OF_MEMORY, f"{run.cause}; raise memory_limit_gb in [synthesis], or make the design smaller"
    if run.ok and finished:
        return Outcome.OK, ""
    if _PART.search(text):
        return (
            Outcome.MISSING_PART,
            "the part is not installed in this tool: add its family with the vendor's installer",
        )
    if run.outcome is tools.Outcome.OUT_OF_MEMORY or _MEMORY.search(text):
        return (
            Outcome.OUT_OF_MEMORY,
            "the system killed it, or gave it no more memory: run fewer at once, or a smaller design",
        )
    if run.outcome is tools.Outcome.DISK_FULL or _DISK.search(text):
        return Outcome.DISK_FULL, "the disk is full: make room where the project lies, and in the temporary folder"
    for pattern, cause, _ in _LICENCE:
        if pattern.search(text) and re.search("licen[cs]e|flexnet", text, re.I):
            return Outcome.LICENCE, cause
    known = next((cause for pattern, cause in _KNOWN if pattern.search(text)), None)
    if known is None and (_CRASH.search(text) or (run.exit_code or 0) < 0 or (run.exit_code or 0) > 128):
        known = f"the tool crashed ({_code(run)})"
    if known is None and run.ok:
        known = "it ended with exit code 0, but not at the end of its script: the tool crashed without saying so"
    errors = _ERROR.findall(text)
    if errors:
        known = f"{known}; its first error: {errors[0].strip()}" if known else errors[0].strip()
    return Outcome.TOOL_ERROR, known or f"it ended with {_code(run)} and names no cause"


def _code(run: tools.Run) -> str:
    return f"exit code {run.exit_code}"


def retried(text: str) -> bool:
    """Whether a licence may be there later: not for a feature that was never bought, or has expired."""
    return next((again for pattern, _, again in _LICENCE if pattern.search(text)), True)
