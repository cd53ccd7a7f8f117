"""The only formatter: a comparison as text for a terminal, HTML, Markdown, CSV, JSON, Parquet and pictures."""

from harness.report.console import render
from harness.report.write import ReportFiles, write_report, write_reports

__all__ = ["ReportFiles", "render", "write_report", "write_reports"]
