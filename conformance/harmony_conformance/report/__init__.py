"""Reports: the model, and its renderings for terminal, HTML, Markdown and JUnit."""

from harmony_conformance.report.model import (
    InvalidReportError,
    Report,
    ResultLine,
    make_report,
    read_report,
    result_line,
)

__all__ = ["InvalidReportError", "Report", "ResultLine", "make_report", "read_report", "result_line"]
