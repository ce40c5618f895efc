"""A compress run as one page: `report.html` and `report.md`, drawn from the content of `result.json` alone."""

from .run import FinishedRun, read_run
from .write import REPORTS, draw_reports, is_report, write_report

__all__ = ["REPORTS", "FinishedRun", "draw_reports", "is_report", "read_run", "write_report"]
