"""Checks of the raw step times of a cell: do they look like a machine at rest?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median, stdev

from harness.compare.collect import Cell, Round
from harness.stats import trend

FIRST_STEP_FACTOR = 1.5  # first timed step over the median of its round
DRIFT = 0.10  # change of the median from the first third of a round to the last
DRIFT_Z = 2.576  # two-sided 1% of the Mann-Kendall test, so that mere noise is rarely called drift
NOISY_CV = 0.15


@dataclass(frozen=True)
class StepCheck:
    """A test of one round. It applies to a cell if at least ``share`` of its rounds fail it; 0 means any round.

    ``cause`` has a place for the labels of the cells.
    """

    kind: str
    fails: Callable[[Round], bool]
    cause: str
    remedy: str
    share: float = 0.5

    def applies(self, cell: Cell) -> bool:
        failing = sum(self.fails(r) for r in cell.rounds)
        return failing > 0 and failing >= self.share * len(cell.rounds)


def _first_is_slow(timed: Round) -> bool:
    return timed.times[0] > FIRST_STEP_FACTOR * median(timed.times)


def _drifts(timed: Round) -> bool:
    found = trend(timed.times)
    return abs(found.relative) > DRIFT and abs(found.z) > DRIFT_Z


def _is_noisy(timed: Round) -> bool:
    return len(timed.steps) > 1 and stdev(timed.times) > NOISY_CV * fmean(timed.times)


STEP_CHECKS = (
    StepCheck(
        "clock",
        lambda timed: timed.faults > 0,
        "some step times of {} are no times (zero, negative or beyond reason) and are left out",
        "check the clock of that host",
        share=0.0,
    ),
    StepCheck(
        "not_steady",
        lambda timed: not timed.timing.steady,
        "warm-up of {} ended before its steps were steady",
        "raise --warmup-max, or quiet the machine",
        share=0.0,
    ),
    StepCheck(
        "first_step",
        _first_is_slow,
        f"the first timed step of {{}} took over {FIRST_STEP_FACTOR:g} times the median of its round",
        "something was still being set up: raise --warmup-min (the medians are hardly touched)",
    ),
    StepCheck(
        "drift",
        _drifts,
        f"step times of {{}} changed by over {DRIFT:.0%} within a round",
        "the machine heats up or is shared: ratios of layouts timed in turns hold, tokens/s may not",
    ),
    StepCheck(
        "noisy",
        _is_noisy,
        f"step times of {{}} scatter by over {NOISY_CV:.0%} (cv) within a round",
        "end other work on the machine, or take more of them (--steps, --rounds)",
    ),
)
