"""``harness permissions``: rules of one's own, and what would be decided by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.program import Program


def said(program: Program, *words: str) -> tuple[int, str]:
    done = program.run("permissions", *words)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_a_rule_is_added_listed_tested_and_removed(program: Program) -> None:
    code, text = said(program, "add", "--allow", "--glob", "make *")
    assert code == 0
    rule_id = text.split()[0]
    assert said(program, "test", "make all")[0] == 0
    code, text = said(program, "list")
    assert (code, text.splitlines()[0]) == (0, "mode: ask")
    assert f"{rule_id}  allow   local:  run_shell  make * (pattern)" in text
    assert said(program, "remove", rule_id)[0] == 0
    assert said(program, "test", "make all")[0] == 1
    assert said(program, "remove", rule_id) == (
        125,
        f"harness: unknown rule '{rule_id}' ('harness permissions list' lists them)\n",
    )


def test_a_rule_names_hosts(program: Program) -> None:
    code, text = said(program, "add", "--deny", "--hosts", "@db,localhost", "--tool", "write_file", "--any")
    assert (code, text.split(maxsplit=1)[1]) == (0, "deny write_file on hosts @db,localhost\n")
    assert "*  (hosts @db,localhost)".replace("  ", " ") in said(program, "list")[1]
    assert said(program, "add", "--deny", "--hosts", "localhost", "make all")[0] == 0
    assert said(program, "add", "--allow", "--hosts", "web1", "make other")[0] == 0
    code, text = said(program, "test", "make all")
    assert (code, text.splitlines()[0]) == (
        126,
        "it is denied: matched rule: deny run_shell 'make all' on hosts localhost",
    )
    assert said(program, "test", "make other")[0] == 1
    entries = json.loads((program.home / "config/harness/permissions.json").read_text())["rules"]
    assert [entry["hosts"] for entry in entries] == ["@db,localhost", "localhost", "web1"]


@pytest.mark.parametrize(("pattern", "message"), [("web[1-", "--hosts: "), ("", "--hosts: "), ("web1,!", "--hosts: ")])
def test_a_rule_with_a_wrong_pattern_of_hosts_is_not_added(program: Program, pattern: str, message: str) -> None:
    code, text = said(program, "add", "--deny", "--hosts", pattern, "--any")
    assert (code, text.startswith(f"harness: {message}")) == (125, True)
    assert not (program.home / "config/harness/permissions.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "step"),
    [
        (["df -h /"], 0, "read-only"),
        (["df -h /; rm /tmp/x"], 1, "default"),
        (["cat ~/.ssh/id_rsa"], 126, "hard denial"),
        (["$CMD"], 1, "always asked"),
        (["--read", "/etc/hosts"], 0, "read-only"),
        (["--read", "/etc/shadow"], 126, "hard denial"),
        (["--write", "/tmp/x"], 1, "default"),
        (["--url", "http://example.com/"], 1, "default"),
        (["--tool", "bash", "df -h"], 0, "read-only"),
        (["--tool", "files_list", "df -h"], 0, "read-only"),
        (["--cwd", "/etc", "cat shadow"], 126, "hard denial"),
        (["rm /srv/x"], 126, "deny rule"),
        (["curl http://x"], 0, "rule of the settings"),
    ],
)
def test_what_would_be_decided_is_said_with_its_reason_and_nothing_runs(
    program: Program, words: list[str], code: int, step: str
) -> None:
    settings = program.home / "config/harness/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '[permissions]\nallow = ["curl *"]\ndeny = ["rm /srv/*"]\n[mcp.servers.files]\ncommand = "false"\n'
    )
    done = program.run("permissions", "test", "--json", *words)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["step"]) == (code, step)
    assert answer["decision"] == {0: "allow", 1: "ask", 126: "deny"}[code]
    assert answer["reason"]
    assert (answer["rule"] is None) == ("rule" not in step)
    assert (answer["rule"] or {}).get("origin") in (None, str(settings))


def test_the_rule_that_decides_is_named_for_people(program: Program) -> None:
    program.run("permissions", "add", "--deny", "--on", "*", "--any", "--tool", "run_shell")
    code, text = said(program, "test", "ls")
    assert code == 126
    assert text.splitlines()[0] == "it is denied: matched rule: deny run_shell"
    assert text.splitlines()[1].startswith("decided by: deny rule ")
    assert text.splitlines()[2] == "about: ls"


@pytest.mark.parametrize(
    "words",
    [
        ["add", "ls"],
        ["add", "--allow"],
        ["add", "--allow", "--any", "ls"],
        ["add", "--allow", "--deny", "ls"],
        ["test"],
        ["test", "--read", "--write", "/x"],
        ["test", "--tool", "nope", "ls"],
        ["remove"],
        ["lst"],
    ],
)
def test_wrong_usage_is_an_error(program: Program, words: list[str]) -> None:
    assert said(program, *words)[0] == 125


def test_no_rules_at_all_is_said(program: Program) -> None:
    assert "no user rules; 'harness permissions add'" in said(program, "list")[1]
    said(program, "add", "--allow", "ls")
    assert "no user rules" not in said(program, "list")[1]


def test_a_tool_that_is_not_there_cannot_be_tested(program: Program) -> None:
    code, text = said(program, "test", "--tool", "wirte_file", "ls")
    assert (code, text) == (125, "harness: unknown tool 'wirte_file'; did you mean 'write_file'?\n")


@pytest.mark.parametrize(
    ("tool", "stored"),
    [
        ("write_file", "write_file"),
        ("write", "write_file"),
        ("Write", "write_file"),
        ("bash", "run_shell"),
        ("cleanDiff", "clean_diff"),
        ("capture-pane", "capture_pane"),
        ("write*", "write*"),
        ("*", "*"),
    ],
)
def test_a_rule_is_kept_for_the_tool_whatever_name_it_is_given_by(program: Program, tool: str, stored: str) -> None:
    assert said(program, "add", "--deny", "--any", "--tool", tool)[0] == 0
    assert f"deny    local:  {stored} " in program.run("permissions", "list").stdout.decode()


@pytest.mark.parametrize(("tool", "nearest"), [("wirte_file", "; did you mean 'write_file'?"), ("wirte*", "")])
def test_a_rule_for_a_tool_that_is_not_there_is_added_only_when_that_is_meant(
    program: Program, tool: str, nearest: str
) -> None:
    code, text = said(program, "add", "--deny", "--any", "--tool", tool)
    assert (code, f"unknown tool '{tool}'{nearest}" in text, "--allow-missing" in text) == (125, True, True)
    assert "no user rules" in said(program, "list")[1]
    assert said(program, "add", "--deny", "--any", "--allow-missing", "--tool", tool)[0] == 0
    assert f"deny    local:  {tool} " in program.run("permissions", "list").stdout.decode()


def test_a_rule_of_the_settings_may_use_a_profile_s_name(program: Program) -> None:
    settings = program.home / "config/harness/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[permissions]\nmode = "auto"\ndeny = [{ tool = "Write", argument = "/srv/**" }]\n')
    assert said(program, "test", "--write", "/srv/x")[0] == 126
    assert said(program, "test", "--tool", "Write", "--write", "/srv/x")[0] == 126
    assert said(program, "test", "--write", "/opt/x")[0] == 0


def test_a_rule_is_added_whatever_is_wrong_with_the_tools(program: Program) -> None:
    settings = program.home / "config/harness/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[mcp]\nservers = 3\n")
    assert said(program, "add", "--deny", "--any", "--tool", "files_list")[0] == 0


def test_a_corrupt_file_is_said_and_left_alone(program: Program) -> None:
    file = program.home / "config/harness/permissions.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    file.chmod(0o600)
    code, text = said(program, "list")
    assert (code, "approval is required for every call" in text) == (0, True)
    assert said(program, "test", "ls")[0] == 1
    assert said(program, "add", "--allow", "ls")[0] == 125
    assert file.read_text() == "{"


def test_a_directory_that_is_not_trusted_may_only_be_stricter(program: Program) -> None:
    (program.home / "harness.toml").write_text('[permissions]\nmode = "strict"\n')
    assert said(program, "test", "ls")[0] == 1
    (program.home / "harness.toml").write_text('[permissions]\nallow = ["rm *"]\n')
    code, text = said(program, "test", "rm x")
    assert code == 125
    assert "permissions.allow would allow more" in text


def test_a_rule_of_a_settings_file_is_not_removed_here(program: Program, tmp_path: Path) -> None:
    settings = tmp_path / "my.toml"
    settings.write_text('[permissions]\ndeny = ["rm *"]\n')
    listed = json.loads(program.run("permissions", "list", "--json", "--config", str(settings)).stdout)
    code, text = said(program, "remove", listed["rules"][0]["id"], "--config", str(settings))
    assert (code, "remove it there" in text) == (125, True)


# -- many commands at once


def test_commands_of_standard_input_get_one_verdict_a_line(program: Program) -> None:
    program.run("permissions", "add", "--deny", "--glob", "git push*")
    commands = ["df -h", "rm x", "cat ~/.ssh/id_rsa", "git push", 'echo "a b" | sort']
    done = program.run("permissions", "test", "-", stdin="\n".join(map(json.dumps, commands)).encode())
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, b"")
    assert [verdict["command"] for verdict in verdicts] == commands
    assert [verdict["decision"] for verdict in verdicts] == ["allow", "ask", "deny", "deny", "allow"]
    assert [bool(verdict["rule"]) for verdict in verdicts] == [False, False, False, True, False]
    assert all(verdict["reason"] for verdict in verdicts)
    again = program.run("permissions", "test", "-", stdin=done.stdout)
    assert (again.returncode, again.stdout) == (0, done.stdout)


def test_what_is_decided_otherwise_than_expected_is_said(program: Program) -> None:
    cases = [{"command": "df -h", "decision": "ask"}, {"command": "rm x", "decision": "ask"}, "df"]
    done = program.run("permissions", "test", "-", stdin="\n\n".join(map(json.dumps, cases)).encode())
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [(verdict["decision"], verdict.get("expected")) for verdict in verdicts] == [
        ("allow", "ask"),
        ("ask", None),
        ("allow", None),
    ]


def test_a_byte_that_is_no_text_is_part_of_a_command(program: Program) -> None:
    done = program.run("permissions", "test", "-", stdin=b'"echo \\udcff"\n"df"')
    assert [json.loads(line)["decision"] for line in done.stdout.decode(errors="replace").splitlines()] == [
        "ask",
        "allow",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"df -h", "line 2 of standard input is not JSON"),
        (b"[1]", "line 2 of standard input is neither a JSON string nor an object with 'command'"),
        (b'"\\ud800"', "line 2 of standard input contains an unpaired surrogate"),
        (b'{"command": "echo \\ud800"}', "line 2 of standard input contains an unpaired surrogate"),
        (b'{"command": 1}', "line 2 of standard input is neither"),
        (b'{"command": "x", "decision": "maybe"}', "line 2 of standard input expects a decision other than"),
        (b'"' + b"x" * (1 << 20) + b"xx", "a line of standard input is longer than 1048576 bytes"),
    ],
)
def test_a_line_that_is_no_command_is_an_error_that_names_it(program: Program, line: bytes, problem: str) -> None:
    done = program.run("permissions", "test", "-", stdin=b'"df"\n' + line)
    assert done.returncode == 125
    assert json.loads(done.stdout.splitlines()[0])["decision"] == "allow"
    assert f"harness: {problem}" in done.stderr.decode()
