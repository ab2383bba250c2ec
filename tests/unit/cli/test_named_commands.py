"""Commands in messages get the options that reach their target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.agent.turn import TurnResult
from harness.cli.exec.report import ExecResult, RunningJob, outcome_lines, result_json
from harness.cli.named_commands import (
    advise_on_host,
    any_host_options,
    complete_commands,
    host_options,
    target_options,
)
from harness.settings import CommandLineChoices

ROOT = Path(__file__).parents[3]
PACKAGES = [ROOT / "harness/harness", ROOT / "backends/harness_backends", ROOT / "tools/harness_tools"]


@pytest.mark.parametrize(
    ("choices", "options"),
    [
        (CommandLineChoices(), ""),
        (CommandLineChoices(ssh="web1"), " --ssh web1"),
        (CommandLineChoices(target="ssh://a+docker://b", tmux="ops"), " --target ssh://a+docker://b --tmux=ops"),
        (CommandLineChoices(container="app", engine="podman", tmux=True), " --container app --engine podman"),
        (
            CommandLineChoices(ssh="web1", ssh_config="my file", ssh_options=("Port=1",)),
            " -F 'my file' -o Port=1 --ssh web1",
        ),
    ],
)
def test_the_options_are_those_of_the_command_line(choices: CommandLineChoices, options: str) -> None:
    assert target_options(choices) == options


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("local:", " -F conf --target local:"),  # the settings may have another target
        ("ssh://root@web1:22", " -F conf --ssh root@web1:22"),
        ("ssh://web1+docker://app", " -F conf --target ssh://web1+docker://app"),
    ],
)
def test_a_host_of_a_fleet_has_its_own_options(url: str, options: str) -> None:
    assert host_options(url, CommandLineChoices(ssh="other", ssh_config="conf")) == options


def test_commands_about_this_machine_and_complete_ones_are_left_alone() -> None:
    text = "a (harness jobs wait 3), b (harness --ssh x jobs wait 3), c (harness resume 4), harness keys"
    expected = (
        "a (harness --ssh w jobs wait 3), b (harness --ssh x jobs wait 3), c (harness resume 4), harness --ssh w keys"
    )
    assert complete_commands(text, " --ssh w") == expected
    assert complete_commands(text, "") == text


def test_commands_in_messages_have_their_options_at_the_end() -> None:
    incomplete = re.compile(r"\bharness (?:-\S+ )+(?:jobs|keys|panes|sessions|attach|shell|capture|doctor)\b")
    files = [file for package in PACKAGES for file in package.rglob("*.py")]
    assert len(files) > 300
    assert [file for file in files if incomplete.search(file.read_text())] == []


def test_running_jobs_of_hosts_are_named_with_the_command_that_waits_for_them() -> None:
    def ended(*jobs: RunningJob) -> ExecResult:
        result, any_host = TurnResult("completed", "yes"), any_host_options(CommandLineChoices(ssh_config="my file"))
        return ExecResult(result, "", 5, 1.5, result.spent, jobs=jobs, any_host=any_host)

    web1, web2 = RunningJob("7", "web1", " --ssh web1"), RunningJob("7", "web2", " --ssh web2")
    assert outcome_lines(ended(web1), "") == ["job 7 is still running on web1 (harness --ssh web1 jobs wait 7)"]
    assert outcome_lines(ended(web1, web2), "") == [
        "2 jobs are still running: 7 on web[1-2] (harness -F 'my file' --ssh HOST jobs wait JOB)"
    ]
    assert result_json(ended(web1), "yes", "")["jobs_on_hosts"] == [{"host": "web1", "job_id": "7"}]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a host in the ssh configuration, and a named target."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host db1 *.lab\n")
    (tmp_path / ".ssh/known_hosts").write_text("seen1 ssh-ed25519 AAAA\n")
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness/config.toml").write_text('[targets.stage]\nssh = "deploy@stage1"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("db1", "--ssh db1"),
        ("seen1", "--ssh seen1"),
        ("stage", "--target stage"),
        ("deploy@web1", "--ssh deploy@web1"),
        ("web1.example.com", "--ssh web1.example.com"),
        ("10.0.0.1:2222", "--ssh 10.0.0.1:2222"),
        ("ssh://root@web1:22", "--ssh root@web1:22"),
    ],
)
def test_a_host_in_place_of_a_command_is_answered_with_the_commands_for_it(home: Path, word: str, option: str) -> None:
    advice = advise_on_host(word, CommandLineChoices(ssh_options=("Port=2",)))
    assert f"'harness shell -o Port=2 {option}' opens a terminal there" in advice
    assert f"'harness run -o Port=2 {option} -- COMMAND'" in advice


NO_HOSTS = ["", "web1", "runn", "*.lab", "./x.sh", "a.b/c", "root:secret@web1", "x@", "@x", "..", "a'b@web1", "a@-b"]


@pytest.mark.parametrize("word", NO_HOSTS)
def test_another_word_is_no_host(home: Path, word: str) -> None:
    assert advise_on_host(word, CommandLineChoices()) == ""


def test_a_command_line_with_a_target_needs_no_host(home: Path) -> None:
    assert advise_on_host("db1", CommandLineChoices(ssh="web1")) == ""
