"""The README's table of layers is what trying them gives; the command prints it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hawq_flow import cli, supported

README = Path(__file__).parent.parent / "README.md"
START, END = "<!-- hawq-flow layers -->\n", "<!-- /hawq-flow layers -->\n"


@pytest.fixture(scope="module")
def lines() -> list[supported.Line]:
    return list(supported.lines())


def test_the_readme_tells_what_trying_gives(lines: list[supported.Line], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supported, "lines", lambda: iter(lines))
    shown = CliRunner().invoke(cli.app, ["layers"])
    assert shown.exit_code == 0
    text = README.read_text()
    assert text.partition(START)[2].partition(END)[0] == shown.output, "put the output of `hawq-flow layers` there"


def test_every_row_goes_to_qonnx_and_refusals_name_the_way_out(lines: list[supported.Line]) -> None:
    assert len(lines) == len(supported.ROWS) >= 20
    assert all("QONNX" not in line.refusals for line in lines)
    refused = {line.torch: line.refusals for line in lines if line.refusals}
    assert set(refused) == {
        "grouped convolution, other",
        "`MaxPool1d/2d`, overlapping or padded",
        "`Softmax` over channels",
    }
    assert "HLS io_parallel" not in refused["`MaxPool1d/2d`, overlapping or padded"]
    for reasons in refused.values():
        assert all("Use " in reason or "end the network on" in reason for reason in reasons.values())
