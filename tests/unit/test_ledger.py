"""The books of a rank's memory, on events made by hand."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.measure.ledger import Ledger, Moment
from harness.memory_kinds import AllocatorStats, PeakMemory


def a_step() -> tuple[Ledger, int]:
    """100 B of parameters; forward makes 40 and 7 B, of which 7 die; backward makes 30 B, which becomes a gradient."""
    ledger = Ledger()
    parameter, batch = ledger.birth(100), ledger.birth(8)
    ledger.mark(parameter, "parameters")
    began = ledger.position
    ledger.at(Moment(0, "forward", "layers.0"))
    first = ledger.born_next
    saved, scratch = ledger.birth(40), ledger.birth(7)
    ledger.death(scratch)
    whole = ledger.birth(0)
    ledger.resize(whole, 50)
    ledger.mark(whole, "unsharded_parameters")
    ledger.resize(whole, 0)
    ledger.mark_survivors(first, "activations")
    ledger.at(Moment(0, "backward", "layers.0"))
    gradient = ledger.birth(30)
    buffer = ledger.birth(25)
    ledger.at(Moment(0, "backward", "embed"))
    ledger.mark(buffer, "functional_communication")
    ledger.death(saved)
    ledger.mark(gradient, "gradients")
    ledger.death(buffer)
    assert batch == 1
    return ledger, began


def test_the_peak_is_the_largest_sum_at_its_own_moment_by_kinds_known_later() -> None:
    ledger, began = a_step()
    # 108, then 148, 155, 148, 198 (whole parameters), 148, then 178, 203 in backward
    peak = ledger.peak()
    assert (peak.peak_bytes, peak.phase, peak.module, peak.step) == (203, "backward", "layers.0", 0)
    found = {kind: size for kind, size in peak.bytes_by_kind.items() if size}
    assert found == {"parameters": 100, "other": 8, "activations": 40, "gradients": 30, "communication_buffers": 25}
    forward = ledger.peak(began, last=began + 5)
    assert (forward.peak_bytes, forward.phase) == (198, "forward")
    assert forward.bytes_by_kind["unsharded_parameters"] == 50
    scratch = ledger.by_kind(began + 2)
    assert (scratch["activations"], scratch["temporaries"]) == (40, 7)
    assert sum(ledger.by_kind(ledger.position).values()) == 138


def test_the_first_of_the_priorities_counts_whatever_comes_last() -> None:
    ledger = Ledger()
    ledger.at(Moment(0, "forward", ""))
    name = ledger.birth(10)
    ledger.mark(name, "communication_buffers")
    ledger.mark(name, "activations")
    assert ledger.kind(name) == "communication_buffers"
    ledger.mark(name, "gradients")
    assert ledger.kind(name) == "gradients"
    other = ledger.birth(10)
    ledger.mark(other, "functional_communication")
    assert ledger.kind(other) == "communication_buffers"
    ledger.mark_survivors(other, "activations")
    assert ledger.kind(other) == "activations"


def test_a_peak_before_any_event_of_the_stretch_is_what_there_was() -> None:
    ledger = Ledger()
    ledger.birth(10)
    name = ledger.birth(5)
    began = ledger.position
    ledger.at(Moment(1, "forward", ""))
    ledger.death(name)
    peak = ledger.peak(began)
    assert (peak.peak_bytes, peak.bytes_by_kind["other"]) == (15, 15)


def test_kinds_that_do_not_make_the_peak_are_refused() -> None:
    with pytest.raises(ValidationError, match="kinds sum to 3 and the peak is 4"):
        PeakMemory(peak_bytes=4, bytes_by_kind={"parameters": 3})


def test_fragmentation_is_what_is_reserved_and_not_allocated() -> None:
    assert AllocatorStats(allocated_bytes=60, reserved_bytes=80).fragmentation == 0.25
    assert AllocatorStats(allocated_bytes=0, reserved_bytes=0).fragmentation == 0.0
