"""Which ranks stand out from their peers.

A rank is odd if its modified z-score, 0.6745 (x - median) / MAD, is beyond 3.5 (Iglewicz and Hoaglin 1993) and it lies
more than 5% off the median. Both: alike ranks have a tiny MAD, in which any difference is many deviations, and what
is below 5% nobody acts on. Where more than half of the ranks are equal the MAD is 0 and the second condition decides.
Ranks whose shards are smaller by design are not told apart from others, so the picture shows every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

Z_LIMIT = 3.5
SHARE_LIMIT = 0.05
FEWEST = 3
RULE = (
    f"odd: modified z-score beyond {Z_LIMIT} (0.6745 times the distance from the median over the median absolute "
    f"deviation) and more than {SHARE_LIMIT:.0%} off the median"
)


def odd_ranks(values: Sequence[float]) -> tuple[int, ...]:
    """Places of the values that stand out; none among fewer than three."""
    if len(values) < FEWEST:
        return ()
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    deviation = median(distances)
    return tuple(
        place
        for place, distance in enumerate(distances)
        if distance > SHARE_LIMIT * abs(middle) and 0.6745 * distance > Z_LIMIT * deviation
    )
