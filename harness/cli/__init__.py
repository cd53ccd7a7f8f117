"""The ``meshsweep`` command: arguments to calls, nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence

import click

from harness import __version__
from harness.cli.calibrate import calibrate
from harness.cli.checkpoint import checkpoint
from harness.cli.classify import classify
from harness.cli.compare import compare
from harness.cli.doctor import doctor
from harness.cli.explain import explain
from harness.cli.export import benchmarks, export
from harness.cli.group import WholeGroup
from harness.cli.history import history
from harness.cli.mesh import mesh
from harness.cli.nightly import nightly
from harness.cli.output import Watched
from harness.cli.plan import plan
from harness.cli.recommend import recommend
from harness.cli.run import cancel, resume, run
from harness.cli.score import score
from harness.cli.show import layouts, report, status, topology
from harness.errors import MeshsweepError

INTERRUPTED = 130


@click.group(cls=WholeGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="meshsweep")
def cli() -> None:
    """Measure data-parallel layouts (DDP, FSDP, HSDP, TP and their products) on this cluster and choose one.

    Exit codes of run and resume: 0 every cell was measured or pruned; 1 a cell failed, diverged or is missing; 130
    interrupted. Of doctor, mesh check, checkpoint verify, compare and nightly: 1 findings, or a slower cell. Of all: 2
    wrong use.
    """


for command in (
    *(topology, layouts, plan, mesh, doctor, run, resume, cancel),
    *(status, report, recommend, compare, history, score, checkpoint, classify, nightly),
    *(calibrate, explain, export, benchmarks),
):
    cli.add_command(command)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; a user's mistake is one line and exit code 2, never a traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # as Ctrl-C; what `nohup` has set to be ignored stays so
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    sys.exit(_run(argv))


def _run(argv: Sequence[str] | None) -> int:
    as_json = "--json" in (sys.argv[1:] if argv is None else argv)
    out = Watched(sys.stdout)
    with contextlib.redirect_stdout(out):
        code, error = _outcome(argv)
    # with --json the result's place is taken by the error; not once a part of the result stands there
    if error is not None and as_json and not out.begun:
        click.echo(json.dumps({"error": {**error, "exit_code": code}}, indent=1))
    return code


def _outcome(argv: Sequence[str] | None) -> tuple[int, dict[str, str] | None]:
    """The exit code, and type and message of what went wrong, which stands on stderr too."""
    try:
        return cli.main(args=argv, prog_name="meshsweep", standalone_mode=False) or 0, None
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0, None
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "meshsweep"
        return _failed(f"{error.format_message().rstrip('.')}; see '{command} --help'", error, 2)
    except MeshsweepError as error:
        return _failed(str(error), error, error.exit_code)
    except BrokenPipeError:
        # whoever read our output has gone; leave stdout alone, or the interpreter complains at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1, None
    except OSError as error:
        return _failed(f"{error}; free space, or check the path and its permissions", error, 2)
    except (KeyboardInterrupt, click.Abort) as error:
        cause = error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else error
        return _failed(str(cause) or "interrupted", KeyboardInterrupt(), INTERRUPTED)


def _failed(message: str, error: BaseException, code: int) -> tuple[int, dict[str, str]]:
    click.echo(f"meshsweep: {message}", err=True)
    return code, {"type": type(error).__name__, "message": message}
