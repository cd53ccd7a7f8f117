"""The first job of a sweep on a cluster: every node says what it has and how fast its links are, for the submitting
machine cannot see it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from harness.doctor.look import look
from harness.errors import ExecutionError, TopologyError
from harness.execute import link_speed
from harness.execute.agent import Place
from harness.execute.collect import job_cause
from harness.execute.here import this_machine
from harness.execute.link_speed import NodeSpeeds
from harness.execute.slurm_jobs import adopt, check_folder, submit_call
from harness.execute.slurm_queue import SILENT_POLL_S, Queue, SlurmJob
from harness.failure import FailureClass
from harness.launch.job_file import SlurmJobFile, read_job_file
from harness.slurm import commands
from harness.slurm.profile import SlurmOptions
from harness.slurm.script import JobRequest, job_name
from harness.slurm.verdict import Cause
from harness.store import read_model, write_atomic
from harness.topology import slurm_env
from harness.topology.merge import join_nodes
from harness.topology.model import Node, Topology

LIMIT_MIN = 10
POLL_S = 0.5


def probe_node(folder: str, device: str, slots: int | None, nodes: int) -> None:
    """Write this node's topology and how fast its links are, one of ``nodes`` at the same time.

    ``slots``: ranks of a node without a GPU; None: as many as Slurm gave it GPUs.
    """
    place = Place.of_task(os.environ)
    gpus = os.environ.get("SLURM_GPUS_ON_NODE", "")
    found = this_machine(device, slots or (int(gpus) if gpus.isdigit() else None))
    (node,) = found.nodes
    node = _with_switches(node.model_copy(update={"host": place.host}))
    topology = found.model_copy(update={"nodes": (node,)})
    write_atomic(_path(Path(folder), place.node), topology.model_dump_json(indent=1))
    own = link_speed.inside(topology)
    ring = link_speed.from_the_node_before(Path(folder), place.node, nodes, place.attempt)
    both = own.model_copy(update={"incoming": ring.incoming, "faults": own.faults + ring.faults})
    write_atomic(_speeds_path(Path(folder), place.node), both.model_dump_json(indent=1))


def _with_switches(node: Node) -> Node:
    """The node with the switches above it, where Slurm names them."""
    with contextlib.suppress(TopologyError):
        described, _ = slurm_env.from_environ(os.environ)
        mine = next((one for one in described.nodes if one.host == node.host), None)
        return join_nodes(node, mine) if mine else node
    return node


def _path(folder: Path, node: int) -> Path:
    return folder / f"topology.node{node}.json"


def _speeds_path(folder: Path, node: int) -> Path:
    return folder / f"speeds.node{node}.json"


def probe_request(folder: Path, sweep: str, options: SlurmOptions) -> JobRequest:
    """What the probe job asks for: the nodes that every other job will ask for."""
    return JobRequest(
        name=job_name(sweep, "probe"),
        folder=str((folder / "job").absolute()),
        nodes=options.nodes,
        gpus_per_node=options.profile.gpus_per_node,
        gpus=options.profile.gpus,
        time_min=LIMIT_MIN,
        depend=options.depend,
        exclude=options.exclude,
        nodelist=options.nodelist,
    )


def probe(
    folder: Path, sweep: str, options: SlurmOptions, device: str, slots: int | None, stop: Callable[[], bool]
) -> Topology:
    """The topology of the nodes that a job gets, in rank order; a probe that still runs is waited for.

    Raises:
        ExecutionError: the job ended without it, or ``stop`` says so.
    """

    def done() -> bool:
        return all(path.exists() for path in _written(folder, options))

    if not done():
        call = (probe_node, str(folder.absolute()), device, slots, options.nodes)
        _run(folder, probe_request(folder, sweep, options), options, call, done, stop)
    return _joined(folder, options)


def found_by_probe(folder: Path, options: SlurmOptions) -> Topology | None:
    """The same of a probe that is done; None of any other. Submits nothing."""
    done = all(path.exists() for path in _written(folder, options))
    return _joined(folder, options) if done else None


def _written(folder: Path, options: SlurmOptions) -> list[Path]:
    """What all nodes write."""
    return [path for node in range(options.nodes) for path in (_path(folder, node), _speeds_path(folder, node))]


def _joined(folder: Path, options: SlurmOptions) -> Topology:
    parts = [read_model(_path(folder, node), Topology) for node in range(options.nodes)]
    speeds = [read_model(_speeds_path(folder, node), NodeSpeeds) for node in range(options.nodes)]
    nodes = tuple(node for part in parts for node in part.nodes)
    doubts = [*(text for part in parts for text in part.warnings), *(text for one in speeds for text in one.faults)]
    return Topology(
        nodes=nodes,
        sources=tuple(dict.fromkeys(text for part in parts for text in part.sources)),
        warnings=tuple(dict.fromkeys(doubts)),
        measured=link_speed.joined(nodes, speeds),
    )


def probe_state(folder: Path) -> str:
    """How far the probe of a sweep is, in words."""
    file = read_job_file(folder)
    if file is None:
        return "its probe job is not submitted yet"
    if file.end is not None:
        return f"its probe job ended in state {file.end.status.state}"
    if file.job_id is None:
        return "its probe job is being submitted"
    try:
        status = commands.queue([file.job_id]).get(file.job_id)
    except ExecutionError:
        return f"of its probe job {file.job_id} Slurm says nothing now"
    if status is None:
        return f"its probe job {file.job_id} is over"
    reason = f" ({status.reason})" if status.reason not in (None, "", "None") else ""
    return f"its probe job {file.job_id} is {status.state}{reason}"


def cancel_probe(folder: Path) -> str | None:
    """End the probe job of a sweep, whether or not a command waits for it; its id, or None where none lives."""
    queue, found = Queue(), list[SlurmJobFile | None]()
    queue.insist(lambda: found.append(_left_in(folder)))
    (file,) = found
    if file is None:
        return None
    job = SlurmJob(folder, file, queue, lambda: False)
    queue.insist(queue.ask)
    if not job.poll():
        return None
    job.cancel()
    return job.job_id


def _left_in(folder: Path) -> SlurmJobFile | None:
    """The job that an earlier command submitted from a folder and that has not ended, as far as is known."""
    left = read_job_file(folder)
    return adopt(folder, left, ran=False) if left is not None and left.end is None else None


def look_node(folder: str) -> None:
    """Write what the doctor sees on this node."""
    place = Place.of_task(os.environ)
    text = look(host=place.host).model_dump_json(indent=1, exclude_none=True)
    write_atomic(Path(folder) / f"snapshot.node{place.node}.json", text)


def look_on_nodes(folder: Path, options: SlurmOptions) -> list[Path]:
    """Snapshots for the doctor, one a node that a job gets, in rank order.

    Raises:
        ExecutionError: the job ended without them.
    """
    paths = [folder / f"snapshot.node{node}.json" for node in range(options.nodes)]

    def done() -> bool:
        return all(path.exists() for path in paths)

    request = probe_request(folder, "doctor", options)
    _run(folder, request, options, (look_node, str(folder.absolute())), done, lambda: False)
    return paths


def _run(
    folder: Path,
    request: JobRequest,
    options: SlurmOptions,
    call: tuple[object, ...],
    done: Callable[[], bool],
    stop: Callable[[], bool],
) -> None:
    check_folder(folder)
    queue, found = Queue(), list[SlurmJob]()

    def submit() -> None:
        file = _left_in(folder)
        job = SlurmJob(folder, file, queue, done) if file else submit_call(folder, request, options, call, queue, done)
        found.append(job)

    cancelled = ExecutionError(f"job {request.name!r} was cancelled while it waited; start it again with 'run'")
    while not queue.heard(submit):
        if stop():
            raise cancelled
        time.sleep(SILENT_POLL_S)
    (job,) = found
    while job.poll() and not done():
        if stop():
            job.cancel()
            raise cancelled
        time.sleep(POLL_S)
    if done():
        return
    end = job.file.end
    nothing = Cause(FailureClass.LOST, "no node wrote what it has", False)
    cause = job_cause(folder, end, nothing) if end else nothing
    raise ExecutionError(
        f"the probe job {job.job_id} did not hear from every node ({cause.failure}): "
        f"{' '.join(cause.message.split())}; see {folder / 'job'}, and mend the profile or the request"
    )
