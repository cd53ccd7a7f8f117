"""Options that say how a sweep measures."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.machine import Decorated, declared, gathered
from harness.cli.values import Positive
from harness.errors import UsageError
from harness.spec import Settings

_DEFAULTS = Settings()
_FIELDS = {  # of an option that is named otherwise
    "steps": "timed_steps",
    "warmup_min": "warmup_min_steps",
    "warmup_max": "warmup_max_steps",
    "run_timeout": "run_timeout_s",
    "collective_timeout": "collective_timeout_s",
}
_OPTIONS = (
    click.option(
        "--rounds",
        type=click.IntRange(1),
        metavar="N",
        default=_DEFAULTS.rounds,
        show_default=True,
        help="Rounds of timing, each in fresh processes.",
    ),
    click.option(
        "--steps",
        type=click.IntRange(1),
        metavar="N",
        default=_DEFAULTS.timed_steps,
        show_default=True,
        help="Timed steps of each layout in a round.",
    ),
    click.option(
        "--warmup-min",
        type=click.IntRange(1),
        metavar="N",
        default=_DEFAULTS.warmup_min_steps,
        show_default=True,
        help="Fewest warm-up steps before a layout can count as steady.",
    ),
    click.option(
        "--warmup-max",
        type=click.IntRange(1),
        metavar="N",
        default=_DEFAULTS.warmup_max_steps,
        show_default=True,
        help="Warm-up steps after which timing starts, steady or not.",
    ),
    click.option(
        "--gate-steps",
        type=click.IntRange(10),
        metavar="N",
        default=_DEFAULTS.gate_steps,
        show_default=True,
        help="Steps compared with the reference.",
    ),
    click.option(
        "--exposure-steps",
        type=click.IntRange(0),
        metavar="N",
        default=_DEFAULTS.exposure_steps,
        show_default=True,
        help="Untimed steps with and without communication, to see what it adds; 0: none.",
    ),
    click.option("--no-checkpoint", is_flag=True, help="Do not measure checkpoints."),
    click.option("--keep-checkpoints", is_flag=True, help="Keep the checkpoints that are measured."),
    click.option(
        "--run-timeout",
        type=Positive(),
        default=_DEFAULTS.run_timeout_s,
        show_default=True,
        metavar="S",
        help="Limit of a run.",
    ),
    click.option(
        "--collective-timeout",
        type=Positive(),
        default=_DEFAULTS.collective_timeout_s,
        show_default=True,
        metavar="S",
        help="How long a rank waits for others in a collective.",
    ),
)
_NAMES = (
    *("rounds", "steps", "warmup_min", "warmup_max", "gate_steps", "exposure_steps"),
    *("no_checkpoint", "keep_checkpoints", "run_timeout", "collective_timeout"),
)


def settings_options(command: Decorated) -> Decorated:
    """--rounds to --collective-timeout, as ``settings: Settings``."""
    return declared(gathered(command, "settings", _settings, _NAMES), _OPTIONS)


def _settings(no_checkpoint: bool, **options: Any) -> Settings:
    from pydantic import ValidationError

    if (least := options["warmup_min"]) > (most := options["warmup_max"]):
        raise UsageError(f"--warmup-min {least} is above --warmup-max {most}; lower the one or raise the other")
    values = {_FIELDS.get(name, name): value for name, value in options.items()}
    try:
        return Settings.model_validate({**values, "checkpoint": not no_checkpoint})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{first['loc'][0]}={first['input']}: {first['msg']}") from None
