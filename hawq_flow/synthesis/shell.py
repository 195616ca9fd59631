"""The files of a pack that run where this package is not: ``build.sh`` and its README."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hawq_flow.synthesis import results, scripts, vendor
from hawq_flow.synthesis.config import SynthesisConfig
from hawq_flow.synthesis.project import Project

VARIABLE = "HAWQ_FLOW_"


def script(projects: Mapping[str, Project], config: SynthesisConfig) -> str:
    """``build.sh``: POSIX sh; every project, every step, results with checksums. Exit code 1 when a step failed."""
    calls = []
    for name, project in projects.items():
        calls.append(f"project {name} {project.top} {project.digest} {project.sources}")
        for step in config.steps:
            calls.append(f"step {step} {' '.join(vendor.kinds(step, project.backend))}")
    programs = "\n".join(
        f'        {kind}) echo "${{{VARIABLE}{kind.upper()}:-{vendor.PROGRAM.get(kind, kind)}}}" ;;'
        for kind in vendor.NAMES
    )
    commands = "\n".join(
        f'        {kind}) set -- "$program" {" ".join(vendor.arguments(kind, "$step.tcl"))} ;;'.replace(
            "$step.tcl", '"$step.tcl"'
        )
        for kind in vendor.NAMES
    )
    return f"""#!/bin/sh
# Builds the projects of this folder with the vendor's tools. Written by hawq_flow; needs sh and sha256sum (or shasum).
#
#   ./build.sh            results in results/; exit code 1 when a step failed, 2 when the folder is not whole
#
# A step that ended well is not run again; remove its folder in results/ to repeat it. Tools are found on PATH, or named
# by {", ".join(VARIABLE + kind.upper() for kind in vendor.NAMES)}.
# Ctrl-C, SIGTERM and SIGHUP end the tool that runs too; after a kill -9 end it yourself.
set -u
LC_ALL=C
export LC_ALL
CDPATH= cd -- "$(dirname -- "$0")" || exit 2
here=$(pwd)
case $here in
    *[[:space:]]*)
        echo "build.sh: the vendor's tools cannot work in '$here': move the folder to a path without blanks" >&2
        exit 2
        ;;
esac
limit={math.ceil(config.time_limit_s)}
failed=0 running= limited=

# One build.sh a folder: a lock with the machine and the process that holds it; one that has ended holds nothing.
lock=$here/.lock
me="$(uname -n 2>/dev/null) $$"
if ! mkdir "$lock" 2>/dev/null; then
    read -r host other <"$lock/owner" 2>/dev/null || host= other=
    if [ ! -d "$lock" ] || [ -z "$other" ] || [ "$host" != "${{me% *}}" ] || kill -0 "$other" 2>/dev/null; then
        echo "build.sh: another build.sh (process ${{other:-unknown}} on ${{host:-unknown}}) works in $here;" \
            "if it has ended, remove $lock" >&2
        exit 2
    fi
    mv "$lock" "$lock.$$" && rm -rf "$lock.$$"
    mkdir "$lock" || exit 2
fi
echo "$me" >"$lock/owner"
trap 'rm -rf "$lock"' EXIT

# stop CODE: end the tool that runs, with its group (timeout makes one), and this script
stop() {{
    trap '' INT TERM HUP
    echo "build.sh: interrupted" >&2
    if [ -n "$running" ]; then
        kill -s TERM "$running" 2>/dev/null
        [ -n "$limited" ] || kill -s KILL "$running" 2>/dev/null
        wait "$running"
        kill -s KILL -- "-$running" 2>/dev/null
    fi
    exit "$1"
}}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP

if command -v sha256sum >/dev/null 2>&1; then
    sums() {{ sha256sum "$@"; }}
elif command -v shasum >/dev/null 2>&1; then
    sums() {{ shasum -a 256 "$@"; }}
else
    echo "build.sh: neither sha256sum nor shasum is here" >&2
    exit 2
fi
if ! sums -c SHA256SUMS >"$lock/check.log" 2>&1; then
    grep -v ': OK$' "$lock/check.log" >&2
    echo "build.sh: this folder is not as it was packed; copy it again" >&2
    exit 2
fi
limited="timeout -k 10 $limit"
if ! command -v timeout >/dev/null 2>&1; then
    limited=
    echo "build.sh: no timeout(1) here: steps run without a time limit"
fi

program_of() {{
    case $1 in
{programs}
    esac
}}

# keep FILE... in the results' folder $to; a file older than the run is counted and left out
keep() {{
    mkdir -p "$to"
    for file; do
        [ -f "$file" ] || continue
        if [ -n "$(find "$work/.start" -newer "$file")" ]; then
            echo "build.sh: $file is older than the run"
            stale=$((stale + 1))
        else
            cp -p "$file" "$to/"
        fi
    done
}}

project() {{
    name=$1 top=$2 digest=$3 sources=$4
    broken=
}}

# step STEP TOOL...: with the first of the tools that is here
step() {{
    step=$1
    shift
    out=$here/results/$name/$step
    if [ -f "$out/SHA256SUMS" ] && grep -q '"ok": 1' "$out/result.json"; then
        echo "$name: $step: already done"
        return
    fi
    rm -rf "$out" "$out.part"
    case $step in
        implementation) before=synthesis ;;
        *) before=csynth ;;
    esac
    if [ "$step" != csynth ] && ! grep -q '"ok": 1' "$here/results/$name/$before/result.json" 2>/dev/null; then
        echo "$name: $step: not run, $before did not end well"
        failed=1
        return
    fi
    kind= program=
    for candidate; do
        program=$(command -v "$(program_of "$candidate")") && kind=$candidate && break
    done
    part=$out.part
    # A folder of this run's own: a tool that outlived an earlier, killed run goes on in the folder that it had.
    work=$here/work/$name/$step.$(date +%s).$$
    rm -rf "$here/work/$name/$step".*
    mkdir -p "$part" "$here/work/$name" && mkdir "$work" || exit 2
    begun=$(date +%Y-%m-%dT%H:%M:%S) stale=0 code=127 ok=0 from=$(date +%s)
    if [ -n "$kind" ]; then
        cp -R "$name/sources/." "$work"
        cp "$name/$step.tcl" "$work"
        case $step in
            synthesis) cp -R "results/$name/csynth/{scripts.VERILOG}" "$work/{scripts.VERILOG}" ;;
            implementation) cp "results/$name/synthesis/{scripts.CHECKPOINT}" "$work" ;;
        esac
        : >"$work/.start"
        echo "$name: $step: $program starts at $begun; log $part/$step.log"
        case $kind in
{commands}
        esac
        (cd "$work" && exec $limited "$@") >"$part/$step.log" 2>&1 </dev/null &
        running=$!
        wait "$running"
        code=$?
        running=
        solution=$work/${{top}}_prj/{scripts.SOLUTION}
        to=$part/{scripts.REPORTS}
        case $step in
            csynth)
                keep "$solution"/syn/report/*.rpt "$solution"/syn/report/*.xml
                to=$part/{scripts.VERILOG}
                keep "$solution"/syn/verilog/*
                set -- "$part/{scripts.VERILOG}"/*.v
                ;;
            cosim)
                keep "$solution"/sim/report/*_cosim.rpt
                to=$part
                for simulated in $(find "$work" -name {results.RTL_LOG}); do
                    [ -f "$part/{results.RTL_LOG}" ] &&
                        [ -z "$(find "$simulated" -newer "$part/{results.RTL_LOG}")" ] || keep "$simulated"
                done
                set -- "$part"/{results.RTL_LOG}
                ;;
            export)
                to=$part
                for archive in $(find "$solution/impl" -name '*.zip' 2>/dev/null); do keep "$archive"; done
                set -- "$part"/*.zip
                ;;
            *)
                keep "$work/{scripts.REPORTS}"/*.rpt
                to=$part
                keep "$work/{scripts.CHECKPOINT}"
                set -- "$part/{scripts.CHECKPOINT}"
                ;;
        esac
        if [ "$code" = 0 ] && [ "$stale" = 0 ] && [ -f "$1" ] &&
            grep -qx "hawq_flow: $step done" "$part/$step.log"; then
            ok=1
        fi
    else
        echo "no tool for $step: $* not found" >"$part/$step.log"
    fi
    printf '{{"digest": "%s", "sources": "%s", "step": "%s", "tool": "%s", "exit_code": %s, "ok": %s, "stale": %s, '\\
'"start": "%s", "seconds": %s}}\\n' "$digest" "$sources" "$step" "$kind" "$code" "$ok" "$stale" "$begun" \\
        "$(($(date +%s) - from))" >"$part/result.json"
    (cd "$part" && find . -type f ! -name SHA256SUMS | sort | while read -r file; do sums "$file"; done >SHA256SUMS)
    mv "$part" "$out"
    if [ "$ok" = 1 ]; then
        echo "$name: $step: ok"
        rm -rf "$work"
    else
        failed=1
        echo "$name: $step: failed (exit code $code); the end of its log:"
        tail -n 20 "$out/$step.log"
    fi
}}

{chr(10).join(calls)}
exit $failed
"""


def readme(projects: Mapping[str, Project], config: SynthesisConfig) -> str:
    """What to do with the folder."""
    rows = "\n".join(
        f"| `{name}` | `{project.digest[:16]}` | {project.backend} | {project.part} | {project.clock_ns} ns |"
        for name, project in projects.items()
    )
    return f"""# Firmware projects to build

| project | network | tool | part | clock |
|---|---|---|---|---|
{rows}

On a machine with the vendor's tools (their `settings64.sh` sourced): `./build.sh`. Steps: {", ".join(config.steps)}.
Neither Python nor hawq_flow is needed. Results, with logs, come into `results/`; then copy the folder back and run
`hawq-flow hls collect FOLDER`. Change nothing in it: every file is in `SHA256SUMS`.
"""
