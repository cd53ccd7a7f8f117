"""A figure as a file: PNG, SVG, or SVG to stand inside a page and take the page's colours."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from harness.report.canvas import BLUE, GREY, GRID, INK, ORANGE, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a picture is drawn in -> the page's variable for it, so that a dark page has light lines.
PAGE_COLOURS: Mapping[str, str] = {
    INK.lower(): "ink",
    "#000000": "ink",
    "#ffffff": "page",
    GRID.lower(): "grid",
    GREY.lower(): "muted",
    "#aaaaaa": "muted",
    BLUE.lower(): "blue",
    SKY.lower(): "sky",
    ORANGE.lower(): "orange",
}
_LARGEST = 1.75  # pixels a point, at most: a small picture need not fill the page


def to_png(figure: Figure) -> bytes:
    """The figure as PNG, the same bytes for the same figure and library versions."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def to_svg(figure: Figure) -> bytes:
    """The figure as SVG, with text as text; the same bytes for the same figure and library versions."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "meshsweep"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    # XML has no control characters, but a label may
    return re.sub(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", b"", buffer.getvalue())


def inline(svg: bytes, name: str, title: str) -> str:
    """An SVG file as an ``<svg>`` element that fills its place: ids of its own, the colours of the page around it.

    ``name`` keeps its ids apart from other pictures'; ``title`` is plain text, what a screen reader says.
    """
    text = svg.decode("utf-8")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], count=1, flags=re.DOTALL)
    head, _, body = text.partition(">")
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.DOTALL)  # it would style the whole page
    body = re.sub(r"<[^>]*>", lambda tag: _for_page(tag.group(), name), body)
    box = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', head)
    assert box is not None, "matplotlib writes a viewBox"
    size = f'{box.group()} style="max-width: {_LARGEST * float(box.group(1)):.0f}px" preserveAspectRatio="xMinYMin"'
    start = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {size} role="img">'
    return f"{start}<title>{escape(title)}</title>{body}"


def _for_page(tag: str, name: str) -> str:
    """One tag (never the text between tags, which may hold anything) with the page's ids, colours and font."""
    tag = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{name}-\1"', tag)
    tag = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", tag)
    tag = re.sub(r"((?:fill|stroke): )(#[0-9a-fA-F]{6})\b", lambda m: m.group(1) + _colour(m.group(2)), tag)
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    # text without a colour of its own would be black
    return tag.replace("<text ", '<text fill="var(--ink)" ')


def _colour(colour: str) -> str:
    variable = PAGE_COLOURS.get(colour.lower())
    return f"var(--{variable})" if variable else colour
