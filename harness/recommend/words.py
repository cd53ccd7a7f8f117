"""How sure a recommendation is, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.compare.headline import Rival, headline
from harness.compare.wording import counted, estimate_text, listed
from harness.recommend.alike import GroundDifference
from harness.recommend.field import Field
from harness.recommend.limits import time_text
from harness.recommend.models import Certainty, Choice, Excluded
from harness.recommend.objective import Objective
from harness.report.units import number


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
        return (
            "No layout was measured, so there is nothing to recommend; 'meshsweep status' says what still runs, "
            "'meshsweep resume' runs what is missing."
        )
    if not choices:
        nearest = min(excluded, key=lambda e: len(e.constraints))
        number = "The only ranked layout" if len(excluded) == 1 else f"None of {len(excluded)} ranked layouts"
        verb = "may not be chosen" if len(excluded) == 1 else "may be chosen"
        return f"{number} {verb}: {nearest.label} comes nearest, but {nearest.reason}."
    rivals = [_rival(choice, certainty) for choice in choices[1:]]
    return headline(choices[0].label, figure_text(choices[0], objective), rivals, objective.good)


def _rival(choice: Choice, certainty: Certainty) -> Rival:
    lead = choice.advantage
    undecided = choice.tie and certainty != "single_values" and lead is not None and lead.one_round
    return Rival(label=choice.label, lead=lead, tie=choice.tie, undecided=undecided)


def sureness_of(
    choices: Sequence[Choice],
    certainty: Certainty,
    objective: Objective,
    field: Field,
    unlike: Sequence[GroundDifference],
) -> tuple[str, ...]:
    """What the answer rests on and what weakens it."""
    if not choices:
        return ()
    winner = choices[0]
    lines = [_basis(choices, certainty), *_across(choices, objective, unlike)]
    if "speed" in objective.weights and len(objective.weights) > 1 and objective.name == "weighted":
        lines.append("The interval is that of speed; the other terms are single measurements.")
    if field.unmeasured:
        lines.append(f"Not considered, since not measured: {listed(field.unmeasured)}.")
    lines += [f"Warning: {w.text}." for w in field.warnings if not w.cells or winner.label in w.cells]
    return tuple(lines)


def _across(choices: Sequence[Choice], objective: Objective, unlike: Sequence[GroundDifference]) -> Iterator[str]:
    """What must be known where layouts of several sweeps stand beside each other."""
    if len({choice.sweeps for choice in choices}) > 1:
        yield (
            "Layouts of different sweeps were not timed side by side: the intervals hold how rounds scatter, not what "
            "else was different when each sweep ran."
        )
    if objective.name == "speed" and len({choice.world_size for choice in choices}) > 1:
        yield (
            f"Speed counts all {choices[0].one}s together, whatever their number costs; --objective per-gpu or cost "
            "chooses by what each of them does."
        )
    for one in unlike:
        if one.field == "global_batch":
            yield (
                f"Warning: the sweeps trained other batches, {one.text}: a token of a larger batch costs less here, "
                "but a model may need more of them."
            )
        else:
            yield f"Warning: the sweeps stand on other ground, {one.text}; their ratios hold that difference."


def figure_text(choice: Choice, objective: Objective) -> str:
    """The figure that the objective is about."""
    if objective.name == "cost" and choice.cost_per_million_tokens:
        value, low, high = choice.cost_per_million_tokens
        return f"{money(value)} per million tokens [{money(low)}, {money(high)}]"
    if objective.name == "cost" and choice.gpu_hours_per_million_tokens:
        value, low, high = choice.gpu_hours_per_million_tokens
        return f"{hours(value)} {choice.one}-hours per million tokens [{hours(low)}, {hours(high)}]"
    if objective.name == "restore" and choice.restore_s is not None:
        return f"restored in {time_text(choice.restore_s)}"
    if objective.name == "per-gpu":
        return estimate_text(choice.tokens_per_s_per_rank, f"tokens/s per {choice.one}")
    return estimate_text(choice.tokens_per_s, "tokens/s")


def hours(value: float) -> str:
    """GPU-hours, three digits."""
    return f"{value:.3g}" if value < 100 else number(value)


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
