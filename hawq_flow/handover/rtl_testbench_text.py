"""The texts of the Verilog testbench: what is the same for every design, with places for what is not."""

TESTBENCH = r"""// Testbench of @TOP@ (network @DIGEST@). Written by hawq_flow. Verilog-2001, no delays: the
// clock comes from outside, from clock.v (Icarus and others) or verilator_main.cpp. Runs in its own folder.
//
// Rows enter back to back for the first half and with gaps after it; in the gaps the inputs carry X (in Verilator,
// which has none, other bits). valid_out must be 1 exactly @LATENCY@ cycles after each row, and 0 otherwise. What
// leaves every stage is compared on the first rows, what leaves the design on all: the first difference in time is
// told, which is at the first stage that is wrong. Ends with a line that begins with testbench: PASS, or FAIL.
//
// +rows=N runs the first N rows only. +nonce=TEXT is what that line begins with in the place of testbench, so that
// nothing the design prints can be taken for it.
module testbench (input wire clk, output reg passed);
    localparam ROWS = @ROWS@;
    localparam STAGE_ROWS = @STAGE_ROWS@;
    localparam LATENCY = @LATENCY@;
    localparam DEPTH = @DEPTH@; // cycles until the last stage has a row, if nothing that leaves the design reads it

@MEMORIES@
    reg valid_in;
    wire valid_out;
@BUSES@
    @TOP@ dut (
        .clk(clk), .valid_in(valid_in), .valid_out(valid_out),
        @CONNECTIONS@
    );

    reg [DEPTH:0] live; // bit d: a row entered d cycles ago
    reg [15:0] noise; // where the gaps are
    reg done, enter;
    reg [8*64-1:0] nonce;
    integer rows, sent, received, idle, cycle, e;
    integer file, character, digits, lines;
    reg [31:0] check;
    reg [8*@NAME@-1:0] changed; // the first file that is another than it was
@COUNTERS@

    // A file must be what the vectors were when they were made: so many lines of so many hexadecimal digits. Its
    // checksum is kept for the end: a result that differs says more.
    task check_file(input [8*@NAME@-1:0] name, input integer expected_digits, input integer expected_lines,
        input [31:0] expected_check);
        begin
            file = $fopen(name, "r");
            digits = 0;
            lines = 0;
            check = 32'd0;
            if (file == 0) begin
                done = 1'b1;
                $display("%0s: FAIL: %0s cannot be read; run in the testbench's folder", nonce, name);
            end else begin
                character = $fgetc(file);
                while (character != -1 && !done) begin
                    check = check * 32'd31 + character;
                    if (character == 10) begin
                        if (digits != expected_digits) begin
                            done = 1'b1;
                            $display("%0s: FAIL: %0s, row %0d: %0d digits, expected %0d", nonce, name, lines, digits,
                                expected_digits);
                        end
                        lines = lines + 1;
                        digits = 0;
                    end else if ((character >= 48 && character <= 57) || (character >= 97 && character <= 102)) begin
                        digits = digits + 1;
                    end else begin
                        done = 1'b1;
                        $display("%0s: FAIL: %0s, row %0d: character %0d is no hexadecimal digit", nonce, name,
                            lines, character);
                    end
                    character = $fgetc(file);
                end
                if (!done && digits != 0) begin
                    done = 1'b1;
                    $display("%0s: FAIL: %0s, row %0d has no end: the file is cut short", nonce, name, lines);
                end
                if (!done && lines != expected_lines) begin
                    done = 1'b1;
                    $display("%0s: FAIL: %0s: %0d rows, expected %0d", nonce, name, lines, expected_lines);
                end
                if (check != expected_check && changed == 0) changed = name;
                $fclose(file);
            end
        end
    endtask

    initial begin
        passed = 1'b0;
        done = 1'b0;
        if (!$value$plusargs("nonce=%s", nonce)) nonce = "testbench";
        valid_in = 1'b0;
        live = {(DEPTH + 1){1'b0}};
        noise = 16'hace1;
        sent = 0;
        received = 0;
        idle = 0;
        cycle = 0;
        changed = 0;
@RESETS@
        rows = ROWS;
        if ($value$plusargs("rows=%d", rows) && (rows < 1 || rows > ROWS)) begin
            done = 1'b1;
            $display("%0s: FAIL: +rows=%0d: expected 1 to %0d", nonce, rows, ROWS);
        end
@CHECKS@
        if (!done) begin
@READS@
        end
        if (done) $finish;
    end

    always @(posedge clk) if (!done) begin
        // What is there in this cycle, before the edge.
@STAGES@
        if (!done && valid_out !== live[LATENCY]) begin
            done = 1'b1;
            $display("%0s: FAIL: valid_out is %b in cycle %0d, expected %b: rows leave %0d cycles after they enter",
                nonce, valid_out, cycle, live[LATENCY], LATENCY);
        end
        if (!done && live[LATENCY]) begin
@OUTPUTS@
            received = received + 1;
        end
        if (!done && received == rows && idle == DEPTH + 4) begin
            done = 1'b1;
            passed = changed == 0;
            if (!passed) $display("%0s: FAIL: %0s was changed; no result of the %0d rows that ran shows where", nonce,
                changed, rows);
            else
            $display("%0s: PASS: %0d of %0d rows, @STAGE_COUNT@ stages on the first %0d, latency %0d: equal", nonce,
                rows, ROWS, rows < STAGE_ROWS ? rows : STAGE_ROWS, LATENCY);
        end
        if (done) $finish;
        // The next row, or a gap.
        noise <= {noise[14:0], noise[15] ^ noise[13] ^ noise[12] ^ noise[10]};
        enter = sent < rows && (2 * sent < rows || noise[1:0] != 2'b00);
        valid_in <= enter;
        live <= {live[DEPTH-1:0], enter};
        cycle <= cycle + 1;
        if (enter) begin
@ENTERS@
            sent = sent + 1;
        end else begin
            if (sent == rows) idle = idle + 1;
`ifdef VERILATOR
@OTHERS@
`else
@UNKNOWNS@
`endif
        end
    end
endmodule
"""

CLOCK = """// The clock of testbench.v, for simulators that have none of their own.
module clock;
    reg clk;
    wire passed;
    testbench bench (.clk(clk), .passed(passed));
    initial clk = 1'b0;
    always #1 clk = ~clk;
endmodule
"""

MAIN = """// The clock of testbench.v, for Verilator 4.2 and later: needs neither --timing nor --binary.
#include "Vtestbench.h"
#include "verilated.h"

int main(int argc, char **argv) {
    VerilatedContext context;
    context.commandArgs(argc, argv);
    context.randReset(2); // registers begin with anything: nobody may rely on them
    context.randSeed(1);
    Vtestbench bench{&context};
    bench.clk = 0;
    bench.eval();
    while (!context.gotFinish()) {
        context.timeInc(1);
        bench.clk = !bench.clk;
        bench.eval();
    }
    bench.final();
    return bench.passed ? 0 : 1;
}
"""

RUN = r"""#!/bin/sh
# Simulates the design against its vectors. Written by hawq_flow.
#
#   run.sh icarus [SCRATCH [ROWS]]      Icarus Verilog: iverilog and vvp on PATH; the first @ICARUS_ROWS@ rows
#   run.sh verilator [SCRATCH [ROWS]]   Verilator 4.2 or later, and g++ (or $CXX), without make or Perl; all @ROWS@ rows
#
# Exit code 0: equal; 1: different, or it does not compile, and why is told; 2: this simulator cannot run. SCRATCH is
# a folder for what is compiled.
set -u
LC_ALL=C
export LC_ALL
unset CDPATH
sources="@SOURCES@"

stop() {
    echo "run.sh: $*" >&2
    exit 2
}

[ $# -ge 1 ] && [ $# -le 3 ] || stop "usage: run.sh icarus|verilator [SCRATCH [ROWS]]"
here=$(cd "$(dirname "$0")" && pwd) || exit 2
if [ $# -ge 2 ] && [ -n "$2" ]; then
    work=$(cd "$2" && pwd) || stop "no folder $2"
    work=$(mktemp -d "$work/rtl.XXXXXXXXXXXX") || exit 2
else
    work=$(mktemp -d "${TMPDIR:-/tmp}/rtl.XXXXXXXXXXXX") || exit 2
fi
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
cd "$here" || exit 2
nonce=$$.${work##*.} # the testbench's verdict begins with it, and the design does not know it

said() {
    cat "$work/log" >&2
    stop "$*"
}

# Where the simulator takes a module of nothing, what it does not take is the design's fault.
wrong() {
    cat "$1" >&2
    echo "verilog ($tool): FAIL: it does not compile; see above"
    exit 1
}

echo "module probe; endmodule" >"$work/probe.v" || exit 2

run_icarus() {
    iverilog -g2001 -o "$work/probe.vvp" "$work/probe.v" >"$work/log" 2>&1 || said "iverilog does not work; see above"
    vvp -n "$work/probe.vvp" >"$work/log" 2>&1 || said "vvp does not work; see above"
    iverilog -g2001 -s clock -o "$work/design.vvp" clock.v testbench.v $sources >"$work/log" 2>&1 || wrong "$work/log"
    vvp -n "$work/design.vvp" "+rows=$1" "+nonce=$nonce" >"$work/said" 2>&1
}

run_verilator() {
    verilator=verilator
    verilator --version >"$work/log" 2>&1 || verilator=verilator_bin # the one is a script in Perl
    $verilator --version >"$work/log" 2>&1 || said "no Verilator that runs; see above"
    root=$($verilator --getenv VERILATOR_ROOT 2>"$work/log") || said "$verilator does not tell its root"
    include=$root/include
    [ -f "$include/verilated.h" ] || stop "no $include/verilated.h: set VERILATOR_ROOT to where Verilator is"
    options="-Wno-fatal --x-assign unique --x-initial unique --output-split 100000 --output-split-cfuncs 500"
    $verilator --lint-only $options "$work/probe.v" >"$work/log" 2>&1 || said "$verilator does not work; see above"
    # The C++ compiler takes a program of nothing, and Verilator is not too old for ours.
    echo '#include "verilated.h"' >"$work/probe.cpp"
    echo 'int main(int, char **argv) { return argv[0] == (char *)(VerilatedContext *)0; }' >>"$work/probe.cpp"
    "${CXX:-g++}" -std=c++17 -w -I"$include" -I"$include/vltstd" "$work/probe.cpp" -pthread -o "$work/probe" \
        >"$work/log" 2>&1 || said "${CXX:-g++} does not work; see above"
    $verilator --cc $options --top-module testbench --prefix Vtestbench --Mdir "$work/obj" testbench.v $sources \
        >"$work/log" 2>&1 || wrong "$work/log"
    jobs=$(nproc 2>/dev/null) || jobs=1
    count=0
    for file in "$work"/obj/*.cpp verilator_main.cpp "$include/verilated.cpp" "$include/verilated_threads.cpp"; do
        [ -f "$file" ] || continue
        # What runs once, and the runtime, are compiled fast; the rest a little better.
        case $file in *Slow.cpp | "$include"/*) level=-O0 ;; *) level=-O1 ;; esac
        object=$work/obj/$(basename "$file" .cpp).o
        {
            "${CXX:-g++}" -std=c++17 $level -w -DVL_TIME_CONTEXT -DVM_TRACE=0 -DVM_COVERAGE=0 -DVM_SC=0 -I"$work/obj" \
                -I"$include" -I"$include/vltstd" -c "$file" -o "$object" >"$object.log" 2>&1 ||
                cat "$object.log" >>"$work/failed"
        } &
        count=$((count + 1))
        [ $((count % jobs)) -ne 0 ] || wait
    done
    wait
    [ ! -f "$work/failed" ] || wrong "$work/failed"
    "${CXX:-g++}" "$work"/obj/*.o -pthread -o "$work/design" >"$work/log" 2>&1 || wrong "$work/log"
    "$work/design" "+rows=$1" "+nonce=$nonce" >"$work/said" 2>&1
}

tool=$1
case $1 in
    icarus) run_icarus "${3:-@ICARUS_ROWS@}" ;;
    verilator) run_verilator "${3:-@ROWS@}" ;;
    *) stop "$1: expected icarus or verilator" ;;
esac
code=$?
found=
while IFS= read -r line; do
    verdict=${line#"$nonce: "}
    case $line in
        "$nonce: PASS: "* | "$nonce: FAIL: "*)
            echo "verilog ($1): ${verdict#PASS: }"
            found="$found${verdict%%:*}"
            ;;
        *) [ $code -eq 0 ] || echo "$line" >&2 ;;
    esac
done <"$work/said"
[ "$found" = PASS ] && [ $code -eq 0 ] && exit 0
case $found in "") echo "verilog ($1): FAIL: the simulation ended (exit code $code) without a result" ;; esac
exit 1
"""
