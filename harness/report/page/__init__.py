"""One self-contained HTML page of one sweep or several: no script, no network, light and dark, screen and paper."""

from harness.report.page.page import to_html
from harness.report.page.several import SideBySide, side_by_side

__all__ = ["SideBySide", "side_by_side", "to_html"]
