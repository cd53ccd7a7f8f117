"""What all pictures share: colours, sizes, an empty figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.compare import Comparison
from harness.compare.wording import counted
from harness.report.units import plain

if TYPE_CHECKING:
    from matplotlib.axis import Axis
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


def heading(comparison: Comparison, text: str) -> str:
    """A title that names the work: ``Training speed by layout: tiny, 4 cpu ranks``."""
    ranks = comparison.plan.ranks
    names = {name for ground in comparison.grounds[:1] for name in ground.device_names} - {ranks.device}
    device = names.pop() if len(names) == 1 else ranks.device
    model = plain(comparison.plan.workload.model.name, 40)
    return f"{text}: {model}, {counted(ranks.world_size, f'{plain(device, 30)} rank')}"


def separate_thousands(axis: Axis) -> None:
    """Tick labels such as 12,000, as the values beside bars."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:z,.12g}"))
