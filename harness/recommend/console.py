"""A recommendation for a terminal: the answer, the admissible layouts, what each constraint cost, how sure it is."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping

from harness.compare.wording import counted, rate, share_text
from harness.recommend.limits import size_text, time_text
from harness.recommend.models import Choice, ConstraintCost, Recommendation
from harness.recommend.words import hours, money
from harness.report.units import plain

_MOST_ROWS = 12


def render(found: Recommendation, width: int = 100) -> str:
    """Text for a terminal of ``width`` columns."""
    blocks = [_wrap(plain(found.sentence), width)]
    if len(found.choices) > 1 or found.excluded:
        blocks += [_table(found)] if found.choices else []
    if found.constraints:
        lines = [_wrap(_cost(cost, found), width, "  ") for cost in found.constraints]
        blocks.append("\n".join(["what each constraint costs", *lines]))
    if found.excluded:
        lines = [_wrap(plain(f"{e.label}: {e.reason}"), width, "  ") for e in found.excluded[:_MOST_ROWS]]
        lines += [f"  and {len(found.excluded) - _MOST_ROWS} more; --json has all"] * (len(found.excluded) > _MOST_ROWS)
        blocks.append("\n".join([f"not admitted ({len(found.excluded)})", *lines]))
    if found.sureness:
        blocks.append("\n".join(["how sure", *(_wrap(plain(line), width, "  ") for line in found.sureness)]))
    return "\n\n".join(blocks)


def _per_rank(one: str) -> Mapping[str, Callable[[Choice], str | None]]:
    """The columns by which layouts of several sizes are told apart; ``one``: GPU or rank."""
    return {
        f"tokens/s per {one}": lambda c: rate(c.tokens_per_s_per_rank.value) if c.tokens_per_s_per_rank else None,
        f"{one}-h per M tokens": lambda c: (
            hours(c.gpu_hours_per_million_tokens[0]) if c.gpu_hours_per_million_tokens else None
        ),
    }


def _table(found: Recommendation) -> str:
    from tabulate import tabulate

    columns: dict[str, Callable[[Choice], str | None]] = {
        "layout": lambda c: plain(c.label),
        "tokens/s": lambda c: rate(c.tokens_per_s.value) if c.tokens_per_s else None,
        **(_per_rank(found.choices[0].one) if len({c.world_size for c in found.choices}) > 1 else {}),
        "per M tokens": lambda c: money(c.cost_per_million_tokens[0]) if c.cost_per_million_tokens else None,
        "memory": lambda c: size_text(c.memory_bytes) if c.memory_bytes is not None else None,
        "headroom": lambda c: f"{c.headroom:z.0%}" if c.headroom is not None else None,
        "restore": lambda c: time_text(c.restore_s) if c.restore_s is not None else None,
        "behind the winner": _behind,
    }
    shown = found.choices[:_MOST_ROWS]
    rows = [{name: text(choice) for name, text in columns.items()} for choice in shown]
    used = [name for name in columns if any(row[name] is not None for row in rows)]
    table = tabulate(
        [[place, *(row[name] or "-" for name in used)] for place, row in enumerate(rows, start=1)],
        headers=["#", *used],
        colalign=["right", "left", *["right"] * (len(used) - 1)],
        disable_numparse=True,
    )
    more = len(found.choices) - len(shown)
    return f"{table}\nand {counted(more, 'layout')} more; --json has all" if more else table


def _behind(choice: Choice) -> str | None:
    advantage = choice.advantage
    if advantage is None:
        return "best"
    mark = " =" if choice.tie and not advantage.one_round else " ?" if choice.tie else ""
    return share_text(advantage.inverse()) + mark


def _cost(cost: ConstraintCost, found: Recommendation) -> str:
    head = f"--{cost.constraint} {cost.limit}: excludes {counted(cost.excluded, 'layout')}"
    if cost.label is None:
        return f"{head}; the answer is the same without it"
    if cost.advantage is None or found.winner is None:
        return f"{head}; without it {plain(cost.label)} would win"
    lead = share_text(cost.advantage)
    return f"{head}; without it {plain(cost.label)} would win, {lead} ahead of {plain(found.winner.label)}"


def _wrap(text: str, width: int, lead: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=lead, subsequent_indent=lead + "  " * bool(lead))
