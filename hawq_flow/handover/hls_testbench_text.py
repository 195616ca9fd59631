"""The texts of the C++ testbench: what is the same for every project, with places for what is not.

C++11, for that is what the vendors' scripts compile testbenches with.
"""

CPP = r"""// Testbench of @TOP@ (network @DIGEST@). Written by hawq_flow.
//
//   testbench [FOLDER [ROWS]]   FOLDER holds inputs.txt, outputs.txt, constants.txt; default: tb_data, where the
//                               program runs or where it lies. ROWS: only the first so many rows
//
// Checks every type of the project and those of the top function's ports, every constant that is compiled in, and every
// row of results. Exit code 0: all equal; 1: something differs, and is named; 2: a file is missing, cut short or wrong.
//
// With g++:
//   g++ @FLAGS@ -o testbench
// With the vendor's tool, as testbench of the C simulation and of the simulation of the RTL: see README.md beside this.
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "project/firmware/@TOP@.h"
@LAYER_INCLUDES@
@INCLUDES@
// hls4ml's headers declare these and leave them to the testbench.
namespace nnet {
bool trace_enabled = false;
std::map<std::string, void *> *trace_outputs = NULL;
size_t trace_type_size = sizeof(double);
} // namespace nnet

// Everything else is out of the way of the top function's name.
namespace hawq_flow_testbench {

// The project's constants: the very headers, with plain numbers for their elements. That the elements' types hold these
// numbers is what the check of the types is for.
namespace compiled_in {
@CONSTANT_TYPES@
@CONSTANT_INCLUDES@
} // namespace compiled_in

// The layers' structs, for the types they take: a copy of ours, since the project links its own. What they include is
// included above.
namespace layers {
#include "project/firmware/parameters.h"
} // namespace layers

// --- types -----------------------------------------------------------------------------------------------------------

static std::string written(long long value) { return std::to_string(value); }

@TYPE_TEXTS@
template <class T, unsigned N> struct Type<nnet::array<T, N> > {
    static std::string text() { return "nnet::array<" + Type<T>::text() + "," + written(N) + ">"; }
};

// The types of the top function's parameters, in order: arrays arrive as pointers.
template <class F> struct Parameters;
template <class R, class... A> struct Parameters<R(A...)> {
    typedef std::tuple<A...> types;
};
template <class T> struct Port {
    typedef T type;
};
template <class T> struct Port<T *> {
    typedef T type;
};
template <class T> struct Port<@STREAM@<T> &> {
    typedef T type;
};
typedef Parameters<decltype(::@TOP@)>::types Ports;
@PORT_TYPES@

struct Named {
    const char *name;
    std::string found;
    const char *expected;
};

static const unsigned PORTS = @PORTS@;

static std::vector<Named> types() {
    const Named all[] = {
@TYPES@
    };
    return std::vector<Named>(all, all + sizeof all / sizeof all[0]);
}

// --- constants -------------------------------------------------------------------------------------------------------

struct Constants {
    const char *name;
    const double *values;
    std::size_t size, expected;
};

#define CONSTANTS(name, expected)                                                                                      \
    { #name, compiled_in::name, sizeof compiled_in::name / sizeof compiled_in::name[0], expected }
static const Constants CONSTANT_ARRAYS[] = {
@CONSTANTS@
    {NULL, NULL, 0, 0}};

// --- ports -----------------------------------------------------------------------------------------------------------

struct Output {
    const char *port, *value;
    std::size_t size;
    std::vector<long> shape, order; // of the network; element k of the port is its element order[k], empty: k
};

static const long ROWS = @ROWS@;
static const unsigned INPUTS_CHECK = @INPUTS_CHECK@u, OUTPUTS_CHECK = @OUTPUTS_CHECK@u; // see unchanged
static const std::size_t INPUTS = @INPUTS@, OUTPUTS = @OUTPUTS@;
static const long long LOW = @LOW@, HIGH = @HIGH@;

static std::vector<Output> outputs() {
    std::vector<Output> all;
@OUTPUT_PORTS@
    return all;
}

static bool failed(const std::string &text) {
    std::fflush(stdout);
    std::fprintf(stderr, "testbench: %s\n", text.c_str());
    return false;
}

} // namespace hawq_flow_testbench

// One row through the hardware's function. No name here can be that function's: those begin with a letter.
static bool hawq_flow_run(long _row, const std::vector<long long> &_in, std::vector<long long> &_out) {
    using namespace hawq_flow_testbench;
@RUN@
    return true;
}

namespace hawq_flow_testbench {

// --- files -----------------------------------------------------------------------------------------------------------

static void unusable(const std::string &text) {
    failed(text);
    std::exit(2);
}

static bool there(const std::string &path) { return std::ifstream(path.c_str()).good(); }

// A file's lines. The last one must be ended too: else the file was cut.
static std::vector<std::string> lines(const std::string &path) {
    std::ifstream file(path.c_str(), std::ios::binary);
    if (!file)
        unusable(path + ": cannot be read");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::vector<std::string> result;
    std::size_t start = 0;
    for (std::size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
        result.push_back(text.substr(start, end - start - (end > start && text[end - 1] == '\r')));
    if (start != text.size())
        unusable(path + ": line " + written(result.size() + 1) + " has no end: the file is cut short");
    return result;
}

// Rows of so many integers from low to high, one a line.
static std::vector<std::vector<long long> > integers(const std::string &path, std::size_t size, long long low,
                                                     long long high) {
    const std::vector<std::string> text = lines(path);
    if (text.size() != (std::size_t)ROWS)
        unusable(path + ": " + written(text.size()) + " rows, expected " + written(ROWS));
    std::vector<std::vector<long long> > rows(text.size());
    for (std::size_t row = 0; row < text.size(); row++) {
        const std::string at = path + ": row " + written(row) + ", element ";
        const char *next = text[row].c_str();
        for (std::size_t i = 0;; i++) {
            while (*next == ' ')
                next++;
            if (!*next)
                break;
            char *end;
            errno = 0;
            const long long value = std::strtoll(next, &end, 10);
            if (end == next || (*end && *end != ' ') || errno)
                unusable(at + written(i) + ": '" + std::string(next).substr(0, 20) + "' is no integer");
            if (value < low || value > high)
                unusable(at + written(i) + ": " + written(value) + "; it holds " + written(low) + " to " +
                         written(high));
            rows[row].push_back(value);
            next = end;
        }
        if (rows[row].size() != size)
            unusable(path + ": row " + written(row) + " has " + written(rows[row].size()) + " integers, expected " +
                     written(size));
    }
    return rows;
}

static std::string folder(int argc, char **argv) {
    if (argc > 1)
        return argv[1];
    const std::string program = argc ? argv[0] : "";
    const std::size_t slash = program.rfind('/');
    const std::string beside = slash == std::string::npos ? "" : program.substr(0, slash + 1);
    const std::string places[] = {"tb_data", ".", beside + "tb_data", beside + "."};
    for (unsigned i = 0; i < 4; i++)
        if (there(places[i] + "/constants.txt"))
            return places[i];
    unusable("no constants.txt in tb_data or here, nor beside the program; name the folder as first argument");
    return "";
}

// --- checks ----------------------------------------------------------------------------------------------------------

static const unsigned SHOWN = 10;

static bool check_types() {
    const std::vector<Named> all = types();
    unsigned wrong = 0;
    for (std::size_t i = 0; i < all.size(); i++)
        if (all[i].found != all[i].expected && ++wrong <= SHOWN)
            failed(std::string(i < PORTS ? "port " : "type ") + all[i].name + ": " + all[i].found + "; expected " +
                   all[i].expected);
    if (wrong > SHOWN)
        failed(written(wrong) + " types differ");
    return !wrong;
}

static std::string decimal(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
}

// constants.txt has a line for every element, arrays in order: "array element value what it is in the network".
static bool check_constants(const std::string &path, unsigned long &count) {
    const std::vector<std::string> text = lines(path);
    std::size_t at = 0, wrong = 0;
    for (const Constants *array = CONSTANT_ARRAYS; array->name; array++) {
        if (array->size != array->expected)
            return failed(std::string(array->name) + ": " + written(array->size) + " elements in the project, " +
                          written(array->expected) + " in the network");
        for (std::size_t i = 0; i < array->size; i++, at++) {
            const std::string head = std::string(array->name) + " " + written(i) + " ";
            if (at >= text.size() || text[at].compare(0, head.size(), head))
                unusable(path + ": line " + written(at + 1) + " is " +
                         (at < text.size() ? "'" + text[at].substr(0, 40) + "'" : "missing") + ", expected '" + head +
                         "...'");
            const char *start = text[at].c_str() + head.size();
            char *end;
            const double expected = std::strtod(start, &end);
            if (end == start || *end != ' ')
                unusable(path + ": line " + written(at + 1) + ": '" + text[at].substr(0, 40) + "' has no value");
            if (array->values[i] != expected && ++wrong <= SHOWN)
                failed(std::string("firmware/weights: ") + array->name + "[" + written(i) + "], " + (end + 1) + ": " +
                       decimal(array->values[i]) + ", expected " + decimal(expected));
        }
    }
    if (at != text.size())
        unusable(path + ": line " + written(at + 1) + ": more than the " + written(at) + " constants of the project");
    if (wrong > SHOWN)
        failed(written(wrong) + " constants differ");
    count = at;
    return !wrong;
}

static std::string place(const Output &output, std::size_t element) {
    long index = output.order.empty() ? (long)element : output.order[element];
    std::string text;
    for (std::size_t axis = output.shape.size(); axis-- > 0; index /= output.shape[axis])
        text = written(index % output.shape[axis]) + (text.empty() ? "" : ", ") + text;
    return "(" + text + ")";
}

// A changed integer that no result shows is found all the same.
static bool unchanged(const std::string &path, unsigned expected) {
    const std::vector<std::string> text = lines(path);
    unsigned check = 0;
    for (std::size_t line = 0; line < text.size(); line++) {
        for (std::size_t i = 0; i < text[line].size(); i++)
            check = check * 31u + (unsigned char)text[line][i];
        check = check * 31u + '\n';
    }
    check &= 0xffffffffu;
    return check == expected || failed(path + " was changed; no result of the rows that ran shows where");
}

static bool check_rows(const std::string &folder, long rows) {
    const std::vector<std::vector<long long> > in = integers(folder + "/inputs.txt", INPUTS, LOW, HIGH);
    const long long far = 1LL << 53;
    const std::vector<std::vector<long long> > expected = integers(folder + "/outputs.txt", OUTPUTS, -far, far);
    const std::vector<Output> ports = outputs();
    std::vector<long long> out(OUTPUTS);
    for (long row = 0; row < rows; row++) {
        if (!hawq_flow_run(row, in[row], out))
            return false;
        std::size_t start = 0;
        for (std::size_t k = 0; k < ports.size(); start += ports[k++].size)
            for (std::size_t i = 0; i < ports[k].size; i++)
                if (out[start + i] != expected[row][start + i])
                    return failed("row " + written(row) + ", output " + ports[k].value + " (port " + ports[k].port +
                                  "), element " + written(i) + ", in the network " + place(ports[k], i) + ": got " +
                                  written(out[start + i]) + ", expected " + written(expected[row][start + i]));
    }
    return unchanged(folder + "/inputs.txt", INPUTS_CHECK) && unchanged(folder + "/outputs.txt", OUTPUTS_CHECK);
}

static int testbench(int argc, char **argv) {
    if (argc > 3)
        unusable("usage: testbench [FOLDER [ROWS]]");
    const std::string data = folder(argc, argv);
    long rows = ROWS;
    if (argc > 2) {
        char *end;
        rows = std::strtol(argv[2], &end, 10);
        if (*end || end == argv[2] || rows < 1 || rows > ROWS)
            unusable(std::string("rows '") + argv[2] + "': expected 1 to " + written(ROWS));
    }
    unsigned long constants = 0;
    if (!check_types() || !check_constants(data + "/constants.txt", constants) || !check_rows(data, rows))
        return 1;
    std::printf("%ld%s rows, %lu constants, %u ports: equal\n", rows,
                rows < ROWS ? (" of " + written(ROWS)).c_str() : "", constants, PORTS);
    return 0;
}

} // namespace hawq_flow_testbench

@MAIN@
"""

XILINX_TYPES = r"""template <class T> struct Type {
    static std::string text() { return "no ap_fixed, ap_int or nnet::array of them"; }
};

static std::string fixed(const char *name, int width, int integer, ap_q_mode q, ap_o_mode o, int n) {
    std::string text = std::string(name) + "<" + written(width) + "," + written(integer);
    if (q != AP_TRN || o != AP_WRAP || n != 0)
        text += std::string(",") +
                (q == AP_RND            ? "AP_RND"
                 : q == AP_RND_ZERO     ? "AP_RND_ZERO"
                 : q == AP_RND_MIN_INF  ? "AP_RND_MIN_INF"
                 : q == AP_RND_INF      ? "AP_RND_INF"
                 : q == AP_RND_CONV     ? "AP_RND_CONV"
                 : q == AP_TRN          ? "AP_TRN"
                                        : "AP_TRN_ZERO") +
                (o == AP_SAT        ? ",AP_SAT"
                 : o == AP_SAT_ZERO ? ",AP_SAT_ZERO"
                 : o == AP_SAT_SYM  ? ",AP_SAT_SYM"
                 : o == AP_WRAP     ? ",AP_WRAP"
                                    : ",AP_WRAP_SM") +
                "," + written(n);
    return text + ">";
}
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N> struct Type<ap_fixed<W, I, Q, O, N> > {
    static std::string text() { return fixed("ap_fixed", W, I, Q, O, N); }
};
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N> struct Type<ap_ufixed<W, I, Q, O, N> > {
    static std::string text() { return fixed("ap_ufixed", W, I, Q, O, N); }
};
template <int W> struct Type<ap_int<W> > {
    static std::string text() { return "ap_int<" + written(W) + ">"; }
};
template <int W> struct Type<ap_uint<W> > {
    static std::string text() { return "ap_uint<" + written(W) + ">"; }
};"""

CATAPULT_TYPES = r"""template <class T> struct Type {
    static std::string text() { return "no ac_fixed, ac_int or nnet::array of them"; }
};

template <int W, int I, bool S, ac_q_mode Q, ac_o_mode O> struct Type<ac_fixed<W, I, S, Q, O> > {
    static std::string text() {
        std::string text = "ac_fixed<" + written(W) + "," + written(I) + (S ? ",true" : ",false");
        if (Q != AC_TRN || O != AC_WRAP)
            text += std::string(",") +
                    (Q == AC_TRN           ? "AC_TRN"
                     : Q == AC_RND         ? "AC_RND"
                     : Q == AC_TRN_ZERO    ? "AC_TRN_ZERO"
                     : Q == AC_RND_ZERO    ? "AC_RND_ZERO"
                     : Q == AC_RND_INF     ? "AC_RND_INF"
                     : Q == AC_RND_MIN_INF ? "AC_RND_MIN_INF"
                     : Q == AC_RND_CONV    ? "AC_RND_CONV"
                                           : "AC_RND_CONV_ODD") +
                    (O == AC_WRAP       ? ",AC_WRAP"
                     : O == AC_SAT      ? ",AC_SAT"
                     : O == AC_SAT_ZERO ? ",AC_SAT_ZERO"
                                        : ",AC_SAT_SYM");
        return text + ">";
    }
};
template <int W, bool S> struct Type<ac_int<W, S> > {
    static std::string text() { return "ac_int<" + written(W) + (S ? ",true>" : ",false>"); }
};"""

XILINX_MAIN = """int main(int argc, char **argv) { return hawq_flow_testbench::testbench(argc, argv); }"""

CATAPULT_MAIN = """CCS_MAIN(int argc, char *argv[]) { CCS_RETURN(hawq_flow_testbench::testbench(argc, argv)); }"""

TCL = """# C simulation, synthesis, and the simulation of the RTL, all with testbench.cpp. Written by hawq_flow.
#
#   @TOOL@
#
# Part, clock and uncertainty are those of project/project.tcl. The simulation of the RTL takes the first `rows` rows:
# all of them take long.
set rows @COSIM_ROWS@
source project/project.tcl
if {[catch {
    open_project -reset ${project_name}_testbench
    set_top $project_name
    add_files project/firmware/${project_name}.cpp -cflags "-std=c++0x"
    add_files -tb testbench.cpp -cflags "-std=c++0x"
    add_files -tb tb_data
    open_solution -reset@FLOW@ "solution1"
    catch {config_array_partition -maximum_size $maximum_size}
    config_compile -name_max_length 80
    set_part $part
    catch {config_schedule -enable_dsp_full_reg=false}
    create_clock -period $clock_period -name default
    set_clock_uncertainty $clock_uncertainty default
    csim_design -argv "tb_data"
    csynth_design
    cosim_design -rtl verilog -trace_level none -argv "tb_data $rows"
} message]} {
    puts "ERROR: testbench.tcl: $message"
    exit 1
}
puts "testbench.tcl: C simulation and RTL simulation equal"
exit 0
"""

README = """# The @BACKEND@ project of @TOP@, and its testbench

`project/` is the hls4ml project (see its `README.md`). `testbench.cpp` proves it, and fails where hls4ml's own
testbench accepts anything:

* every type that the project names, those that its layers' structs take (`parameters.h`), and the types of the top
  function's ports (width, integer bits, sign, rounding, overflow) against those it was made with; not those of the
  variables inside the top function, of which only the results tell;
* every constant that is compiled in (`project/firmware/weights`) against the network's, `tb_data/constants.txt`: a line
  an element, with what it is in the network;
* every row of `tb_data/inputs.txt` through the top function, against `tb_data/outputs.txt`, in the ports' order.

It ends with exit code 0 and `@ROWS@ rows, @COUNT@ constants, @PORTS@ ports: equal`; with 1 and what differs; or with 2
where a file is missing, cut short, or holds what a port does not.

## With g++ alone

    g++ @FLAGS@ -o testbench
    ./testbench tb_data

## With the vendor's tool

@VENDOR@"""

VENDOR = """    @TOOL@

runs C simulation, synthesis and the simulation of the RTL with this testbench (the last on the first @COSIM_ROWS@ rows:
`rows` in the script) and ends with exit code 1 when one of them fails. In a project of your own:

    add_files -tb testbench.cpp -cflags "-std=c++0x"
    add_files -tb tb_data
    csim_design -argv "tb_data"
    cosim_design -argv "tb_data @COSIM_ROWS@"
"""

CATAPULT_VENDOR = """In `project/build_prj.tcl` put our testbench in the place of hls4ml's:

    solution file add $sfd/../testbench.cpp -exclude true
    flow package option set /SCVerify/INVOKE_ARGS "$sfd/../tb_data @COSIM_ROWS@"

then run `catapult -product ultra -shell -f build_prj.tcl csim=1 cosim=1` in `project`. The second argument is how many
rows are run; without it all @ROWS@.
"""
