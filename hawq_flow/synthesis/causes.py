"""From a tool's end and its log to one typed outcome and the cause that is known.

Vendor tools end with exit code 0 after a crash, and with 1 for everything else; what happened stands in the log. Only
lines that complain count: the tools' ERROR lines, and what the system, the shell and the licence manager say in forms
of their own. Logs are full of words that mean nothing: licences tried and not needed, variables, names in the sources.
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


_ERROR_LINE = re.compile(r"^[ \t]*(?:CRITICAL )?(?:FATAL[_ ])?(?:ERROR|Error|FATAL|Fatal)(?::| \[).*|^@E\b.*", re.M)
_FLEXNET = re.compile(
    r"^[ \t]*(?:FLEXnet|License path:|Feature has expired|No such feature exists|Licensed number of users"
    r"|(?:The )?license server|Cannot (?:connect to|find) (?:the )?license|Failed to check ?out"
    r"|Invalid (?:host|license)).*",
    re.M | re.I,
)
"""The licence manager's own lines, without a severity; they count unless the tool names another error."""
_LICENCE_ERROR = re.compile(r"(?<![/.\w])licen[cs]es?\b(?![./])|flexnet|\[Common 17-(?:345|348)\]", re.I)
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
        re.compile(""),
        "no licence was given for the tool or the device",
        True,
    ),
)
DISK_FULL = "the disk is full: make room where the project lies, and in the temporary folder"
_CRASH = re.compile(
    r"Abnormal program termination|Segmentation fault|^segfault in |core dumped|hs_err_pid\d+|Stack dump:"
    r"|An unexpected error has occurred|terminate called",
    re.M,
)
_MEMORY = r"std::bad_alloc|out of memory|cannot allocate memory|memory exhausted"
_DISK = r"no space left on device|disk quota exceeded|file too large"
_FITS = re.compile(r"requires? more [^\n]{0,80}\bthan (?:are |is )?available|\[DRC UTLZ-1\]|over-?utilized", re.I)
_KNOWN = (
    (
        re.compile(r"bad lexical cast|ERROR: '2[2-9]\d{8}' is an invalid argument"),
        "export fails since 2022 in versions before 2021.2: a date no longer fits; install the vendor's y2k22 patch",
    ),
    (
        re.compile(r"(?:ERROR|@E)\b[^\n]*Stop unrolling loop|\[XFORM 203-504\]"),
        "a loop is too large to be unrolled: take a larger reuse factor, or the strategy Resource",
    ),
    (
        re.compile(r"co-simulation finished: FAIL|C/RTL co-simulation[^\n]{0,40}FAIL"),
        "the RTL simulation gave other results than the C simulation",
    ),
    (re.compile(r"couldn't open display|cannot open display", re.I), "the tool wants a display: run it in batch mode"),
)
_ERROR = re.compile(r"^[ \t]*(?:(?:CRITICAL )?ERROR:|Error:|@E) ?(?!hawq_flow)(.*)", re.M)


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
        return Outcome.TIMED_OUT, f"{run.cause}; raise time_limit_s in [synthesis]"
    if run.outcome is tools.Outcome.OUT_OF_MEMORY and run.cause:
        return Outcome.OUT_OF_MEMORY, f"{run.cause}; raise memory_limit_gb in [synthesis], or make the design smaller"
    if run.ok and finished:
        return Outcome.OK, ""
    if run.exit_code is None:
        return Outcome.TOOL_ERROR, f"{run.cause}; name another program in [synthesis]"  # it never ran
    errors = "\n".join(_ERROR_LINE.findall(text))
    if _PART.search(errors):
        return (
            Outcome.MISSING_PART,
            "the part is not installed in this tool: add its family with the vendor's installer",
        )
    if tools.killed(run.exit_code, text) or _says(_MEMORY, text, errors):
        return (
            Outcome.OUT_OF_MEMORY,
            "the system killed it, or gave it no more memory: run fewer at once, or a smaller design",
        )
    if tools.file_too_large(run.exit_code) or _says(_DISK, text, errors):
        return Outcome.DISK_FULL, DISK_FULL
    about_licences = [line for line in errors.splitlines() if _LICENCE_ERROR.search(line)]
    if about_licences or not errors:
        about_licences += _FLEXNET.findall(text)
    if about_licences:
        said = "\n".join(about_licences)
        return Outcome.LICENCE, next(cause for pattern, cause, _ in _LICENCE if pattern.search(said))
    found = _ERROR.findall(text)
    if _FITS.search(errors):
        too_much = next((line for line in found if _FITS.search(line)), "it says that the design is too large")
        return (
            Outcome.DOES_NOT_FIT,
            f"{too_much.strip().rstrip('.')}: take narrower bits, a larger reuse factor or a larger device",
        )
    known = next((cause for pattern, cause in _KNOWN if pattern.search(text)), None)
    if known is None and (_CRASH.search(text) or (run.exit_code or 0) < 0 or (run.exit_code or 0) > 128):
        known = f"the tool crashed ({_code(run)})"
    if known is None and run.ok:
        known = "it ended with exit code 0, but not at the end of its script: the tool crashed without saying so"
    if found:
        known = f"{known}; its first error: {found[0].strip()}" if known else found[0].strip()
    return Outcome.TOOL_ERROR, known or f"it ended with {_code(run)} and names no cause"


def _says(what: str, text: str, errors: str) -> bool:
    """Whether an error line says it, or a program of the system does: "PROGRAM: ...: what", or an exception's text."""
    start = r"^(?!INFO|WARNING|CRITICAL)(?:[^\s:]+:|write error:|[^\s:]+:[^\n]*:|terminate called[^\n]*|\s*what\(\):)"
    own = rf"{start}[ ']+(?:{what})"
    return re.search(what, errors, re.I) is not None or re.search(own, text, re.M | re.I) is not None


def _code(run: tools.Run) -> str:
    return f"exit code {run.exit_code}"


def retried(cause: str) -> bool:
    """Whether a licence missed for this cause may be there later: not if it was never bought, or has expired."""
    return cause not in {final for _, final, again in _LICENCE if not again}
