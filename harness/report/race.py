"""What a race did, for a reader who knows no races: what was stopped, what that saved, what it may have cost."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare import Comparison, RaceVerdict
from harness.compare.race_verdict import SURE_ERROR
from harness.compare.wording import counted, listed

_ENDS = {
    "separated": "by that rule all others are slower",
    "tie": "those that went on differ by less than the margin of a tie",
    "rounds_used": "there were no more rounds, though those that went on are not told apart yet",
    "under_way": "it is not over",
}


def race_lines(comparison: Comparison) -> list[str]:
    """The race's outcome, a matter a line; none where every layout ran every round."""
    race = comparison.race
    if race is None or not comparison.ranked or race.looked_at < race.race.opening_rounds:
        return []
    return [_stopped(race), *_saved(race), *_risk(race)]


def stopped_lines(comparison: Comparison) -> list[tuple[str, str]]:
    """(label, the rule's numbers) of each layout that was stopped early, in the order of rank."""
    return [(cell.label, cell.stopped.text) for cell in comparison.ranked if cell.stopped]


def _stopped(race: RaceVerdict) -> str:
    rule = race.race
    opening = f"All layouts were timed in {counted(rule.opening_rounds, 'short round')}"
    why = _ENDS[race.ended] + (f" ({rule.tie_margin:.0%})" if race.ended == "tie" else "")
    if not race.stopped:
        return f"{opening}; none was plainly slower, so none was stopped. Timing ended after {_rounds(race)}: {why}."
    went_on = listed(race.racing) if race.racing else "none"
    return (
        f"{opening}. From then on a layout was stopped, and timed no further, once it was plainly slower than the "
        f"fastest: {counted(len(race.stopped), 'layout')} of {len(race.stopped) + len(race.racing)}; {went_on} went "
        f"on. Timing ended after {_rounds(race)}: {why}."
    )


def _rounds(race: RaceVerdict) -> str:
    return counted(race.looked_at, "round")


def _saved(race: RaceVerdict) -> Sequence[str]:
    savings = race.savings
    if savings is None or not savings.exhaustive_steps:
        return ()
    share = savings.measured_steps / savings.exhaustive_steps
    saved = f"about {savings.saved_s:.0f} s" if savings.saved_s >= 1 else "no time to speak of"
    return (
        f"Saved by stopping: {savings.measured_steps:,} steps were timed instead of {savings.exhaustive_steps:,} "
        f"({share:.0%}), {saved}, warm-up included; --exhaustive times every layout in every round.",
    )


def _risk(race: RaceVerdict) -> Sequence[str]:
    """How likely a wrong stop is, and by how much the answer would then be off."""
    if not race.stopped:
        return ()
    risk = f"Risk: a chance of {race.race.error:.0%} at most that the truly fastest layout was stopped."
    savings = race.savings
    if savings is None or savings.wrong_label is None or savings.wrong_ratio is None:
        return (risk,)
    best, rival, ratio = race.racing[0], savings.wrong_label, savings.wrong_ratio
    sure = f"(but for a chance of {SURE_ERROR:.1%})"
    most = f"{rival} could come closest: at most {ratio:.0%} of the speed of {best} {sure}"
    cost = "so that nothing is lost" if ratio <= 1 else f"so that choosing {best} loses {1 - 1 / ratio:z.1%} at most"
    return (f"{risk} Its cost if so: of those stopped, {most}, {cost}.",)
