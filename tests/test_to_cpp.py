"""The C++ of plain integers against the interpreter: every op, every option, and what the checking program catches."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_strategies import extreme_inputs, graphs, networks
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hawq_flow import images, interpret, to_cpp
from hawq_flow.network import (
    OPS,
    Add,
    Concat,
    Conv,
    Dense,
    InputSpec,
    IntegerNetwork,
    Lookup,
    MaxPool,
    NetworkError,
    Op,
    OutputSpec,
    Requantize,
    Reshape,
    SumPool,
)
from hawq_flow.numeric import IntArray, IntType, Overflow, Rounding, requantize
from hawq_flow.to_cpp import CppError, CppProgram
from hawq_flow.to_cpp.words import dims, stored
from hawq_flow.tools import ToolError

STRICT = ("-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
SANITIZED = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=undefined")

_MAIN = """#include <cstdio>
#include <cstdlib>
#include <vector>
INCLUDES
template <class Values> static int all(void (*compute)(Values &)) {
    std::vector<Values> row(1);
    while (std::fread(row.data(), sizeof(Values), 1, stdin) == 1) {
        compute(row[0]);
        std::fwrite(row.data(), sizeof(Values), 1, stdout);
    }
    return 0;
}
int main(int, char **argv) {
    switch (std::atoi(argv[1])) {
CASES
    }
    return 1;
}
"""


def record(network: IntegerNetwork) -> np.dtype[Any]:
    """``struct Values`` as numpy lays it out."""
    fields = [(name, f"i{int(stored(v.type)[3:-2]) // 8}", dims(v.shape)) for name, v in network.values.items()]
    return np.dtype(fields, align=True)


class Together:
    """Several networks in one program, under the sanitizer, every warning an error."""

    def __init__(self, found: Sequence[IntegerNetwork], folder: Path, flags: Sequence[str] = SANITIZED) -> None:
        self.networks, self.program = found, folder / "all"
        folder.mkdir(parents=True, exist_ok=True)
        for i, network in enumerate(found):
            to_cpp.write(network, folder, f"n{i}")
        includes = "\n".join(f'#include "n{i}.cpp"' for i in range(len(found)))
        cases = "\n".join(f"        case {i}: return all(n{i}::compute);" for i in range(len(found)))
        (folder / "all.cpp").write_text(_MAIN.replace("INCLUDES", includes).replace("CASES", cases))
        done = subprocess.run(
            ["g++", *STRICT, *flags, "all.cpp", "-o", "all"], cwd=folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]

    def trace(self, i: int, x: Mapping[str, IntArray]) -> dict[str, IntArray]:
        network = self.networks[i]
        rows = np.zeros(len(next(iter(x.values()))), record(network))
        for name, array in x.items():
            rows[name] = array.reshape(rows[name].shape)
        done = subprocess.run([self.program, str(i)], input=rows.tobytes(), capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        assert len(done.stdout) == rows.nbytes
        made = np.frombuffer(done.stdout, rows.dtype)
        return {name: made[name].reshape(-1, *v.shape).astype(np.int64) for name, v in network.values.items()}

    def require_equal(self, i: int, x: Mapping[str, IntArray]) -> None:
        got, expected = self.trace(i, x), interpret.trace(self.networks[i], x)
        for name in expected:
            assert np.array_equal(got[name], expected[name]), name


def drawn(strategy: st.SearchStrategy[IntegerNetwork], count: int) -> list[IntegerNetwork]:
    """Networks to compile together, which is what takes the time; a failure names the value, so nothing is shrunk."""
    found: list[IntegerNetwork] = []

    @settings(max_examples=count, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(network=strategy)
    def collect(network: IntegerNetwork) -> None:
        found.append(network)

    collect()
    return found


def test_random_graphs_are_equal_value_by_value(tmp_path: Path) -> None:
    found = drawn(graphs(), 48)
    assert {op.kind for network in found for op in network.ops} == set(OPS)
    together = Together(found, tmp_path)
    for i, network in enumerate(found):
        together.require_equal(i, {"x": extreme_inputs(network, i)})


@pytest.mark.slow
def test_many_random_graphs_and_chains_are_equal_value_by_value(tmp_path: Path) -> None:
    found = [*drawn(graphs(12), 150), *drawn(networks(), 100)]
    for start in range(0, len(found), 25):
        together = Together(found[start : start + 25], tmp_path / str(start))
        for i, network in enumerate(together.networks):
            together.require_equal(i, {"x": extreme_inputs(network, i)})


# -------------------------------------------------------------------------------------------------- one op at a time

WIDE = 1 << 31
"""A factor on multiplier and power of two that takes products beyond 32 bits and changes nothing else."""


@pytest.mark.parametrize("factor", [1, WIDE], ids=["int32", "int64"])
def test_every_requantization_of_small_widths_is_numerics(factor: int, tmp_path: Path) -> None:
    """Every x of 7 bits, multiplier of -3 to 5, shift of 0 to 5, three offsets; all roundings, types and overflows."""
    grid = np.array(list(itertools.product(range(-3, 6), range(6), (-2, 0, 3))))
    multiplier, shift, offset = grid[:, 0] * factor, grid[:, 1] + factor.bit_length() - 1, grid[:, 2]
    kinds = [
        (rounding, overflow, type)
        for rounding in Rounding
        for overflow in Overflow
        for type in (IntType(3, True), IntType(3, False), IntType(3, True, True), IntType(8, True))
        if overflow is Overflow.SATURATE or not type.narrow
    ]
    ops = tuple(
        Requantize(f"q{i}", "x", multiplier, shift, offset, type, rounding, overflow)
        for i, (rounding, overflow, type) in enumerate(kinds)
    )
    network = IntegerNetwork((InputSpec("x", (len(grid),), IntType(7, True)),), ops, (OutputSpec("q0"),))
    word = "int32_t" if factor == 1 else "int64_t"
    assert f"const {word} product" in to_cpp.generate(network).source
    x = np.broadcast_to(np.arange(-64, 64)[:, None], (128, len(grid)))
    got = Together([network], tmp_path).trace(0, {"x": x})
    for i, (rounding, overflow, type) in enumerate(kinds):
        expected = requantize(x, multiplier, shift, offset, rounding, type, overflow)
        assert np.array_equal(got[f"q{i}"], expected), kinds[i]
    assert len(kinds) == 21


def spec(name: str, shape: tuple[int, ...], type: IntType) -> InputSpec:
    return InputSpec(name, shape, type)


def edges() -> list[IntegerNetwork]:
    """Sums, products and shifts that just fit a word, or just do not, and what has no channel."""
    full = IntType(16, True)
    found = []
    # |sum| up to 2^31 - 1, then 2^31: -32768 * -32768 + -32768 * -32767 + 32767, and one more
    for bias in (32767, 32768):
        dense = Dense("d", "x", np.array([[-32768, -32767]]), np.array([bias]))
        found.append(IntegerNetwork((spec("x", (2,), full),), (dense,), (OutputSpec("d"),)))
    # the widest sums there are, of 62 bits, and partial sums of 63
    dense = Dense("d", "x", np.array([[1 << 29, (1 << 29) - 1]]), np.array([3]))
    found.append(IntegerNetwork((spec("x", (2,), IntType(32, True)),), (dense,), (OutputSpec("d"),)))
    dense = Dense("d", "x", np.array([[1 << 30, (1 << 30) - 1]]), np.array([3]), IntType(9, True), Overflow.WRAP)
    found.append(IntegerNetwork((spec("x", (2,), IntType(32, True)),), (dense,), (OutputSpec("d"),)))
    # the largest shift, beside the largest product
    for rounding in Rounding:
        q = Requantize("q", "x", np.asarray((1 << 29) - 1), np.asarray(61), np.asarray(1), IntType(2, True), rounding)
        found.append(IntegerNetwork((spec("x", (3,), IntType(32, True)),), (q,), (OutputSpec("q"),)))
    # a type whose limits are wider than any value, and one of 62 bits
    for bits, overflow in itertools.product((40, 62), Overflow):
        q = Requantize(
            "q", "x", np.asarray(3), np.asarray(1), np.asarray(0), IntType(bits, True), Rounding.FLOOR, overflow
        )
        found.append(IntegerNetwork((spec("x", (2,), IntType(8, True)),), (q,), (OutputSpec("q"),)))
    # without axes; an input that is given on; two inputs; an output given twice
    scalar = (Add("a", ("x", "y")), Requantize("q", "a", *map(np.asarray, (1, 1, 0)), IntType(4, True)))
    inputs = (spec("x", (), IntType(5, True)), spec("y", (), IntType(40, False)))
    found.append(IntegerNetwork(inputs, scalar, (OutputSpec("x"), OutputSpec("q"), OutputSpec("q"))))
    # a weight wider than 32 bits
    dense = Dense("d", "x", np.array([[1 << 40]]), np.array([1]))
    found.append(IntegerNetwork((spec("x", (1,), IntType(1, False)),), (dense,), (OutputSpec("d"),)))
    # no op at all
    found.append(IntegerNetwork((spec("x", (2, 2), IntType((3, 9), False)),), (), (OutputSpec("x"),)))
    return found


def ends(network: IntegerNetwork) -> dict[str, IntArray]:
    """Every mixture of lowest, highest and 0 (or the lowest) over the first six elements, the same for the others."""
    rows: dict[str, list[IntArray]] = {found.name: [] for found in network.inputs}
    for choice in itertools.product((0, 1, 2), repeat=3):
        for found in network.inputs:
            rank = len(found.shape)
            low = np.broadcast_to(found.type.low(rank), found.shape)
            high = np.broadcast_to(found.type.high(rank), found.shape)
            pattern = np.resize(np.array(choice), found.shape)
            rows[found.name].append(np.select([pattern == 0, pattern == 1], [low, high], np.maximum(low, 0)))
    return {name: np.stack(arrays) for name, arrays in rows.items()}


def test_words_that_just_fit_and_values_without_axes(tmp_path: Path) -> None:
    found = edges()
    together = Together(found, tmp_path)
    for i, network in enumerate(found):
        together.require_equal(i, ends(network))


def test_int32_as_far_as_the_bound_proves_it() -> None:
    fits, beyond = edges()[:2]
    assert (fits.values["d"].bound, beyond.values["d"].bound) == (2**31 - 1, 2**31)
    assert "int32_t sum = bias[o];" in to_cpp.generate(fits).source
    assert "int64_t sum = bias[o];" in to_cpp.generate(beyond).source


def test_a_word_that_does_not_fit_is_caught_by_the_sanitizer(tmp_path: Path) -> None:
    beyond = edges()[1]
    together = Together([beyond], tmp_path)
    together.require_equal(0, ends(beyond))
    narrow = (tmp_path / "n0.cpp").read_text().replace("int64_t sum", "int32_t sum")
    (tmp_path / "n0.cpp").write_text(narrow.replace("static_cast<int64_t>(weight[o][i])", "weight[o][i]"))
    subprocess.run(["g++", "-std=c++11", *SANITIZED, "all.cpp", "-o", "all"], cwd=tmp_path, check=True)
    with pytest.raises(AssertionError, match="runtime error: signed integer overflow"):
        together.trace(0, ends(beyond))


# ------------------------------------------------------------------------------------------------------ text and names


def convolutional() -> IntegerNetwork:
    """Two inputs, two outputs, groups, padding, pools, a table, and layers with names that comments must survive."""
    rng = np.random.default_rng(3)
    small = IntType(4, False)
    ops: tuple[Op, ...] = (
        Conv("conv", "image", rng.integers(-7, 8, (4, 1, 3, 2)), rng.integers(-9, 9, 4), (2, 1), (1, 0, 1, 1), 2),
        Requantize("relu", "conv", rng.integers(1, 30, (4, 1, 1)), np.asarray(6), np.asarray(0), small, layer="a\\"),
        MaxPool("pool", "relu", (2, 2), (1, 2), (1, 0, 0, 1)),
        Reshape("flat", "pool", (int(np.prod((4, 3, 3))),)),
        Concat("joined", ("flat", "extra")),
        Dense("fc", "joined", rng.integers(-7, 8, (3, 38)), rng.integers(-9, 9, 3), layer='*/ "??/\n%d é'),
        Requantize("fc_requant", "fc", np.asarray(5), np.asarray(5), np.asarray(-1), IntType(5, True)),
        Lookup("table", "fc_requant", rng.integers(-9, 9, 32), -16, function="any"),
    )
    inputs = (spec("image", (2, 5, 5), IntType((3, 5), False)), spec("extra", (2,), IntType(6, True)))
    metadata = (("experiment", "x\\"), ("plan", "??/"))
    return IntegerNetwork(inputs, ops, (OutputSpec("table"), OutputSpec("extra"), OutputSpec("fc")), metadata)


def test_the_text_is_the_same_every_time_and_plain_integers() -> None:
    network = convolutional()
    one, two = to_cpp.generate(network), to_cpp.generate(convolutional())
    assert (one.header, one.source) == (two.header, two.source)
    assert to_cpp.checker(network) == to_cpp.checker(convolutional())
    text = one.header + one.source
    assert re.findall(r"#include.*", text) == ["#include <cstdint>", '#include "network.h"']
    assert not re.search(r"\b(float|double|unsigned|auto)\b|\d\.\d|\d[eE]\d", re.sub("//.*", "", text))
    assert text.isascii()
    assert to_cpp.checker(network).isascii()
    assert network.digest in one.header
    assert network.digest in one.source


def test_constants_are_laid_out_by_output() -> None:
    weight = np.arange(-60, 60).reshape(3, 40)
    dense = Dense("d", "x", weight, np.array([1, 2, 3]), layer="first")
    network = IntegerNetwork((spec("x", (40,), IntType(4, True)),), (dense,), (OutputSpec("d"),))
    source = to_cpp.generate(network).source
    assert 'd: Dense, layer "first".' in source
    assert "const int8_t bias[3] = {1, 2, 3};" in source
    assert "const int8_t weight[3][40] = {\n    {  // 0\n        -60, -59," in source
    assert "    {  // 2\n        20, 21," in source
    assert f"leaves -{network.values['d'].bound} to {network.values['d'].bound}" in source
    assert max(map(len, source.splitlines())) <= 120


ODD = [
    *(
        "class",
        "class_value",
        "int",
        "NULL",
        "EOF",
        "stdin",
        "std",
        "int8_t",
        "_x",
        "__a",
        "a__b",
        "unix",
        "main",
        "xor",
        "assert_t",
    ),
    *("Values", "Port", "run", "compute", "inputs", "outputs", "values", "saturate", "wrap", "outside", "network"),
    *(
        "x",
        "y",
        "weight",
        "low",
        "product",
        "Int",
        "row",
        "rows",
        "c",
        "i",
        "made",
        "round_floor",
        "FC1",
        "FC1_",
        "_",
        "_1",
    ),
]


def test_values_may_have_any_name(tmp_path: Path) -> None:
    ops: list[Op] = []
    for before, name in itertools.pairwise(ODD):
        ops.append(Requantize(name, before, np.array([3, -1]), np.asarray(1), np.asarray(1), IntType(9, True)))
    network = IntegerNetwork((spec(ODD[0], (2,), IntType(9, True)),), tuple(ops), (OutputSpec(ODD[-1]),))
    made = to_cpp.generate(network)
    assert len(set(made.names.values())) == len(ODD)
    assert {name: made.names[name] for name in ("class", "FC1", "FC1_", "_x", "a__b", "weight", "_", "_1")} == {
        "class": "class_value2",
        "FC1": "FC1_value",
        "FC1_": "FC1_value2",
        "_x": "x_value",
        "a__b": "a_b_value",
        "weight": "weight",
        "_": "of_value",
        "_1": "of_1_value",
    }
    program = to_cpp.compile_program(network, tmp_path, flags=(*STRICT, "-std=gnu++20", "-include", "cstdio"))
    x = extreme_inputs(network)
    expected = interpret.trace(network, x)
    for name, array in program.trace(x).items():
        assert np.array_equal(array, expected[name]), name


@pytest.mark.parametrize("name", ["", "1a", "class", "a-b", "NET", "a__b", "run", "check", "net_t"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    for function in (to_cpp.generate, to_cpp.checker):
        with pytest.raises(CppError, match="cannot name a namespace and its files; give a letter"):
            function(convolutional(), name)


# ---------------------------------------------------------------------------------------------- the checking program


@dataclass
class Checked:
    """A compiled checker with its vectors in ``folder/vectors``."""

    network: IntegerNetwork
    folder: Path
    x: dict[str, IntArray]

    @property
    def vectors(self) -> Path:
        return self.folder / "vectors"

    def check(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run([self.folder / "check", *arguments], cwd=self.folder, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


ROWS, LAYER_ROWS = 20, 6


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    network = convolutional()
    folder = tmp_path_factory.mktemp("checker")
    to_cpp.write(network, folder)
    for source in ("check", "network"):
        command = ["g++", *STRICT, *SANITIZED, "-c", f"{source}.cpp"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    rng = np.random.default_rng(0)
    x = {
        found.name: rng.integers(
            np.broadcast_to(found.type.low(len(found.shape)), found.shape),
            np.broadcast_to(found.type.high(len(found.shape)), found.shape),
            (ROWS, *found.shape),
            endpoint=True,
        )
        for found in network.inputs
    }
    made = Checked(network, folder, x)
    link(made)
    return made


@pytest.fixture
def checked(built: Checked, tmp_path: Path) -> Checked:
    """The checker in a folder of its own, with vectors to spoil."""
    for file in (*built.folder.glob("*.o"), *built.folder.glob("network.*"), built.folder / "check"):
        shutil.copy(file, tmp_path)
    here = Checked(built.network, tmp_path, built.x)
    expected = interpret.trace(here.network, here.x)
    flat = {name: array.reshape(ROWS, -1) for name, array in expected.items()}
    (here.vectors / "layers").mkdir(parents=True)
    for file, names in (("inputs", ["image", "extra"]), ("outputs", ["table", "extra", "fc"])):
        (here.vectors / f"{file}.txt").write_text(images.decimal(np.concatenate([flat[n] for n in names], axis=1)))
    for op in here.network.ops:
        (here.vectors / "layers" / f"{op.name}.txt").write_text(images.decimal(flat[op.name][:LAYER_ROWS]))
    return here


def link(checked: Checked, source: str | None = None) -> None:
    """The program, of ``source`` in place of network.cpp if given."""
    if source is not None:
        (checked.folder / "network.cpp").write_text(source)
        command = ["g++", "-std=c++11", *SANITIZED, "-c", "network.cpp"]
        subprocess.run(command, cwd=checked.folder, check=True)
    command = ["g++", *SANITIZED, "check.o", "network.o", "-o", "check"]
    subprocess.run(command, cwd=checked.folder, check=True)


def test_equal_vectors_pass_and_are_counted(checked: Checked) -> None:
    values = checked.network.values
    layers = sum(int(np.prod(values[op.name].shape)) for op in checked.network.ops)
    assert checked.check("vectors") == (
        0,
        f"reference: 20 rows of outputs and 6 rows of 8 layers equal, {20 * 8 + 6 * layers} integers\n",
    )
    shutil.rmtree(checked.vectors / "layers")
    assert checked.check("vectors", "--outputs-only") == (
        0,
        "reference: 20 rows of outputs and 0 rows of 0 layers equal, 160 integers\n",
    )


def test_planted_constants_are_named_by_their_layer(checked: Checked) -> None:
    source = (checked.folder / "network.cpp").read_text()

    def planted(within: str, pattern: str, by: str) -> str:
        before, middle, after = source.partition(f"namespace {within} {{")
        changed, count = re.subn(pattern, by, after, count=1)
        assert count == 1
        return before + middle + changed

    faults = {
        "conv": planted("conv", r"\{(-?\d+), (-?\d+)\}", r"{\1, \2 + 1}"),
        "relu": planted("relu", r"multiplier\[4\] = \{(\d+)", r"multiplier[4] = {\1 + 9"),
        "fc": planted("fc", r"bias\[3\] = \{(-?\d+)", r"bias[3] = {\1 - 1"),
        "table": planted("table", r"table\[32\] = \{\s*(-?\d+)", r"table[32] = {\1 + 1"),
    }
    if not (interpret.trace(checked.network, checked.x)["fc_requant"] == -16).any():
        del faults["table"]  # an entry that no row reads
    for layer, text in faults.items():
        link(checked, text)
        code, said = checked.check("vectors")
        assert code == 1, layer
        assert re.match(rf"check: {layer} \(.*\) differs first in row \d+, element (\[\d+\])+: got -?\d+, ", said), said
        assert f"network::{layer}::compute computes it: break there" in said
        assert re.search(r"check: \d+ of \d+ integers differ", said)


def changed(text: str, row: int, element: int, by: int) -> str:
    lines = [line.split() for line in text.splitlines()]
    lines[row][element] = str(int(lines[row][element]) + by)
    return "".join(" ".join(line) + "\n" for line in lines)


@pytest.mark.parametrize(
    ("file", "row", "element", "text"),
    [
        ("layers/pool.txt", 4, 17, r"check: pool \(MaxPool\) differs first in row 4, element \[1\]\[2\]\[2\]: got "),
        ("layers/fc.txt", 5, 2, r"check: fc \(Dense, layer \*/ .*\) differs first in row 5, element \[2\]: got "),
        (
            "outputs.txt",
            19,
            0,
            r"check: table \(Lookup\) differs .* row 19, element \[0\]: .*outputs.txt, line 20\); this",
        ),
        ("outputs.txt", 2, 4, r"check: extra \(input\) differs first in row 2, element \[1\]: .*line 3\)\n"),
    ],
)
def test_a_planted_vector_is_named(checked: Checked, file: str, row: int, element: int, text: str) -> None:
    path = checked.vectors / file
    element = element if file != "outputs.txt" or element != 4 else checked.network.values["table"].shape[0] + 1
    path.write_text(changed(path.read_text(), row, element, 1))
    code, said = checked.check("vectors")
    assert code == 1
    assert re.match(text, said), said
    assert re.search("expected -?[0-9]+ ", said)
    assert said.endswith(f"check: 1 of {said.split()[-3]} integers differ\n"), said


def test_an_input_that_is_changed_is_found_by_the_first_layer(checked: Checked) -> None:
    path = checked.vectors / "inputs.txt"
    first = int(path.read_text().split()[7])
    path.write_text(changed(path.read_text(), 0, 7, 1 if first < 7 else -1))
    code, said = checked.check("vectors")
    assert code == 1
    assert said.startswith("check: conv (Conv) differs first in row 0, element [")


@pytest.mark.parametrize(
    ("file", "spoil", "text"),
    [
        ("inputs.txt", lambda t: t[:-1], "inputs.txt, line 20: ends without a line end; the file is cut short"),
        ("inputs.txt", lambda t: t[:-9] + "\n", "inputs.txt, line 20: 4[0-9] integers; expected 52"),
        ("inputs.txt", lambda t: t.replace("\n", " 1\n", 1), "line 1: more integers than the expected 52"),
        ("inputs.txt", lambda t: t + "\n", "inputs.txt, line 21: 0 integers; expected 52"),
        ("inputs.txt", lambda t: "x" + t, "inputs.txt, line 1, column 1: not an integer"),
        ("inputs.txt", lambda t: t.replace(" ", " 1.5 ", 1), "line 1, column 2: not an integer"),
        ("inputs.txt", lambda t: t.replace(" ", " - ", 1), "line 1, column 2: not an integer"),
        ("inputs.txt", lambda t: t.replace(" ", " 99999999999999999999 ", 1), "column 2: an integer beyond 64 bits"),
        ("inputs.txt", lambda t: changed(t, 3, 3, 8), r"line 4: image, row 3, element \[0\]\[0\]\[3\]: \d+; its type "),
        ("inputs.txt", lambda t: changed(t, 3, 30, -32), r"image, row 3, element \[1\]\[1\]\[0\]: -\d+; its type uint"),
        (
            "inputs.txt",
            lambda t: changed(t, 1, 51, 99),
            r"line 2: extra, row 1, element \[1\]: \d+; its type int6 does",
        ),
        ("inputs.txt", lambda t: "", "inputs.txt: no rows; what compares nothing proves nothing"),
        ("inputs.txt", lambda t: t + t.splitlines()[0] + "\n", "outputs.txt: 20 rows; vectors/inputs.txt has more"),
        ("outputs.txt", lambda t: t + t.splitlines()[0] + "\n", "outputs.txt: 21 rows; vectors/inputs.txt has 20"),
        ("outputs.txt", lambda t: t[: t.index("\n") + 1], "outputs.txt: 1 rows; vectors/inputs.txt has more"),
        ("outputs.txt", None, "outputs.txt: cannot be opened"),
        ("layers/fc.txt", None, "layers/fc.txt: cannot be opened"),
        ("layers/fc.txt", lambda t: "", "layers/fc.txt: no rows; what compares nothing proves nothing"),
        ("layers/fc.txt", lambda t: t + "1 2 3\n", "layers/fc.txt: 7 rows; conv.txt has 6"),
        ("layers/fc.txt", lambda t: t[:-1], "layers/fc.txt, line 6: ends without a line end"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_exit_code_2(
    checked: Checked, file: str, spoil: Any, text: str
) -> None:
    path = checked.vectors / file
    if spoil is None:
        path.unlink()
    else:
        path.write_text(spoil(path.read_text()))
    code, said = checked.check("vectors")
    assert code == 2
    assert re.search(text, said), said


def test_more_layers_than_inputs_is_exit_code_2(checked: Checked) -> None:
    for name in ("inputs", "outputs"):
        path = checked.vectors / f"{name}.txt"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    assert checked.check("vectors") == (2, "check: vectors/layers: 6 rows; vectors/inputs.txt has 5\n")


def test_other_numbers_of_rows_than_expected_are_exit_code_2(checked: Checked) -> None:
    expected = to_cpp.checker(checked.network, rows=ROWS, layer_rows=LAYER_ROWS)
    to_cpp.write(checked.network, checked.folder / "written", rows=ROWS, layer_rows=LAYER_ROWS)
    assert (checked.folder / "written" / "check.cpp").read_text() == expected
    (checked.folder / "check.cpp").write_text(expected)
    subprocess.run(["g++", *STRICT, *SANITIZED, "-c", "check.cpp"], cwd=checked.folder, check=True)
    link(checked)
    assert checked.check("vectors")[0] == 0

    def cut(name: str, rows: int) -> None:
        path = checked.vectors / name
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:rows]))

    for name in ("inputs.txt", "outputs.txt"):
        cut(name, ROWS - 1)
    refused = (2, "check: vectors/inputs.txt: 19 rows; expected 20\n")
    assert checked.check("vectors") == refused
    assert checked.check("vectors", "--outputs-only") == refused
    for op in checked.network.ops:
        cut(f"layers/{op.name}.txt", 1)
    assert checked.check("vectors") == (2, "check: vectors/layers/conv.txt: 1 rows; expected 6\n")
    for numbers in ({"rows": 0}, {"layer_rows": -1}):
        with pytest.raises(ValueError, match=r"rows .*, layer_rows .*: expected positive numbers, or None for any"):
            to_cpp.checker(checked.network, **numbers)


def test_lines_may_end_as_on_windows(checked: Checked) -> None:
    for path in checked.vectors.rglob("*.txt"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert checked.check("vectors")[0] == 0


def test_rows_of_ones_own_and_speed(checked: Checked) -> None:
    code, said = checked.check("--run", "vectors/inputs.txt")
    assert (code, said) == (0, (checked.vectors / "outputs.txt").read_text())
    code, said = checked.check("--trace", "vectors/inputs.txt")
    lines = said.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines[:10]] == list(checked.network.values)
    assert len(lines) == 10 * ROWS
    code, said = checked.check("--speed", "50")
    assert code == 0
    assert re.fullmatch(r"50 rows in \d+ ms of one core: \d+ rows a second\n", said)
    empty = checked.folder / "empty.txt"
    empty.write_text("")
    assert checked.check("--run", "empty.txt") == (2, "check: empty.txt: no rows\n")


@pytest.mark.parametrize(
    "arguments", [(), ("--run",), ("vectors", "x"), ("--speed", "0"), ("--speed", "a"), ("--help",)]
)
def test_anything_else_is_told_the_usage(checked: Checked, arguments: tuple[str, ...]) -> None:
    code, said = checked.check(*arguments)
    assert code == 2
    assert said.startswith("check: usage: check FOLDER [--outputs-only], check --run FILE, ")


# -------------------------------------------------------------------------------------------------------- from Python


def test_python_runs_it_and_refuses_what_the_interpreter_refuses(built: Checked, tmp_path: Path) -> None:
    program = to_cpp.compile_program(built.network, tmp_path, flags=(*STRICT, "-O0"))
    expected = interpret.trace(built.network, built.x)
    got = program.run(built.x)
    assert list(got) == ["table", "extra", "fc"]
    for name, array in {**got, **program.trace(built.x)}.items():
        assert array.dtype == np.int64
        assert array.shape == expected[name].shape
        assert np.array_equal(array, expected[name]), name
    none = {name: array[:0] for name, array in built.x.items()}
    assert {name: array.shape for name, array in program.run(none).items()} == {
        "table": (0, 3),
        "extra": (0, 2),
        "fc": (0, 3),
    }
    assert program.trace(none)["conv"].shape == (0, *expected["conv"].shape[1:])
    assert "g++ -std=c++11" in program.method
    assert [path.name for path in program.program.parent.iterdir() if path.is_dir()] == []
    with pytest.raises(NetworkError, match="leave its type"):
        program.run({**built.x, "extra": built.x["extra"] + 99})
    with pytest.raises(ToolError, match=r"compile the C\+\+ of the network"):
        to_cpp.compile_program(built.network, tmp_path, flags=("-fno-such-flag",))


def test_a_program_that_prints_something_else_is_refused(built: Checked, tmp_path: Path) -> None:
    program = tmp_path / "check"
    for text, option, message in (
        ("1 2 3", "run", "check: 3 integers came back; expected 8 for 20 rows"),
        ("image 1 2", "trace", "check: 1 lines came back; expected 20 with image"),
    ):
        program.write_text(f"#!/bin/sh\necho {text}\n")
        program.chmod(0o755)
        with pytest.raises(CppError, match=message):
            getattr(CppProgram(built.network, program, "", 0.0), option)(built.x)


def test_large_values_are_kept_off_the_stack(tmp_path: Path) -> None:
    shape = (8, 512, 512)
    q = Requantize("q", "x", *map(np.asarray, (3, 2, 0)), IntType(8, True))
    pool = SumPool("p", "q", (512, 512), (1, 1), (0, 0, 0, 0))
    network = IntegerNetwork((spec("x", shape, IntType(8, True)),), (q, pool), (OutputSpec("p"),))
    assert "new Values" in to_cpp.generate(network).source
    assert "new Values" not in to_cpp.generate(convolutional()).source
    program = to_cpp.compile_program(network, tmp_path)
    x = np.random.default_rng(0).integers(-128, 128, (1, *shape))
    (tmp_path / "inputs.txt").write_text(images.decimal(x.reshape(1, -1)))
    limited = f"ulimit -s 512 && exec {program.program} --run inputs.txt"
    done = subprocess.run(["sh", "-c", limited], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert images.read_decimal(done.stdout, 8, "run").tolist() == interpret.run(network, x).reshape(1, 8).tolist()


# ------------------------------------------------------------------------------------------------------------ the jets

PLANS = sorted((Path(__file__).parent.parent / "experiments" / "jets" / "run" / "network").glob("*/network.json"))


@pytest.mark.slow
@pytest.mark.parametrize("plan", [path.parent.name for path in PLANS] or [None])
def test_the_jet_taggers_are_equal_and_fast(plan: str | None, tmp_path: Path) -> None:
    if plan is None:
        pytest.skip("no networks of experiments/jets on this machine; run that experiment first")
    network = IntegerNetwork.load(next(path.parent for path in PLANS if path.parent.name == plan))
    x = extreme_inputs(network, rows=4000)
    program = to_cpp.compile_program(network, tmp_path)
    expected = interpret.trace(network, x)
    for name, array in program.trace(x).items():
        assert np.array_equal(array, expected[name]), name
    done = subprocess.run([program.program, "--speed", "500000"], capture_output=True, text=True, check=True)
    rate = int(re.search(r"(\d+) rows a second", done.stdout)[1])  # type: ignore[index]
    assert rate > 500_000, done.stdout  # a million on an idle core
