"""Reports of vendor tools and of open ones, read into one schema (:class:`HlsReport`) or refused with the line.

``read`` reads a file, ``read_project`` the files of one project, ``tree`` every project of a folder tree; ``table``
makes one tidy table of them and ``write_table`` writes it. See docs/reports.md.
"""

from hawq_flow.report.frame import Capacity, markdown, table, write_table
from hawq_flow.report.merge import merge
from hawq_flow.report.project import Refusal, read_project, tree
from hawq_flow.report.read import read, read_all
from hawq_flow.report.schema import Foreign, HlsReport, NoFigures, ReportError, Resources, Row, Stage, Timing
from hawq_flow.report.values import same_part

__all__ = [
    "Capacity",
    "Foreign",
    "HlsReport",
    "NoFigures",
    "Refusal",
    "ReportError",
    "Resources",
    "Row",
    "Stage",
    "Timing",
    "markdown",
    "merge",
    "read",
    "read_all",
    "read_project",
    "same_part",
    "table",
    "tree",
    "write_table",
]
