"""What all pictures share: colours, sizes, an empty figure, and its PNG."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any form of colour blindness, and differing in lightness as well
BLUE, SKY, ORANGE, GREY, INK = "#0072B2", "#56B4E9", "#E69F00", "#767676", "#222222"
GRID = "#DDDDDD"
FONT_SIZE = 8
WIDTH_IN = 8.5
LABEL_WIDTH = 40  # characters of one line of a layout's label
_DPI = 110


def new_figure(height_in: float) -> Figure:
    """An empty figure of the common width."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # not pyplot, which would keep every figure and look for a screen
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def to_png(figure: Figure) -> bytes:
    """The figure as PNG, the same bytes for the same figure and library versions."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
