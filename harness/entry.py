"""Where the ``meshsweep`` script begins: it answers an interruption in one line also while all else is imported."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command."""
    try:
        from harness.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("meshsweep: interrupted\n")
        sys.exit(INTERRUPTED)
    run()
