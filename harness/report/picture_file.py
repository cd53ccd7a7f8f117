"""A figure as a file: PNG, SVG, or SVG to stand inside a page and take the page's colours."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.report.canvas import BLUE, GREY, GRID, INK, ORANGE, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a picture is drawn in -> the page's variable for it, so that a dark page has light lines.
PAGE_COLOURS: Mapping[str, str] = {
    INK: "ink",
    "#000000": "ink",
    "#ffffff": "page",
    GRID: "grid",
    GREY: "muted",
    "#AAAAAA": "muted",
    BLUE: "blue",
    SKY: "sky",
    ORANGE: "orange",
}
# Verdana is as wide as the font that the picture was laid out with, other fonts are narrower: nothing overlaps.
_FONTS = "'DejaVu Sans', Verdana, Arial, sans-serif"


def to_png(figure: Figure) -> bytes:
    """The figure as PNG, the same bytes for the same figure and library versions."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def to_svg(figure: Figure, name: str) -> bytes:
    """The figure as a file of its own, with text as text; ``name`` keeps its ids apart from other pictures'."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    # XML has no control characters, but a label may
    return re.sub(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", b"", buffer.getvalue())


def to_inline_svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an ``<svg>`` element: no size of its own, ids of its own, the colours of the page around it.

    ``title`` is plain text, what a screen reader says.
    """
    from xml.sax.saxutils import escape

    svg = to_svg(figure, name).decode("utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    head = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box.group(0) if box else ""} role="img"'
    # a text's own content cannot hold these: quotes and brackets in it are escaped
    rest = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', rest)
    rest = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{name}-\1"', rest)
    rest = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", rest)
    for colour, variable in PAGE_COLOURS.items():
        rest = re.sub(rf"((?:fill|stroke): ){colour}\b", rf"\1var(--{variable})", rest, flags=re.IGNORECASE)
    rest = re.sub(r'(font: [^"]*?)(\'DejaVu Sans\'[^"]*)"', rf'\1{_FONTS}"', rest)
    # text without a colour is black by default
    rest = rest.replace("<text ", '<text fill="var(--ink)" ')
    return f"{head}><title>{escape(title)}</title>{rest}"
