"""Labels of points in a picture: placed where they hide neither each other nor a point, or left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import hypot
from typing import TYPE_CHECKING, NamedTuple

from harness.report.canvas import FONT_SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Spot = tuple[float, float]

_POINT = 7.0  # half the room of a point's mark, pixels
_NEAR = 11.0  # from a point to its label, pixels
_STEP = 4  # pixels between two boxes of a line


class Box(NamedTuple):
    """A rectangle in pixels."""

    x0: float
    y0: float
    x1: float
    y1: float

    def overlaps(self, other: Box) -> bool:
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def nearest(self, spot: Spot) -> Spot:
        """The point of the box that is nearest to a spot."""
        return (min(max(spot[0], self.x0), self.x1), min(max(spot[1], self.y0), self.y1))

    def holds(self, other: Box) -> bool:
        return self.x0 <= other.x0 and self.y0 <= other.y0 and self.x1 >= other.x1 and self.y1 >= other.y1


def place_labels(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[Sequence[str], float, float]],
    paths: Sequence[Sequence[Spot]] = (),
) -> int:
    """Label (texts, x, y) points, earlier ones first; far labels get a line. Returns how many found no room.

    Of a point's texts the first that has room is written. Each of ``paths`` joins points of the data; labels keep off.
    """
    figure.draw_without_rendering()  # lays the axes out, so that pixels can be asked for
    frame = Box(*axes.get_window_extent().extents)

    def pixels(spots: Sequence[Spot]) -> list[Spot]:
        return [(float(x), float(y)) for x, y in axes.transData.transform(spots)]

    at = pixels([(x, y) for _, x, y in points])
    taken = [_around(spot, _POINT) for spot in at]
    for start, end in (ends for path in paths if path for ends in pairwise(pixels(path))):
        taken += _along(start, end)
    hidden = 0
    to_points = 72 / figure.dpi  # a file's pixels may be others than those asked for here: SVG's are
    for (texts, x, y), spot in zip(points, at, strict=True):
        for text, far, box in ((t, *place) for t in texts for place in _places(*spot, *_size(axes, t))):
            line = _along(spot, box.nearest(spot), skip=2 * _POINT) if far else []
            if frame.holds(box) and not any(part.overlaps(other) for part in (box, *line) for other in taken):
                taken += [box, *line]
                corner = ((box.x0 - spot[0]) * to_points, (box.y0 - spot[1]) * to_points)
                _write(axes, text, (x, y), corner, line=far)
                break
        else:
            hidden += 1
    return hidden


def _around(spot: Spot, half: float) -> Box:
    return Box(spot[0] - half, spot[1] - half, spot[0] + half, spot[1] + half)


def _along(start: Spot, end: Spot, skip: float = 0.0) -> list[Box]:
    """Small boxes that cover a line, without its first ``skip`` pixels."""
    length = max(hypot(end[0] - start[0], end[1] - start[1]), 1e-9)
    shares = [(skip + step) / length for step in range(0, max(0, int(length - skip)), _STEP)]
    return [_around((start[0] + s * (end[0] - start[0]), start[1] + s * (end[1] - start[1])), 1.5) for s in shares]


def _size(axes: Axes, text: str) -> tuple[float, float]:
    probe = axes.text(0, 0, text, fontsize=FONT_SIZE, parse_math=False)
    extent = probe.get_window_extent()
    probe.remove()
    return float(extent.width) + 2, float(extent.height) + 2


def _places(x: float, y: float, width: float, height: float) -> Iterator[tuple[bool, Box]]:
    """Boxes around a point, near ones first, and whether one is so far that it needs a line."""
    for gap in (_NEAR, 18.0, 28.0, 42.0, 60.0):
        middle, left, right, centre = y - height / 2, x - gap - width, x + gap, x - width / 2
        above, below = y + gap, y - gap - height
        for x0, y0 in (
            (right, middle),
            (left, middle),
            (centre, above),
            (centre, below),
            (right, above),
            (right, below),
            (left, above),
            (left, below),
        ):
            yield gap > _NEAR, Box(x0, y0, x0 + width, y0 + height)


def _write(axes: Axes, text: str, at: tuple[float, float], corner: tuple[float, float], line: bool) -> None:
    axes.annotate(
        text,
        at,
        corner,
        textcoords="offset points",
        ha="left",
        va="bottom",
        fontsize=FONT_SIZE,
        parse_math=False,
        arrowprops={"arrowstyle": "-", "color": "#AAAAAA", "linewidth": 0.6, "shrinkB": 3} if line else None,
    )
