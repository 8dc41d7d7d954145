"""Reports: the model, and its renderings for terminal, HTML, Markdown and JUnit."""

from harmony_conformance.report.model import BadReport, Report, ResultLine, make_report, read_report, result_line

__all__ = ["BadReport", "Report", "ResultLine", "make_report", "read_report", "result_line"]
