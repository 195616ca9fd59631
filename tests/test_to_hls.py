"""hls4ml projects: exact in C simulation, complete, portable, the same bytes; refused where they could not be exact."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from strategies import jets_like, nasty_network, parts, rows_for

from hawq_flow import interpret, to_hls, to_qonnx
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize, Reshape
from hawq_flow.numeric import IntType, Rounding
from hawq_flow.to_hls import FixedType, HlsConfig, ProjectError
from hawq_flow.to_qonnx import NotExact
from hawq_flow.tools import ToolError

TINY = jets_like(sizes=(4, 6, 8, 4, 3))


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_csim_equal(network: IntegerNetwork, folder: Path, config: HlsConfig, rows: int = 150) -> to_hls.Csim:
    project = to_hls.write_project(network, folder / "project", config)
    csim = to_hls.compile_csim(project, folder / "build")
    source = network.values[network.inputs[0].name]
    x = np.clip(rows_for(network, rows=rows), source.low, source.high)  # channels may differ in width
    expected = interpret.trace(network, x)
    for name, values in csim.run(x).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    return csim


def two_axes() -> IntegerNetwork:
    """Channel widths on the input; a scale and a zero point for each channel of a value of two axes; reshapes."""
    return IntegerNetwork(
        (InputSpec("x", (2, 3), IntType((8, 5), True)),),
        (
            Requantize("q", "x", np.array([[1], [3]]), np.array([[1], [2]]), np.array([[1], [0]]), IntType(6, True)),
            Reshape("flat", "q", (6,)),
            Dense("fc", "flat", np.arange(-6, 6).reshape(2, 6), np.array([1, 2])),
            Reshape("out", "fc", (1, 2)),
        ),
        (OutputSpec("out"),),
    )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that no test changes."""
    folder = tmp_path_factory.mktemp("tiny")
    return to_hls.write_project(TINY, folder / "project", HlsConfig(project="tagger", part="xc7z020clg400-1"))


@pytest.fixture(scope="module")
def csim(tiny: Path) -> to_hls.Csim:
    return to_hls.compile_csim(tiny, tiny.parent / "build")


# --- exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["Vitis", "Vivado"])
def test_everything_nasty_is_exact(tmp_path: Path, backend: str) -> None:
    assert_csim_equal(nasty_network(), tmp_path, HlsConfig(backend=backend))


def test_two_axes_and_channel_widths_at_the_input(tmp_path: Path) -> None:
    assert_csim_equal(two_axes(), tmp_path, HlsConfig(io_type="io_stream"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["Vitis", "Vivado"])
@pytest.mark.parametrize(
    ("io_type", "strategy", "reuse_factor"),
    [
        ("io_stream", "Latency", 1),
        ("io_parallel", "Resource", 1),
        ("io_parallel", "Resource", 3),
        ("io_stream", "Resource", 4),
    ],
)
def test_every_form_of_hardware_is_exact(
    tmp_path: Path, backend: str, io_type: str, strategy: str, reuse_factor: int
) -> None:
    config = HlsConfig(backend=backend, io_type=io_type, strategy=strategy, reuse_factor=reuse_factor)
    nasty = parts(nasty_network(), 5) if io_type == "io_stream" else [nasty_network()]
    for number, network in enumerate([*nasty, TINY, two_axes()]):
        assert_csim_equal(network, tmp_path / str(number), config)


def test_resource_strategy_streams_and_reuse(tmp_path: Path) -> None:
    config = HlsConfig(backend="Vivado", io_type="io_stream", strategy="Resource", reuse_factor=2)
    csim = assert_csim_equal(TINY, tmp_path, config)
    assert csim.manifest["config"]["strategy"] == "Resource"
    assert {layer["reuse_factor"] for layer in csim.manifest["layers"].values()} >= {2}


def test_outputs_keep_their_names_in_whatever_order_they_are_listed(tmp_path: Path) -> None:
    network = dataclasses.replace(TINY, outputs=(OutputSpec("act4"), OutputSpec("act2"), OutputSpec("fc3")))
    csim = assert_csim_equal(network, tmp_path, HlsConfig(io_type="io_stream"))
    assert [entry["value"] for entry in csim.manifest["outputs"]] == ["act2", "fc3", "act4"]
    top = (tmp_path / "project" / "firmware" / "network.h").read_text()
    positions = [top.index(entry["port"]) for entry in csim.manifest["outputs"]]
    assert positions == sorted(positions)


def test_a_traced_build_gives_every_value(tiny: Path, tmp_path: Path) -> None:
    x = rows_for(TINY)
    traced = to_hls.compile_csim(tiny, tmp_path, traced=True).trace(x)
    expected = interpret.trace(TINY, x)
    assert sorted(traced) == sorted(op.name for op in TINY.ops)
    for name, values in traced.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_a_reshape_and_one_bit_and_a_port_named_like_a_keyword(tmp_path: Path) -> None:
    network = IntegerNetwork(
        (InputSpec("input", (2, 3), IntType(1, False)),),
        (
            Reshape("flat", "input", (6,)),
            Dense("Fc", "flat", np.arange(-6, 6).reshape(2, 6), np.array([1, -2])),
            Requantize("fc_", "Fc", *(np.int64(v) for v in (1, 2, 0)), IntType(1, False)),  # type: ignore[arg-type]
            Dense("fc", "fc_", np.array([[-2, 1]]), np.array([0])),
        ),
        (OutputSpec("fc"),),
    )
    csim = assert_csim_equal(network, tmp_path, HlsConfig())
    assert csim.manifest["inputs"][0]["port"] == "input_2"


# --- precisions ------------------------------------------------------------------------------------------------------


def test_every_precision_is_read_from_the_network(tiny: Path) -> None:
    manifest = to_hls.read_manifest(tiny)
    values, defines = TINY.values, (tiny / "firmware" / "defines.h").read_text()
    first = manifest["layers"]["Dense_fc1_matmul"]["types"]
    bits = values["fc1"].type.bits
    assert first["accum"] == first["result"] == f"ap_fixed<{bits},{bits}>"
    assert first["weight"] == "ap_fixed<4,4>"
    assert manifest["layers"]["bn_act1_scaled"]["types"]["result"] == "ap_ufixed<6,6,AP_RND_CONV,AP_SAT,0>"
    assert manifest["inputs"][0]["type"] == "ap_fixed<16,16>"
    for layer in manifest["layers"].values():
        for text in layer["types"].values():
            assert f"typedef {text} " in defines
    act = TINY.op("act1")
    assert isinstance(act, Requantize)
    scale = FixedType.holding(np.ldexp(act.multiplier.astype(float), -act.shift))
    assert manifest["layers"]["bn_act1_scaled"]["types"]["scale"] == str(scale)
    assert scale.bits - scale.integer == int(act.shift.max())


def test_saturation_only_where_a_value_can_leave() -> None:
    network = nasty_network()
    layers = {layer.name: layer for layer in to_hls.design(network).layers}
    overflow = {name: layer.types["result"].overflow for name, layer in layers.items()}
    assert overflow["bn_ties_act_scaled"] == "AP_SAT"
    assert overflow["bn_zeros_act_scaled"] == "AP_WRAP"  # 17 / 4 fits 8 bits whatever comes
    assert overflow["bn_one_act_scaled"] == "AP_SAT_SYM"
    assert overflow["Dense_accumulator_fc_matmul"] == "AP_SAT_SYM"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.0], "ap_ufixed<1,1>"),
        ([3.0, 5.0], "ap_ufixed<3,3>"),
        ([-4.0, 3.0], "ap_fixed<3,3>"),
        ([0.5], "ap_ufixed<1,0>"),
        ([3 * 2.0**-10], "ap_ufixed<2,-8>"),
        ([3 * 2.0**-10, -1.0], "ap_fixed<11,1>"),
    ],
)
def test_the_narrowest_fixed_point_type(values: list[float], text: str) -> None:
    assert str(FixedType.holding(values)) == text


# --- the project -----------------------------------------------------------------------------------------------------


def test_the_project_documents_itself(tiny: Path) -> None:
    manifest = json.loads((tiny / "hawq_flow.json").read_text())
    assert manifest["digest"] == TINY.digest
    assert manifest["config"]["part"] == "xc7z020clg400-1"
    assert manifest["inputs"][0]["scale"] == 2.0**-12
    assert manifest["outputs"][0]["value"] == "act4"
    assert 'set part "xc7z020clg400-1"' in (tiny / "project.tcl").read_text()
    readme = (tiny / "README.md").read_text()
    port = "| input `x` | x | 4 | C order of (4,), batch excluded | int16n"
    for text in ("make check", "./csim INPUT", "The host clips", "vitis-run --tcl build_prj.tcl", TINY.digest, port):
        assert text in readme
    model = onnx.load(tiny / "model.onnx")
    assert {e.key: e.value for e in model.metadata_props}["hawq_flow.digest"] == TINY.digest


def test_the_project_holds_no_path_and_no_trace_of_the_moment(tiny: Path) -> None:
    for path in tiny.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for needle in (str(tiny.parent).encode(), b"site-packages", str(Path.home()).encode() + b"/"):
                assert needle not in content, path
    assert not list(tiny.rglob("*.so"))
    assert not list(tiny.rglob("*.o"))


def test_the_same_network_gives_the_same_bytes(tiny: Path, tmp_path: Path) -> None:
    config = HlsConfig(project="tagger", part="xc7z020clg400-1")
    again = to_hls.write_project(jets_like(sizes=(4, 6, 8, 4, 3)), tmp_path / "elsewhere", config)
    assert hashes(again) == hashes(tiny)


def test_a_copy_rebuilds_and_checks_itself_without_us(tiny: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", tiny, copy], check=True)
    done = subprocess.run(["make", "check"], cwd=copy, capture_output=True, text=True, check=True)
    assert "64 rows equal" in done.stdout
    golden = copy / "tb_data" / "tb_output_predictions.dat"
    lines = golden.read_text().splitlines()
    first = int(lines[2].split()[0])
    lines[2] = " ".join([str(first + 1), *lines[2].split()[1:]])
    golden.write_text("\n".join(lines) + "\n")
    done = subprocess.run(["make", "check"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"row 2, element 0: got {first}, expected {first + 1}" in done.stderr


def test_given_vectors_are_written(tmp_path: Path) -> None:
    x = rows_for(TINY, rows=5)
    project = to_hls.write_project(TINY, tmp_path / "p", vectors=x)
    np.testing.assert_array_equal(np.loadtxt(project / "tb_data" / "tb_input_features.dat", dtype=np.int64), x)
    golden = np.loadtxt(project / "tb_data" / "tb_output_predictions.dat", dtype=np.int64)
    np.testing.assert_array_equal(golden, interpret.run(TINY, x))


def test_what_hls4ml_prints_is_kept_beside_the_project(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Creating HLS model" in (tiny.parent / "project.hls4ml.log").read_text()
    assert capsys.readouterr().out == ""


def test_the_project_is_absent_or_complete(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileExistsError, match="a project is written whole, into a new folder"):
        to_hls.write_project(TINY, tiny)

    def fail(_: Any) -> str:
        raise OSError("disk full")

    monkeypatch.setattr("hawq_flow.to_hls.texts.readme", fail)
    with pytest.raises(OSError, match="disk full"):
        to_hls.write_project(TINY, tmp_path / "p")
    assert [path.name for path in tmp_path.iterdir()] == ["p.hls4ml.log"]


def test_an_hls4ml_that_does_something_else_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = to_hls.design

    def without_a_layer(network: IntegerNetwork, config: HlsConfig) -> to_hls.Design:
        plan = right(network, config)
        return dataclasses.replace(plan, layers=plan.layers[:-1])

    def with_another_weight(network: IntegerNetwork, config: HlsConfig) -> to_hls.Design:
        plan = right(network, config)
        dense = plan.layers[1]
        constants = {**dense.constants, "weight": dense.constants["weight"] + 1}
        return dataclasses.replace(
            plan, layers=(plan.layers[0], dataclasses.replace(dense, constants=constants), *plan.layers[2:])
        )

    monkeypatch.setattr("hawq_flow.to_hls.project.design", without_a_layer)
    with pytest.raises(ProjectError, match=r"layers that were not designed \(bn_act4_scaled\)"):
        to_hls.write_project(TINY, tmp_path / "a")
    monkeypatch.setattr("hawq_flow.to_hls.project.design", with_another_weight)
    with pytest.raises(
        ProjectError, match=r"Dense_fc1_matmul: hls4ml holds a weight of 24 values .*, expected 24 values"
    ):
        to_hls.write_project(TINY, tmp_path / "b")
    assert not (tmp_path / "a").exists()


def test_the_model_must_be_the_networks(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"the QONNX model has digest .* export it again"):
        to_hls.write_project(TINY, tmp_path / "p", model=to_qonnx.export(jets_like(sizes=(4, 6, 8, 4, 3), seed=1)))


# --- refusals --------------------------------------------------------------------------------------------------------


_SAME = (np.int64(1), np.int64(0), np.int64(0), IntType(8, True))
_ACT = OutputSpec("act")


def requantized(type: IntType, inputs: tuple[InputSpec, ...] | None = None, multiplier: int = 1) -> IntegerNetwork:
    inputs = inputs or (InputSpec("x", (2,), IntType(30, True)),)
    return IntegerNetwork(
        inputs,
        (
            Dense("fc", inputs[0].name, np.array([[1, 2], [3, 4]]), np.array([0, 0])),
            Requantize("act", "fc", *(np.int64(v) for v in (multiplier, 0, 0)), type),  # type: ignore[arg-type]
        ),
        (OutputSpec("act"),),
    )


@pytest.mark.parametrize(
    ("network", "text"),
    [
        (requantized(IntType((3, 8), True)), r"act: type int\[3,8\] has a width for each channel; hls4ml has one type"),
        (
            requantized(IntType(8, True), tuple(InputSpec(n, (2,), IntType(8, True)) for n in "xy")),
            r"to_hls: 2 inputs \(x, y\); .*Concatenate",
        ),
        (requantized(IntType(60, True), multiplier=1 << 23), r"act: values up to .*ports carry doubles, 2\^53"),
        (
            IntegerNetwork((InputSpec("x", (), IntType(8, True)),), (Requantize("act", "x", *_SAME),), (_ACT,)),
            r"x: an input of shape \(\); an hls4ml port is an array\. Give it the shape \(1,\)",
        ),
        (
            requantized(IntType(8, True), (InputSpec("network", (2,), IntType(8, True)),)),
            r"network: the input's port is called 'network', and so is the project's top .*Rename the project",
        ),
    ],
)
def test_refused(tmp_path: Path, network: IntegerNetwork, text: str) -> None:
    with pytest.raises(NotExact, match=text):
        to_hls.write_project(network, tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    network = requantized(IntType(8, True))
    dead = dataclasses.replace(network, ops=(*network.ops, Requantize("dead", "fc", *_SAME)))
    with pytest.raises(NotExact, match=r"dead: nobody reads it, .* drop the op or list it as an output"):
        to_hls.write_project(dead, tmp_path / "p", HlsConfig(io_type="io_stream"))
    to_hls.design(dead)  # in parallel it is logic that the vendor tool removes


@pytest.mark.parametrize(
    "name", ["w9", "W2", "b13", "t4", "layer9_out", "config2", "result_t", "AP_TRN", "NULL", "max"]
)
def test_a_port_hides_nothing_that_hls4ml_declares(name: str) -> None:
    plan = to_hls.design(requantized(IntType(8, True), (InputSpec(name, (2,), IntType(8, True)),)))
    assert plan.values[name].tensor == f"{name}_2"
    assert plan.model.graph.input[0].name == f"{name}_2"


def test_a_port_that_would_hide_a_constant_is_noticed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawq_flow.to_hls.graph.VARIABLE", re.compile("nothing"))
    weights = min(path.stem for path in (tiny / "firmware" / "weights").glob("w*.h"))
    for name in (weights, to_hls.read_manifest(tiny)["layers"]["bn_act1_scaled"]["variable"]):
        network = jets_like(sizes=(4, 6, 8, 4, 3))
        first = dataclasses.replace(network.ops[0], input=name)  # type: ignore[call-arg]
        spec = dataclasses.replace(network.inputs[0], name=name)
        shadowed = IntegerNetwork((spec,), (first, *network.ops[1:]), network.outputs)
        with pytest.raises(ProjectError, match=f"{name}: the name of an input port, and in the C.. that of an array"):
            to_hls.write_project(shadowed, tmp_path / "q")


def test_what_hls4ml_raises_is_a_project_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        print("about to fail")
        raise KeyError("t_fc1")

    monkeypatch.setattr("hls4ml.converters.convert_from_onnx_model", fail)
    log = tmp_path / "p.hls4ml.log"
    text = (
        rf"hls4ml failed on the network with digest {TINY.digest[:12]}: KeyError: 't_fc1'\. What it printed is in {log}"
    )
    with pytest.raises(ProjectError, match=text):
        to_hls.write_project(TINY, tmp_path / "p")
    assert "about to fail" in log.read_text()
    assert list(tmp_path.iterdir()) == [log]


def test_a_stream_with_too_many_readers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotExact, match=r"x: \d+ ops and outputs read it; hls4ml copies a stream at most 7 times"):
        to_hls.write_project(nasty_network(), tmp_path / "p", HlsConfig(io_type="io_stream"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"backend": "vitis"}, "backend 'vitis'; expected one of Vitis, Vivado"),
        ({"io_type": "serial"}, "io_type 'serial'; expected one of io_parallel, io_stream"),
        ({"strategy": "distributed_arithmetic"}, "expected one of Latency, Resource"),
        ({"reuse_factor": 0}, "reuse_factor 0, .*expected a factor of 1 or more"),
        (
            {"project": "Parameters"},
            "project 'Parameters'; hls4ml gives that name to a header of its own; choose another",
        ),
        ({"project": "defines"}, "project 'defines'; hls4ml gives that name to a header"),
        ({"project": "ap_fixed"}, "project 'ap_fixed'; hls4ml gives that name to a header"),
        ({"project": "layer9_out"}, "project 'layer9_out'; hls4ml gives that name to a variable"),
        ({"project": "my project"}, r"project 'my project'; expected letters, digits, underscores \(a C\+\+ name\)"),
    ],
)
def test_a_wrong_configuration(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        HlsConfig(**arguments)


def test_the_simulation_checks_its_input(csim: to_hls.Csim) -> None:
    with pytest.raises(ValueError, match=r"float64 array of shape \(1, 4\); expected integers of shape \(n, 4\)"):
        csim.run(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="values from 0 to 40000; the port holds -32767 to 32767"):
        csim.run(np.array([[0, 0, 0, 40000]]))


def test_the_driver_refuses_integers_that_the_port_does_not_hold(csim: to_hls.Csim, tmp_path: Path) -> None:
    rows = tmp_path / "rows.txt"

    def fed(text: str) -> subprocess.CompletedProcess[str]:
        rows.write_text(text)
        return subprocess.run([csim.program, rows], capture_output=True, text=True, check=False)

    for value in (-32768, 32768, 2**62):
        done = fed(f"0 0 0 0\n1 2 {value} 4\n")
        assert done.returncode == 2
        assert done.stderr == (f"{rows}: row 1, element 2: {value}; the port holds -32767 to 32767: clip to them\n")
        assert len(done.stdout.splitlines()) == 1  # of the row before
    done = fed("-32767 32767 0 1\n")
    assert (done.returncode, done.stderr) == (0, "")
    wanted = interpret.run(TINY, np.array([[-32767, 32767, 0, 1]]))
    np.testing.assert_array_equal([[int(word) for word in done.stdout.split()]], wanted)


def test_a_broken_project_and_a_crash_are_outcomes(tiny: Path, csim: to_hls.Csim, tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"no hawq_flow\.json; expected a project written by"):
        to_hls.compile_csim(tmp_path, tmp_path / "build")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", tiny, copy], check=True)
    (copy / "csim.cpp").write_text("#error broken\n")
    with pytest.raises(ToolError, match=r"compile the C simulation: g\+\+ .*failed(.|\n)*error broken"):
        to_hls.compile_csim(copy, tmp_path / "build")
    broken = dataclasses.replace(csim, program=tmp_path / "crash")
    broken.program.write_text("#!/bin/sh\necho gone wrong >&2; kill -SEGV $$\n")
    broken.program.chmod(0o755)
    with pytest.raises(ToolError, match=r"csim: .*failed \(exit code -11\)(.|\n)*gone wrong"):
        broken.run(rows_for(TINY))


# --- others' road ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")  # stock qonnx and hls4ml warn about themselves; this is their road, not ours
def test_stock_qonnx_and_hls4ml_read_the_model_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import hls4ml
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.util.cleanup import cleanup_model

    wrapper = cleanup_model(ModelWrapper(to_qonnx.with_batch(to_qonnx.export(TINY), 1)))
    settings = hls4ml.utils.config_from_onnx_model(wrapper, granularity="name", backend="Vitis")
    graph = hls4ml.converters.convert_from_onnx_model(
        wrapper, output_dir=str(tmp_path / "p"), backend="Vitis", hls_config=settings
    )
    names = [layer.class_name for layer in graph.get_layers()]
    assert names.count("Dense") == 4
    assert names.count("ApplyAlpha") == 4


def test_rounding_modes_have_their_hls_names() -> None:
    for rounding, name in (
        (Rounding.HALF_EVEN, "AP_RND_CONV"),
        (Rounding.FLOOR, "AP_TRN"),
        (Rounding.HALF_UP, "AP_TRN"),
    ):
        network = jets_like(sizes=(2, 2, 2, 2, 2), rounding=rounding)
        layers = {layer.name: layer for layer in to_hls.design(network).layers}
        made = layers["bn_act1_plus_half" if rounding is Rounding.HALF_UP else "bn_act1_scaled"]
        assert made.types["result"].rounding == name
        assert str(made.types["bias"]) == ("ap_ufixed<1,0>" if rounding is Rounding.HALF_UP else "ap_ufixed<1,1>")


def test_reuse_factors_are_those_that_hls4ml_took() -> None:
    def manifest(*taken: int) -> dict[str, object]:
        types = {"weight": "ap_fixed<4,4>", "accum": "ap_fixed<9,9>"}
        layers = {f"fc{i}": {"reuse_factor": r, "types": types} for i, r in enumerate(taken)}
        layers["pool"] = {"reuse_factor": 1, "types": {"accum": "ap_fixed<4,4>"}}
        return {"config": {"reuse_factor": 7}, "layers": {"x": {"reuse_factor": 1, "types": {}}, **layers}}

    assert to_hls.reuse(manifest(7, 7)) == "reuse factor 7"
    assert to_hls.reuse(manifest(6, 8)) == "reuse factors fc0 6, fc1 8 (7 asked for)"
