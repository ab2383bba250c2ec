"""The command line's parsing: shared options on both sides of a command, and the value of --tmux."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harness.cli.main import Program, cli
from harness.cli.options import Invocation, Spec, split_tmux_option
from harness.settings import CommandLineChoices

TOP = Spec(frozenset({"--ssh", "-o"}), commands=frozenset({"run", "read"}), interspersed=False)
WORDS = Spec(frozenset({"--timeout", "--text"}), arguments=True, interspersed=False)
MIXED = Spec(frozenset({"--text", "-n"}), arguments=True)
NO_WORDS = Spec(frozenset({"--job"}))


@pytest.mark.parametrize(
    ("spec", "words", "expected"),
    [
        (TOP, ["--tmux", "run", "x"], ["--tmux=", "run", "x"]),
        (TOP, ["--tmux", "build", "run"], ["--tmux=build", "run"]),
        (TOP, ["--tmux=run", "run"], ["--tmux=run", "run"]),
        (TOP, ["--tmux"], ["--tmux="]),
        (TOP, ["--tmux", "--ssh", "h", "run"], ["--tmux=", "--ssh", "h", "run"]),
        (TOP, ["--ssh", "--tmux", "run"], ["--ssh", "--tmux", "run"]),
        (TOP, ["-o", "--tmux", "run"], ["-o", "--tmux", "run"]),
        (TOP, ["-oX=1", "--tmux", "run"], ["-oX=1", "--tmux=", "run"]),
        (TOP, ["run", "--tmux", "x"], ["run", "--tmux", "x"]),
        (WORDS, ["--tmux", "ls"], ["--tmux=", "ls"]),
        (WORDS, ["--tmux", "--", "ls"], ["--tmux=", "--", "ls"]),
        (WORDS, ["ls", "--tmux"], ["ls", "--tmux"]),
        (WORDS, ["--", "--tmux"], ["--", "--tmux"]),
        (WORDS, ["--timeout", "1", "--tmux", "x"], ["--timeout", "1", "--tmux=", "x"]),
        (MIXED, ["C-c", "--tmux"], ["C-c", "--tmux="]),
        (MIXED, ["--text", "--tmux", "C-c"], ["--text", "--tmux", "C-c"]),
        (MIXED, ["-vn", "--tmux"], ["-vn", "--tmux"]),
        (MIXED, ["-", "--tmux"], ["-", "--tmux="]),
        (NO_WORDS, ["--tmux", "build"], ["--tmux=build"]),
        (NO_WORDS, ["--tmux", "--job", "7"], ["--tmux=", "--job", "7"]),
    ],
)
def test_tmux_takes_the_next_word_only_where_that_is_certain(spec: Spec, words: list[str], expected: list[str]) -> None:
    assert split_tmux_option(words, spec) == expected


def test_a_word_between_tmux_and_the_dashes_is_refused_as_ambiguous() -> None:
    with pytest.raises(click.UsageError, match="--tmux=build"):
        split_tmux_option(["--tmux", "build", "--", "make"], WORDS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parsed(words: list[str]) -> Invocation:
    invocation = Invocation()
    result = CliRunner().invoke(cli, [*words, "config", "show"], obj=invocation, standalone_mode=False)
    assert result.exception is None, result.output
    return invocation


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        (["--ssh", "a@b:1"], CommandLineChoices(ssh="a@b:1")),
        (
            ["--ssh=a", "--container", "c", "--engine", "podman"],
            CommandLineChoices(ssh="a", container="c", engine="podman"),
        ),
        (["--tmux"], CommandLineChoices(tmux=True)),
        (["--tmux", "s"], CommandLineChoices(tmux="s")),
        (["--tmux=config"], CommandLineChoices(tmux="config")),
        (["--tmux", "s", "--no-tmux"], CommandLineChoices(tmux=False)),
        (["-o", "A=1", "-oB=2"], CommandLineChoices(ssh_options=("A=1", "B=2"))),
        (
            ["-i", "k", "-F", "f", "--dedicated-connection"],
            CommandLineChoices(identity="k", ssh_config="f", dedicated_connection=True),
        ),
        (["--connect-timeout", "500ms"], CommandLineChoices(connect_timeout=0.5)),
    ],
)
def test_shared_options_are_recorded(home: Path, words: list[str], choices: CommandLineChoices) -> None:
    (home / "f").touch()
    assert parsed(words).choices == choices


@pytest.mark.parametrize("value", ["0", "50ms", "2h", "none", "soon"])
def test_a_connect_timeout_out_of_range_is_refused(home: Path, value: str) -> None:
    words = ["--connect-timeout", value, "config", "show"]
    result = CliRunner().invoke(cli, words, obj=Invocation(), standalone_mode=False)
    assert isinstance(result.exception, click.BadParameter)


def test_both_sides_of_the_command_count_and_lists_add_up(home: Path) -> None:
    invocation = Invocation()
    words = ["--ssh", "b", "-v", "-o", "A=1", "config", "--ssh", "b", "-v", "show", "--json", "-o", "B=2", "-v"]
    result = CliRunner().invoke(cli, words, obj=invocation, standalone_mode=False)
    assert result.exception is None, result.output
    assert invocation.choices == CommandLineChoices(ssh="b", ssh_options=("A=1", "B=2"))
    assert invocation.verbose == 3
    assert invocation.json


@pytest.mark.parametrize(
    "words",
    [
        ["--ssh", "a", "--ssh", "b", "config", "show"],
        ["--ssh", "a", "config", "show", "--ssh", "b"],
        ["config", "show", "--container", "a", "--container", "b"],
        ["--target", "ssh://a", "config", "--target", "ssh://b", "show"],
        ["--image", "a", "--image", "b", "config", "show"],
        ["--container", "a", "--engine", "docker", "config", "show", "--engine", "podman"],
        ["--pane", "a", "config", "show", "--pane", "b"],
    ],
)
def test_two_places_to_run_are_an_error_and_not_the_last_one(home: Path, words: list[str]) -> None:
    result = CliRunner().invoke(cli, words, obj=Invocation(), standalone_mode=False)
    assert isinstance(result.exception, click.UsageError)
    assert "harness works on one target at a time" in result.exception.message


def test_every_listed_command_exists_and_explains_itself() -> None:
    ctx = click.Context(cli)
    for name in Program.table:
        command = cli.get_command(ctx, name)  # type: ignore[attr-defined]  # the decorator's type hides that it is a group
        assert command is not None
        assert command.name == name
        result = CliRunner().invoke(cli, [name, "--help"], obj=Invocation())
        assert result.exit_code == 0
        assert "Usage:" in result.output


def test_an_unknown_command_is_answered_with_the_nearest_name() -> None:
    result = CliRunner().invoke(cli, ["jbos"], obj=Invocation())
    assert "did you mean 'jobs'?" in result.output
