"""``job.json`` of a launch that is a Slurm job of its own: what finds the job again, and how it ended."""

from __future__ import annotations

from pathlib import Path

from harness.base import Frozen
from harness.slurm.state import JobStatus
from harness.store import read_model, write_atomic


class JobEnd(Frozen):
    """How the scheduler ended the job. ``down``: those of its nodes that were down then."""

    status: JobStatus
    message: str = ""
    down: tuple[str, ...] = ()


class SlurmJobFile(Frozen):
    """One job. ``job_id`` is None until sbatch has answered; ``name`` finds the job if nobody noted the answer."""

    name: str
    job_id: str | None = None
    submitted_at: str
    arguments: tuple[str, ...] = ()  # given to sbatch beside the script
    end: JobEnd | None = None

    @property
    def script(self) -> str:
        """The batch script, relative to the launch's folder."""
        return f"job/{self.job_id}_submission.sh"


def write_job_file(folder: Path, file: SlurmJobFile) -> None:
    """Keep the job beside its launch."""
    write_atomic(folder / "job.json", file.model_dump_json(indent=1))


def read_job_file(folder: Path) -> SlurmJobFile | None:
    """The launch's job; None for a launch that was never given to Slurm."""
    path = folder / "job.json"
    return read_model(path, SlurmJobFile) if path.exists() else None


def read_job_logs(folder: Path, limit: int = 100_000) -> str:
    """What the job's script and its tasks wrote, the end of each file, at most ``limit`` bytes of it."""
    texts = []
    for path in sorted((folder / "job").glob("*_batch.log")) + sorted((folder / "job").glob("*_log.*")):
        try:
            texts.append(path.read_bytes()[-limit:].decode("utf-8", errors="replace"))
        except OSError:
            continue
    return "\n".join(texts)
