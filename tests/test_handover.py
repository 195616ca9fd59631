"""The bundle as its receiver has it: proved by one command, with planted faults named, by shell and from Python."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from handover_networks import contents, jets_like
from typer.testing import CliRunner

from hawq_flow import cli, handover
from hawq_flow.handover import HandoverError, archive
from hawq_flow.handover.bundle import fill
from hawq_flow.network import IntegerNetwork

COREUTILS = ("basename", "cat", "dirname", "mktemp", "nproc", "rm", "sha256sum", "wc")
COMPILER = ("g++", "as", "ld")


@pytest.fixture(scope="module")
def network() -> IntegerNetwork:
    return jets_like()


@pytest.fixture(scope="module")
def made(network: IntegerNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a network with an HLS project and Verilog."""
    work = tmp_path_factory.mktemp("made")
    given = contents(network, work=work, backends=("Vitis",), verilog=True, layer_rows=10)
    handover.write(given, work / f"small{handover.SUFFIX}")
    return work / f"small{handover.SUFFIX}"


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    """The same, unpacked where nothing else is."""
    return archive.unpack(made, tmp_path / "receiver")


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PATH with coreutils and g++ and nothing more."""
    folder = tmp_path_factory.mktemp("poor")
    for name in (*COREUTILS, *COMPILER):
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return folder


def verify(bundle: Path, path: Path | str, *options: str, code: int = 0) -> str:
    """What verify.sh says, run elsewhere with that PATH and no other variable."""
    elsewhere = bundle.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    done = subprocess.run(
        ["/bin/sh", str(bundle / "verify.sh"), *options],
        cwd=elsewhere,
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert not list(elsewhere.iterdir())
    return said


def test_a_stranger_proves_it_with_a_shell_and_a_compiler(bundle: Path, poor: Path) -> None:
    said = verify(bundle, poor)
    assert re.search(r"^hashes: \d+ files as they were made; the manifest's own: [0-9a-f]{64}$", said, re.MULTILINE)
    assert "hls/vitis: C simulation equal" in said
    assert "skipped: verilog: neither verilator nor iverilog (with vvp) is on PATH" in said
    assert said.rstrip().endswith("Proved, but for what was skipped.")


@pytest.mark.skipif(not shutil.which("iverilog"), reason="iverilog is not on PATH")
def test_with_a_simulator_the_verilog_is_proved_too(bundle: Path, poor: Path, tmp_path: Path) -> None:
    rich = tmp_path / "rich"
    shutil.copytree(poor, rich, symlinks=True)
    for name in ("iverilog", "vvp"):
        (rich / name).symlink_to(str(shutil.which(name)))
    assert verify(bundle, rich).rstrip().endswith("Proved.")
    design = bundle / "verilog" / "top.v"
    whole = design.read_text()
    design.write_text(whole.replace("endmodule", "endmodul"))
    said = verify(bundle, rich, "--no-hashes", "--only", "verilog", code=1)
    assert "FAIL: it does not compile" in said
    design.write_text(whole)
    (bundle / "verilog" / "testbench" / "run.sh").rename(bundle / "run.sh")
    said = verify(bundle, rich, "--no-hashes", "--only", "verilog", code=1)
    assert "verilog/testbench/run.sh is missing" in said
    (bundle / "run.sh").rename(bundle / "verilog" / "testbench" / "run.sh")
    module = next(path for path in sorted((bundle / "verilog").glob("*.v")) if "fc" in path.name)
    module.write_text(bump(module.read_text(), r"\d'd(\d\d)", 500))  # a bias
    said = verify(bundle, rich, "--no-hashes", "--only", "verilog", code=1)
    assert re.search(r"FAIL: stage \w*fc\w*: value fc_requant, row \d+, element \d+: got -?\d+, expected -?\d+", said)


def test_from_python(made: Path, bundle: Path, network: IntegerNetwork) -> None:
    for given in (made, bundle):
        told: list[str] = []
        found = handover.check(given, tell=told.append)
        assert found.network == network.digest
        assert found.name == "small-int4"
        assert list(found.steps) == told
        assert any(line.startswith("vectors: 60 rows of outputs, 10 of 4 layers") for line in told)
        assert any(line.startswith("images: ") and line.endswith("equal to the network's") for line in told)
        assert any("onnx: QONNX and integer ONNX equal on 60 rows" in line for line in told)


def test_the_same_bytes_twice(network: IntegerNetwork, made: Path, tmp_path: Path) -> None:
    given = contents(network, work=tmp_path, backends=("Vitis",), verilog=True, layer_rows=10)
    digest = handover.write(given, tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == made.read_bytes()
    out = archive.unpack(made, tmp_path / "out")
    assert digest == hashlib.sha256((out / archive.SUMS).read_bytes()).hexdigest()


def test_it_names_nobodys_machine(bundle: Path) -> None:
    for path in archive.files(bundle):
        content = path.read_bytes()
        for place in (b"/work/", b"/tmp/", b"/home/", b"/root"):
            assert place not in content or path.name in ("verify.sh", "run.sh"), (path, place)


# ------------------------------------------------------------------------------------------------------- planted faults


def edit(file: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def plant(bundle: Path) -> None:
        path = bundle / file
        text = path.read_text()
        changed = change(text)
        assert changed != text
        path.write_text(changed)

    return plant


def bump(text: str, pattern: str, by: int = 1) -> str:
    """The number that the pattern's group matches, made larger."""
    found = re.search(pattern, text)
    assert found, pattern
    return text[: found.start(1)] + str(int(found.group(1)) + by) + text[found.end(1) :]


def hls_weight(bundle: Path) -> Path:
    return next(path for path in sorted(bundle.glob("hls/vitis/project/firmware/weights/w*.h")))


def plant_hls_weight(bundle: Path) -> None:
    path = hls_weight(bundle)
    path.write_text(bump(path.read_text(), r"= \{\s*(-?\d+)"))


def plant_hls_multiplier(bundle: Path) -> None:
    path = sorted(bundle.glob("hls/vitis/project/firmware/weights/s*.h"))[0]
    text = path.read_text()
    found = re.search(r"= \{\s*([-0-9.e]+)", text)
    assert found, text
    path.write_text(text[: found.start(1)] + repr(float(found.group(1)) * 2) + text[found.end(1) :])


def plant_port_type(bundle: Path) -> None:
    path = bundle / "hls/vitis/project/firmware/defines.h"
    text = path.read_text()
    changed = re.sub(r"ap_fixed<8,8>( input_t;)", r"ap_fixed<9,9>\1", text)
    if changed == text:
        changed = text.replace("ap_fixed<8,8", "ap_fixed<9,9", 1)
    assert changed != text
    path.write_text(changed)


FAULTS: dict[str, tuple[Callable[[Path], None], str, str, str]] = {
    # what is planted, which step finds it, the file that hashes name, what the step says
    "weight of the reference": (
        edit("reference/network.cpp", lambda text: bump(text, r"weight\[[^=]*= \{\s*\{\s*(-?\d+)")),
        "reference",
        "reference/network.cpp",
        r"fc.*row \d+.*element.*got -?\d+, expected -?\d+",
    ),
    "multiplier of the reference": (
        edit("reference/network.cpp", lambda text: bump(text, r"multiplier\[[^=]*= \{\s*(\d+)")),
        "reference",
        "reference/network.cpp",
        r"fc_requant.*row \d+.*element.*got -?\d+, expected -?\d+",
    ),
    "weight of the project": (plant_hls_weight, "hls", "hls/vitis/project/firmware/weights/w", r"fc"),
    "multiplier of the project": (plant_hls_multiplier, "hls", "hls/vitis/project/firmware/weights/s", r"fc"),
    "port type": (plant_port_type, "hls", "hls/vitis/project/firmware/defines.h", r"ap_fixed<9,9>.*ap_fixed<8,8>"),
    "output vector": (
        edit("vectors/outputs.txt", lambda text: bump(text, r"(-?\d+)")),
        "reference",
        "vectors/outputs.txt",
        r"head_requant.*row 0.*got -?\d+, expected -?\d+",
    ),
    "layer vector": (
        edit("vectors/layers/fc.txt", lambda text: bump(text, r"\n(-?\d+)")),
        "reference",
        "vectors/layers/fc.txt",
        r"fc.*row 1.*got -?\d+, expected -?\d+",
    ),
    "golden vector of the project": (
        edit("hls/vitis/tb_data/outputs.txt", lambda text: bump(text, r"(-?\d+)")),
        "hls",
        "hls/vitis/tb_data/outputs.txt",
        r"row 0.*got -?\d+, expected -?\d+",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault: str, bundle: Path, poor: Path) -> None:
    plant, step, file, said = FAULTS[fault]
    plant(bundle)
    hashed = verify(bundle, poor, "--only", "hashes", code=1)
    assert re.search(re.escape(file) + r"\S*: FAILED", hashed)
    assert hashed.rstrip().endswith("This bundle is NOT proved.")
    computed = verify(bundle, poor, "--no-hashes", "--only", step, code=1)
    assert re.search(said, computed), computed
    with pytest.raises(HandoverError, match=re.escape(file)):
        handover.check(bundle)
    archive.write_sums(bundle)  # whoever planted it also made the hashes anew
    with pytest.raises(HandoverError, match=said):
        handover.check(bundle)


def test_images_are_held_against_the_network(bundle: Path) -> None:
    for form, said in (
        ("hex", r"images/: .*head\.weight, row 0, element 1 \(flat\) is -?\d+, in .*head\.weight\.hex 0"),
        ("bin", r"images/: head\.weight .*element \[0, 1\]: got 0, expected -?\d+"),
    ):
        image = bundle / "images" / f"head.weight.{form}"
        lines = image.read_text().splitlines()
        image.write_text("\n".join([lines[0], "0" * len(lines[1]), *lines[2:]]) + "\n")
        archive.write_sums(bundle)
        with pytest.raises(HandoverError, match=said):
            handover.check(bundle)


def test_hashes_that_do_not_belong_are_named(bundle: Path, poor: Path) -> None:
    sums = bundle / archive.SUMS
    text = sums.read_text()
    line = next(line for line in text.splitlines() if line.endswith("vectors/inputs.txt"))
    sums.write_text(text.replace(line, "0" * 64 + line[64:]))
    assert "vectors/inputs.txt: FAILED" in verify(bundle, poor, code=1)
    sums.write_text(text.replace(line + "\n", ""))
    sums.write_text(text)
    (bundle / "hls" / "vitis" / "project" / "firmware" / "ap_int.h").write_text("// shadows the real one\n")
    said = verify(bundle, poor, code=1)
    assert "hashes: hls/vitis/project/firmware/ap_int.h is not in MANIFEST.sha256: it was added" in said
    (bundle / "hls" / "vitis" / "project" / "firmware" / "ap_int.h").unlink()
    (bundle / "reference" / "..x").write_text("")
    assert "hashes: reference/..x is not in MANIFEST.sha256" in verify(bundle, poor, "--only", "hashes", code=1)
    (bundle / "reference" / "..x").unlink()
    for changed, found in (
        (text.replace(line, "#" + line), f"has the line '#{line}'; expected a checksum and a file"),
        (text.replace(line, line[1:]), "expected a checksum and a file"),
        (text.replace(line, line.replace("vectors/", "../")), "expected a checksum and a file"),
        (text + line + "\n", "names vectors/inputs.txt twice"),
        (text.replace(line + "\n", ""), "files; this bundle was made of"),
        (text.replace("\n", "\r\n"), "expected a checksum and a file"),
    ):
        sums.write_text(changed)
        assert found in verify(bundle, poor, "--only", "hashes", code=1)
    sums.write_text(text)
    (bundle / "plan.json").symlink_to("bundle.json")
    assert "hashes: plan.json is a symbolic link" in verify(bundle, poor, "--only", "hashes", code=1)
    (bundle / "plan.json").unlink()
    (bundle / "contract.md").unlink()
    assert "contract.md" in verify(bundle, poor, code=1)


def test_what_verify_refuses(bundle: Path, poor: Path, tmp_path: Path) -> None:
    assert "unknown option --fast" in verify(bundle, poor, "--fast", code=2)
    assert "--only speed: expected hashes, reference, hls or verilog" in verify(bundle, poor, "--only", "speed", code=2)
    said = verify(bundle, poor, "--strict", "--only", "verilog", code=1)
    assert "neither verilator nor iverilog (with vvp) is on PATH, and --strict was given" in said
    bare = tmp_path / "bare"
    shutil.copytree(poor, bare, symlinks=True)
    (bare / "g++").unlink()
    assert "no C++ compiler 'g++'; install g++ or set CXX" in verify(bundle, bare, code=2)


def test_folders_with_blanks_are_no_trouble(bundle: Path, poor: Path) -> None:
    there = bundle.parent / "a folder of mine" / bundle.name
    there.parent.mkdir()
    os.rename(bundle, there)
    assert "hls/vitis: C simulation equal" in verify(there, poor)


# ------------------------------------------------------------------------------------------------- what else is refused


def test_a_bundle_of_another_version_or_network_is_refused(bundle: Path) -> None:
    index = json.loads((bundle / "bundle.json").read_text())
    for change, said in (
        ({"version": 99}, "bundle format 99; this hawq_flow checks 1. Its own verify.sh needs no hawq_flow"),
        ({"format": "other"}, "bundle.json says 'other'; not a handover bundle"),
        ({"network": "0" * 64}, "bundle.json is of the network 000000000000, network/ holds"),
    ):
        (bundle / "bundle.json").write_text(json.dumps(index | change))
        archive.write_sums(bundle)
        with pytest.raises(HandoverError, match=re.escape(said)):
            handover.check(bundle)
    (bundle / "bundle.json").unlink()
    with pytest.raises(HandoverError, match=r"no bundle\.json; not a handover bundle"):
        handover.check(bundle)


def test_a_bundle_that_is_not_proved_is_not_written(network: IntegerNetwork, tmp_path: Path) -> None:
    given = contents(network, work=tmp_path, backends=("Vitis",))
    project = given.projects["Vitis"]
    weights = sorted((project / "firmware" / "weights").glob("w*.h"))[0]
    weights.write_text(bump(weights.read_text(), r"= \{\s*(-?\d+)"))
    with pytest.raises(Exception, match=r"changed|another|weight"):
        handover.write(given, tmp_path / "none.tar.gz")
    assert not (tmp_path / "none.tar.gz").exists()


def test_without_project_and_verilog_there_is_still_the_reference(network: IntegerNetwork, tmp_path: Path) -> None:
    handover.write(contents(network, without_rtl="it is 'too' $large`"), tmp_path / "bare.tar.gz")
    bundle = archive.unpack(tmp_path / "bare.tar.gz", tmp_path / "out")
    assert not (bundle / "hls").exists()
    assert not (bundle / "verilog").exists()
    assert "There is neither an HLS project nor Verilog here" in (bundle / "README.md").read_text()
    folder = tmp_path / "again"
    folder.mkdir()
    fill(contents(network), folder)
    assert (folder / "reference" / "network.cpp").is_file()


# ---------------------------------------------------------------------------------------------------------- the command


def test_the_command_checks_an_archive(made: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["handover", "--check", str(made)])
    assert result.exit_code == 0, result.output
    assert "small-int4: proved; network" in result.output
    result = CliRunner().invoke(cli.app, ["handover", "--check", str(made), "--rows", "3"])
    assert result.exit_code == 2
    assert "--check takes a bundle and no other option" in result.output


# -------------------------------------------------------------------------------------------------- bundles made before


def test_a_bundle_of_an_earlier_day_is_still_proved(poor: Path, tmp_path: Path) -> None:
    """One of format 1, kept: its own script needs nothing of ours, and we still read it."""
    bundle = archive.unpack(Path(__file__).parent / "data" / "handover_v1.tar.gz", tmp_path / "receiver")
    assert verify(bundle, poor).rstrip().endswith("Proved, but for what was skipped.")
    assert handover.check(bundle).name == "small-int4"
