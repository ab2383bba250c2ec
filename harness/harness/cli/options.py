"""The options that every command takes, their types, and click command classes that add them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NamedTuple, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ..command import parse_duration
from ..settings import CommandLineChoices
from ..target import mask_password
from .completed_names import (
    complete_container,
    complete_file,
    complete_host,
    complete_pane,
    complete_session,
    complete_target,
    matching,
)
from .output import warn

__all__ = [
    "NO_LIMIT",
    "HarnessCommand",
    "HarnessGroup",
    "HostCount",
    "Invocation",
    "LazyGroup",
    "Pause",
    "RenamedOption",
    "Size",
    "Spec",
    "TimeLimit",
    "check_invocation",
    "command",
    "group",
    "invocation_of",
    "pause_option",
    "shared_options",
    "spec_of",
    "split_tmux_option",
    "time_limit_option",
]


# -- The shared options, before or after the command's name, and the optional value of ``--tmux [SESSION]``.


TMUX = "--tmux"
TARGET_FIELDS = frozenset(
    {
        *(
            "config_file",
            "target",
            "ssh",
            "container",
            "engine",
            "pane",
            "ssh_config",
            "identity",
            "connect_timeout",
            "dedicated_connection",
            "record",
        ),
        *("image", "image_memory", "image_cpus", "image_network"),
    }
)
LISTS = frozenset({"ssh_options", "image_mounts"})
"""Options whose values accumulate."""
ONCE = frozenset({"ssh", "container", "target", "image", "engine", "pane"})
"""Options that choose where a command runs; two different values are an error, as one would be ignored."""
MANY = frozenset({"ssh", "container"})
"""Those of :data:`ONCE` that name many hosts where a command takes many."""


@dataclass(slots=True)
class Invocation:
    """The values of the shared options from both sides of the command's name; the later one wins."""

    choices: CommandLineChoices = field(default_factory=CommandLineChoices)
    json: bool = False
    verbose: int = 0
    color: bool | None = None
    batch: bool = False
    notify: bool | None = None
    """Whether to notify of the end of this command, if the command line says so."""
    trace: str = ""
    """The file to which an agent's trace is written; empty for none."""
    passes_codes: bool = False
    """Whether the exit code is that of a command on the target, so that 1 would be ambiguous."""
    several: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The different values of an option of :data:`MANY` that was given more than once; ``choices`` has the first."""
    renamed: list[str] = field(default_factory=list)
    """Warnings about old option spellings that were given, until they are printed."""


def invocation_of(ctx: click.Context) -> Invocation:
    """Return the invocation that ``ctx`` belongs to."""
    return ctx.find_root().ensure_object(Invocation)


# -- the optional value of --tmux


class Spec(NamedTuple):
    """The facts about a command's parser that decide where the value of ``--tmux`` ends."""

    with_value: frozenset[str]
    commands: frozenset[str] | None = None
    """The subcommands' names; None for a command that is not a group."""
    arguments: bool = False
    """Whether the command takes positional arguments."""
    interspersed: bool = True


def spec_of(command: click.Command, ctx: click.Context) -> Spec:
    """Return the :class:`Spec` of a command."""
    params = command.get_params(ctx)
    takes_value = {
        name
        for param in params
        if isinstance(param, click.Option) and not (param.is_flag or param.count)
        for name in (*param.opts, *param.secondary_opts, *([param.old] if isinstance(param, RenamedOption) else ()))
    }
    names = frozenset(command.list_commands(ctx)) if isinstance(command, click.Group) else None
    words = any(isinstance(param, click.Argument) for param in params)
    return Spec(frozenset(takes_value), names, words, command.allow_interspersed_args)


def split_tmux_option(args: Sequence[str], spec: Spec) -> list[str]:
    """Rewrite a bare ``--tmux`` as ``--tmux=`` or ``--tmux=SESSION``.

    The next word is its value where that is certain: before a subcommand if it is not a subcommand's name, and after a
    command without positional arguments. Elsewhere a value is written ``--tmux=SESSION``.

    Raises:
        click.UsageError: ``--tmux WORD -- ...``, which is ambiguous.
    """
    done: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--" or not (word.startswith("-") and len(word) > 1):
            done.append(word)
            if word == "--" or not spec.interspersed:
                return done + rest
        elif word == TMUX:
            done.append(f"{TMUX}={_take_session(rest, spec)}")
        else:
            done.append(word)
            if rest and _wants_next(word, spec.with_value):
                done.append(rest.pop(0))
    return done


def _take_session(rest: list[str], spec: Spec) -> str:
    if not rest or rest[0].startswith("-"):
        return ""
    if spec.commands is None and spec.arguments:
        if rest[1:2] == ["--"]:
            raise click.UsageError(f"--tmux {rest[0]} -- is ambiguous: write --tmux={rest[0]} or --tmux -- {rest[0]}")
        return ""
    return "" if spec.commands is not None and rest[0] in spec.commands else rest.pop(0)


def _wants_next(word: str, with_value: frozenset[str]) -> bool:
    if word.startswith("--"):
        return word in with_value
    for position, letter in enumerate(word[1:], 2):
        if f"-{letter}" in with_value:
            return position == len(word)
    return False


# -- the options


class RenamedOption(click.Option):
    """An option that also has the spelling ``old``, which help does not show and which causes a warning."""

    def __init__(self, *args: Any, old: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.old = old

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        alias = copy(self)
        alias.name, alias.opts, alias.secondary_opts = self.old, [self.old], []
        click.Option.add_to_parser(alias, parser, ctx)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """Return the value that was given by either spelling.

        Raises:
            click.UsageError: Both spellings were given.
        """
        name, new = self.name or "", self.opts[0]
        if self.old in opts:
            if name in opts:
                raise click.UsageError(f"{self.old} and {new} are the same option: give {new} only", ctx)
            invocation_of(ctx).renamed.append(f"{self.old} is deprecated: use {new}")
            opts = {**opts, name: opts[self.old]}
        return super().consume_value(ctx, opts)


def check_invocation(invocation: Invocation, *, many_hosts: bool = False) -> None:
    """Check the options when all of them are known, and print a warning for each old spelling.

    Raises:
        click.UsageError: Several hosts were given, and the command takes one.
    """
    if not many_hosts:
        for name, values in invocation.several.items():
            raise _more_than_one(f"--{name}", values)
    while invocation.renamed:
        warn(invocation.renamed.pop(0), as_json_document=invocation.json)


def _record(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    name = param.name or ""
    if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
        return
    invocation = invocation_of(ctx)
    if name in ONCE:
        value = _first_value(invocation, name, value)
    if name in TARGET_FIELDS:
        invocation.choices = replace(invocation.choices, **{name: value})
    elif name == "tmux":
        invocation.choices = replace(invocation.choices, tmux=value or True)
    elif name == "no_tmux":
        invocation.choices = replace(invocation.choices, tmux=False)
    elif name in LISTS:
        longer: dict[str, Any] = {name: (*getattr(invocation.choices, name), *value)}
        invocation.choices = replace(invocation.choices, **longer)
    elif name == "verbose":
        invocation.verbose += value
    elif name == "no_color":
        invocation.color = False
    else:
        setattr(invocation, name, value)


def _first_value(invocation: Invocation, name: str, given: Sequence[str]) -> str:
    """Return the first value of an option of :data:`ONCE`, and record several ones of :data:`MANY`.

    Raises:
        click.UsageError: Another option was given with different values.
    """
    before: str | None = getattr(invocation.choices, name)
    known = invocation.several.get(name, () if before is None else (before,))
    values = tuple(dict.fromkeys([*known, *given]))
    if len(values) > 1:
        if name not in MANY:
            raise _more_than_one(f"--{name}", values)
        invocation.several[name] = values
    return values[0]


def _more_than_one(option: str, values: Sequence[str]) -> click.UsageError:
    shown = mask_password(", ".join(values))
    several = f"; commands with --hosts, such as 'run', take several {option}" if option[2:] in MANY else ""
    return click.UsageError(
        f"{option} was given {len(values)} times ({shown}): harness works on one target at a time{several}"
    )


def _complete_tmux(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the session, or a command: after a bare --tmux, the next word may be either."""
    names = ctx.command.list_commands(ctx) if isinstance(ctx.command, click.Group) else []
    return [*matching(names, incomplete), *complete_session(ctx, param, incomplete)]


def shared_options(*, hidden: bool) -> list[click.Option]:
    """Return new option objects for one command; ``hidden`` omits them from its help."""

    def option(*names: str, cls: type[click.Option] = click.Option, **more: Any) -> click.Option:
        return cls(list(names), expose_value=False, callback=_record, hidden=hidden, **more)

    return [
        *_target_options(option),
        option(
            "--config",
            "config_file",
            metavar="FILE",
            shell_complete=complete_file,
            help="Also read settings from FILE.",
        ),
        option("--json", "json", is_flag=True, help="Print results and errors as JSON."),
        option("-v", "--verbose", count=True, help="More verbose output on stderr; -vvv shows tracebacks."),
        option("--no-color", "no_color", is_flag=True, help="Disable colors (as NO_COLOR does)."),
        option(
            "--trace",
            metavar="FILE",
            shell_complete=complete_file,
            help="Write a trace of the agent to FILE (see 'harness trace').",
        ),
        option("--record", is_flag=True, help="Record the panes of the session (see 'harness recordings')."),
        option("--notify/--no-notify", default=None, help="Notify you at the end, or never (see 'harness notify')."),
        option("--batch", is_flag=True, help="Never ask for a password, a host key or an approval."),
    ]


def _target_options(option: Callable[..., click.Option]) -> list[click.Option]:
    return [
        option(
            "--ssh",
            multiple=True,
            metavar="[USER@]HOST[:PORT]",
            shell_complete=complete_host,
            help="Run on a host, or on a Host of the ssh configuration.",
        ),
        option(
            "--container",
            multiple=True,
            metavar="NAME",
            shell_complete=complete_container,
            help="Run in a running container, on this machine or on the --ssh host.",
        ),
        option(
            "--engine",
            type=click.Choice(["docker", "podman"]),
            multiple=True,
            help="Use this container engine (default: the first that responds).",
        ),
        *_image_options(option),
        option(
            "--target",
            multiple=True,
            metavar="URL|NAME",
            shell_complete=complete_target,
            help="Run on a target URL or a named target.",
        ),
        *_tmux_options(option),
        *_ssh_options(option),
    ]


def _tmux_options(option: Callable[..., click.Option]) -> list[click.Option]:
    return [
        option(
            "--tmux",
            metavar="[SESSION]",
            shell_complete=_complete_tmux,
            help="Run in a tmux session that an operator can attach to.",
        ),
        option("--no-tmux", "no_tmux", is_flag=True, help="Run without tmux, overriding the settings."),
        option(
            "--pane",
            multiple=True,
            metavar="NAME",
            shell_complete=complete_pane,
            help="Use this pane; 'run' creates it if it is missing.",
        ),
    ]


def _ssh_options(option: Callable[..., click.Option]) -> list[click.Option]:
    return [
        option(
            "-o",
            "--option",
            "ssh_options",
            metavar="KEY=VALUE",
            multiple=True,
            help="Set an ssh option, as ssh -o does; repeatable.",
        ),
        option(
            "-i",
            "--identity",
            metavar="FILE",
            shell_complete=complete_file,
            help="Use this private key, as ssh -i does.",
        ),
        option(
            "-F",
            "--ssh-config",
            metavar="FILE",
            shell_complete=complete_file,
            help="Use this ssh configuration, as ssh -F does.",
        ),
        option(
            "--connect-timeout",
            type=ConnectTimeout(),
            metavar="TIME",
            help="Give up a login after TIME (default: 15s).",
        ),
        option(
            "--dedicated-connection",
            cls=RenamedOption,
            old="--fresh-connection",
            is_flag=True,
            help="Use a dedicated connection; do not share the SSH master.",
        ),
    ]


def _image_options(option: Callable[..., click.Option]) -> list[click.Option]:
    return [
        option(
            "--image",
            multiple=True,
            metavar="IMAGE",
            help="Run in a temporary container of IMAGE, removed on exit.",
        ),
        option("--memory", "image_memory", metavar="SIZE", help="Memory limit of the container, for example 512m."),
        option("--cpus", "image_cpus", metavar="N", help="CPU limit of the container, for example 1.5."),
        option(
            "--network",
            "image_network",
            metavar="NAME",
            help="Network of the container: none, host, or one of the engine's.",
        ),
        option(
            "--mount",
            "image_mounts",
            metavar="SRC:DST[:ro]",
            multiple=True,
            help="Bind-mount a host directory; repeatable.",
        ),
    ]


# -- Click's command classes with the shared options, and a group that imports its commands when they are used.


def _summary(command: click.Command) -> str:
    """Return the first sentence of a command's help, in full: click would cut it off."""
    first = " ".join(inspect.cleandoc(command.help or "").partition("\n\n")[0].split())
    sentence, end, _ = first.partition(". ")
    return sentence + end.rstrip()


def _shared_names(command: click.Command, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    """Return the shared options that continue a word, where the command's help does not list them."""
    if not incomplete.startswith("-"):
        return []
    hidden = [param for param in command.get_params(ctx) if isinstance(param, click.Option) and param.hidden]
    shared = [(name, param.help) for param in hidden if param.callback is _record for name in param.opts]
    return [CompletionItem(name, help=text) for name, text in shared if name.startswith(incomplete)]


EPILOG = "The options of 'harness --help' (--ssh, --tmux, --json, ...) work here too."


class HarnessCommand(click.Command):
    """A command that takes the shared options."""

    def __init__(self, *args: Any, many_hosts: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault("epilog", EPILOG)
        super().__init__(*args, **kwargs)
        self.many_hosts = many_hosts
        """Whether the command takes several hosts."""
        self.params += shared_options(hidden=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, split_tmux_option(args, spec_of(self, ctx)))

    def get_short_help_str(self, limit: int = 45) -> str:
        return _summary(self)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        return [*super().shell_complete(ctx, incomplete), *_shared_names(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        check_invocation(invocation_of(ctx), many_hosts=self.many_hosts)
        return super().invoke(ctx)


class HarnessGroup(click.Group):
    """A group that takes the shared options and suggests the nearest name for an unknown command."""

    shared_hidden = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options(hidden=self.shared_hidden)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, split_tmux_option(args, spec_of(self, ctx)))

    def get_short_help_str(self, limit: int = 45) -> str:
        return _summary(self)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        return [*super().shell_complete(ctx, incomplete), *_shared_names(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None and not name.startswith("-"):
            advice = self.advise_on_unknown(ctx, name)
            ctx.fail(f"no such command: {name!r}{'; ' if advice else ''}{advice}")
        return super().resolve_command(ctx, args)

    def advise_on_unknown(self, ctx: click.Context, name: str) -> str:
        """Return what to write instead of an unknown command; empty if nothing is known."""
        from difflib import get_close_matches

        close = get_close_matches(name, self.list_commands(ctx), n=1)
        return f"did you mean {close[0]!r}?" if close else ""


class LazyGroup(HarnessGroup):
    """A group whose commands are imported on use, from a table: name → (module:attribute, one line of help)."""

    shared_hidden = False
    table: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        return cast(click.Command, getattr(importlib.import_module(module, __package__), attribute))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete options, or a command from the table, so that no command is imported."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        rows = self.table.items()
        return [CompletionItem(name, help=text) for name, (_, text) in rows if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


def command(name: str, **settings: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Declare a command; its function returns the exit code, or None for 0."""
    return click.command(name, cls=HarnessCommand, **settings)


class _DefaultGroup(HarnessGroup):
    """A group that runs its command ``default``, with the given options, if no command is named."""

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = split_tmux_option(args, spec_of(self, ctx))
        place = None if ctx.resilient_parsing else self._place_of_default(ctx, words)
        return super().parse_args(ctx, words if place is None else [*words[:place], self.default, *words[place:]])

    def _place_of_default(self, ctx: click.Context, words: Sequence[str]) -> int | None:
        """Return where the default command belongs: before the first option that the group does not take.

        Returns:
            The number of a word; None if a word may be a command's name, or the group's help is requested.
        """
        own = {name for param in self.get_params(ctx) for name in (*param.opts, getattr(param, "old", ""))}
        with_value = spec_of(self, ctx).with_value | spec_of(self.commands[self.default], ctx).with_value
        place, number = None, 0
        while number < len(words):
            word = words[number]
            if not word.startswith("-") or word in {"--", "-", *ctx.help_option_names}:
                return None
            name = word.partition("=")[0] if word.startswith("--") else word[:2]
            if place is None and name not in own:
                place = number
            number += 2 if _wants_next(word, with_value) else 1
        return len(words) if place is None else place


def group(name: str, default: str, commands: Sequence[click.Command], text: str) -> click.Group:
    """Create a group of commands that runs ``default`` if no command is named."""
    made = _DefaultGroup(name, default=default, help=text)
    for item in commands:
        made.add_command(item)
    return made


# -- Option types: times and sizes.


NO_LIMIT: Final = 366 * 86400.0
"""The value of ``none`` in seconds, and the longest time that is accepted."""

_Function = Callable[..., int | None]


class Pause(click.ParamType[float]):
    """A duration of 0 or more: seconds, or ``500ms``, ``30s``, ``10m``, ``1h``."""

    name = "duration"
    forms = "write 0, 90, 500ms, 30s, 10m, 1h"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = parse_duration(cast("str | float", value))
        except ValueError:
            self.fail(f"{value!r} is not a duration: {self.forms}", param, ctx)
        if seconds > NO_LIMIT:
            self.fail(f"{value!r} is more than a year: {self.forms}", param, ctx)
        return seconds


class ConnectTimeout(Pause):
    """A :class:`Pause` within the limits of the setting ``connect_timeout``."""

    forms = "write 5, 500ms, 30s, 1m"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from ..settings_schema import TIMES

        seconds = super().convert(value, param, ctx)
        least, most = TIMES["connect_timeout"]
        if not least <= seconds <= most:
            self.fail(f"{value!r} is not a duration from {least:g} s to {most:g} s", param, ctx)
        return seconds


class TimeLimit(Pause):
    """A :class:`Pause` greater than 0, or ``none`` for no limit."""

    forms = "write 90, 500ms, 30s, 10m, 1h, or none for no limit"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if value == "none":
            return NO_LIMIT
        seconds = super().convert(value, param, ctx)
        if seconds == 0:
            self.fail(f"{value!r} is not greater than 0: {self.forms}", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """A size: bytes, or ``64k``, ``1M``, ``2G``."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from ..settings_schema import parse_size

        try:
            return min(parse_size(cast("str | int", value)), 1 << 40)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class HostCount(click.ParamType[str]):
    """A number of hosts, or a percentage such as ``10%``."""

    name = "count"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ..fleets.starting import resolve_count

        try:
            resolve_count(str(value), 100)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


def time_limit_option(*names: str, **settings: object) -> Callable[[_Function], _Function]:
    """Declare an option that takes a :class:`TimeLimit`."""
    return click.option(*names, type=TimeLimit(), metavar="TIME", **settings)  # type: ignore[arg-type]  # passed through


def pause_option(*names: str, **settings: object) -> Callable[[_Function], _Function]:
    """Declare an option that takes a :class:`Pause`."""
    return click.option(*names, type=Pause(), metavar="TIME", **settings)  # type: ignore[arg-type]  # passed through
