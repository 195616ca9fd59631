"""``verify.sh`` and ``README.md`` of a bundle: what its receiver runs first and reads first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hawq_flow.handover.archive import SUMS
from hawq_flow.handover.contents import Contents

VERIFY = "verify.sh"
_VERIFY = r"""#!/bin/sh
# Proves this bundle: hashes, the integer reference, the C simulation of every HLS project, the Verilog.
# Needs a POSIX shell, coreutils and g++; a Verilog simulator (verilator or iverilog) if the Verilog is to be run.
#
#   ./verify.sh                 everything; exit code 0: proved, 1: something differs, 2: cannot run
#   ./verify.sh --no-hashes     leave the hashes out: what was changed is then found by what it computes
#   ./verify.sh --only STEP     one step: hashes, reference, hls, verilog; may be repeated
#   ./verify.sh --strict        a step that cannot run here is a failure, not a remark
#   CXX=clang++ ./verify.sh     another compiler
set -u
LC_ALL=C
export LC_ALL
unset CDPATH CPATH CPLUS_INCLUDE_PATH # headers of others are not taken
work=$(mktemp -d "${TMPDIR:-/tmp}/verify.XXXXXX") || exit 2
work=$(cd "$work" && pwd) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
here=$(cd "$(dirname "$0")" && pwd) || exit 2
cd "$here" || exit 2
CXX=${CXX:-g++}
export CXX
hashes=yes only= strict=no
while [ $# -gt 0 ]; do
    case $1 in
        --no-hashes) hashes=no ;;
        --strict) strict=yes ;;
        --only)
            [ $# -gt 1 ] || { echo "verify.sh: --only needs a step" >&2; exit 2; }
            case $2 in hashes | reference | hls | verilog) only="$only $2" ;; *)
                echo "verify.sh: --only $2: expected hashes, reference, hls or verilog" >&2
                exit 2 ;;
            esac
            shift ;;
        *)
            echo "verify.sh: unknown option $1; see the head of this file" >&2
            exit 2 ;;
    esac
    shift
done
done_steps=0
skipped=

wanted() {
    case " $only " in "  ") return 0 ;; *" $1 "*) return 0 ;; *) return 1 ;; esac
}

failed() {
    echo "FAILED: $*" >&2
    echo "This bundle is NOT proved." >&2
    exit 1
}

skip() {
    if [ $strict = yes ]; then failed "$*, and --strict was given"; fi
    echo "skipped: $*"
    skipped=yes
}

# Every file must be in the manifest: what is added could be compiled in.
walk() {
    for entry in "$1"* "$1".[!.]* "$1"..?*; do
        if [ -h "$entry" ]; then
            failed "hashes: $entry is a symbolic link; a bundle holds plain files"
        elif [ -d "$entry" ]; then
            walk "$entry/"
        elif [ -e "$entry" ] && [ "$entry" != MANIFEST.sha256 ]; then
            case "$names" in *"
$entry
"*) ;; *) failed "hashes: $entry is not in MANIFEST.sha256: it was added. If you built here, unpack again and \
build in a copy; --no-hashes leaves this step out" ;; esac
        fi
    done
}

if [ $hashes = yes ] && wanted hashes; then
    [ -f MANIFEST.sha256 ] || failed "hashes: MANIFEST.sha256 is missing"
    return=$(printf '\r')
    names="
"
    count=0
    while IFS= read -r line || [ -n "$line" ]; do
        name=${line#*  }
        sum=${line%%  *}
        case $sum in *[!0-9a-f]*) sum= ;; esac
        case $name in "" | /* | ../* | */../* | */.. | *"$return") sum= ;; esac
        [ ${#sum} -eq 64 ] || failed "hashes: MANIFEST.sha256 has the line '$line'; expected a checksum and a file"
        case "$names" in *"
$name
"*) failed "hashes: MANIFEST.sha256 names $name twice" ;; esac
        names="$names$name
"
        count=$((count + 1))
    done <MANIFEST.sha256
    [ $count -eq @FILES@ ] || failed "hashes: MANIFEST.sha256 names $count files; this bundle was made of @FILES@"
    if command -v sha256sum >/dev/null; then sums=sha256sum; else sums="shasum -a 256"; fi
    $sums -c MANIFEST.sha256 >"$work/hashes.txt" 2>"$work/errors.txt" || {
        while IFS= read -r line; do
            case $line in *": OK") ;; *) echo "  $line" >&2 ;; esac
        done <"$work/hashes.txt"
        cat "$work/errors.txt" >&2
        failed "hashes: the files named above are not those of this bundle"
    }
    walk ""
    sum=$($sums MANIFEST.sha256)
    echo "hashes: $count files as they were made; the manifest's own: ${sum%% *}"
    done_steps=$((done_steps + 1))
fi

compiler() {
    $CXX --version >"$work/version.txt" 2>&1 && return
    echo "verify.sh: no C++ compiler '$CXX'; install g++ or set CXX" >&2
    exit 2
}

if wanted reference; then
    compiler
    count=0
    for file in vectors/layers/*.txt; do count=$((count + 1)); done
    [ $count -eq @LAYERS@ ] || failed "reference: vectors/layers has $count .txt files; it was made with @LAYERS@"
    $CXX @REFERENCE_FLAGS@ reference/check.cpp reference/network.cpp -o "$work/check" \
        || failed "reference: it does not compile; see above"
    "$work/check" vectors || failed "reference: reference/network.cpp against vectors/; see above"
    done_steps=$((done_steps + 1))
fi

@HLS@
@VERILOG@
if [ $done_steps -eq 0 ]; then echo "verify.sh: nothing was checked" >&2; exit 2; fi
if [ -n "$skipped" ]; then echo "Proved, but for what was skipped."; else echo "Proved."; fi
"""
_HLS = r"""if wanted hls; then
    compiler
    (cd hls/@FOLDER@ && $CXX @FLAGS@ -o "$work/@FOLDER@") || failed "hls/@FOLDER@: it does not compile; see above"
    "$work/@FOLDER@" hls/@FOLDER@/tb_data || failed "hls/@FOLDER@: the project against the vectors; see above"
    echo "hls/@FOLDER@: C simulation equal"
    done_steps=$((done_steps + 1))
fi
"""
_NO_HLS = r"""case " $only " in *" hls "*) skip "hls: this bundle has no HLS project" ;; esac
"""
_VERILOG = r"""if wanted verilog; then
    simulator=
    if command -v verilator >/dev/null 2>&1 || command -v verilator_bin >/dev/null 2>&1; then
        simulator=verilator
    elif command -v iverilog >/dev/null 2>&1 && command -v vvp >/dev/null 2>&1; then
        simulator=icarus
    fi
    if [ -z "$simulator" ]; then
        skip "verilog: neither verilator nor iverilog (with vvp) is on PATH"
    else
        [ -f verilog/testbench/run.sh ] || failed "verilog: verilog/testbench/run.sh is missing"
        /bin/sh verilog/testbench/run.sh $simulator "$work"
        code=$?
        if [ $code -eq 2 ] && [ $simulator = verilator ] && command -v vvp >/dev/null 2>&1; then
            echo "verilog: this verilator cannot; trying iverilog"
            /bin/sh verilog/testbench/run.sh icarus "$work"
            code=$?
        fi
        case $code in
            0) done_steps=$((done_steps + 1)) ;;
            2) skip "verilog: the simulator on PATH cannot run the testbench; see above" ;;
            *) failed "verilog: the design against the vectors; see above" ;;
        esac
    fi
fi
"""
_NO_VERILOG = r"""case " $only " in *" verilog "*) skip "verilog: this bundle has none: @WHY@" ;; esac
"""


def verify(contents: Contents, reference_flags: str, hls: Mapping[str, str], files: int) -> str:
    """The script.

    Parameters
    ----------
    reference_flags:
        g++'s for the reference.
    hls:
        By folder below ``hls``: g++'s arguments there, sources included, but for the output.
    files:
        How many the bundle has, its manifest not counted.
    """
    projects = "".join(_HLS.replace("@FOLDER@", folder).replace("@FLAGS@", flags) for folder, flags in hls.items())
    why = contents.without_rtl.replace("\\", " ").replace('"', "'").replace("$", " ").replace("`", "'")
    verilog = _VERILOG if contents.rtl is not None else _NO_VERILOG.replace("@WHY@", " ".join(why.split()))
    return (
        _VERIFY.replace("@REFERENCE_FLAGS@", reference_flags)
        .replace("@FILES@", str(files))
        .replace("@LAYERS@", str(len(contents.network.ops)))
        .replace("@HLS@", projects or _NO_HLS)
        .replace("@VERILOG@", verilog)
    )


def readme(contents: Contents, document: Mapping[str, Any], version: int) -> str:
    """``README.md``, for an FPGA engineer who has never met us."""
    network = contents.network
    ties, saturated = (sum(entry[what] for entry in contents.covered.values()) for what in ("ties", "saturated"))
    ports = "\n".join(
        f"| {kind} | `{entry['value']}` | {entry['elements']} | {entry['integers']} | {entry['range'][0]} to "
        f"{entry['range'][1]} |"
        for kind in ("input", "output")
        for entry in document[f"{kind}s"]
    )
    quality = ""
    if contents.result:
        said = {name: value for name, value in contents.result.items() if name.startswith("test_")}
        quality = "Measured on the test set: " + ", ".join(
            f"{name.removeprefix('test_').replace('_', ' ')} {value:.6g}" for name, value in said.items()
        )
        quality += ".\n\n"
    return f"""# {contents.name}

A neural network in integers, ready for an FPGA, with everything to prove that it computes what it should. It was made
by hawq_flow from the network with digest `{network.digest}`. Nothing here needs
hawq_flow or Python.

## First

    ./verify.sh

needs a shell, coreutils and g++, and a Verilog simulator (`verilator` or `iverilog`) for the Verilog. It checks every
file against `{SUMS}`, compiles the reference, the HLS projects and the Verilog where there are, runs all of them on
the vectors and compares every integer. It ends with `Proved.` and exit code 0, or names what differs.

Proved means: equal on these {contents.count:,} rows, {contents.data_rows:,} of them data and the rest drawn to reach
the ends of ranges, ties and saturation: {ties:,} ties and {saturated:,} saturations among the rescales
(`vectors/coverage.json`). What only the hashes cover: pages, `images/`, `onnx/`, `network/`, `constraints/`,
`reports/`, `certificate/`. The first line it prints has the checksum of the manifest itself: ask us for it by another
way if it must be certain that this is what we sent.

**Build in a copy.** What a tool leaves in this folder counts as added, and the hashes fail.

## The network at its ports

| port | value | elements | integers | range |
|---|---|---:|---|---|
{ports}

{quality}`contract.md` says what the integers mean, how raw data becomes them (on the host or in fixed point), how
elements are ordered and packed, when results come, and works one row by hand. `contract.json` is the same for programs.

## What is where

| folder | what |
|---|---|
{_places(contents)}
## Rebuild

{_rebuild(contents)}
## Integrate

* Feed integers, as `contract.md` says, and clip them: no port checks its range.
{_integrate(contents)}* A row's result depends on that row alone; there is no state between rows.

## What may be changed

* Part and clock: freely; results do not depend on them. Synthesize again and look at the timing.
* Interfaces around the top (AXI, FIFOs, registers before and after): freely.
{_changes(contents)}* **Not** constants, types, shifts, roundings or the order of elements: the network was trained with
  exactly these. After any change of the design itself run `./verify.sh --no-hashes`; it names the first integer that
  differs.

Bundle format {version}. The layout is stable: a later version of hawq_flow checks this bundle with
`hawq-flow handover --check`, and `verify.sh` needs none.
"""


def _places(contents: Contents) -> str:
    rows = {
        "reference/": "the network as one readable C++ file of plain integer arithmetic: step through it in a "
        "debugger. `check.cpp` compares it with the vectors",
        "vectors/": f"{contents.count:,} rows of inputs and outputs, the first {contents.layers:,} with every layer's "
        "integers; decimal text, and hex words for `$readmemh`; `index.json` says what each file holds and which "
        "rows are data",
    }
    for backend in contents.projects:
        rows[f"hls/{backend.lower()}/"] = (
            f"hls4ml project for {backend} (`project/`), and a testbench that fails on a difference: `testbench.cpp`, "
            "for g++ and as the vendor's C and RTL simulation testbench"
        )
    if contents.rtl is not None:
        rows["verilog/"] = (
            "the network as pipelined Verilog-2001, a module a layer and the top "
            f"`{contents.rtl.top}.v`; `testbench/` for Icarus and Verilator"
        )
    rows |= {
        "images/": "every constant of the network as memory images, with `index.json`; a rescale is "
        "`x * multiplier / 2^shift + offset` there and in `reference/`, and one number `multiplier / 2^shift` in HLS",
        "constraints/": "part and clock; the xdc are for the top alone, out of context: bring the clock's own in yours",
        "reports/": _reports(contents),
        "certificate/": "what was compared with what before this bundle was made, on how many rows: `equality.md`",
        "onnx/": "the network as QONNX and as standard ONNX in integers",
        "network/": "the network for hawq_flow (`IntegerNetwork.load`)",
        "LICENSES/": "whose the files are",
    }
    return "".join(f"| `{name}` | {what} |\n" for name, what in rows.items())


def _reports(contents: Contents) -> str:
    if not contents.reports:
        return "empty: nothing was synthesized before this bundle was made"
    tools = sorted({" ".join(filter(None, (report.tool, report.version))) for report in contents.reports})
    return f"what {', '.join(tools)} said of it: `reports.md`, `reports.json`"


def _rebuild(contents: Contents) -> str:
    parts = []
    for backend in contents.projects:
        parts.append(
            f"* HLS, {backend}: `hls/{backend.lower()}/project/README.md` has the vendor's command; "
            f"`hls/{backend.lower()}/README.md` how to simulate with our testbench.\n"
        )
    if contents.rtl is not None:
        parts.append(
            "* Verilog: `vivado -mode batch -source constraints/verilog.tcl` in this folder synthesizes out of context "
            "and writes utilization and timing; or read `verilog/*.v` into a project of yours.\n"
        )
    return "".join(parts) or "* There is neither an HLS project nor Verilog here; the reference says what to build.\n"


def _integrate(contents: Contents) -> str:
    if contents.rtl is None:
        return ""
    return (
        f"* Verilog: instantiate `{contents.rtl.top}`; raise `valid_in` with each row, any cycle; take the result when "
        f"`valid_out` is high, {contents.rtl.latency} cycles later. No reset, no back pressure.\n"
    )


def _changes(contents: Contents) -> str:
    return (
        "* In the HLS project: reuse factor, strategy and pragmas, in the vendor's tool; latency and resources change, "
        "results do not.\n"
        if contents.projects
        else ""
    )
