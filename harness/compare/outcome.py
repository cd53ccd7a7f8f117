"""How each cell ended: measured, failed, diverged or not run, with the reason and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.collect import Cell
from harness.compare.models import Outcome
from harness.gate import GateVerdict, judge
from harness.record import Failure, GateSamples, RunRecord

_LIMIT = 1e200  # a relative error of two finite samples must itself stay finite


@dataclass(frozen=True)
class Verdict:
    """How a cell ended; ``reason`` is None for a measured one."""

    outcome: Outcome
    reason: str | None = None
    failure: Failure | None = None
    gate: GateVerdict | None = None


@dataclass(frozen=True)
class GateReference:
    """The samples that all cells are judged by, and the label of the layout they come from."""

    label: str
    samples: GateSamples


def find_gate_reference(cells: Sequence[Cell], gate_steps: int) -> GateReference | None:
    """The reference's samples, else those of the first layout in the plan's order that has enough of them.

    Only fp32 can judge fp32, so a reference of lower precision judges only where no fp32 layout has samples.
    """
    first = sorted(cells, key=lambda c: not c.is_reference)
    fp32 = [c for c in first if c.layout.options.precision == "fp32"]
    for cell in (*fp32, *(c for c in first if c.is_reference)):
        samples = _samples(cell.verify)
        if samples is not None and len(samples.losses) >= gate_steps:
            return GateReference(cell.label, samples)
    return None


def decide(cell: Cell, reference: GateReference | None, to_time: bool) -> Verdict:
    """How one cell ended. One that was not ``to_time``, such as a reference on one rank, needs no round.

    A cell that failed in one of its rounds has failed, however fast its other rounds were.
    """
    verify = cell.verify
    if verify is None:
        return _not_run(cell, "its verify run has no record")
    if verify.status == "failed":
        return _failed(verify)
    samples = _samples(verify)
    if samples is None:
        return _not_run(cell, f"its verify run was {verify.status} and holds no losses to check")
    if reference is None:
        return _not_run(cell, "no layout of fp32 precision gave losses and gradient norms to check it against")
    gate = judge(samples, reference.samples, cell.layout.options.precision)
    if not gate.passed:
        return Verdict("diverged", _divergence(gate, samples, reference), gate=gate)
    failed = next((r for r in reversed(cell.lost) if r.status == "failed"), None)
    if failed is not None:
        return _failed(failed, gate)
    if cell.rounds or cell.elsewhere or not to_time:
        return Verdict("measured", gate=gate)
    why = f"its {len(cell.lost)} time runs hold no step" if cell.lost else "it passed the gate but has no timed round"
    return Verdict("not_run", f"{why}; 'meshsweep resume' runs what is missing", gate=gate)


def failure_text(failure: Failure) -> str:
    """Class, phase, place, message and log of a failure in one line."""
    place = "" if failure.rank is None else f" on rank {failure.rank}"
    host = "" if failure.host is None else f" of {failure.host}"
    message = " ".join(failure.message.split())
    log = "" if failure.log is None else f" (log: {failure.log})"
    return f"{failure.failure_class} in phase {failure.phase}{place}{host}: {message}{log}"


def _samples(record: RunRecord | None) -> GateSamples | None:
    """The gate samples of a run that did not fail, as many losses as norms, so bounded that errors stay finite."""
    if record is None or record.status == "failed" or record.gate is None:
        return None
    gate = record.gate
    steps = min(len(gate.losses), len(gate.grad_norms))
    if steps == 0:
        return None
    losses, norms = (_bounded(values[:steps]) for values in (gate.losses, gate.grad_norms))
    return GateSamples(losses=losses, grad_norms=norms, first_grad_norm_by_parameter=gate.first_grad_norm_by_parameter)


def _bounded(values: tuple[float, ...]) -> tuple[float, ...]:
    if min(values) >= -_LIMIT and max(values) <= _LIMIT:
        return values
    return tuple(max(-_LIMIT, min(_LIMIT, x)) for x in values)


def _failed(record: RunRecord, gate: GateVerdict | None = None) -> Verdict:
    failure = record.failure
    if failure is None:
        return Verdict("failed", f"its {record.spec.purpose} run failed and recorded no cause", gate=gate)
    return Verdict("failed", failure_text(failure), failure, gate)


def _not_run(cell: Cell, why: str) -> Verdict:
    timed = len(cell.rounds) + len(cell.elsewhere)
    unused = f" (its {timed} timed rounds are not used: correct comes before fast)" if timed else ""
    return Verdict("not_run", f"{why}{unused}; 'meshsweep resume' runs what is missing")


def _divergence(gate: GateVerdict, samples: GateSamples, reference: GateReference) -> str:
    step = gate.first_bad_step or 0
    expected = reference.samples
    if step >= len(samples.losses):
        return f"it has {len(samples.losses)} steps where {reference.label} has {len(expected.losses)}"
    text = (
        f"differs from {reference.label} first at step {step}: loss {samples.losses[step]:.7g} instead of "
        f"{expected.losses[step]:.7g}, gradient norm {samples.grad_norms[step]:.7g} instead of "
        f"{expected.grad_norms[step]:.7g}; largest relative errors {gate.max_loss_error:.2g} (allowed "
        f"{gate.tolerance.loss:.2g}) and {gate.max_grad_norm_error:.2g} (allowed {gate.tolerance.grad_norm:.2g})"
    )
    if gate.max_parameter_error is not None and gate.max_parameter_error > gate.tolerance.parameter:
        text += (
            f"; the first gradient of {gate.worst_parameter} is off by {gate.max_parameter_error:.2g} of its norm "
            f"(allowed {gate.tolerance.parameter:.2g})"
        )
    return text
