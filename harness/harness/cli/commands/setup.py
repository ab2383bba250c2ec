"""``harness init``, ``config``, ``completion`` and ``demo``: show and write settings, run a demo."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import click

from ...errors import ConfigError
from ...settings import DEFAULT_ORIGIN, PROJECT_FILE, CommandLineChoices, Settings, load_tables, user_config_path
from ...settings_schema import ENGINE_KEYS, UNITS, with_unit
from ...system.private_files import make_directories, write_new_file
from ..completed_names import complete_config_key
from ..completion import SHELLS, completion_script
from ..options import RenamedOption, command, group, invocation_of
from ..output import print_json, table
from ..prompt.surface import printable
from ..runtime import session_of
from ..streams import Interruption, run_async

__all__ = [
    "completion",
    "config",
    "demo",
    "init",
]


# -- ``harness completion``: the script that a shell's startup file evaluates.


@command("completion")
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    bash: eval "$(harness completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc; fish: harness completion fish |
    source in config.fish.
    """
    code = completion_script(shell)
    print_json({"shell": shell, "code": code}) if invocation_of(ctx).json else click.echo(code, nl=False)


# -- ``harness demo``.


@command("demo")
@click.option(
    "--keep-running",
    "keep",
    cls=RenamedOption,
    old="--keep",
    is_flag=True,
    help="Keep the session running, to attach to it.",
)
@click.option("--agent", is_flag=True, help="Run the agent demo with a scripted model; needs no provider.")
@click.option("--web", is_flag=True, help="Run the agent demo with its dashboard, and answer its calls in a browser.")
@click.option("--web-session", is_flag=True, hidden=True, help="Run the agent of --web.")
@click.pass_context
def demo(ctx: click.Context, keep: bool, agent: bool, web: bool, web_session: bool) -> int:
    """Run a demo: a temporary local SSH server, a tmux session, a small task."""
    if invocation_of(ctx).json:
        raise click.UsageError("demo has no JSON output")

    def say(line: str) -> None:
        click.echo(printable(line))

    async def main(interruption: Interruption) -> int:
        if web:
            from ...operate.demo_web import run_web_demo

            await run_web_demo(say=say)
        elif web_session:
            from ...operate.demo_agent import run_web_session

            await run_web_session(say=say)
        elif agent:
            from ...operate.demo_agent import run_agent_demo

            await run_agent_demo(keep=keep, say=say)
        else:
            from ...operate.demo import run_demo

            await run_demo(keep=keep, say=click.echo)
        return 0

    return run_async(main)


# -- ``harness config`` and ``harness init``.


HIDDEN = "***"
AGENT_DEPTH = "tools.max_agent_depth"
CACHE = ("cache_max_results", "cache_max_bytes", "cache_max_age")
"""Settings of ``[tools]`` that are shown unchanged."""


@command("show")
@click.argument("names", metavar="[SETTING]...", nargs=-1, shell_complete=complete_config_key)
@click.pass_context
def show(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show each setting, or the named ones, with its value and where it is set.

    Values of environment variables are never shown.
    """
    session = session_of(ctx)
    origins = dict(session.settings.origins)
    values = _values(session.settings)
    values[AGENT_DEPTH], origins[AGENT_DEPTH] = _agent_depth(session.invocation.choices)
    for name, (value, origin) in _cache_limits(session.invocation.choices).items():
        values[name], origins[name] = value, origin
    values = _only(values, names)
    if session.json:
        document = {name: _documented(name, value, origins[name]) for name, value in values.items()}
        named = dict(session.settings.targets)
        print_json({"settings": document, "targets": named, "files": session.settings.files})
        return
    rows = [(name, _shown_with_unit(name, value), origins[name]) for name, value in values.items()]
    table(("SETTING", "VALUE", "SET IN"), rows)
    if session.settings.targets and not names:
        click.echo()
        table(("TARGET", "URL"), session.settings.targets)


def _only(values: dict[str, object], names: Sequence[str]) -> dict[str, object]:
    """Return the named settings, or all if none is named.

    Raises:
        ConfigError: There is no setting of that name.
    """
    for name in names:
        if name not in values:
            close = get_close_matches(name, values, n=1)
            raise ConfigError(f"no setting {name!r}", hint=f"did you mean {close[0]!r}?" if close else "")
    return {name: values[name] for name in dict.fromkeys(names)} if names else values


def _values(settings: Settings) -> dict[str, object]:
    general: dict[str, object] = {
        "target": str(settings.target),
        "tmux": settings.tmux,
        "pane": settings.pane,
        "timeout": settings.timeout,
        "trusted_dirs": settings.trusted_dirs,
    }
    engine: dict[str, object] = {name: getattr(settings.config, name) for name in ENGINE_KEYS}
    engine["env"] = dict.fromkeys((name for name, _ in settings.config.env), HIDDEN)
    return general | engine


def _agent_depth(choices: CommandLineChoices) -> tuple[int, str]:
    """Return the depth from which agents cannot start sub-agents, and where it is set.

    Raises:
        ConfigError: The ``[tools]`` table is invalid, or its profile does not exist.
    """
    from ...toolkit.catalog import MAX_AGENT_DEPTH, agent_depth, tool_settings_of

    tables = load_tables("tools", choices)
    settings = tool_settings_of(tables)
    depth = agent_depth(settings)
    if settings.max_agent_depth is not None:
        return depth, next(one.origin for one in reversed(tables) if "max_agent_depth" in one.values)
    return depth, DEFAULT_ORIGIN if depth == MAX_AGENT_DEPTH else f"profile {settings.tool_profile}"


def _cache_limits(choices: CommandLineChoices) -> dict[str, tuple[object, str]]:
    """Return the limits of the result cache, and where each is set.

    Raises:
        ConfigError: The ``[tools]`` table is invalid.
    """
    from ...toolkit.catalog import tool_settings_of

    tables = load_tables("tools", choices)
    settings = tool_settings_of(tables)
    set_in = {name: table.origin for table in tables for name in table.values}
    return {f"tools.{name}": (getattr(settings, name), set_in.get(name, DEFAULT_ORIGIN)) for name in CACHE}


def _documented(name: str, value: object, origin: str) -> dict[str, object]:
    unit = {"unit": UNITS[name]} if name in UNITS else {}
    return {"value": value, **unit, "origin": origin}


def _shown_with_unit(name: str, value: object) -> str:
    if name == "timeout" and value is None:
        return "none"
    return with_unit(name, value) if name in UNITS and isinstance(value, int | float) else _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value)
    if isinstance(value, float):
        return f"{value:.12g}"
    return "" if value is None else str(value)


@command("init")
@click.option("--project", is_flag=True, help=f"Write ./{PROJECT_FILE} instead of the user's settings.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_context
def init(ctx: click.Context, project: bool, force: bool) -> None:
    """Write a settings file in which every key is explained and commented out.

    An existing file is kept, unless --force is given.
    """
    from ...operate.template import settings_template

    path = Path.cwd() / PROJECT_FILE if project else user_config_path()
    _write_new(path, settings_template(project=project), replace=force)
    if ctx.find_root().obj.json:
        print_json({"path": str(path)})
    else:
        click.echo(path)


def _write_new(path: Path, text: str, *, replace: bool) -> None:
    try:
        make_directories(path.parent)
        if replace:
            path.unlink(missing_ok=True)
        write_new_file(path, text.encode())
    except FileExistsError:
        raise ConfigError(f"{path} exists", hint="--force replaces it") from None
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error


config = group("config", "show", (show,), "Show the settings and where each is set.")
