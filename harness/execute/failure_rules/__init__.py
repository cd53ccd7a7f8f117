"""The table of texts that decide a failure class; ``classify`` holds the engine that applies it.

Each text is a regular expression for lower-case ASCII. A blank in it matches a line break too, since terminals wrap
long messages; ``.`` does not; ``^`` skips a label such as ``[rank3]:`` or ``7:``. A text must hold a literal run of
three characters outside any group, by which the engine finds its place, and no alternation outside groups.
"""

from __future__ import annotations

import re

from harness.execute.failure_rules.communication import HANG, NETWORK
from harness.execute.failure_rules.machines import HARDWARE, NODE
from harness.execute.failure_rules.memory import DEVICE_MEMORY, HOST_MEMORY
from harness.execute.failure_rules.programs import CRASH, SET_UP
from harness.execute.failure_rules.rule import CONSEQUENCES, TIERS_BETWEEN_RANKS, Rule, Tier
from harness.execute.failure_rules.scheduler import REQUEST, STOP

__all__ = [
    "CONFIG_EXCEPTIONS",
    "CONSEQUENCES",
    "NOISE",
    "RULES",
    "TIERS_BETWEEN_RANKS",
    "WRAPPER_EXCEPTIONS",
    "Rule",
    "Tier",
]

RULES: tuple[Rule, ...] = (
    *NODE,
    *DEVICE_MEMORY,
    *HOST_MEMORY,
    *HARDWARE,
    *REQUEST,
    *STOP,
    *SET_UP,
    *CRASH,
    *NETWORK,
    *HANG,
)

# Lines that name trouble and mean none: warnings, information, what is tried again, what Python ignores.
NOISE: tuple[str, ...] = (
    "nccl info",
    r"warning\b(?!.{0,300}(?:death signal|this job is|because: ))",
    r"\[w\d* (?:\d\d:|\w+\.cpp)",
    r"^w[01]\d{3} \d\d:(?!.{0,300}death signal)",
    r"\bretrying\b",
    r"\bwill retry\b",
    "retry loop",
    r"^wandb:",
    "cannot be preloaded",
    r"^\(errno: ",  # the wrapped end of a warning; a wrapped error decides by its first line
    r"^except [\w.(]",
)

# Exceptions that say the user's settings are wrong rather than that the program is.
CONFIG_EXCEPTIONS = re.compile(r"(?:^|\.)(?:ValueError|UsageError|UnknownNameError|IllegalLayoutError|\w*Config\w*)$")
# Exceptions that pass on what happened in another process.
WRAPPER_EXCEPTIONS = re.compile(
    r"(?:ChildFailedError|Process(?:Raised|Exited)Exception|CalledProcessError|SystemExit|SignalException"
    r"|KeyboardInterrupt|UncompletedJobError|FailedJobError|RayTaskError\S*)$"
)
