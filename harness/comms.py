"""What a run's communicators really used, for those who ask with ``--debug-comms``."""

from __future__ import annotations

from pydantic import Field

from harness.base import Frozen


class Communicator(Frozen):
    """One communicator: ``ranks`` of the job in its own order, and what carries its data between them.

    ``transports``: the most used first, such as ``P2P``, ``SHM``, ``NET/IB``, ``NET/Socket``, or ``TCP eth0`` with
    gloo. ``rings``: None where the source does not tell.
    """

    ranks: tuple[int, ...] = Field(min_length=1)
    transports: tuple[str, ...] = ()
    rings: int | None = None


class Communicators(Frozen):
    """All that is known of a run's communicators. ``logs``: paths relative to the sweep's folder."""

    source: str  # what told it
    found: tuple[Communicator, ...] = ()
    logs: tuple[str, ...] = ()
