"""The certificate: its shape, its verdict, and that an error of one unit is found and named."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from strategies import jets_like, jets_rows, planted

from hawq_flow import equality, interpret, to_hls, to_onnx
from hawq_flow.equality import EqualityError
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec
from hawq_flow.numeric import IntType

# Multipliers of 5 bits: one unit in a 16-bit multiplier moves a 6-bit result once in thousands of rows.
NETWORK = jets_like(sizes=(6, 8, 8, 4, 3), multiplier_bits=5)
ROWS = jets_rows(NETWORK, 400)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return to_hls.write_project(NETWORK, tmp_path_factory.mktemp("equality") / "project")


def test_all_representations_are_equal(project: Path, tmp_path: Path) -> None:
    trace = {name: values.astype(np.float64) for name, values in interpret.trace(NETWORK, ROWS).items()}
    certificate = equality.certify(
        NETWORK,
        ROWS,
        {
            "qat": equality.trace_backend(trace, "QAT module in eval, float64"),
            "reference": equality.reference_backend(NETWORK),
            "interpreter": equality.interpreter_backend(NETWORK),
            "qonnx": equality.qonnx_backend(NETWORK),
            **equality.onnx_backends(NETWORK, to_onnx.export(NETWORK)),
            "csim_vitis": equality.csim_backend(project, tmp_path),
        },
    )
    assert equality.equal(certificate)
    equality.require(certificate)
    assert certificate["samples"] == 400
    total = sum(values.size for values in trace.values())
    for name, entry in certificate["backends"].items():
        assert set(entry) == {"mismatches", "elements", "method", "first_mismatch"}
        assert entry["mismatches"] == 0
        assert entry["elements"] == (1200 if name.startswith(("csim", "onnx")) else total)
        assert entry["first_mismatch"] is None
    assert certificate["backends"]["csim_vitis"]["method"].startswith("hls4ml 1")
    text = equality.markdown(certificate)
    assert "All 8 representations equal the interpreter, integer by integer, on 400 samples." in text
    assert "| csim_vitis | 0 | 1,200 | none |" in text
    equality.write(certificate, tmp_path / "equality.json")
    assert json.loads((tmp_path / "equality.json").read_text()) == certificate


@pytest.mark.parametrize("kind", ["weight", "multiplier", "rounding"])
def test_a_planted_error_of_one_unit_is_found_and_named(kind: str) -> None:
    wrong, layer = planted(NETWORK)[kind]
    right, got = interpret.trace(NETWORK, ROWS)[layer], interpret.trace(wrong, ROWS)[layer]
    row, element = np.argwhere(right != got)[0].tolist()
    backends = {"interpreter": equality.interpreter_backend(wrong), "qonnx": equality.qonnx_backend(wrong)}
    certificate = equality.certify(NETWORK, ROWS, backends)
    for name in backends:
        assert certificate["backends"][name]["first_mismatch"] == {
            "layer": layer,
            "row": row,
            "element": [element],
            "got": int(got[row, element]),
            "expected": int(right[row, element]),
        }
    assert not equality.equal(certificate)
    assert "**Not equal** on 400 samples." in equality.markdown(certificate)
    with pytest.raises(
        EqualityError, match=rf"qonnx: \d+ of \d+ elements differ; first {layer}\[{element}\] in row {row}"
    ):
        equality.require(certificate)


@pytest.mark.parametrize("kind", ["weight", "rounding"])
def test_a_planted_error_is_found_in_standard_onnx_which_gives_outputs_only(kind: str) -> None:
    wrong, layer = planted(NETWORK)[kind]
    certificate = equality.certify(NETWORK, ROWS, equality.onnx_backends(wrong, to_onnx.export(wrong)))
    right, got = interpret.trace(NETWORK, ROWS)[layer], interpret.trace(wrong, ROWS)[layer]
    assert list(certificate["backends"]) == ["onnx-plain", "onnx-optimized", "onnx-reference"]
    for entry in certificate["backends"].values():
        first = entry["first_mismatch"]
        assert (entry["elements"], first["layer"]) == (1200, layer)
        index = (first["row"], *first["element"])
        assert (first["got"], first["expected"]) == (int(got[index]), int(right[index]))
        assert first["got"] != first["expected"]


@pytest.mark.parametrize(
    "kind",
    ["multiplier", pytest.param("weight", marks=pytest.mark.slow), pytest.param("rounding", marks=pytest.mark.slow)],
)
def test_a_planted_error_is_found_in_the_c_simulation_which_gives_outputs_only(kind: str, tmp_path: Path) -> None:
    wrong, layer = planted(NETWORK)[kind]
    project = to_hls.write_project(wrong, tmp_path / "project")
    certificate = equality.certify(NETWORK, ROWS, {"csim": equality.csim_backend(project, tmp_path / "build")})
    entry = certificate["backends"]["csim"]
    first = entry["first_mismatch"]
    assert entry["elements"] == 1200
    assert first["layer"] == layer
    index = (first["row"], *first["element"])
    right, got = interpret.trace(NETWORK, ROWS)[layer], interpret.trace(wrong, ROWS)[layer]
    assert (first["got"], first["expected"]) == (int(got[index]), int(right[index]))
    assert first["got"] != first["expected"]


def test_a_weight_edited_in_the_written_firmware_is_found(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", project, copy], check=True)
    variable = to_hls.read_manifest(copy)["layers"]["Dense_fc3_matmul"]["variable"]
    header = copy / "firmware" / "weights" / f"w{re.sub('[^0-9]', '', variable)}.h"
    before, brace, values = header.read_text().partition("] = {")
    numbers = values.split(",")
    numbers[0] = str(int(numbers[0]) + 1)
    header.write_text(before + brace + ",".join(numbers))
    certificate = equality.certify(NETWORK, ROWS, {"csim": equality.csim_backend(copy, tmp_path / "build")})
    first = certificate["backends"]["csim"]["first_mismatch"]
    assert (first["layer"], first["element"]) == ("fc3", [0])
    assert first["got"] - first["expected"] == interpret.trace(NETWORK, ROWS)["act2"][first["row"], 0]


def test_what_cannot_be_compared_is_an_error() -> None:
    trace = interpret.trace(NETWORK, ROWS)
    with pytest.raises(EqualityError, match=r"backend 'qat': values the network lacks: extra; .*name them like that"):
        equality.certify(NETWORK, ROWS, {"qat": equality.trace_backend({**trace, "extra": ROWS}, "")})
    with pytest.raises(EqualityError, match=r"outputs it does not give: act4\. The network's values are x, fc1"):
        equality.certify(NETWORK, ROWS, {"qat": equality.trace_backend({"fc1": trace["fc1"]}, "")})
    with pytest.raises(EqualityError, match=r"act4 has shape \(399, 3\); expected \(400, 3\)"):
        equality.certify(NETWORK, ROWS, {"qat": equality.trace_backend({"act4": trace["act4"][:-1]}, "")})
    with pytest.raises(EqualityError, match="0 samples; equality on nothing proves nothing"):
        equality.certify(NETWORK, ROWS[:0], {})


def test_a_value_that_is_not_whole_is_a_mismatch() -> None:
    values = interpret.trace(NETWORK, ROWS)["act4"].astype(float)
    values[5, 1] += 0.25
    certificate = equality.certify(NETWORK, ROWS, {"qat": equality.trace_backend({"act4": values}, "float")})
    entry = certificate["backends"]["qat"]
    assert (entry["mismatches"], entry["first_mismatch"]["element"]) == (1, [1])
    assert entry["first_mismatch"]["got"] == values[5, 1]


def test_mismatches_count_elements_and_the_first_is_named() -> None:
    network = IntegerNetwork(
        (InputSpec("x", (2,), IntType(8, signed=True)),),
        (Dense("fc", "x", np.eye(2, dtype=np.int64), np.zeros(2, np.int64)),),
        (OutputSpec("fc"),),
    )
    x = np.array([[1, 2], [3, 4], [5, 6]])
    wrong = x.copy()
    wrong[1] = [7, 8]
    wrong[2, 1] = 9
    given = equality.trace_backend({"fc": wrong}, "by hand")
    entry = equality.certify(network, x, {"other": given})["backends"]["other"]
    assert (entry["mismatches"], entry["elements"]) == (3, 6)
    assert entry["first_mismatch"] == {"layer": "fc", "row": 1, "element": [0], "got": 7, "expected": 3}


def test_what_cannot_be_compared_is_refused() -> None:
    network = IntegerNetwork(
        (InputSpec("x", (1,), IntType(8, signed=True)),),
        (Dense("fc", "x", np.array([[1 << 54]]), np.zeros(1, np.int64)),),
        (OutputSpec("fc"),),
    )
    x = np.array([[1], [2]])

    def certify(values: object) -> dict[str, object]:
        return equality.certify(network, x, {"other": equality.trace_backend({"fc": values}, "by hand")})  # type: ignore[dict-item]

    with pytest.raises(equality.EqualityError, match="comes as float64, which cannot tell its integers apart"):
        certify((x << 54).astype(np.float64))
    with pytest.raises(equality.EqualityError, match=r"has shape \(2,\); expected \(2, 1\)"):
        certify((x << 54).ravel())
    with pytest.raises(equality.EqualityError, match="is of complex128; expected integers"):
        certify(x.astype(complex))
    with pytest.raises(equality.EqualityError, match="no backend to compare"):
        equality.certify(network, x, {})


def test_not_a_number_is_a_mismatch() -> None:
    network = IntegerNetwork(
        (InputSpec("x", (1,), IntType(8, signed=True)),),
        (Dense("fc", "x", np.ones((1, 1), np.int64), np.zeros(1, np.int64)),),
        (OutputSpec("fc"),),
    )
    given = equality.trace_backend({"fc": np.array([[np.nan]])}, "by hand")
    entry = equality.certify(network, np.array([[1]]), {"other": given})["backends"]["other"]
    assert entry["mismatches"] == 1
    assert entry["first_mismatch"]["got"] == "nan"
