"""A text written to a file and read as a report, or refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import report_texts as texts
from report_texts import written

from hawq_flow import report
from hawq_flow.report import HlsReport, ReportError


def read(folder: Path, name: str, text: str | None = None) -> HlsReport:
    return report.read(written(folder, name, texts.ALL[name] if text is None else text))


def refused(folder: Path, name: str, text: str) -> str:
    path = written(folder, name, text)
    with pytest.raises(ReportError) as caught:
        report.read_all(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def bare(one: HlsReport) -> HlsReport:
    return dataclasses.replace(one, sources=())
