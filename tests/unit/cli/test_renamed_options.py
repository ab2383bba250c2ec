"""Each renamed option: the old spelling does the same as the new one, warns, and is refused next to it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harness.cli.main import cli
from harness.cli.options import Invocation, RenamedOption
from harness.settings import CommandLineChoices

OPTIONS = [
    ("config", "--fresh-connection", "--dedicated-connection", ""),
    ("exec", "--max-turns", "--max-steps", "3"),
    ("exec", "--session", "--conversation", "k3f9"),
    ("exec", "--profile", "--tool-profile", "hex"),
    ("tools list", "--profile", "--tool-profile", "hex"),
    ("tools schema", "--profile", "--tool-profile", "hex"),
    ("tools call", "--profile", "--tool-profile", "hex"),
    ("tools call", "--seen", "--assume-read", "/etc/hosts"),
    ("mcp serve", "--profile", "--tool-profile", "hex"),
    ("resume", "--here", "--allow-other-target", ""),
    ("permissions add", "--absent", "--allow-missing", ""),
    ("trace replay", "--whole", "--full", ""),
    ("audit verify", "--head", "--expect-head", f"1:{'0' * 64}"),
    ("demo", "--keep", "--keep-running", ""),
    ("capture", "--visible-controls", "--escape-controls", ""),
    ("capture", "--alternate", "--alternate-screen", ""),
]
"""Command, old spelling, new spelling, and a value for an option that takes one."""
REQUIRED = {"tools schema": ["time"], "tools call": ["time"], "trace replay": ["/dev/null"]}
"""Words without which a command cannot be parsed."""

each_option = pytest.mark.parametrize(("path", "old", "new", "value"), OPTIONS)


def command_of(path: str) -> click.Command:
    command = cli
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


def parsed(path: str, words: list[str]) -> tuple[dict[str, object], Invocation]:
    invocation = Invocation()
    context = command_of(path).make_context(path, [*words, *REQUIRED.get(path, [])], obj=invocation)
    return context.params, invocation


def renamed_options(command: click.Command, path: str) -> set[tuple[str, str, str]]:
    context = click.Context(command)
    found = {
        (path, option.old, option.opts[0])
        for option in command.params
        if isinstance(option, RenamedOption) and not (option.hidden and path != "config")
    }
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found |= renamed_options(child, f"{path} {name}".strip())
    return found


def test_every_renamed_option_is_in_the_table() -> None:
    shared = {("", "--fresh-connection", "--dedicated-connection")}
    assert {row[:3] for row in OPTIONS} | shared == renamed_options(cli, "")


@each_option
def test_the_old_spelling_does_what_the_new_one_does_and_warns(path: str, old: str, new: str, value: str) -> None:
    by_old, old_invocation = parsed(path, [old, *([value] if value else [])])
    by_new, new_invocation = parsed(path, [new, *([value] if value else [])])
    default, default_invocation = parsed(path, [])
    assert (by_old, old_invocation.choices) == (by_new, new_invocation.choices)
    assert (by_new, new_invocation.choices) != (default, default_invocation.choices)
    assert old_invocation.renamed == [f"{old} is deprecated: use {new}"]
    assert new_invocation.renamed == default_invocation.renamed == []


@each_option
def test_both_spellings_are_an_error_that_names_both(path: str, old: str, new: str, value: str) -> None:
    given = [value] if value else []
    with pytest.raises(click.UsageError, match=f"{old} and {new} are the same option"):
        parsed(path, [old, *given, new, *given])


@each_option
def test_help_shows_the_new_spelling_only(path: str, old: str, new: str, value: str) -> None:
    help_text = command_of("" if path == "config" else path).get_help(click.Context(cli))
    assert new in help_text.split()
    assert old not in help_text.split()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "words",
    [
        ["--fresh-connection", "config", "show"],
        ["config", "--fresh-connection"],
        ["config", "show", "--fresh-connection"],
    ],
)
def test_the_warning_is_printed_once_wherever_the_option_is(words: list[str]) -> None:
    invocation = Invocation()
    done = CliRunner().invoke(cli, words, obj=invocation, standalone_mode=False)
    assert done.exception is None, done.output
    assert invocation.choices == CommandLineChoices(dedicated_connection=True)
    assert done.stderr.count("--fresh-connection is deprecated: use --dedicated-connection") == 1


@pytest.mark.usefixtures("home")
def test_the_warning_is_json_where_json_comes_after_the_option() -> None:
    done = CliRunner().invoke(cli, ["--fresh-connection", "config", "show", "--json"], obj=Invocation())
    assert done.stderr.startswith("{")
    assert "--fresh-connection is deprecated" in done.stderr


@pytest.mark.usefixtures("home")
def test_old_settings_of_every_table_are_reported_once_in_a_run(home: Path) -> None:
    settings = home / ".config/harness/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('tmux_at = "here"\n[tools]\nsecrets = ["ticket-[0-9]+"]\n')
    done = CliRunner().invoke(cli, ["config", "show"], obj=Invocation())
    assert done.stderr.count("deprecated") == 2
    assert "tools.secrets is deprecated: use tools.redact_patterns" in done.stderr
    assert 'tmux_at = "here" is deprecated: use tmux_host = "local"' in done.stderr
    assert "tmux_at" not in done.stdout
