"""Records by run: what was measured, what is given up, and which layouts may still be timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from harness.compare.collect import Cell, collect
from harness.compare.outcome import decide, find_gate_reference
from harness.failure import FailureClass, disk_was_full
from harness.record import Failure, RunRecord
from harness.spec import RunSpec, SweepPlan

# Failures that say nothing about the layout.
RETRIED = frozenset({FailureClass.NODE_FAILURE, FailureClass.PREEMPTED, FailureClass.NETWORK, FailureClass.LOST})
# Ends of a whole job; a launch of several layouts is made again after one, for none of them is to blame.
ENDED_TOGETHER = RETRIED | {FailureClass.CANCELLED}


def _for_good(failure: Failure) -> bool:
    """Whether another attempt would end the same way."""
    return failure.failure_class not in RETRIED and not disk_was_full(failure.failure_class, failure.message)


class History(NamedTuple):
    """A plan and its records."""

    plan: SweepPlan
    records: Sequence[RunRecord]

    def of(self, run: RunSpec) -> list[RunRecord]:
        run_id = run.run_id
        return [r for r in self.records if r.run_id == run_id]

    def measured(self, run: RunSpec) -> RunRecord | None:
        return next((r for r in self.of(run) if r.status == "measured"), None)

    def given_up(self, run: RunSpec) -> bool:
        """Whether the run failed in a way that another attempt would not change, or was tried often enough."""
        failures = [r.failure for r in self.of(run) if r.status == "failed" and r.failure]
        ended = sum(
            r.status == "interrupted" and r.failure is not None and r.failure.failure_class in ENDED_TOGETHER
            for r in self.of(run)
        )
        most = self.plan.settings.max_attempts
        return any(map(_for_good, failures)) or len(failures) + ended >= most

    def pending(self, run: RunSpec) -> bool:
        return self.measured(run) is None and not self.given_up(run)

    def rankable(self) -> list[Cell]:
        """The cells that passed the gate and failed nowhere for good, in plan order."""
        collected = collect(self.plan, self.records)
        reference = find_gate_reference(collected.cells, self.plan.settings.gate_steps)
        found = []
        for cell in collected.cells:
            lost = tuple(r for r in cell.lost if not self.pending(r.spec))
            verdict = decide(replace(cell, lost=lost), reference, to_time=False)
            if cell.layout in self.plan.layouts and verdict.outcome == "measured":
                found.append(cell)
        return found
