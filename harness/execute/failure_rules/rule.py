"""What a rule is made of, and how close to the root cause its texts are."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from harness.failure import FailureClass as F


class Tier(IntEnum):
    """How close to the root cause a text is: the lowest tier found decides, then the earliest line."""

    NODE = 0  # the node went; what its processes said before is a consequence
    MACHINE = 1  # the kernel, the driver or the scheduler saw the cause
    OWN = 2  # the process, or the launcher, named its own cause
    TRACE = 3  # the process died of an exception or a device error that no other rule knows
    NET = 4  # the network itself failed
    HANG = 5  # ranks waited in vain
    STOP = 6  # the scheduler ended the job and gave a reason
    KILL = 7  # a process was killed, nobody says why
    ABORT = 8  # a process aborted itself, which a watchdog does too
    PEER = 9  # another process went away
    EXIT = 10  # something failed, that is all
    CANCEL = 11  # a step was cancelled and no reason given; srun says so after a task failed, too
    TERM = 12  # asked to stop, nobody says by whom
    NOTE = 13  # a warning from a device; the run goes on
    LOST = 14  # nothing is known


# Whatever comes after a line of the tier on the left is its consequence if it is of a tier on the right.
CONSEQUENCES: dict[Tier, frozenset[Tier]] = {
    Tier.STOP: frozenset({Tier.OWN, Tier.TRACE, Tier.NET, Tier.HANG}),
    Tier.CANCEL: frozenset(Tier) - {Tier.NODE, Tier.MACHINE, Tier.STOP, Tier.CANCEL, Tier.NOTE},
    Tier.KILL: frozenset({Tier.NET, Tier.HANG}),
    Tier.TERM: frozenset({Tier.EXIT}),
}

# Between ranks of one run there is no order of lines. A rank that was killed leaves the others to wait, so it comes
# before them; one that only ended with an error comes before those that saw a peer go.
TIERS_BETWEEN_RANKS: tuple[Tier, ...] = (
    *(Tier.NODE, Tier.MACHINE, Tier.OWN, Tier.TRACE, Tier.KILL, Tier.NET, Tier.HANG, Tier.STOP, Tier.ABORT),
    *(Tier.CANCEL, Tier.EXIT, Tier.LOST, Tier.PEER, Tier.TERM, Tier.NOTE),
)


class Rule(NamedTuple):
    """Texts of one meaning: the class, how close to the root they are, the reason to show, the texts."""

    failure: F
    tier: Tier
    why: str
    texts: tuple[str, ...]
