"""The only formatter: a comparison as text for a terminal, Markdown, CSV, JSON and pictures."""

from harness.report.console import render
from harness.report.write import ReportFiles, write_report

__all__ = ["ReportFiles", "render", "write_report"]
