"""What a race did, in sentences: how it ended, what it saved, what a wrong stop would cost, who was stopped and why."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare import Comparison, RaceVerdict
from harness.compare.race_verdict import SURE_ERROR
from harness.compare.wording import counted, listed

_ENDS = {
    "separated": "all others are slower beyond doubt",
    "tie": "those left differ by less than the margin of a tie",
    "rounds_used": "its rounds were used up before those left could be told apart",
    "under_way": "it is not over",
}


def race_lines(comparison: Comparison) -> list[str]:
    """The race's outcome, a sentence a line; none where every layout ran every round."""
    race = comparison.race
    if race is None or race.looked_at < race.race.opening_rounds:
        return []
    return [_ended(race), *_saved(race), *_wrong(race)]


def stopped_lines(comparison: Comparison) -> list[tuple[str, str]]:
    """(label, the rule's numbers) of each layout that was stopped early, in the order of rank."""
    return [(cell.label, cell.stopped.text) for cell in comparison.ranked if cell.stopped]


def _ended(race: RaceVerdict) -> str:
    rule = race.race
    left = f"{listed(race.racing)} left" if race.racing else "none left"
    why = _ENDS[race.ended]
    if race.ended == "tie":
        why += f" ({rule.tie_margin:.0%})"
    return (
        f"After {counted(race.looked_at, 'round')} {counted(len(race.stopped), 'layout')} stopped early, {left}: {why}."
        f" The rule stops the fastest layout with a chance of {rule.error:.0%} at most."
    )


def _saved(race: RaceVerdict) -> Sequence[str]:
    savings = race.savings
    if savings is None or not savings.exhaustive_steps:
        return ()
    share = savings.measured_steps / savings.exhaustive_steps
    saved = f"about {savings.saved_s:.0f} s" if savings.saved_s >= 1 else "no time to speak of"
    return (
        f"It took {savings.measured_steps:,} timed steps instead of {savings.exhaustive_steps:,} ({share:.0%}) and "
        f"saved {saved} of stepping, warm-up included; --exhaustive times every layout in every round.",
    )


def _wrong(race: RaceVerdict) -> Sequence[str]:
    savings = race.savings
    if savings is None or savings.wrong_label is None or savings.wrong_ratio is None:
        return ()
    best = race.racing[0]
    if savings.wrong_ratio <= 1:
        lost = f"even then none of the stopped layouts reaches {best}; {savings.wrong_label} comes closest, at most "
        lost += f"{savings.wrong_ratio:.0%} of its speed"
    else:
        lost = f"{savings.wrong_label} could then be {savings.wrong_ratio - 1:z.1%} faster than {best}"
    return (f"The cost of being wrong: allow an error of only {SURE_ERROR:.1%}, and {lost}.",)
