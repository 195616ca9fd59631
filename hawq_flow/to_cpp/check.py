"""``check.cpp``: the program that holds a network's C++ against vectors, and tells what it computes.

It reads what a handover bundle has in ``vectors/``: decimal text, a row a line. Whatever it is told to compare is
compared or it fails: a file that is missing, cut short, too long, or not integers is exit code 2, a difference is 1.
"""

from __future__ import annotations

import numpy as np

from hawq_flow.network import IntegerNetwork
from hawq_flow.to_cpp.source import identifiers, ports, title
from hawq_flow.to_cpp.words import comment, dims, stored

_TEXT = r"""@TITLE@
//
// Compares @NAME@.cpp with vectors:
//
//   check FOLDER                   FOLDER/inputs.txt, FOLDER/outputs.txt and FOLDER/layers/VALUE.txt for every op
//   check FOLDER --outputs-only    inputs.txt and outputs.txt alone
//   check --run FILE               rows of inputs, as in inputs.txt -> rows of outputs
//   check --trace FILE             rows of inputs -> every value of every row, a line each, its name before it
//   check --speed N                N rows of any integers: rows a second
//
// Exit code 0: every integer is equal; 1: one differs; 2: a file is missing or not what it should be.
//
// Files hold decimal integers, a row a line: the elements of one value after those of the other, each flattened in C
// order, channels first. layers/ may hold fewer rows than the inputs: the first ones.
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "@NAME@.h"

namespace {

const int EQUAL = 0, DIFFERENT = 1, UNREADABLE = 2;
const int MAX_RANK = @RANK@;

// A value of the network: what it is, and where it lies in Values; `function` computes it (empty for an input).
struct Value {
    const char *name, *what, *type, *function;
    std::size_t offset;
    int bytes, elements, rank, shape[MAX_RANK];
};

const int INPUTS = @INPUTS@, OUTPUTS = @OUTPUTS@, VALUES = @VALUES@;
const Value values[VALUES] = {
@TABLE@
};
const int outputs[OUTPUTS] = {@OUTPUT_PLACES@};  // their places among the values
const int64_t ROWS = @ROWS@, LAYER_ROWS = @LAYER_ROWS@;  // those the vectors must have; 0: any
const int INPUT_ELEMENTS = @INPUT_ELEMENTS@, OUTPUT_ELEMENTS = @OUTPUT_ELEMENTS@;

// Rows as run() takes and gives them.
struct Rows {
@MEMBERS@
    explicit Rows(std::size_t rows) : @MAKE@ {}
    void run(int64_t rows) { @NAME@::run(@CALL@, rows); }
    void set(std::size_t row, const int64_t *from) {
@SET@
    }
    void get(std::size_t row, int64_t *to) const {
@GET@
    }
};

[[noreturn]] void refuse(const char *format, ...) {
    std::fflush(stdout);
    std::fprintf(stderr, "check: ");
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "\n");
    std::exit(UNREADABLE);
}

long long wide(int64_t value) { return static_cast<long long>(value); }

// Where an element lies in Values.
std::size_t place(const Value &value, int element) {
    return value.offset + static_cast<std::size_t>(element) * static_cast<std::size_t>(value.bytes);
}

int64_t get(const @NAME@::Values &row, const Value &value, int element) {
    const char *const from = reinterpret_cast<const char *>(&row) + place(value, element);
    int8_t one;
    int16_t two;
    int32_t four;
    int64_t eight;
    switch (value.bytes) {
        case 1: std::memcpy(&one, from, 1); return one;
        case 2: std::memcpy(&two, from, 2); return two;
        case 4: std::memcpy(&four, from, 4); return four;
        default: std::memcpy(&eight, from, 8); return eight;
    }
}

void set(@NAME@::Values &row, const Value &value, int element, int64_t integer) {
    char *const to = reinterpret_cast<char *>(&row) + place(value, element);
    const int8_t one = static_cast<int8_t>(integer);
    const int16_t two = static_cast<int16_t>(integer);
    const int32_t four = static_cast<int32_t>(integer);
    switch (value.bytes) {
        case 1: std::memcpy(to, &one, 1); break;
        case 2: std::memcpy(to, &two, 2); break;
        case 4: std::memcpy(to, &four, 4); break;
        default: std::memcpy(to, &integer, 8);
    }
}

// Every value of a row.
void compute(@NAME@::Values &row, const int64_t *from) {
    for (int v = 0; v < INPUTS; v++)
        for (int e = 0; e < values[v].elements; e++) set(row, values[v], e, *from++);
    @NAME@::compute(row);
}

// A file of rows, read one after the other.
class File {
public:
    explicit File(const std::string &path)
        : path_(path), file_(std::fopen(path.c_str(), "rb")), line_(0), at_(0), end_(0) {
        if (!file_) refuse("%s: cannot be opened", path.c_str());
    }
    ~File() { std::fclose(file_); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    int64_t line() const { return line_; }

    // The next line's integers, exactly `count`; false when there is no other line.
    bool next(int64_t *row, int count) {
        int c = get();
        if (c == EOF) return false;
        line_++;
        for (int found = 0;; c = get()) {
            if (c == ' ' || c == '\t' || c == '\r') continue;
            if (c == EOF) refuse("%s, line %lld: ends without a line end; the file is cut short", name(), wide(line_));
            if (c == '\n') {
                if (found == count) return true;
                refuse("%s, line %lld: %d integers; expected %d", name(), wide(line_), found, count);
            }
            if (found == count) refuse("%s, line %lld: more integers than the expected %d", name(), wide(line_), count);
            row[found] = integer(c, found);
            found++;
        }
    }

    // Reads a line that must be there.
    void require(int64_t *row, int count, int64_t rows) {
        if (!next(row, count)) refuse("%s: %lld rows; expected %lld", name(), wide(line_), wide(rows));
    }

    // Makes sure that there is no other line.
    void finish() {
        if (get() != EOF) refuse("%s: more than the expected %lld rows", name(), wide(line_));
    }

private:
    const char *name() const { return path_.c_str(); }

    int get() {
        if (at_ == end_) {
            at_ = 0;
            end_ = std::fread(buffer_, 1, sizeof buffer_, file_);
            if (end_ == 0) {
                if (std::ferror(file_)) refuse("%s: cannot be read", name());
                return EOF;
            }
        }
        return static_cast<unsigned char>(buffer_[at_++]);
    }

    int64_t integer(int c, int found) {
        const bool negative = c == '-';
        if (negative) c = get();
        int64_t result = 0;
        bool digits = false, fits = true;
        for (; c >= '0' && c <= '9'; c = get()) {
            digits = true;
            const int64_t digit = c - '0';
            if (result > (INT64_MAX - digit) / 10) fits = false;
            if (fits) result = result * 10 + digit;
        }
        const bool ends = c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == EOF;
        if (!digits || !ends || !fits)
            refuse("%s, line %lld, column %d: %s", name(), wide(line_), found + 1,
                   fits ? "not an integer" : "an integer beyond 64 bits");
        if (c != EOF) at_--;
        return negative ? -result : result;
    }

    std::string path_;
    std::FILE *file_;
    int64_t line_;
    std::size_t at_, end_;
    char buffer_[1 << 16];
};

std::string element(const Value &value, int flat) {
    int index[MAX_RANK] = {};
    for (int axis = value.rank - 1; axis >= 0; axis--) {
        index[axis] = flat % value.shape[axis];
        flat /= value.shape[axis];
    }
    std::string text;
    for (int axis = 0; axis < value.rank; axis++) text += "[" + std::to_string(index[axis]) + "]";
    return text;
}

// Refuses a row of inputs that the network was not made for.
void check_range(const int64_t *row, const char *path, int64_t line) {
    for (int v = 0; v < INPUTS; row += values[v].elements, v++) {
        const int found = @NAME@::outside(v, row);
        if (found >= 0)
            refuse("%s, line %lld: %s, row %lld, element %s: %lld; its type %s does not hold it", path, wide(line),
                   values[v].name, wide(line - 1), element(values[v], found).c_str(), wide(row[found]), values[v].type);
    }
}

void check_rows(const std::string &path, int64_t rows, int64_t expected) {
    if (expected == 0 || rows == expected) return;
    refuse("%s: %lld rows; expected %lld", path.c_str(), wide(rows), wide(expected));
}

// The differences found in one value, and the first of them.
struct Differences {
    int64_t count, row, got, expected;
    int element;
};

void compare(Differences &found, int64_t row, int element, int64_t got, int64_t expected) {
    if (got == expected) return;
    if (found.count++ > 0) return;
    found.row = row;
    found.element = element;
    found.got = got;
    found.expected = expected;
}

void report(const Value &value, const Differences &found, const std::string &path, const char *hint) {
    std::fprintf(stderr, "check: %s (%s) differs first in row %lld, element %s: got %lld, expected %lld", value.name,
                 value.what, wide(found.row), element(value, found.element).c_str(), wide(found.got),
                 wide(found.expected));
    std::fprintf(stderr, " (%s, line %lld)%s\n", path.c_str(), wide(found.row + 1), hint);
    if (value.function[0]) std::fprintf(stderr, "check: @NAME@::%s computes it: break there\n", value.function);
}

// All rows of one layer's file.
std::vector<int64_t> read_layer(const std::string &path, int elements) {
    File file(path);
    std::vector<int64_t> rows, row(static_cast<std::size_t>(elements));
    while (file.next(row.data(), elements)) rows.insert(rows.end(), row.begin(), row.end());
    return rows;
}

int check(const std::string &folder, bool layers) {
    const int ops = layers ? VALUES - INPUTS : 0;
    std::vector<std::vector<int64_t>> expected(static_cast<std::size_t>(ops));
    int64_t layer_rows = 0;
    for (int i = 0; i < ops; i++) {
        const Value &value = values[INPUTS + i];
        const std::string path = folder + "/layers/" + value.name + ".txt";
        expected[static_cast<std::size_t>(i)] = read_layer(path, value.elements);
        const int64_t rows = static_cast<int64_t>(expected[static_cast<std::size_t>(i)].size()) / value.elements;
        if (rows == 0) refuse("%s: no rows; what compares nothing proves nothing", path.c_str());
        if (i > 0 && rows != layer_rows)
            refuse("%s: %lld rows; %s.txt has %lld", path.c_str(), wide(rows), values[INPUTS].name, wide(layer_rows));
        check_rows(path, rows, LAYER_ROWS);
        layer_rows = rows;
    }

    const std::string inputs_path = folder + "/inputs.txt", outputs_path = folder + "/outputs.txt";
    File inputs(inputs_path), wanted(outputs_path);
    std::vector<int64_t> x(INPUT_ELEMENTS), y(OUTPUT_ELEMENTS), got(OUTPUT_ELEMENTS);
    std::vector<Differences> in_layers(static_cast<std::size_t>(ops)), in_outputs(OUTPUTS);
    std::vector<@NAME@::Values> all(1);  // not on the stack: it may be large
    Rows rows(1);
    int64_t count = 0;
    for (; inputs.next(x.data(), INPUT_ELEMENTS); count++) {
        check_range(x.data(), inputs_path.c_str(), inputs.line());
        if (!wanted.next(y.data(), OUTPUT_ELEMENTS))
            refuse("%s: %lld rows; %s has more", outputs_path.c_str(), wide(count), inputs_path.c_str());
        if (count < layer_rows) {
            compute(all[0], x.data());
            for (int i = 0; i < ops; i++) {
                const Value &value = values[INPUTS + i];
                const std::vector<int64_t> &from = expected[static_cast<std::size_t>(i)];
                for (int e = 0; e < value.elements; e++)
                    compare(in_layers[static_cast<std::size_t>(i)], count, e, get(all[0], value, e),
                            from[static_cast<std::size_t>(count * value.elements + e)]);
            }
        }
        rows.set(0, x.data());
        rows.run(1);
        rows.get(0, got.data());
        std::size_t next = 0;
        for (int o = 0; o < OUTPUTS; o++)
            for (int e = 0; e < values[outputs[o]].elements; e++, next++)
                compare(in_outputs[static_cast<std::size_t>(o)], count, e, got[next], y[next]);
    }
    if (count == 0) refuse("%s: no rows; what compares nothing proves nothing", inputs_path.c_str());
    int64_t more = count;
    while (wanted.next(y.data(), OUTPUT_ELEMENTS)) more++;
    if (more != count)
        refuse("%s: %lld rows; %s has %lld", outputs_path.c_str(), wide(more), inputs_path.c_str(), wide(count));
    check_rows(inputs_path, count, ROWS);
    if (layer_rows > count)
        refuse("%s/layers: %lld rows; %s has %lld", folder.c_str(), wide(layer_rows), inputs_path.c_str(), wide(count));

    int64_t different = 0;
    for (int v = 0; v < VALUES; v++) {  // in the network's order: the first that is named is the first that differs
        if (v >= INPUTS && v - INPUTS < ops) {
            const Differences &found = in_layers[static_cast<std::size_t>(v - INPUTS)];
            if (found.count > 0 && different == 0)
                report(values[v], found, folder + "/layers/" + values[v].name + ".txt", "");
            different += found.count;
        }
        for (int o = 0; o < OUTPUTS; o++) {
            if (outputs[o] != v) continue;
            const Differences &found = in_outputs[static_cast<std::size_t>(o)];
            if (found.count > 0 && different == 0)
                report(values[v], found, outputs_path,
                       found.row < layer_rows ? "" : "; this row has no layers' integers, so look at its layers too");
            different += found.count;
        }
    }
    int64_t compared = count * OUTPUT_ELEMENTS;
    for (int i = 0; i < ops; i++) compared += layer_rows * values[INPUTS + i].elements;
    if (different > 0) {
        std::fprintf(stderr, "check: %lld of %lld integers differ\n", wide(different), wide(compared));
        return DIFFERENT;
    }
    std::printf("reference: %lld rows of outputs and %lld rows of %d layers equal, %lld integers\n", wide(count),
                wide(layer_rows), ops, wide(compared));
    return EQUAL;
}

int run(const char *path, bool trace) {
    File inputs(path);
    std::vector<int64_t> x(INPUT_ELEMENTS), y(OUTPUT_ELEMENTS);
    std::vector<@NAME@::Values> all(1);
    Rows rows(1);
    while (inputs.next(x.data(), INPUT_ELEMENTS)) {
        check_range(x.data(), path, inputs.line());
        if (trace) {
            compute(all[0], x.data());
            for (int v = 0; v < VALUES; v++) {
                std::printf("%s", values[v].name);
                for (int e = 0; e < values[v].elements; e++) std::printf(" %lld", wide(get(all[0], values[v], e)));
                std::printf("\n");
            }
            continue;
        }
        rows.set(0, x.data());
        rows.run(1);
        rows.get(0, y.data());
        for (int i = 0; i < OUTPUT_ELEMENTS; i++)
            std::printf(i ? " %lld" : "%lld", wide(y[static_cast<std::size_t>(i)]));
        std::printf("\n");
    }
    if (inputs.line() == 0) refuse("%s: no rows", path);
    if (std::fflush(stdout) != 0) refuse("standard output: cannot be written");
    return EQUAL;
}

int speed(int64_t count) {
    const int64_t block = count < 4096 ? count : INPUT_ELEMENTS < 4096 ? 4096 : 16;
    Rows rows(static_cast<std::size_t>(block));
    std::vector<int64_t> x(INPUT_ELEMENTS);
    uint64_t random = 1;  // a linear congruential generator
    for (int64_t r = 0; r < block; r++) {
        std::size_t next = 0;
        for (int v = 0; v < INPUTS; v++)
            for (int e = 0; e < values[v].elements; e++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                const uint64_t span = static_cast<uint64_t>(@NAME@::inputs[v].high - @NAME@::inputs[v].low) + 1;
                x[next++] = @NAME@::inputs[v].low + static_cast<int64_t>((random >> 2) % span);
            }
        rows.set(static_cast<std::size_t>(r), x.data());
    }
    const std::clock_t start = std::clock();
    int64_t done = 0;
    for (; done < count; done += block) rows.run(block);
    const int64_t ticks = static_cast<int64_t>(std::clock() - start) + 1;
    std::printf("%lld rows in %lld ms of one core: %lld rows a second\n", wide(done),
                wide(ticks * 1000 / CLOCKS_PER_SEC), wide(done * CLOCKS_PER_SEC / ticks));
    return EQUAL;
}

}  // namespace

int main(int argc, char **argv) {
    const std::string first = argc > 1 ? argv[1] : "", second = argc > 2 ? argv[2] : "";
    if (argc == 2 && first.compare(0, 2, "--") != 0 && !first.empty()) return check(first, true);
    if (argc == 3 && second == "--outputs-only") return check(first, false);
    if (argc == 3 && first == "--run") return run(argv[2], false);
    if (argc == 3 && first == "--trace") return run(argv[2], true);
    if (argc == 3 && first == "--speed" && std::atoll(argv[2]) > 0) return speed(std::atoll(argv[2]));
    refuse("usage: check FOLDER [--outputs-only], check --run FILE, check --trace FILE, check --speed N");
}
"""


def checker(
    network: IntegerNetwork, name: str = "network", *, rows: int | None = None, layer_rows: int | None = None
) -> str:
    """``check.cpp`` for ``NAME.h`` and ``NAME.cpp`` of :func:`generate`: the comment at its head says what it does.

    Parameters
    ----------
    rows, layer_rows:
        How many rows the vectors it compares must have (``inputs.txt`` and ``outputs.txt``; every file of ``layers/``);
        any number if None.

    Raises
    ------
    CppError
        If ``name`` cannot be a namespace.
    ValueError
        If a number of rows is not positive.
    """
    if any(count is not None and count < 1 for count in (rows, layer_rows)):
        raise ValueError(f"rows {rows}, layer_rows {layer_rows}: expected positive numbers, or None for any")
    names = identifiers(network, name)
    values = network.values
    inputs, outputs = ports(network)
    what = {op.name: op.kind + (f", layer {comment(op.layer)}" if op.layer else "") for op in network.ops}
    order = list(values)
    table, rank = [], max(len(dims(value.shape)) for value in values.values())
    for value in order:
        shape = dims(values[value].shape)
        type = stored(values[value].type)
        function = f"{names[value]}::compute" if value in what else ""
        table.append(
            f'    {{"{value}", "{what.get(value, "input")}", "{values[value].type}", '
            f'"{function}", offsetof({name}::Values, {names[value]}), {int(type[3:-2]) // 8}, {int(np.prod(shape))}, '
            f"{len(shape)}, {{{', '.join(map(str, shape))}}}}},"
        )
    ports_ = [
        (f"{direction}_{names[value]}", stored(values[value].type), int(np.prod(values[value].shape)))
        for direction, found in (("in", inputs), ("out", outputs))
        for value in found
    ]
    given, made = ports_[: len(inputs)], ports_[len(inputs) :]
    fields = {
        "TITLE": title(network),
        "RANK": rank,
        "ROWS": rows or 0,
        "LAYER_ROWS": layer_rows or 0,
        "INPUTS": len(inputs),
        "OUTPUTS": len(outputs),
        "VALUES": len(order),
        "TABLE": "\n".join(table),
        "OUTPUT_PLACES": ", ".join(str(order.index(value)) for value in outputs),
        "INPUT_ELEMENTS": sum(n for _, _, n in given),
        "OUTPUT_ELEMENTS": sum(n for _, _, n in made),
        "MEMBERS": "\n".join(f"    std::vector<{type}> {port};" for port, type, _ in ports_),
        "MAKE": ", ".join(f"{port}(rows * {n})" for port, _, n in ports_),
        "CALL": ", ".join(f"{port}.data()" for port, _, _ in ports_),
        "SET": "\n".join(
            f"        for (std::size_t e = 0; e < {n}; e++) {port}[row * {n} + e] = static_cast<{type}>(*from++);"
            for port, type, n in given
        ),
        "GET": "\n".join(
            f"        for (std::size_t e = 0; e < {n}; e++) *to++ = {port}[row * {n} + e];" for port, _, n in made
        ),
        "NAME": name,
    }
    text = _TEXT
    for field, replacement in fields.items():
        text = text.replace(f"@{field}@", str(replacement))
    return text
