"""A group of commands whose help shows every command's first sentence whole."""

from __future__ import annotations

from collections import Counter

import click

Resolved = tuple[str | None, click.Command | None, list[str]]
_WHOLE = 10_000  # characters; longer than any sentence


class WholeGroup(click.Group):
    """Wraps what click would cut with ``...`` to fit a line, and refuses an option that is given twice."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Resolved:
        """The command, its name and its arguments.

        Raises:
            click.UsageError: an option that takes one value has several, of which click would take the last.
        """
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not isinstance(command, click.Group):
            _refuse_repeats(command, click.Context(command, parent=ctx, info_name=name), rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A row a command, its description wrapped."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in found if one is not None and not one.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _refuse_repeats(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    try:
        _, _, order = command.make_parser(ctx).parse_args(list(args))
    except click.UsageError:
        return  # the command itself says what is wrong
    for one, count in Counter(order).items():
        if isinstance(one, click.Option) and count > 1 and not one.multiple and not one.count and not _same(one):
            raise click.UsageError(f"{one.opts[0]} is given {count} times; give it once", ctx)


def _same(option: click.Option) -> bool:
    """Whether it can only say the same again."""
    return option.is_flag and not option.secondary_opts
