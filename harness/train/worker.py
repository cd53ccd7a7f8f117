"""What a rank does in a launch: verify one cell, or time several side by side."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from harness.base import Frozen
from harness.launch.folder import read_launch
from harness.launch.progress import ProgressWriter
from harness.measure.ground import ground
from harness.mesh.contract import MeshContract
from harness.spec import Launch, RunSpec
from harness.train.accounting import ACCOUNTING_STEPS, count_steps
from harness.train.calibrate import calibrate_launch
from harness.train.checkpoint.measure import measure_checkpoint
from harness.train.comm_log import keep_log, sockets
from harness.train.equivalence import gate_samples
from harness.train.exposed import rank_exposure
from harness.train.fresh import MEMORY_STEPS, fresh_session
from harness.train.mesh_check import check_mesh
from harness.train.process_group import join, pick_device
from harness.train.profiled import profiled_exposure
from harness.train.timing import time_launch

TOKEN_KEY = "meshsweep"

_store: dist.TCPStore | None = None


class Reporter:
    """Appends this rank's samples to its file and marks its position."""

    def __init__(self, folder: Path, rank: int, launch: Launch) -> None:
        self._launch = launch
        self._progress = ProgressWriter(folder, rank, launch.ranks.per_node)
        self._file = (folder / f"rank{rank}.jsonl").open("a", encoding="utf-8")
        self.debug_comms = launch.debug_comms

    def sample(self, kind: str, run: int, **values: Any) -> None:
        """Write one line; models become plain JSON."""
        self._file.write(json.dumps({"kind": kind, "run": run, **values}, default=_plain) + "\n")
        self._file.flush()

    def at(self, run: int, phase: str) -> None:
        """Say that this rank now works on a phase, or on its next step, of a run."""
        os.environ["MESHSWEEP_CELL"] = self._launch.runs[run].layout.text
        self._progress.at(run, phase, time.time())


def _plain(value: Any) -> Any:
    if isinstance(value, Frozen):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no plain value")


def serve_store(token: str = "") -> int:
    """On rank 0: open the rendezvous store on a free port of this host and return the port.

    ``token`` says whose store it is.
    """
    global _store
    _store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    _store.set(TOKEN_KEY, token)
    return int(_store.port)


def enter(
    port: int,
    world_size: int,
    device_kind: str,
    collective_timeout_s: float,
    threads: int,
    address: str = "127.0.0.1",
    interface: str = "",
    token: str = "",
    log_folder: str = "",
) -> None:
    """Join the process group of the launch's ranks. ``interface`` is for gloo, unless the environment names one.

    ``log_folder``: where NCCL writes its log; it writes none if empty.
    """
    global _store
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.set_num_threads(threads)
    if log_folder:
        keep_log(Path(log_folder), rank)
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if rank != 0:
        _store = dist.TCPStore(address, port, is_master=False)
    assert _store is not None
    if _store.get(TOKEN_KEY).decode() != token:
        raise ConnectionError(f"{address} port {port} is another launch's: no route to host of rank 0")
    join(_store, rank, world_size, pick_device(device_kind, local_rank), collective_timeout_s)


def run_launch(folder: Path) -> None:
    """Do all runs of a launch on this rank; samples go to the rank's file."""
    launch = read_launch(folder)
    rank = dist.get_rank()
    device = torch.device("cpu") if launch.ranks.device == "cpu" else torch.device("cuda", torch.cuda.current_device())
    reporter = Reporter(folder, rank, launch)
    reporter.sample("entered", 0, unix=time.time())
    for spec, contract in zip(launch.runs, launch.contracts, strict=False):
        check_mesh(contract, spec.layout.mesh)
    reporter.sample("ground", 0, ground=ground(device))
    if launch.runs[0].purpose == "verify":
        for index, spec in enumerate(launch.runs):
            verify(index, spec, device, reporter, folder, launch.contracts[index] if launch.contracts else None)
    elif launch.runs[0].purpose == "calibrate":
        calibrate_launch(launch, device, reporter)
    else:
        time_launch(launch, device, reporter)
    dist.barrier()


def verify(
    index: int,
    spec: RunSpec,
    device: torch.device,
    reporter: Reporter,
    folder: Path,
    contract: MeshContract | None = None,
) -> None:
    """Memory first, while the process is fresh; then traffic and checkpoint of that session; gate; exposure."""
    reporter.at(index, "build")

    def stepped(step: int) -> None:
        if step == 0:
            reporter.sample("first_step", index, unix=time.time())

    session, watch = fresh_session(spec, device, lambda: reporter.at(index, "memory"), stepped)
    reporter.sample(
        *("memory", index),
        method=watch.method,
        peak=watch.peak_bytes,
        reserved=watch.reserved,
        rss=watch.rss,
        by_kind=watch.rank_memory,
    )
    reporter.at(index, "traffic")
    reporter.sample("traffic", index, **count_steps(session, MEMORY_STEPS)._asdict())
    if spec.settings.checkpoint:
        reporter.at(index, "checkpoint")
        step = MEMORY_STEPS + ACCOUNTING_STEPS
        checkpoint = measure_checkpoint(session, spec, device, step, folder / "checkpoints", contract)
        reporter.sample("checkpoint", index, checkpoint=checkpoint)
    else:
        session.close()
    reporter.at(index, "gate")
    reporter.sample("gate", index, gate=gate_samples(spec, device))
    if reporter.debug_comms:
        reporter.sample("sockets", index, **sockets())
    reporter.at(index, "exposed")
    if device.type == "cpu":
        exposure = rank_exposure(spec, device, watch.peak_bytes)
    else:
        exposure = profiled_exposure(spec, device)
    reporter.sample("exposure", index, exposure=exposure)
    reporter.at(index, "done")
    reporter.sample("done", index)
