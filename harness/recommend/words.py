"""How sure a recommendation is, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare import Comparison
from harness.compare.wording import counted, listed, percent_text, rate
from harness.recommend.limits import time_text
from harness.recommend.models import Certainty, Choice, Excluded
from harness.recommend.objective import Objective
from harness.report.units import number
from harness.stats import Ratio


def certainty_of(choices: Sequence[Choice], objective: Objective) -> Certainty:
    """Whether the winner is told apart from the next, and by what."""
    if not choices:
        return "none"
    if len(choices) == 1:
        return "unopposed"
    if "speed" not in objective.weights:
        return "single_values"
    if any(c.tie and c.advantage is not None and not c.advantage.one_round for c in choices):
        return "tie"
    return "undecided" if any(c.tie for c in choices) else "decided"


def sentence_of(
    choices: Sequence[Choice], certainty: Certainty, objective: Objective, excluded: Sequence[Excluded]
) -> str:
    """The answer: winner, its figure, its lead with interval, its ties."""
    if not choices and not excluded:
        return "No layout was measured, so there is nothing to recommend."
    if not choices:
        nearest = min(excluded, key=lambda e: len(e.constraints))
        number = "The only ranked layout" if len(excluded) == 1 else f"None of {len(excluded)} ranked layouts"
        verb = "may not be chosen" if len(excluded) == 1 else "may be chosen"
        return f"{number} {verb}: {nearest.label} comes nearest, but {nearest.reason}."
    winner = choices[0]
    head = f"Train with {winner.label}: {figure_text(winner, objective)}"
    ties = [c.label for c in choices if c.tie]
    behind = next((c for c in choices if c.advantage is not None and not c.tie), None)
    if certainty == "unopposed":
        return f"{head}; no other layout may be chosen."
    lead = f", {lead_text(behind)}" if behind is not None else ""
    if certainty == "undecided":
        return f"{head}{lead}; one round cannot tell it from {listed(ties)}."
    return f"{head}{lead}{f'; {listed(ties)} cannot be told from it' if ties else ''}."


def sureness_of(
    choices: Sequence[Choice], certainty: Certainty, objective: Objective, comparison: Comparison
) -> tuple[str, ...]:
    """What the answer rests on and what weakens it."""
    if not choices:
        return ()
    winner = choices[0]
    lines = [_basis(choices, certainty)]
    if "speed" in objective.weights and len(objective.weights) > 1 and objective.name == "weighted":
        lines.append("The interval is that of speed; the other terms are single measurements.")
    unmeasured = [c.label for c in comparison.cells if c.outcome in ("failed", "diverged", "not_run")]
    if unmeasured:
        lines.append(f"Not considered, since not measured: {listed(unmeasured)}.")
    lines += [f"Warning: {w.text}." for w in comparison.warnings if not w.cells or winner.label in w.cells]
    return tuple(lines)


def figure_text(choice: Choice, objective: Objective) -> str:
    """The figure that the objective is about."""
    if objective.name == "cost" and choice.cost_per_million_tokens:
        value, low, high = choice.cost_per_million_tokens
        return f"{money(value)} per million tokens [{money(low)}, {money(high)}]"
    if objective.name == "restore" and choice.restore_s is not None:
        return f"restored in {time_text(choice.restore_s)}"
    speed = choice.tokens_per_s
    if speed is None:
        return "speed unknown"
    return f"{rate(speed.value)} tokens/s [{rate(speed.low)}, {rate(speed.high)}]"


def lead_text(choice: Choice) -> str:
    """``14% [9, 18] ahead of`` a layout; the interval only where there is one."""
    advantage = choice.advantage
    if advantage is None:
        return ""
    return f"{share_text(advantage)} ahead of {choice.label}"


def share_text(advantage: Ratio) -> str:
    """``14% [9, 18]``, without the brackets where both sides are single measurements."""
    return percent_text(advantage) if advantage.samples > 1 else f"{100 * (advantage.ratio - 1):.3g}%"


def money(value: float) -> str:
    """An amount without a currency, three digits at least."""
    return number(value)


def _basis(choices: Sequence[Choice], certainty: Certainty) -> str:
    if certainty == "unopposed":
        return "Only one layout may be chosen, so nothing was compared."
    if certainty == "single_values":
        return "Each layout's figure was measured once, so the order has no interval; small differences mean nothing."
    next_one = choices[1].advantage
    if next_one is None or next_one.one_round:
        return "One round cannot tell layouts apart; run at least 3 (--rounds 3)."
    how = "timed side by side" if next_one.paired else "not timed side by side"
    verdict = {
        "decided": "every 95% interval of the lead leaves out 0",
        "tie": "the ties' 95% intervals of the lead hold 0",
        "undecided": "some layouts have one round only",
    }.get(certainty, "")
    return f"The lead rests on {counted(next_one.rounds, 'round')}, {how}; {verdict}."
