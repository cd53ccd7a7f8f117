"""A group of commands whose help shows every command's first sentence whole."""

from __future__ import annotations

import click

_WHOLE = 10_000  # characters; longer than any sentence


class WholeGroup(click.Group):
    """Wraps what click would cut with ``...`` to fit a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A row a command, its description wrapped."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in found if one is not None and not one.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
