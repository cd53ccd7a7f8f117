"""How a run can end: the closed set of failure classes."""

from __future__ import annotations

from enum import StrEnum


class FailureClass(StrEnum):
    """Why a run ended without a result; ``none`` for a healthy one."""

    DEVICE_OOM = "device_oom"  # the accelerator's memory did not suffice
    HOST_OOM = "host_oom"  # the host's memory, or the job's share of it, did not suffice
    COLLECTIVE_TIMEOUT = "collective_timeout"  # ranks waited for each other until a timeout
    NETWORK = "network"  # hosts could not reach each other, or the scheduler
    NODE_FAILURE = "node_failure"  # a node went away or could not start the job
    HARDWARE = "hardware"  # a device reported a fault of its own
    TIME_LIMIT = "time_limit"  # the job ran into its time limit
    CANCELLED = "cancelled"  # somebody asked the job to stop
    PREEMPTED = "preempted"  # the scheduler took the nodes for another job
    BAD_REQUEST = "bad_request"  # the scheduler can never grant what was asked for
    CONFIG = "config"  # the program's set-up or environment must change first
    CRASH = "crash"  # the program died of something else
    LOST = "lost"  # no trace is left
    NONE = "none"  # healthy


OUT_OF_MEMORY = frozenset({FailureClass.DEVICE_OOM, FailureClass.HOST_OOM})

# What systems say of a disk that is full; space can be made, and nothing of it is the layout's.
FULL_DISK = ("no space left on device", "disk quota exceeded")


def disk_was_full(failure: FailureClass, message: str) -> bool:
    """Whether a run failed for want of disk space alone."""
    return failure is FailureClass.CONFIG and any(text in message.lower() for text in FULL_DISK)
