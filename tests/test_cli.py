"""The command: version, help, one message an error, show."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from test_importing import mlp
from typer.testing import CliRunner

from hawq_flow import __version__, cli, plan, store

runner = CliRunner()
ROOT = Path(__file__).parent.parent


def test_version_and_help() -> None:
    assert runner.invoke(cli.app, ["--version"]).output == f"hawq-flow {__version__}\n"
    shown = runner.invoke(cli.app, ["--help"])
    assert shown.exit_code == 0
    assert "run" in shown.output
    assert "show" in shown.output


def _main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["hawq-flow", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_errors_are_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _main(monkeypatch, "run", str(tmp_path / "none.toml")) == 1
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "experiment.toml").write_text('name = "x"\nsede = 1\n')
    assert _main(monkeypatch, "run", str(tmp_path)) == 1
    error = capsys.readouterr().err
    assert "unknown key 'sede'" in error
    assert "did you mean 'seed'" in error
    assert "Traceback" not in error


def test_unknown_stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    experiment = str(ROOT / "experiments" / "tiny")
    assert _main(monkeypatch, "run", experiment, "--out", str(tmp_path), "--until", "everything") == 1
    assert "unknown stage 'everything'" in capsys.readouterr().err


def test_run_and_show(tmp_path: Path) -> None:
    experiment = str(ROOT / "experiments" / "tiny")
    done = runner.invoke(cli.app, ["run", experiment, "--out", str(tmp_path), "--until", "data", "--quiet"])
    assert done.exit_code == 0, done.output
    shown = runner.invoke(cli.app, ["show", str(tmp_path / "data")])
    assert shown.exit_code == 0
    assert "artifact of stage data" in " ".join(shown.output.split())
    assert "data.json" in shown.output
    (tmp_path / "data" / "data.json").write_text("{}")
    with pytest.raises(store.StoreError, match="changed since it was made"):
        runner.invoke(cli.app, ["show", str(tmp_path / "data")], catch_exceptions=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_of_a_batch_system_leaves_no_temporary_folder(number: signal.Signals, tmp_path: Path) -> None:
    """A command of ours that has one, told to end in the middle."""
    (tmp_path / "temporary").mkdir()
    script = tmp_path / "slow.py"
    script.write_text(
        "import signal, sys, tempfile, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from hawq_flow import cli\n"
        "def slow():\n"
        "    with tempfile.TemporaryDirectory():\n"
        "        print('works', flush=True)\n"
        "        time.sleep(60)\n"
        "cli.app.command('slow')(slow)\n"
        "sys.argv[1:] = ['slow']\n"
        "cli.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "works\n"
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    process.stdout.close()
    assert not list((tmp_path / "temporary").iterdir())


def test_show_lists_a_run(tmp_path: Path) -> None:
    store.make(tmp_path / "data", "data", {}, lambda folder: (folder / "f").write_text("x") and None)
    shown = runner.invoke(cli.app, ["show", str(tmp_path)])
    assert shown.exit_code == 0
    assert "artifact" in shown.output
    assert "data" in shown.output


def test_show_of_nothing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store.make(tmp_path / "data", "data", {}, lambda folder: (folder / "f").write_text("x") and None)
    assert _main(monkeypatch, "show", str(tmp_path / "none")) == 1
    shown = capsys.readouterr()
    assert shown.err.count("error:") == 1
    assert "none: no such file or folder; give a run's folder" in shown.err
    assert shown.out == ""


def test_a_file_is_checked_imported_repaired_and_exported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "other.onnx"
    onnx.save(mlp(), file)
    assert _main(monkeypatch, "check", str(file), "--for", "hls4ml") == 1
    assert "| kind | node | op |" in capsys.readouterr().out
    repaired = tmp_path / "fixed" / "repaired.onnx"
    assert _main(monkeypatch, "check", str(file), "--repair", str(repaired)) == 0
    assert f"{repaired}: an equal model in integers that hls4ml imports" in capsys.readouterr().out
    assert _main(monkeypatch, "check", str(repaired)) == 0
    out = tmp_path / "run"
    arguments = ["import", str(file), "--out", str(out), "--rows", "50", "--project", "mine", "--handover", "--quiet"]
    assert _main(monkeypatch, *arguments) == 0
    said = capsys.readouterr().out
    assert "0 mismatches on 50 samples" in said
    assert "mine.tar.gz: 0." in said
    assert _main(monkeypatch, "handover", "--check", str(out / "mine.tar.gz")) == 0
    assert re.search(r"vectors: 1,\d\d\d rows of outputs", capsys.readouterr().out)
    for form in ("qonnx", "onnx", "qcdq", "finn"):
        written = tmp_path / f"{form}.onnx"
        arguments = ["export", str(out / "network/model"), "--as", form, "-o", str(written), "--rows", "20"]
        assert _main(monkeypatch, *arguments) == 0
        assert "the interpreter, integer by integer, on 20 samples" in capsys.readouterr().out
        onnx.checker.check_model(str(written))


def test_command_lines_that_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "other.onnx"
    onnx.save(mlp(quantized_input=False), file)
    out = str(tmp_path / "run")
    assert _main(monkeypatch, "import", str(file), "--out", out) == 1
    shown = capsys.readouterr().err
    assert "other.onnx: refused for 1 thing" in shown
    assert "--input 'x=ap_fixed<16,6>'" in shown
    assert _main(monkeypatch, "import", str(file), "--out", out, "--input", "x") == 2
    assert "--input 'x': expected NAME=TYPE" in capsys.readouterr().err
    assert _main(monkeypatch, "import", str(file), "--out", out, "--input", "x=ap_fixed<16,6>", "--hls", "Quartus") == 1
    assert "backend 'Quartus'; expected one of Vitis, Vivado" in capsys.readouterr().err
    assert _main(monkeypatch, "import", str(file), "--out", out, "--input", "x=ap_fixed<8,4>", "--quiet") == 0
    network = str(Path(out) / "network/model")
    capsys.readouterr()
    assert _main(monkeypatch, "export", network, "--as", "qcdq", "--bipolar", "-o", out + ".onnx") == 1
    assert "qcdq has no option bipolar; its options: none" in capsys.readouterr().err
    assert _main(monkeypatch, "export", out, "--as", "onnx", "-o", out + ".onnx") == 1
    assert f"no saved network itself; there are {network}" in capsys.readouterr().err
    assert _main(monkeypatch, "export", network, "--as", "onnx", "-o", str(tmp_path)) == 1
    assert "is a folder; name the file to write" in capsys.readouterr().err
    assert _main(monkeypatch, "export", network, "--as", "onnx", "--rows", "0", "-o", out + ".onnx") == 2
    assert _main(monkeypatch, "import", str(tmp_path / "no.onnx")) == 1
    assert "no.onnx: no such file; give an ONNX file" in capsys.readouterr().err
    assert _main(monkeypatch, "import", str(file), "--out", str(file)) == 1
    assert "is a file; --out names a folder" in capsys.readouterr().err
    assert _main(monkeypatch, "export", network, "--as", "zip", "-o", out + ".onnx") == 2
    assert not Path(out + ".onnx").exists()


def test_interruption_and_bugs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def bug() -> None:
        raise ValueError("not from the package: a bug, to be seen whole")

    monkeypatch.setattr(cli, "app", interrupted)
    assert _main(monkeypatch) == 130
    assert "what was finished is kept" in capsys.readouterr().err
    monkeypatch.setattr(cli, "app", bug)
    with pytest.raises(ValueError, match="a bug"):
        cli.main()
    monkeypatch.setattr(cli, "app", lambda: plan.BitPlan.from_json("{}"))
    assert _main(monkeypatch) == 1
    assert "error: plan: unknown keys none" in capsys.readouterr().err
    monkeypatch.setenv(cli.TRACEBACK, "1")
    with pytest.raises(ValueError, match="unknown keys none"):
        cli.main()
