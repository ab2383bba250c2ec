"""Completion: the words before the cursor, and answers that a shell takes as text."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import completed_names
from harness.cli.completed_names import complete_copied, complete_host, complete_pattern, complete_target, matching
from harness.cli.completion import SHELLS, bash_replacement, is_showable, split_line
from harness.cli.main import cli
from harness.cli.options import Invocation
from harness.operate.known_names import BUILTIN_TOOLS
from harness.toolkit.plugins import OWN, TOOLS, find, load_tools

PARAM = click.Option(["--x"])


def offered(shell: str, line: str, monkeypatch: pytest.MonkeyPatch, word: str | None = None) -> list[str]:
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_WORD", split_line(line)[1] if word is None else word)
    shell_complete = SHELLS[shell](cli, {"obj": Invocation()}, "harness", "_X")
    return shell_complete.complete().splitlines()


@pytest.mark.parametrize(
    ("line", "words", "incomplete"),
    [
        ("harness ", [], ""),
        ("harness run", [], "run"),
        ("harness run ", ["run"], ""),
        ("harness --ssh 'my na", ["--ssh"], "my na"),
        ('harness --ssh "my na', ["--ssh"], "my na"),
        ("harness --ssh my\\ na", ["--ssh"], "my na"),
        ("harness 'a b' c", ["a b"], "c"),
        ("", [], ""),
    ],
)
def test_a_line_is_split_at_the_cursor(line: str, words: list[str], incomplete: str) -> None:
    assert split_line(line) == (words, incomplete)


@pytest.mark.parametrize(
    ("value", "line", "word", "replacement"),
    [
        ("web1", "harness --ssh we", "we", "web1"),
        ("@web", "harness --hosts @we", "@we", "@web"),
        ("db,@web", "harness --hosts db,@we", "@we", "@web"),
        ("ssh://web1", "harness --target ssh://we", "//we", "//web1"),
        ("--tmux=main", "harness --tmux=ma", "ma", "main"),
        ("my name", "harness resume my", "my", "my\\ name"),
        ("my name", "harness resume my\\ na", "my\\ na", "my\\ name"),
        ("my name", "harness resume 'my na", "my na", "my name"),
        ("a$(b)", "harness resume a", "a", "a\\$\\(b\\)"),
        ("a$(b)", 'harness resume "a', "a", None),
        ("it's", "harness resume 'i", "i", None),
    ],
)
def test_bash_gets_the_rest_of_the_word_quoted(value: str, line: str, word: str, replacement: str | None) -> None:
    assert bash_replacement(value, line, word) == replacement


@given(st.text(min_size=1).filter(is_showable))
def test_what_bash_inserts_means_the_value_itself(value: str) -> None:
    inserted = bash_replacement(value, "harness resume ", "")
    assert inserted is not None
    assert shlex.split(inserted) == [value]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("value", ["a\nplain,b", "a\rb", "a\x1b]0;x\x07", "a\u202eb", "a\tb", "x" * 1000])
def test_values_that_cannot_be_shown_are_left_out(shell: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def names(self: object, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        return [CompletionItem(value), CompletionItem("good")]

    monkeypatch.setattr("click.shell_completion.ShellComplete.get_completions", names)
    answers = offered(shell, "harness resume ", monkeypatch)
    assert answers == (["plain", "good", "_"] if shell == "zsh" else ["plain,good"])


def test_a_name_that_would_be_an_option_is_left_out() -> None:
    assert [item.value for item in matching(["--force", "web1", "-x"], "")] == ["web1"]
    assert [item.value for item in matching(["-x"], "", before="user@")] == ["user@-x"]


@pytest.mark.parametrize("shell", SHELLS)
def test_shared_options_are_completed_behind_a_command(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("--ssh-config" in answer for answer in offered(shell, "harness jobs list --ss", monkeypatch))


def test_the_option_in_front_of_a_value_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("fish", "harness --engine=do", monkeypatch) == ["plain,--engine=docker"]
    assert offered("zsh", "harness --engine=do", monkeypatch) == ["plain", "--engine=docker", "_"]
    assert offered("bash", "harness --engine=do", monkeypatch, word="do") == ["plain,docker"]


def test_commands_are_completed_without_importing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", pytest.fail)
    answers = offered("fish", "harness ", monkeypatch)
    assert answers[0].startswith("plain,run\t")
    assert len(answers) > 30


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> click.Context:
    """A home whose ssh configuration includes another one, and whose known hosts are partly hashed."""
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text("Include conf.d/*\nHost web1 web*\nHost db1\n")
    (ssh / "conf.d").mkdir()
    (ssh / "conf.d/more").write_text("Host cache1 !no\n")
    known = [
        "old1,192.0.2.7 ssh-ed25519 A",
        "[old2]:2222 ssh-ed25519 A",
        "[old3]:22 ssh-ed25519 A",
        "|1|abc=|def= ssh-ed25519 A",
        "@revoked gone ssh-ed25519 A",
        "*.example.org ssh-ed25519 A",
    ]
    (ssh / "known_hosts").write_text("\n".join(known))
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.operate.known_names.SYSTEM_KNOWN_HOSTS", tmp_path / "none")
    return click.Context(cli, obj=Invocation())


def values(items: list[CompletionItem[str]]) -> list[str]:
    return [item.value for item in items]


def test_hosts_are_those_of_the_ssh_configuration_and_the_readable_known_hosts(hosts: click.Context) -> None:
    found = values(complete_host(hosts, PARAM, ""))
    assert found == ["web1", "db1", "cache1", "old1", "192.0.2.7", "old2:2222", "old3"]
    assert values(complete_host(hosts, PARAM, "root@w")) == ["root@web1"]
    assert values(complete_target(hosts, PARAM, "ssh://d")) == ["ssh://db1"]


def test_the_last_element_of_a_pattern_is_completed(hosts: click.Context, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text("[web]\nw[1:3]\n[db]\nd1\n")
    assert values(complete_pattern(hosts, PARAM, "web1,!d")) == ["web1,!db1"]
    hosts.params["inventory"] = str(tmp_path / "hosts.ini")
    assert values(complete_pattern(hosts, PARAM, "@")) == ["@all", "@web", "@db"]
    assert values(complete_pattern(hosts, PARAM, "@db,!w")) == ["@db,!w1", "@db,!w2", "@db,!w3"]


def test_what_is_copied_is_a_file_here_or_on_a_host(hosts: click.Context) -> None:
    assert [(item.type, item.value) for item in complete_copied(hosts, PARAM, "d")] == [
        ("plain", "db1:"),
        ("file", "d"),
    ]
    assert [item.type for item in complete_copied(hosts, PARAM, "./d")] == ["file"]
    assert complete_copied(hosts, PARAM, "db1:/e") == []


def test_a_named_pipe_in_place_of_the_known_hosts_blocks_nothing(hosts: click.Context, tmp_path: Path) -> None:
    import os

    (tmp_path / ".ssh/known_hosts").unlink()
    os.mkfifo(tmp_path / ".ssh/known_hosts")
    started = time.monotonic()
    assert values(complete_host(hosts, PARAM, "we")) == ["web1"]
    assert time.monotonic() - started < 1


def test_invalid_settings_and_inventories_complete_what_is_left(hosts: click.Context, tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness/config.toml").write_text("what = is this\n")
    assert values(complete_host(hosts, PARAM, "we")) == ["web1"]
    assert values(complete_target(hosts, PARAM, "l")) == ["local:"]
    hosts.params["inventory"] = str(tmp_path / "missing.ini")
    assert values(complete_pattern(hosts, PARAM, "@")) == []
    assert values(completed_names.complete_job(hosts, PARAM, "")) == []


def test_harnesss_own_tools_are_known_by_name() -> None:
    loaded = load_tools(plugin for plugin in find(TOOLS) if plugin.distribution == OWN)
    assert loaded.failures == ()
    assert {tool.name for _, tools in loaded.found for tool in tools} == BUILTIN_TOOLS


@pytest.mark.usefixtures("needs_process")
def test_names_of_tools_are_completed_without_importing_them() -> None:
    script = (
        "import sys; from harness.operate.known_names import tool_names; print(*tool_names());"
        "print(*(name for name in sys.modules if name.startswith(('harness_tools', 'harness.toolkit', 'pydantic'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names, imported = done.stdout.splitlines()
    assert (set(names.split()), imported) == (BUILTIN_TOOLS, "")
