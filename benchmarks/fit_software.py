"""Fit the few factors of each training stack to the calibration rows of a table of published runs, and prove them.

    python -m benchmarks.fit_software TABLE.csv [--leave-out]

Prints the factors as they stand in harness/score/published.py, then the errors on the rows that were not fitted to;
``--leave-out`` also fits without each source in turn and predicts it, which shows what is physics and what is fit.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from math import log
from pathlib import Path
from statistics import median

from harness.predict.device import FP8_SHARE, SUSTAINED
from harness.predict.software import NOMINAL, Software
from harness.predict.time import predict_time
from harness.score.published import FAMILIES, is_calibration
from harness.score.table import Row, read_table

LIMITS = {
    "matmul": (0.4, 1.0),
    "attention": (0.1, 0.8),
    "passes": (0.5, 2.5),
    "host_s": (0.1e-3, 8e-3),
    "overlap_tp": (0.0, 0.9),
    "overlap_dp": (0.0, 1.0),
}
FITTED = {"sustained h100-sxm": (0.5, 1.1), "sustained b200": (0.4, 1.1), "fp8": (0.6, 1.3)}
PRIOR_SPREAD = 0.35  # how far from its nominal value, relative, a factor may lie for as much as one row's 5% error
ROW_SPREAD = 0.05
Factors = dict[str, float]


def nominal() -> Factors:
    found: Factors = {"sustained h100-sxm": 0.85, "sustained b200": 0.6, "fp8": 1.0}
    for family in FAMILIES.values():
        for name in LIMITS:
            found[f"{family.software.name} {name}"] = getattr(START.get(family.software.name, NOMINAL), name)
    return found


START: dict[str, Software] = {}
for _name, _family in FAMILIES.items():
    flash = {"flash": _family.software.flash, "name": _name}
    own = {
        "nanotron": {"overlap_dp": 0.1, "host_s": 2e-3},
        "megatron": {"attention": 0.55},
        "jax": {"attention": 0.55, "overlap_replicate": 0.0},
    }
    START[_name] = NOMINAL.model_copy(update={**flash, **own.get(_name, {})})


def predicted(row: Row, factors: Factors) -> float:
    """Tokens/s a rank; remembered, since a fit that moves one factor leaves most rows as they were."""
    names = (*(f"{row.family} {name}" for name in LIMITS), f"sustained {row.gpu.key}", "fp8")
    key = (row.id, *(factors.get(name, 1.0) for name in names))
    if key not in _KNOWN:
        _KNOWN[key] = _predict(row, factors)
    return _KNOWN[key]


_KNOWN: dict[tuple[object, ...], float] = {}


def _predict(row: Row, factors: Factors) -> float:
    software = START[row.family].model_copy(update={name: factors[f"{row.family} {name}"] for name in LIMITS})
    share = factors.get(f"sustained {row.gpu.key}", 1.0) / SUSTAINED.get(row.gpu.key, 1.0)
    device = row.device.model_copy(
        update={k: getattr(row.device, k) * share for k in ("matmul", "matmul_fp8", "attention")}
    )
    device = device.model_copy(update={"matmul_fp8": device.matmul_fp8 * factors["fp8"] / FP8_SHARE})
    return predict_time(row.job, device, row.network, software).tokens_per_s_per_rank


def loss(rows: Iterable[Row], factors: Factors, start: Factors) -> float:
    by_source: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        error = abs(log(predicted(row, factors) / (row.tokens_per_s or 1))) / ROW_SPREAD
        by_source[row.source].append(min(error, 2 * error**0.5))  # far rows pull less
    fit = sum(sum(errors) / len(errors) ** 0.5 for errors in by_source.values())
    prior = 0.0
    for name, value in factors.items():
        if name.endswith(("overlap_tp", "overlap_dp")):
            prior += ((value - start[name]) / 0.5) ** 2
        else:
            spread = 2 * PRIOR_SPREAD if name in FITTED else PRIOR_SPREAD
            prior += (log(value / start[name]) / spread) ** 2
    return fit + 0.2 * prior


def limits(name: str) -> tuple[float, float]:
    return FITTED.get(name) or LIMITS[name.rsplit(" ", 1)[-1]]


def fit(rows: list[Row]) -> Factors:
    start = nominal()
    best = dict(start)
    used = {f"{row.family} {name}" for row in rows for name in LIMITS} | set(FITTED)
    at = loss(rows, best, start)
    step = 0.12
    while step > 0.015:
        before = at
        for name in sorted(used):
            at = _improve(name, best, at, step, lambda trial: loss(rows, trial, start))
        if before - at < 0.02:
            step /= 2
    return best


def _improve(name: str, best: Factors, at: float, step: float, value: Callable[[Factors], float]) -> float:
    low, high = limits(name)
    additive = name.endswith(("overlap_tp", "overlap_dp"))
    for sign in (1, -1):
        moved = best[name] + sign * step if additive else best[name] * (1 + step) ** sign
        trial = {**best, name: min(high, max(low, moved))}
        if (new := value(trial)) < at:
            best.update(trial)
            return new
    return at


def show(rows: Iterable[Row], factors: Factors, title: str) -> None:
    by_source: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_source[row.source].append(predicted(row, factors) / (row.tokens_per_s or 1) - 1)
    for source, errors in sorted(by_source.items()):
        spread = f"median absolute {median(map(abs, errors)):.1%}, median {median(errors):+.1%}"
        print(f"{title:12s} {source:20s} {len(errors):4d} rows, {spread}", flush=True)


def main() -> None:
    rows = [row for row in read_table(Path(sys.argv[1]))[0] if row.tokens_per_s is not None]
    calibration = [row for row in rows if is_calibration(row.id)]
    evaluation = [row for row in rows if not is_calibration(row.id)]
    factors = fit(calibration)
    for name, value in factors.items():
        print(f"{name}: {value:.4g}")
    show(calibration, factors, "calibration")
    show(evaluation, factors, "evaluation")
    if "--leave-out" in sys.argv:
        for source in sorted({row.source for row in rows}):
            without = fit([row for row in calibration if row.source != source])
            show([row for row in rows if row.source == source], without, "left out")


if __name__ == "__main__":
    main()
