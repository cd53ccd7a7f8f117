"""Step times predicted from a sweep's own calibration, to stand beside the measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from harness.base import Frozen
from harness.calibration import Calibration
from harness.predict.calibrated import calibrated_time
from harness.predict.software import TORCH
from harness.predict.time import TimePrediction
from harness.record import RunRecord
from harness.spec import SweepPlan
from harness.stats import Summary


class PredictedStep(Frozen):
    """A layout's predicted step by its label."""

    label: str
    time: TimePrediction


def calibration_in(records: Sequence[RunRecord]) -> Calibration | None:
    """The newest calibration among a sweep's records."""
    return next((record.calibration for record in reversed(records) if record.calibration), None)


def predicted_steps(plan: SweepPlan, calibration: Calibration | None) -> tuple[PredictedStep, ...]:
    """The layouts that the calibration suffices for."""
    if calibration is None:
        return ()
    times = {one.label: calibrated_time(calibration, one, plan.workload, TORCH) for one in plan.layouts}
    return tuple(PredictedStep(label=label, time=time) for label, time in times.items() if time is not None)


class Ordered(NamedTuple):
    """Of pairs of layouts that measuring tells apart: how many are predicted in the right order, and the others."""

    right: int
    wrong: tuple[tuple[str, str], ...]  # (measured faster, measured slower)


def ordered(measured: Mapping[str, Summary], predicted: Mapping[str, float]) -> Ordered:
    """Judge every pair whose measured intervals do not overlap; seconds, by label."""
    right, wrong = 0, []
    for pair in combinations([label for label in measured if label in predicted], 2):
        fast, slow = sorted(pair, key=lambda label: measured[label].median)
        if measured[fast].high >= measured[slow].low:
            continue
        if predicted[fast] < predicted[slow]:
            right += 1
        else:
            wrong.append((fast, slow))
    return Ordered(right, tuple(wrong))
