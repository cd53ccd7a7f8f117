"""The script behind the rates of docs/architecture.md counts what it says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.compare_rates import CONDITIONS, Condition, line, main, measure, simulated


def test_what_is_planted_is_counted() -> None:
    certain = measure(Condition("a loss of half", "5 and 5", simulated(), loss=0.5), 3)
    assert (certain.hits, certain.error) == (3, 0.0)
    nothing = measure(Condition("no loss", "5 and 5", simulated(), loss=0.0), 3)
    assert nothing.hits == 0
    shifted = measure(Condition("days", "5 and 5", simulated(day=3.0)), 3)
    assert shifted.hits == 3  # a change that all cells share is an alarm, whatever made it
    assert line(certain) == "| a loss of half | 5 and 5 | a loss of 50% found | 100.0% ± 0.0% |"


def test_sides_have_the_rounds_and_cells_that_they_say() -> None:
    before, after = simulated((3, 10), cells=40)(np.random.default_rng(0))
    assert before.shape == (3, 40) and after.shape == (10, 40)


def test_every_condition_gives_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--splits", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(CONDITIONS)
    assert all(text.count("|") == 5 for text in lines)
