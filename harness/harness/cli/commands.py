"""Click's command classes with the shared options, and a group that imports its commands when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

import click

from .options import give_tmux_a_value, shared_options, spec_of

__all__ = ["HarnessCommand", "HarnessGroup", "LazyGroup", "command", "group"]

EPILOG = "The options of 'harness --help' (--ssh, --tmux, --json, ...) may stand here too."


class HarnessCommand(click.Command):
    """A command that takes the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("epilog", EPILOG)
        super().__init__(*args, **kwargs)
        self.params += shared_options(hidden=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, give_tmux_a_value(args, spec_of(self, ctx)))


class HarnessGroup(click.Group):
    """A group that takes the shared options; an unknown command is answered with the nearest name."""

    shared_hidden = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options(hidden=self.shared_hidden)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, give_tmux_a_value(args, spec_of(self, ctx)))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None and not name.startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(name, self.list_commands(ctx), n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"'{ctx.command_path} --help' lists them"
            ctx.fail(f"no such command: {name!r}; {advice}")
        return super().resolve_command(ctx, args)


class LazyGroup(HarnessGroup):
    """A group whose commands are named in a table: name → (module:attribute, one line of help)."""

    shared_hidden = False
    table: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        return cast(click.Command, getattr(importlib.import_module(module, __package__), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


def command(name: str, **settings: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Declare a command. Its function returns the exit code; None is 0."""
    return click.command(name, cls=HarnessCommand, **settings)


def group(name: str, default: str, commands: Sequence[click.Command], text: str) -> click.Group:
    """A group of commands that runs ``default`` when no command is named."""

    def run_default(ctx: click.Context) -> int | None:
        if ctx.invoked_subcommand is not None:
            return None
        chosen = next(item for item in commands if item.name == default)
        return cast("int | None", ctx.invoke(chosen))

    made = HarnessGroup(name, callback=click.pass_context(run_default), invoke_without_command=True, help=text)
    for item in commands:
        made.add_command(item)
    return made
