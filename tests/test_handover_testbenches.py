"""The C++ testbench of a bundle: what it proves, and that each planted fault fails by name."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from handover_help import ROWS, change, change_row, files, tools_only
from hls_networks import STREAM_GROUPS, lines, planes, shared_sums
from open_designs import rows as drawn
from rtl_help import small_network
from test_to_hls_catapult import dense

from hawq_flow import interpret, to_hls
from hawq_flow.handover import hls_testbench
from hawq_flow.network import (
    Conv,
    Dense,
    IntegerNetwork,
    NetworkError,
)
from hawq_flow.to_hls import HlsConfig, ProjectError


@dataclass(frozen=True)
class Bench:
    """A project with its testbench, compiled; ``folder`` can be changed."""

    network: IntegerNetwork
    folder: Path
    flags: str

    @property
    def data(self) -> Path:
        return self.folder / "tb_data"

    @property
    def weights(self) -> Path:
        return self.folder / "project" / "firmware" / "weights"

    def compiled(self, *, design: bool = True) -> str:
        """Compile both sources (or the testbench alone, with the design's object of before); g++'s complaints."""
        words = self.flags.split()
        # Unoptimized: compiling is the longer part here.
        flags = [word.replace("-O1", "-O0") for word in words if not word.endswith(".cpp")]
        for source in [word for word in words if word.endswith(".cpp")]:
            if design or source == "testbench.cpp":
                command = ["g++", *flags, "-c", source, "-o", f"{Path(source).stem}.o"]
                done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=600)
                if done.returncode:
                    return done.stderr
        objects = [f"{Path(word).stem}.o" for word in words if word.endswith(".cpp")]
        subprocess.run(["g++", *objects, "-o", "testbench"], cwd=self.folder, check=True, timeout=600)
        return ""

    def run(self, *arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
        """The program's exit code, what it said, what it complained of."""
        command = [str(self.folder / "testbench"), *arguments]
        done = subprocess.run(command, cwd=cwd or self.folder, capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout, done.stderr

    def copy(self, to: Path) -> Bench:
        return Bench(self.network, Path(shutil.copytree(self.folder, to)), self.flags)


def bench(network: IntegerNetwork, folder: Path, **changes: object) -> Bench:
    to_hls.write_project(network, folder / "project", HlsConfig(**changes))  # type: ignore[arg-type]
    rows = drawn(network, ROWS)
    made = Bench(network, folder, hls_testbench.write(folder / "project", network, folder, rows))
    assert made.compiled() == ""
    return made


def passes(made: Bench) -> None:
    """It passes, and says how much it compared: every constant there is."""
    manifest = to_hls.read_manifest(made.folder / "project")
    ports = len(manifest["inputs"]) + len(manifest["outputs"])
    texts = [path.read_text() for path in made.weights.glob("*.h")]
    count = sum(text[text.index("{") : text.index("}")].count(",") + 1 for text in texts)
    assert made.run("tb_data") == (0, f"{ROWS} rows, {count} constants, {ports} ports: equal\n", "")


@pytest.fixture(scope="module")
def vitis(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(dense(), tmp_path_factory.mktemp("vitis"))


@pytest.fixture
def broken(vitis: Bench, tmp_path: Path) -> Bench:
    return vitis.copy(tmp_path / "broken")


def test_a_clean_project_passes_from_anywhere(vitis: Bench, tmp_path: Path) -> None:
    passes(vitis)
    said = vitis.run("tb_data")
    assert vitis.run() == said  # where it runs
    assert vitis.run(cwd=tmp_path) == said  # beside the program
    shutil.copytree(vitis.data, tmp_path / "hls" / "tb_data")
    shutil.copy(vitis.folder / "testbench", tmp_path / "program")  # as the vendors' tools do it
    run = subprocess.run([tmp_path / "program"], cwd=tmp_path / "hls", capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == said[:2]
    run = subprocess.run(
        [tmp_path / "program"], cwd=tmp_path / "hls" / "tb_data", capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stdout) == said[:2]
    code, _, complaint = vitis.run(str(tmp_path))
    assert code == 2
    assert f"{tmp_path}/constants.txt: cannot be read" in complaint
    run = subprocess.run([tmp_path / "program"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "name the folder as first argument" in run.stderr


def test_some_rows_only(vitis: Bench) -> None:
    assert vitis.run("tb_data", "7")[:2] == (0, f"7 of {ROWS} rows, 81 constants, 2 ports: equal\n")
    for rows in ("0", "-1", f"{ROWS + 1}", "x", ""):
        code, _, complaint = vitis.run("tb_data", rows)
        assert code == 2
        assert f"rows '{rows}': expected 1 to {ROWS}" in complaint
    assert vitis.run("tb_data", "7", "8")[0] == 2


def test_a_changed_weight_is_named(broken: Bench) -> None:
    header = next(path for path in broken.weights.glob("w*.h") if "Dense_head_matmul_weight_t" in path.read_text())
    head = broken.network.ops[2]
    assert isinstance(head, Dense)
    text = header.read_text()
    start = text.index("{") + 1
    values = text[start : text.index("}")].split(", ")
    values[4] = str(int(values[4]) + 1)  # the design's (input, output) = (1, 1)
    header.write_text(text[:start] + ", ".join(values) + text[text.index("}") :])
    assert broken.compiled() == ""
    code, said, complaint = broken.run("tb_data")
    expected = int(head.weight[1, 1])
    assert (code, said) == (1, "")
    assert complaint == (
        f"testbench: firmware/weights: {header.stem}[4], head weight: output 1, input 1: {expected + 1}, "
        f"expected {expected}\n"
    )
    # Without the constants' check the arithmetic finds it, too.
    change(broken.folder / "testbench.cpp", 'failed(std::string("firmware/weights: ")', 'std::string(std::string("")')
    change(
        broken.folder / "testbench.cpp",
        "    return !wrong;\n}\n\nstatic std::string place",
        "    return true;\n}\n\nstatic std::string place",
    )
    assert broken.compiled(design=False) == ""
    code, _, complaint = broken.run("tb_data")
    assert code == 1
    assert complaint.startswith("testbench: row ")


def test_a_changed_multiplier_is_named(broken: Bench) -> None:
    header = next(path for path in broken.weights.glob("s*.h") if "bn_act_scaled_scale_t" in path.read_text())
    text = header.read_text()
    assert "{0.125000, 0.187500," in text
    header.write_text(text.replace("{0.125000, 0.187500,", "{0.125000, 0.203125,"))
    assert broken.compiled(design=False) == ""
    code, _, complaint = broken.run("tb_data")
    assert code == 1
    assert f"{header.stem}[1], act multiplier (bn_act_scaled): element 1: 0.203125, expected 0.1875" in complaint


def test_every_changed_constant_is_counted_and_ten_are_told(broken: Bench) -> None:
    header = next(path for path in broken.weights.glob("w*.h") if "Dense_head_matmul_weight_t" in path.read_text())
    text = header.read_text()
    header.write_text(f"{text[: text.index('{')]}{{{', '.join(['-8'] * 18)}}}{text[text.index('}') + 1 :]}")
    assert broken.compiled(design=False) == ""
    code, _, complaint = broken.run("tb_data")
    assert code == 1
    assert len(complaint.splitlines()) == 11
    assert complaint.endswith("testbench: 18 constants differ\n")


def test_an_array_of_another_size_is_named(broken: Bench) -> None:
    header = next(path for path in broken.weights.glob("b*.h") if "Dense_head_matmul_bias_t" in path.read_text())
    change(header, "[3] = {", "[4] = {")
    assert broken.compiled(design=False) == ""
    assert broken.run("tb_data") == (1, "", f"testbench: {header.stem}: 4 elements in the project, 3 in the network\n")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "typedef ap_fixed<8,8> x_result_t;",
            "typedef ap_fixed<9,9> x_result_t;",
            "port x: ap_fixed<9,9>; expected ap_fixed<8,8>",
        ),
        pytest.param(
            "typedef ap_fixed<8,8> x_result_t;",
            "typedef ap_ufixed<8,8> x_result_t;",
            "port x: ap_ufixed<8,8>; expected ap_fixed<8,8>",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "typedef ap_fixed<8,8> x_result_t;",
            "typedef ap_fixed<8,7> x_result_t;",
            "port x: ap_fixed<8,7>; expected ap_fixed<8,8>",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "typedef ap_fixed<8,8> x_result_t;",
            "typedef ap_int<8> x_result_t;",
            "port x: ap_int<8>; expected ap_fixed<8,8>",
            marks=pytest.mark.slow,
        ),
        (
            "typedef ap_fixed<8,8,AP_RND_CONV,AP_SAT,0> result_t;",
            "typedef ap_fixed<8,8,AP_RND,AP_WRAP,0> result_t;",
            "_out: ap_fixed<8,8,AP_RND,AP_WRAP,0>; expected ap_fixed<8,8,AP_RND_CONV,AP_SAT,0>",
        ),
        (
            "typedef ap_fixed<13,13> Dense_fc_matmul_accum_t;",
            "typedef ap_fixed<12,12> Dense_fc_matmul_accum_t;",
            "type Dense_fc_matmul_accum_t: ap_fixed<12,12>; expected ap_fixed<13,13>",
        ),
    ],
)
def test_a_changed_type_is_named(broken: Bench, old: str, new: str, told: str) -> None:
    change(broken.folder / "project" / "firmware" / "defines.h", old, new)
    if "port" not in told and "_out" not in told:
        assert broken.compiled(design=False) == ""
    else:
        # The design has to agree on its ports, or nothing links.
        assert broken.compiled(design=True) == ""
    code, said, complaint = broken.run("tb_data")
    assert (code, said) == (1, "")
    assert told in complaint


def test_a_type_that_a_layers_struct_takes_is_named(broken: Bench) -> None:
    parameters = broken.folder / "project" / "firmware" / "parameters.h"
    change(parameters, "typedef Dense_fc_matmul_accum_t accum_t;", "typedef ap_fixed<12,12> accum_t;")
    change(parameters, "typedef bn_act_scaled_scale_t scale_t;", "typedef bn_act_shifted_scale_t scale_t;")
    assert broken.compiled(design=False) == ""
    code, said, complaint = broken.run("tb_data")
    assert (code, said) == (1, "")
    lines = complaint.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"testbench: type config\d+::accum_t: ap_fixed<12,12>; expected ap_fixed<13,13>", lines[0]), (
        lines
    )
    assert re.fullmatch(r"testbench: type config\d+::scale_t: ap_\S+; expected ap_\S+", lines[1]), lines


def test_a_port_of_another_type_than_its_name_says(broken: Bench) -> None:
    firmware = broken.folder / "project" / "firmware"
    for name in ("network.h", "network.cpp"):
        change(firmware / name, "x_result_t x[4]", "ap_fixed<8,8,AP_TRN,AP_SAT> x[4]")
    change(firmware / "network.cpp", "nnet::dense<x_result_t,", "nnet::dense<ap_fixed<8,8,AP_TRN,AP_SAT>,")
    assert broken.compiled() == ""
    code, _, complaint = broken.run("tb_data")
    assert code == 1
    assert complaint == "testbench: port x: ap_fixed<8,8,AP_TRN,AP_SAT,0>; expected ap_fixed<8,8>\n"


def test_a_changed_result_is_named(broken: Bench) -> None:
    path = broken.data / "outputs.txt"
    found = path.read_text().splitlines()[5].split()[2]
    change_row(path, 5, 2, str(int(found) + 1))
    code, _, complaint = broken.run("tb_data")
    assert code == 1
    assert "testbench: row 5, output logits (port layer" in complaint
    assert complaint.endswith(f"), element 2, in the network (2): got {found}, expected {int(found) + 1}\n")
    # The rows before it do not show it; the file's checksum does.
    code, _, complaint = broken.run("tb_data", "5")
    assert code == 1
    assert complaint == "testbench: tb_data/outputs.txt was changed; no result of the rows that ran shows where\n"


def test_a_changed_input_is_found(broken: Bench) -> None:
    found = broken.data / "inputs.txt"
    change_row(found, 3, 0, "-128" if found.read_text().splitlines()[3].split()[0] != "-128" else "127")
    code, _, complaint = broken.run("tb_data")
    assert code == 1
    assert "testbench: row 3, output logits" in complaint


def test_a_changed_input_that_no_result_shows_is_found(broken: Bench) -> None:
    found = broken.data / "inputs.txt"
    change_row(found, 30, 0, str(int(found.read_text().splitlines()[30].split()[0]) ^ 1))
    code, _, complaint = broken.run("tb_data", "20")
    assert code == 1
    assert complaint == "testbench: tb_data/inputs.txt was changed; no result of the rows that ran shows where\n"


def test_swapped_outputs_are_found(broken: Bench) -> None:
    rows = [line.split() for line in (broken.data / "outputs.txt").read_text().splitlines()]
    (broken.data / "outputs.txt").write_text("".join(f"{b} {a} {c}\n" for a, b, c in rows))
    code, _, complaint = broken.run("tb_data")
    assert code == 1
    assert "output logits" in complaint
    assert "in the network (" in complaint


def _cut(text: str) -> str:
    return text[:-3]


@pytest.mark.parametrize(
    ("name", "edit", "told"),
    [
        ("inputs.txt", lambda t: "", "inputs.txt: 0 rows, expected 40"),
        ("outputs.txt", lambda t: "", "outputs.txt: 0 rows, expected 40"),
        ("inputs.txt", lambda t: t + t.splitlines(True)[0], "inputs.txt: 41 rows, expected 40"),
        ("outputs.txt", lambda t: "".join(t.splitlines(True)[:-1]), "outputs.txt: 39 rows, expected 40"),
        ("outputs.txt", _cut, "outputs.txt: line 40 has no end: the file is cut short"),
        ("constants.txt", _cut, "constants.txt: line 81 has no end: the file is cut short"),
        ("inputs.txt", lambda t: "1 2 3\n" + t.split("\n", 1)[1], "inputs.txt: row 0 has 3 integers, expected 4"),
        ("inputs.txt", lambda t: "1 2 3 4 5\n" + t.split("\n", 1)[1], "inputs.txt: row 0 has 5 integers, expected 4"),
        ("inputs.txt", lambda t: "1 2 3 128\n" + t.split("\n", 1)[1], "row 0, element 3: 128; it holds -128 to 127"),
        ("inputs.txt", lambda t: "1 2 x 4\n" + t.split("\n", 1)[1], "row 0, element 2: 'x 4' is no integer"),
        ("inputs.txt", lambda t: "1 2 3.5 4\n" + t.split("\n", 1)[1], "row 0, element 2: '3.5 4' is no integer"),
        ("outputs.txt", lambda t: "1 2 99999999999999999999\n" + t.split("\n", 1)[1], "is no integer"),
        ("outputs.txt", lambda t: "\n" + t.split("\n", 1)[1], "outputs.txt: row 0 has 0 integers, expected 3"),
        ("constants.txt", lambda t: "".join(t.splitlines(True)[:-1]), "constants.txt: line 81 is missing, expected"),
        ("constants.txt", lambda t: "".join(t.splitlines(True)[1:]), "constants.txt: line 1 is 'w"),
        ("constants.txt", lambda t: t + t.splitlines(True)[-1], "line 82: more than the 81 constants of the project"),
        ("constants.txt", lambda t: t.replace(" 0 ", " 0 ? ", 1), "has no value"),
    ],
)  # fmt: skip
def test_files_that_are_not_what_they_were(vitis: Bench, tmp_path: Path, name: str, edit: object, told: str) -> None:
    data = Path(shutil.copytree(vitis.data, tmp_path / "data"))
    (data / name).write_text(edit((data / name).read_text()))  # type: ignore[operator]
    code, said, complaint = vitis.run(str(data))
    assert (code, said) == (2, "")
    assert told in complaint


def test_a_golden_constant_that_was_changed_is_named(vitis: Bench, tmp_path: Path) -> None:
    data = Path(shutil.copytree(vitis.data, tmp_path / "data"))
    lines = (data / "constants.txt").read_text().splitlines()
    array, element, value, *place = lines[3].split(" ")
    lines[3] = " ".join([array, element, str(int(value) + 2), *place])
    (data / "constants.txt").write_text("\n".join(lines) + "\n")
    code, _, complaint = vitis.run(str(data))
    assert code == 1
    assert f"{array}[{element}], {' '.join(place)}: {value}, expected {int(value) + 2}\n" in complaint


def test_the_same_bytes_and_no_path(vitis: Bench, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(vitis.folder / "project", again / "project")
    rows = drawn(vitis.network, ROWS)
    assert hls_testbench.write(again / "project", vitis.network, again, rows) == vitis.flags
    for name, content in files(again).items():
        assert content == (vitis.folder / name).read_bytes(), name
        assert str(tmp_path).encode() not in content
    assert "@" not in (again / "testbench.cpp").read_text()
    assert f"g++ {vitis.flags} -o testbench" in (again / "README.md").read_text()


def test_what_is_refused(vitis: Bench, tmp_path: Path) -> None:
    folder, network = vitis.folder, vitis.network
    rows = drawn(network, 3)
    with pytest.raises(ProjectError, match=r"put it there"):
        hls_testbench.write(folder / "project", network, tmp_path, rows)
    with pytest.raises(ProjectError, match=r"a project of network \w{12}, given network \w{12}"):
        hls_testbench.write(folder / "project", small_network(), folder, rows)
    with pytest.raises(ValueError, match=r"a testbench without rows proves nothing"):
        hls_testbench.write(folder / "project", network, folder, rows[:0])
    with pytest.raises(NetworkError, match=r"shape"):
        hls_testbench.write(folder / "project", network, folder, rows[:, :2])
    other = vitis.copy(tmp_path / "other")
    header = next(path for path in other.weights.glob("b*.h") if "{1, -2, 3}" in path.read_text())
    change(header, "{1, -2, 3}", "{1, -2, 4}")
    with pytest.raises(ProjectError, match=r"element 2 is 4, the network's is 3: the project was changed"):
        hls_testbench.write(other.folder / "project", network, other.folder, rows)
    change(header, "{1, -2, 4}", "{1, -2, 3}")
    change(other.folder / "project/firmware/defines.h", "ap_fixed<8,8> x_result_t", "ap_fixed<7,7> x_result_t")
    with pytest.raises(ProjectError, match=r"port x: no type of firmware/defines.h is ap_fixed<8,8>"):
        hls_testbench.write(other.folder / "project", network, other.folder, rows)


def test_streams(tmp_path: Path) -> None:
    made = bench(dense(), tmp_path / "stream", io_type="io_stream")
    passes(made)
    source = made.folder / "project" / "firmware" / "network.cpp"
    port = to_hls.read_manifest(made.folder / "project")["outputs"][0]["port"]
    text = source.read_text()
    source.write_text(text[: text.rindex("}")] + f"    {port}.write(result_t());\n}}\n")
    assert made.compiled() == ""
    code, _, complaint = made.run("tb_data")
    assert code == 1
    assert complaint == f"testbench: row 0, output logits (port {port}): has more than 3 elements\n"


def test_channels_last_with_vivado(tmp_path: Path) -> None:
    """A residual convolutional network: the ports' order is not the network's, and an element is told in both."""
    network = planes("residual")
    made = bench(network, tmp_path / "vivado", backend="Vivado")
    passes(made)
    entry = to_hls.read_manifest(made.folder / "project")["outputs"][1]
    assert (entry["value"], entry["shape"]) == ("three", [4, 4, 6])
    element = (1 * 6 + 5) * 4 + 2  # of the port (4, 6, 4): position (1, 5), channel 2
    found = (made.data / "outputs.txt").read_text().splitlines()[9].split()[96 + element]
    assert int(found) == interpret.outputs(network, drawn(network, ROWS))["three"][9, 2, 1, 5]
    change_row(made.data / "outputs.txt", 9, 96 + element, "1000")
    code, _, complaint = made.run("tb_data")
    assert code == 1
    assert f"row 9, output three (port {entry['port']}), element {element}, in the network (2, 1, 5): got " in complaint
    header = next(path for path in made.weights.glob("w*.h") if "Conv2D_branch_weight_t" in path.read_text())
    branch = next(op for op in network.ops if op.name == "branch")
    assert isinstance(branch, Conv)
    text = header.read_text()
    start, end = text.index("{") + 1, text.index("}")
    values = text[start:end].split(", ")
    index = ((1 * 3 + 2) * 4 + 3) * 4 + 1  # kernel (1, 2), input 3, output 1
    values[index] = "0" if branch.weight[1, 3, 1, 2] else "1"
    header.write_text(text[:start] + ", ".join(values) + text[end:])
    assert made.compiled(design=False) == ""
    code, _, complaint = made.run("tb_data")
    assert code == 1
    assert (
        f"{header.stem}[{index}], branch weight: output 1, input 3, kernel (1, 2): {values[index]}, expected "
        f"{branch.weight[1, 3, 1, 2]}\n" in complaint
    )


def test_catapult(tmp_path: Path) -> None:
    made = bench(dense(), tmp_path / "catapult", backend="Catapult", io_type="io_stream")
    passes(made)
    change(
        made.folder / "project" / "firmware" / "defines.h",
        "nnet::array<ac_fixed<8,8,true>, 4*1> x_result_t",
        "nnet::array<ac_fixed<9,9,true>, 4*1> x_result_t",
    )
    assert made.compiled() == ""
    code, _, complaint = made.run("tb_data")
    assert code == 1
    assert "port x: nnet::array<ac_fixed<9,9,true>,4>; expected nnet::array<ac_fixed<8,8,true>,4>\n" in complaint
    assert "INVOKE_ARGS" in (made.folder / "README.md").read_text()
    assert not (made.folder / "testbench.tcl").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "changes"),
    [
        (dense(), {"backend": "Vivado", "strategy": "Resource", "reuse_factor": 3}),
        (dense(), {"backend": "Catapult", "strategy": "Resource", "reuse_factor": 2}),
        (shared_sums(), {}),
        (planes("strided", "narrow"), {"strategy": "Resource", "reuse_factor": 3}),
        (planes("concat", "lookup", "elements", "flat", "depthwise", "sum", "max"), {}),
        (planes(*STREAM_GROUPS[0]), {"io_type": "io_stream"}),
        (planes(*STREAM_GROUPS[1]), {"io_type": "io_stream", "backend": "Vivado"}),
        (planes(*STREAM_GROUPS[2]), {"io_type": "io_stream"}),
        (lines(), {}),
        (planes("strided", "pointwise", "narrow", "max", "residual", "concat"), {"backend": "Catapult"}),
        (planes("concat", "resize", "elements"), {"backend": "Catapult", "io_type": "io_stream"}),
    ],
)
def test_every_layer_and_back_end(tmp_path: Path, network: IntegerNetwork, changes: dict[str, object]) -> None:
    made = bench(network, tmp_path / "bench", **changes)
    passes(made)
    # The last constant of each array, by turns: the name is right wherever the array is.
    header = sorted(made.weights.glob("*.h"))[-1]
    text = header.read_text()
    end = text.index("}")
    last = text[text.rindex(" ", 0, end) + 1 : end].lstrip("{")
    header.write_text(f"{text[: end - len(last)]}{float(last) + 1}{text[end:]}")
    assert made.compiled(design=False) == ""
    code, _, complaint = made.run("tb_data")
    assert code == 1
    assert complaint.startswith(f"testbench: firmware/weights: {header.stem}[")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"io_type": "io_stream"}, {"backend": "Catapult"}])
def test_it_is_plain_cpp_11_without_warnings(tmp_path: Path, changes: dict[str, object]) -> None:
    """What the vendors' compilers want; and nothing but g++, its assembler and linker, and a shell is needed."""
    made = bench(dense(), tmp_path / "bench", **changes)
    flags = [word.replace("-I", "-isystem") for word in made.flags.split() if word.startswith("-I")]
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Wno-unknown-pragmas", *flags, "-fsyntax-only"]
    done = subprocess.run([*command, "testbench.cpp"], cwd=made.folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0
    assert "testbench.cpp:" not in done.stderr.replace("from testbench.cpp:", "")  # hls4ml's headers have some
    path = tools_only(tmp_path / "bin", "g++", "as", "ld")
    command = ["/bin/sh", "-c", f"g++ {made.flags} -o alone && ./alone tb_data"]
    done = subprocess.run(
        command, cwd=made.folder, env={"PATH": str(path)}, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("2 ports: equal\n")
