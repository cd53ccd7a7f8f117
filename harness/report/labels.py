"""Labels of points in a picture: placed where they hide neither each other nor a point, or left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# offsets from the point in points: (dx, dy, horizontal, vertical alignment), near ones first
_PLACES = tuple(
    (dx * far, dy * far, horizontal, vertical)
    for far in (1, 2.2, 3.6, 5)
    for dx, dy, horizontal, vertical in (
        (6, 0, "left", "center"),
        (-6, 0, "right", "center"),
        (0, 7, "center", "bottom"),
        (0, -7, "center", "top"),
        (5, 5, "left", "bottom"),
        (5, -5, "left", "top"),
        (-5, 5, "right", "bottom"),
        (-5, -5, "right", "top"),
    )
)


def place_labels(figure: Figure, axes: Axes, points: Sequence[tuple[str, float, float]], fontsize: float = 8) -> int:
    """Label (text, x, y) points, earlier ones first; far labels get a line. Returns how many found no room."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # lays the axes out, so that pixels can be asked for
    frame = axes.get_window_extent()
    pixels = axes.transData.transform([(x, y) for _, x, y in points])
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in pixels]
    hidden = 0
    for text, x, y in points:
        for dx, dy, horizontal, vertical in _PLACES:
            far = max(abs(dx), abs(dy)) > 8
            label = axes.annotate(
                text,
                (x, y),
                (dx, dy),
                textcoords="offset points",
                ha=horizontal,
                va=vertical,
                fontsize=fontsize,
                parse_math=False,
                arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.6} if far else None,
            )
            box = Text.get_window_extent(label)
            if _is_free(box, taken, frame):
                taken.append(box)
                break
            label.remove()
        else:
            hidden += 1
    return hidden


def _is_free(box: Bbox, taken: Sequence[Bbox], frame: Bbox) -> bool:
    inside = box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= frame.y1
    return inside and not any(box.overlaps(other) for other in taken)
