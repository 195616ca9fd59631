"""Catapult projects: exact in their C simulation on the ac_types that hls4ml ships, or refused by name."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hls_networks import S8, U6, lines, planes, requantize, shared_sums
from strategies import rows_for

from hawq_flow import interpret, synthesis, to_hls
from hawq_flow.network import Conv, Dense, InputSpec, IntegerNetwork, Lookup, Op, OutputSpec, SumPool
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.to_hls import HlsConfig, ProjectError
from hawq_flow.to_hls.fixed import FixedType
from hawq_flow.to_qonnx import NotExact


def assert_equal(network: IntegerNetwork, folder: Path, **changes: object) -> Path:
    """Every value of the C simulation is the reference's."""
    project = to_hls.write_project(network, folder / "project", HlsConfig(backend="Catapult", **changes))  # type: ignore[arg-type]
    csim = to_hls.compile_csim(project, folder / "build", traced=True)
    x = rows_for(network, 0, rows=30)
    expected, got = interpret.reference(network, x), csim.trace(x)
    assert set(got) == {op.name for op in network.ops}
    for name, values in got.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    return project


def without(network: IntegerNetwork, *names: str) -> IntegerNetwork:
    """The network without some of its ops; what nobody reads then is an output."""
    ops = [op for op in network.ops if op.name not in names]
    read = {name for op in ops for name in op.inputs}
    return IntegerNetwork(network.inputs, tuple(ops), tuple(OutputSpec(o.name) for o in ops if o.name not in read))


def dense(*, rounding: Rounding = Rounding.HALF_EVEN) -> IntegerNetwork:
    """Two dense layers whose requantizer saturates, rounds and has ties."""
    rng = np.random.default_rng(0)
    ops: list[Op] = [
        Dense("fc", "x", rng.integers(-7, 8, (6, 4)), rng.integers(-50, 50, 6)),
        requantize("act", "fc", [1, 3, 5, 1, 2, 7], [3, 4, 5, 1, 2, 6], 3, U6, rounding, rank=1),
        Dense("head", "act", rng.integers(-7, 8, (3, 6)), np.array([1, -2, 3])),
        requantize("logits", "head", 3, 3, 0, S8, rounding, rank=1),
    ]
    return IntegerNetwork((InputSpec("x", (4,), S8),), tuple(ops), (OutputSpec("logits"),))


@pytest.mark.parametrize(
    ("rounding", "changes"),
    [
        (Rounding.HALF_EVEN, {}),
        (Rounding.HALF_UP, {"io_type": "io_stream"}),
        pytest.param(Rounding.FLOOR, {"strategy": "Resource", "reuse_factor": 3}, marks=pytest.mark.slow),
    ],
)
def test_dense_is_exact(tmp_path: Path, rounding: Rounding, changes: dict[str, object]) -> None:
    assert_equal(dense(rounding=rounding), tmp_path, **changes)


def test_planes_are_exact(tmp_path: Path) -> None:
    assert_equal(planes("strided", "pointwise", "narrow", "max", "residual", "concat"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("io_type", "parts"),
    [
        ("io_parallel", ("resize", "elements", "overlapping")),
        ("io_stream", ("strided", "pointwise", "depthwise", "residual")),
        ("io_stream", ("narrow", "max", "sum")),
        ("io_stream", ("concat", "resize", "elements")),
    ],
)
def test_more_planes_are_exact(tmp_path: Path, io_type: str, parts: Sequence[str]) -> None:
    assert_equal(planes(*parts), tmp_path, io_type=io_type)


@pytest.mark.slow
@pytest.mark.parametrize("io_type", ["io_parallel", "io_stream"])
def test_lines_and_sums_are_exact(tmp_path: Path, io_type: str) -> None:
    left = ("table", "flat", "fc")
    if io_type == "io_parallel":
        assert_equal(shared_sums(), tmp_path / "sums")
        assert_equal(without(lines(), *left, "depthwise", "sum", "sum_windows"), tmp_path)
    else:
        many = ("up", "pad", "pad_three", "max", "max_padded")  # a stream has seven readers at most
        assert_equal(without(lines(stream=True), *left, *many), tmp_path, io_type=io_type)


def test_the_project_is_whole_portable_and_the_same_every_time(tmp_path: Path) -> None:
    network = dense()
    projects = [to_hls.write_project(network, tmp_path / n / "p", HlsConfig(backend="Catapult")) for n in "ab"]
    files = sorted(p.relative_to(projects[0]).as_posix() for p in projects[0].rglob("*") if p.is_file())
    assert not [name for name in files if name.endswith((".pdf", ".txt", ".tar.gz")) and "summary" not in name]
    for name in files:
        content = (projects[0] / name).read_bytes()
        assert content == (projects[1] / name).read_bytes(), name
        assert str(tmp_path).encode() not in content, name
    assert {p.name for p in (tmp_path / "a").iterdir()} == {"p", "p.hls4ml.log"}
    weights = (projects[0] / "firmware/weights").glob("*.h")
    assert all("__SYNTHESIS__" not in path.read_text() for path in weights)
    manifest = json.loads((projects[0] / "hawq_flow.json").read_text())
    assert manifest["config"]["backend"] == "Catapult"
    results = {entry["types"]["result"] for entry in manifest["layers"].values()}
    assert "ac_fixed<8,8,true,AC_RND_CONV,AC_SAT>" in results
    assert all(text.startswith("ac_fixed<") for text in results)
    assert "catapult -product ultra -shell -f build_prj.tcl" in (projects[0] / "README.md").read_text()
    subprocess.run(["make", "check"], cwd=projects[0], check=True, timeout=120, stdout=subprocess.DEVNULL)
    with pytest.raises(synthesis.SynthesisError, match="back end 'Catapult'; Vivado HLS and Vitis HLS are run"):
        synthesis.build(projects[0])


def test_nothing_is_left_of_a_project_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the archive that hls4ml's writer packs beside it."""
    monkeypatch.setattr("hawq_flow.to_hls.texts.readme", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        to_hls.write_project(dense(), tmp_path / "p", HlsConfig(backend="Catapult"))
    assert [path.name for path in tmp_path.iterdir()] == ["p.hls4ml.log"]


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("xcku115-flvb2104-2-i", "setup_xilinx_part {xcku115-flvb2104-2-i}"),
        ("nangate-45nm_beh", "setup_asic_libs {nan"),
    ],
)
def test_an_fpga_or_an_asic(tmp_path: Path, part: str, line: str) -> None:
    config = HlsConfig(backend="Catapult", part=part, clock_period_ns=2.5)
    script = (to_hls.write_project(dense(), tmp_path / "p", config) / "build_prj.tcl").read_text()
    assert line in script
    assert "set hls_clock_period 2.5" in script
    assert config.asic is part.startswith("nan")


def test_a_part_without_a_library_stops_the_script(tmp_path: Path) -> None:
    """hls4ml's script goes on with a KINTEX-u, and the figures are those of another device."""
    script = (
        to_hls.write_project(dense(), tmp_path / "p", HlsConfig(backend="Catapult")) / "build_prj.tcl"
    ).read_text()
    start = script.index("proc setup_xilinx_part")
    body = script[start : script.index("\nproc setup_asic_libs")]
    assert "KINTEX" not in body
    if shutil.which("tclsh"):
        tcl = f"proc library args {{ return {{}} }}\nproc solution args {{}}\n{body}\nsetup_xilinx_part xc7z020"
        done = subprocess.run(["tclsh"], input=tcl, capture_output=True, text=True, check=False, timeout=20)
        assert "no base library for the part 'xc7z020' in this Catapult: install it" in done.stderr


def network(op: Op, *more: Op) -> IntegerNetwork:
    last = (op, *more)[-1].name
    return IntegerNetwork((InputSpec("x", (4, 5, 5), S8),), (op, *more), (OutputSpec(last),))


ONES = np.ones((4, 1, 2, 2), np.int64)
CONV = Conv("conv", "x", np.ones((2, 4, 2, 2), np.int64), np.zeros(2, np.int64), (1, 1), (0, 0, 0, 0))


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (network(Lookup("table", "x", np.arange(256), -128)), "table: a table; hls4ml's Catapult back end has none"),
        (
            network(Conv("depth", "x", ONES, np.zeros(4, np.int64), (1, 1), (0, 0, 0, 0), groups=4)),
            "depth: a depthwise convolution, or a sum pool made of one; .* gives wrong sums. Use io_stream",
        ),
        (network(SumPool("pool", "x", (2, 2), (2, 2), (0, 0, 0, 0))), r"pool: a depthwise convolution, or a sum pool"),
        (
            network(CONV, requantize("bit", "conv", 1, 4, 0, IntType(1, False))),
            "bit: a result of one bit; .* Use two bits",
        ),
    ],
)
def test_what_is_not_exact_is_refused(refused: IntegerNetwork, text: str) -> None:
    with pytest.raises(NotExact, match=text):
        to_hls.design(refused, HlsConfig(backend="Catapult"))
    to_hls.design(refused, HlsConfig(backend="Vitis"))


def test_streams_sum_depthwise() -> None:
    pool = network(SumPool("pool", "x", (2, 2), (2, 2), (0, 0, 0, 0)))
    assert to_hls.design(pool, HlsConfig(backend="Catapult", io_type="io_stream")).layers


def test_types() -> None:
    assert FixedType(8, 3, True).cpp("Catapult") == "ac_fixed<8,3,true>"
    assert FixedType(1, 1, False).cpp("Catapult") == "ac_fixed<2,1,false>"
    assert FixedType(6, 6, False, "AP_RND_CONV", "AP_SAT").cpp("Catapult") == "ac_fixed<6,6,false,AC_RND_CONV,AC_SAT>"
    assert FixedType(6, 6, False, "AP_RND_CONV", "AP_SAT").cpp("Vitis") == "ap_ufixed<6,6,AP_RND_CONV,AP_SAT,0>"


def test_another_writer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without the lines that are put right; nothing is left of the project."""
    from hls4ml.writer.catapult_writer import CatapultWriter

    write = CatapultWriter.write_build_script

    def other(self: CatapultWriter, model: object) -> None:
        write(self, model)
        path = Path(model.config.get_output_dir()) / "build_prj.tcl"  # type: ignore[attr-defined]
        path.write_text(path.read_text().replace("Could not find specific", "Could not find a specific"))

    monkeypatch.setattr(CatapultWriter, "write_build_script", other)
    with pytest.raises(ProjectError, match=r"build_prj\.tcl: 0 places match .*; hls4ml 1\.3\.0 writes one"):
        to_hls.write_project(dense(), tmp_path / "p", HlsConfig(backend="Catapult"))
    assert [path.name for path in tmp_path.iterdir() if "log" not in path.name] == []
