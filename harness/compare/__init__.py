"""From records to a comparison: outcomes, ranking with intervals, warnings, and the answer in one sentence."""

from harness.compare.comparison import compare
from harness.compare.models import (
    OUTCOMES,
    CellResult,
    CheckpointCost,
    Comparison,
    Estimate,
    MeasurementWarning,
    MemoryPeak,
    Outcome,
    RoundSamples,
)
from harness.compare.race_verdict import RaceSavings, RaceVerdict, Stopped
from harness.compare.sentence import sentence

__all__ = [
    "OUTCOMES",
    "CellResult",
    "CheckpointCost",
    "Comparison",
    "Estimate",
    "MeasurementWarning",
    "MemoryPeak",
    "Outcome",
    "RaceSavings",
    "RaceVerdict",
    "RoundSamples",
    "Stopped",
    "compare",
    "sentence",
]
