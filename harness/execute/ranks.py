"""A group of rank processes on this host: started from one process that has imported torch, watched, always ended."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection, forkserver, get_context, resource_tracker
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from harness.errors import ExecutionError
from harness.launch.folder import RankEnd

PRELOAD = ["harness.train.preload"]
PR_SET_PDEATHSIG = 1
GRACE_S = 3.0
PEERS_S = 0.5
ERROR_CHARS = 20_000


class _Answer(NamedTuple):
    """How a rank's call ended, and what it returned."""

    end: RankEnd
    value: Any = None


class RankError(ExecutionError):
    """A call failed on at least one rank."""

    def __init__(self, ends: Sequence[RankEnd]) -> None:
        self.ends = tuple(ends)
        super().__init__("; ".join(_describe(end) for end in ends if not end.ok))


def _describe(end: RankEnd) -> str:
    if end.error:
        return f"rank {end.rank}: {end.error.strip().splitlines()[-1]}"
    if end.hung:
        return f"rank {end.rank} hung and was ended"
    return f"rank {end.rank} ended with exit code {end.exit_code}"


class Peers(Protocol):
    """The ranks of the same launch on other nodes."""

    def gone(self) -> bool:
        """Whether one of them failed, so that the ranks here wait in vain."""

    def failed(self) -> None:
        """A rank here failed."""


class RankGroup:
    """``local_ranks`` processes, global ranks ``first_rank`` upward, that run one call after the other.

    Use as a context manager; leaving it ends every process. ``peers`` are asked twice a second.
    """

    def __init__(
        self,
        local_ranks: int,
        first_rank: int = 0,
        log_folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        peers: Peers | None = None,
    ) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        _start_server()
        self._processes: list[Any] = []
        self._pipes: list[connection.Connection] = []
        self.first_rank = first_rank
        self._peers = peers
        try:
            for local_rank in range(local_ranks):
                rank = first_rank + local_rank
                here, there = context.Pipe()
                log = None if log_folder is None else str(log_folder / f"rank{rank}.log")
                rank_env = {**(env or {}), "RANK": str(rank), "LOCAL_RANK": str(local_rank)}
                process = context.Process(target=_serve, args=(there, log, rank_env), daemon=True)
                process.start()
                there.close()
                self._processes.append(process)
                self._pipes.append(here)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Ranks of this group."""
        return len(self._processes)

    @property
    def usable(self) -> bool:
        """Whether the group can take another call."""
        return bool(self._pipes) and all(process.is_alive() for process in self._processes)

    def call(self, function: Callable[..., Any] | str, *args: Any, timeout_s: float = 300.0) -> list[Any]:
        """Run ``function(*args)`` on every rank; the values in rank order.

        Raises:
            RankError: it failed on a rank; the group is unusable and its processes are ended.
        """
        return self._values_of(list(range(len(self._pipes))), function, args, timeout_s)

    def call_one(self, index: int, function: Callable[..., Any] | str, *args: Any, timeout_s: float = 60.0) -> Any:
        """Run ``function(*args)`` on one local rank."""
        (value,) = self._values_of([index], function, args, timeout_s)
        return value

    def run(self, function: Callable[..., Any] | str, *args: Any, timeout_s: float) -> list[RankEnd]:
        """Run ``function(*args)`` on every rank and say how each ended.

        Once a rank has failed, here or among the peers, the others get a few seconds to notice by themselves, then
        they are ended; so are all when ``timeout_s`` is over.
        """
        return [answer.end for answer in self._run_on(list(range(len(self._pipes))), function, args, timeout_s)]

    def _values_of(
        self, indices: list[int], function: Callable[..., Any] | str, args: tuple[Any, ...], timeout_s: float
    ) -> list[Any]:
        answers = self._run_on(indices, function, args, timeout_s)
        if not all(answer.end.ok for answer in answers):
            self.close()
            raise RankError([answer.end for answer in answers])
        return [answer.value for answer in answers]

    def _run_on(
        self, indices: list[int], function: Callable[..., Any] | str, args: tuple[Any, ...], timeout_s: float
    ) -> list[_Answer]:
        for index in indices:
            with contextlib.suppress(OSError):
                self._pipes[index].send((function, args))
        done: dict[int, _Answer] = {}
        deadline = time.monotonic() + timeout_s
        told = False
        while len(done) < len(indices):
            waiting = [i for i in indices if i not in done]
            wait_s = max(0.0, deadline - time.monotonic())
            slice_s = wait_s if self._peers is None else min(wait_s, PEERS_S)
            # the process too, not its pipe alone: a child of a dead rank can hold the pipe open
            watched = [x for i in waiting for x in (self._pipes[i], self._processes[i].sentinel)]
            ready = connection.wait(watched, slice_s)
            for index in waiting:
                if self._pipes[index] in ready or self._processes[index].sentinel in ready:
                    done[index] = self._receive(index)
            failed = not all(answer.end.ok for answer in done.values())
            if failed and not told and self._peers is not None:
                self._peers.failed()
                told = True
            if not ready and time.monotonic() >= deadline:
                done.update({i: _Answer(RankEnd(rank=self.first_rank + i, hung=True)) for i in waiting})
                self._kill()
            elif failed or (self._peers is not None and self._peers.gone()):
                deadline = min(deadline, time.monotonic() + GRACE_S)
        return [done[i] for i in indices]

    def _receive(self, index: int) -> _Answer:
        rank = self.first_rank + index
        try:
            if not self._pipes[index].poll():
                raise EOFError
            kind, payload = self._pipes[index].recv()
        except (EOFError, OSError):
            self._processes[index].join(5.0)
            return _Answer(RankEnd(rank=rank, exit_code=self._processes[index].exitcode or 0))
        if kind == "value":
            return _Answer(RankEnd(rank=rank), payload)
        # it may be long, and hold what UTF-8 cannot; the whole of it is in the rank's log
        error = payload[-ERROR_CHARS:].encode("utf-8", "replace").decode("utf-8")
        return _Answer(RankEnd(rank=rank, error=error))

    def _kill(self) -> None:
        """End every rank with all that it started: each leads a process group of its own."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.is_alive():
                process.kill()
        for process in self._processes:
            process.join(10.0)

    def close(self) -> None:
        """End every process."""
        self._kill()
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()


def _start_server() -> None:
    """Start the process that ranks are forked from. Ctrl-C, which a terminal sends to all, is not for it."""
    resource_tracker.ensure_running()  # which unblocks SIGINT when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: connection.Connection, log: str | None, env: dict[str, str]) -> None:
    """A rank's life: take calls until the pipe closes. Leaves without the interpreter's teardown."""
    die_with_parent()
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(env)
    if log is not None:
        try:
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except FileNotFoundError:
            os._exit(0)  # its folder is gone, and so is whoever asked for this rank
        os.dup2(file, 1)
        os.dup2(file, 2)
    while True:
        try:
            function, args = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            answer = ("value", resolve(function)(*args))
        # a checkpoint's error is no Exception
        except BaseException:
            traceback.print_exc()
            answer = ("error", traceback.format_exc())
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError):
            pipe.send(answer)


def resolve(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """A function, or the one that ``package.module:name`` names.

    By name, so that the process that asks need not import torch.
    """
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
