"""Printed numbers: a zero has no sign, wherever a difference is printed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.compare.wording import percent_text, signed
from harness.report.units import number
from harness.stats import Ratio

ROOT = Path(__file__).parents[2] / "harness"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(3.14, 1, "+3.1"), (-0.24, 1, "-0.2"), (-0.04, 1, "0.0"), (0.04, 1, "0.0"), (-0.4, 0, "0"), (-10.0, 0, "-10")],
)
def test_a_change_that_rounds_to_zero_has_no_sign(value: float, digits: int, text: str) -> None:
    assert signed(value, digits) == text


@pytest.mark.parametrize(("value", "text"), [(-0.0, "0.00"), (-1.5, "-1.50"), (-0.004, "-0.004")])
def test_no_number_of_a_table_is_a_negative_zero(value: float, text: str) -> None:
    assert number(value) == text


def test_a_lead_of_nothing() -> None:
    lead = Ratio(ratio=1 - 1e-4, low=1 - 3e-4, high=1 + 3e-4, rounds=3, samples=9, paired=True, one_round=False)
    assert percent_text(lead) == "0.0% [0.0, 0.0]"


def formats(path: Path) -> Iterator[tuple[str, str]]:
    """(expression, format) of each number that an f-string of the file rounds to a number of digits."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            form = ast.unparse(node.format_spec)[2:-1]  # without f and quotes
            if re.search(r"\.[^.]+[f%g]$", form):
                yield ast.unparse(node.value), form


def test_every_difference_is_printed_without_a_negative_zero() -> None:
    """``z`` in a format does that; a sign goes through ``signed``."""
    found = [(path, *one) for path in ROOT.rglob("*.py") for one in formats(path)]
    assert len(found) > 100
    wrong = [one for one in found if "z" not in one[2] and (" - " in one[1] or "+" in one[2])]
    assert [one for one in wrong if one[0].name != "wording.py"] == []
    assert [one[1:] for one in wrong] == [("value", "+.{digits}f")]
