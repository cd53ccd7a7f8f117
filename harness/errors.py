"""The exception tree. Every message states the cause and the remedy in one line."""

from __future__ import annotations

from collections.abc import Iterable


class MeshsweepError(Exception):
    """Base of every error that meshsweep raises on purpose; the command line shows it as one line."""

    exit_code = 2


class UsageError(MeshsweepError):
    """Something the user gave cannot be used: an argument, a name, a combination."""


class UnknownNameError(UsageError):
    """A name that is not in a closed set of names."""

    def __init__(self, kind: str, name: str, valid: Iterable[str]) -> None:
        self.kind, self.name, self.valid = kind, name, tuple(valid)
        super().__init__(f"unknown {kind} {name!r}; choose one of: {', '.join(self.valid)}")


class IllegalLayoutError(UsageError):
    """A layout that contradicts itself, the model, the batch or the world size.

    ``rule`` names the rule that it breaks, for tables of pruned candidates.
    """

    def __init__(self, rule: str, message: str) -> None:
        self.rule = rule
        super().__init__(message)


class TopologyError(MeshsweepError):
    """A machine description that cannot be read or is not what it seems."""


class StoreError(MeshsweepError):
    """A results folder or record that is missing, unreadable or of a newer schema."""


class ExecutionError(MeshsweepError):
    """A job that could not be submitted or watched."""
