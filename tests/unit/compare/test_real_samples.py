"""False alarms and power of a comparison of two sweeps, on step times recorded on a noisy machine.

``real/quiet.csv``: 15 rounds of 20 steps from five default sweeps (4 ranks on 2 cores, nothing else running).
``real/busy.csv``: 23 rounds of one sweep while the machine had ten times as much work as cores.
``real/long.csv``: 20 rounds of 100 steps of four layouts, beside other work of little weight.
A row is a cycle, a column a layout, the slowest rank's time in ms. Rounds are split at random into two sweeps, by fixed
seeds.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from harness.compare.change import Change, Rule, judge_values
from harness.compare.effects import Array, round_values

SPLITS = 200


def recorded(name: str) -> Array:
    """Values of the recorded rounds, shape (rounds, cells)."""
    with (Path(__file__).parent / "real" / name).open() as file:
        rows = list(csv.DictReader(file))
    cells = [column for column in rows[0] if column not in ("round", "cycle")]
    rounds: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for cell in cells:
            rounds.setdefault(row["round"], {}).setdefault(cell, []).append(float(row[cell]) / 1e3)
    return round_values(list(rounds.values()), cells)


def slowed(values: Array, cell: int, factor: float) -> Array:
    """Every step of one cell takes ``factor`` times as long, which adds its logarithm to each round's value."""
    planted = values.copy()
    planted[:, cell] += np.log(factor)
    return planted


@pytest.mark.parametrize(
    ("name", "rounds", "splits"),
    [
        pytest.param("quiet.csv", 3, 200, marks=pytest.mark.thorough),
        ("quiet.csv", 5, 400),
        pytest.param("quiet.csv", 7, 400, marks=pytest.mark.thorough),
        pytest.param("busy.csv", 5, 200, marks=pytest.mark.thorough),
        ("busy.csv", 10, 200),
        ("long.csv", 10, 200),
    ],
)
def test_a_sweep_against_itself_raises_few_alarms(name: str, rounds: int, splits: int) -> None:
    values, rng = recorded(name), np.random.default_rng(0)
    alarms = 0
    for _ in range(splits):
        order = rng.permutation(len(values))
        cells, _common = judge_values(values[order[:rounds]], values[order[rounds : 2 * rounds]], Rule())
        alarms += any(cell.change in (Change.SLOWER, Change.FASTER) for cell in cells)
    assert alarms <= 0.05 * splits


@pytest.mark.parametrize(
    ("name", "rounds", "loss", "least"),
    [("quiet.csv", 5, 0.10, 0.95), ("long.csv", 5, 0.10, 0.95), ("long.csv", 10, 0.05, 0.8)],
)
def test_a_planted_loss_is_found(name: str, rounds: int, loss: float, least: float) -> None:
    values, rng = recorded(name), np.random.default_rng(0)
    found = 0
    for _ in range(SPLITS):
        order, cell = rng.permutation(len(values)), int(rng.integers(values.shape[1]))
        after = slowed(values[order[rounds : 2 * rounds]], cell, 1 + loss)
        cells, _common = judge_values(values[order[:rounds]], after, Rule())
        found += cells[cell].change is Change.SLOWER
    assert found >= least * SPLITS


@pytest.mark.parametrize(("factor", "rounds", "least"), [(1.10, 5, 0.95), (1.05, 10, 0.80)])
def test_where_rounds_scatter_by_two_percent(factor: float, rounds: int, least: float) -> None:
    """Lognormal rounds of five cells: 2% of scatter of each cell, 5% that all share, 10% between the two days."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(SPLITS):
        sides = [
            0.02 * rng.standard_normal((rounds, 5))
            + 0.05 * rng.standard_normal((rounds, 1))
            + 0.1 * rng.standard_normal()
            for _ in range(2)
        ]
        cells, _common = judge_values(sides[0], slowed(sides[1], 2, factor), Rule())
        relative = cells[2].relative
        found += relative is not None and relative.p is not None and relative.p <= Rule().alpha and relative.ratio < 1
    assert found >= least * SPLITS
