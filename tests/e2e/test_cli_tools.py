"""``harness tools``: the list, the schemas, and one call with its approval, its output and its exit code."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.support.program import Program

from harness.extras import install_extra


def call(program: Program, name: str, arguments: object = None, *options: str, **more: Any) -> tuple[int, str, str]:
    words = [] if arguments is None else [arguments if isinstance(arguments, str) else json.dumps(arguments)]
    done = program.run(*options, "tools", "call", name, *words, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_list_shows_the_tools_and_needs_no_target(program: Program) -> None:
    program.always = ("--ssh", "nowhere.invalid")
    for words in (("tools",), ("tools", "list")):
        lines = program.run(*words).stdout.decode().splitlines()
        assert lines[0].split() == ["NAME", "CATEGORY", "CHANGES", "NEEDS", "SOURCE", "DESCRIPTION"]
        found = [line.split()[0] for line in lines[1:]]
        assert found == sorted(found)
        assert set(found) >= {
            "capture_pane",
            "read_file",
            "read_output",
            "run_shell",
            "send_keys",
            "time",
            "write_file",
        }
        assert not set(found) & {"sig", "fetch_url"}


def test_the_list_says_which_tools_wait_for_what_is_not_installed(program: Program, tmp_path: Path) -> None:
    code = (
        "import importlib.util as util\n"
        "real = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name in ('ddgs', 'httpx') else real(name, *more)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(code)
    program.environ["PYTHONPATH"] = str(tmp_path)
    sentence = (
        "fetch_url, web_search are not offered: they need modules that are not installed (httpx, ddgs); "
        f"{install_extra('web')}"
    )
    settings = program.home / "config/harness/config.toml"
    settings.parent.mkdir(parents=True)
    assert sentence not in program.run("tools", "list").stderr.decode()
    done = program.run("tools", "list", "--all")
    assert (sentence in done.stderr.decode(), b"\nfetch_url " in done.stdout) == (True, True)
    settings.write_text('[tools]\nextra_packs = ["web"]\n')
    done = program.run("tools", "list")
    assert (sentence in done.stderr.decode(), b"\nfetch_url " in done.stdout) == (True, False)
    done = program.run("tools", "list", "--tool-profile", "hygge")
    assert b"webfetch is not offered: it needs modules that are not installed (httpx)" in done.stderr
    found = json.loads(program.run("tools", "list", "--all", "--json").stdout)
    assert {tool["name"]: tool["missing_libraries"] for tool in found if tool["missing_libraries"]} == {
        "fetch_url": ["httpx"],
        "web_search": ["ddgs", "httpx"],
    }


def test_the_list_can_be_chosen_and_is_json(program: Program) -> None:
    found = json.loads(program.run("tools", "list", "--read-only", "--pack", "core", "--json").stdout)
    by_name = {tool["name"]: tool for tool in found}
    assert set(by_name) >= {"read_file", "read_output", "time"}
    assert not set(by_name) & {"run_shell", "write_file"}
    assert by_name["read_file"]["category"] == "file.read"
    assert by_name["read_file"]["source"] == "builtin:core"
    done = program.run("tools", "list", "--pack", "moon")
    assert (done.returncode, b"unknown pack 'moon'; there are: " in done.stderr) == (125, True)


def test_the_list_says_what_the_target_lacks(program: Program) -> None:
    found = json.loads(program.run("tools", "list", "--check", "--json").stdout)
    missing = {tool["name"]: tool["missing"] for tool in found}
    assert (missing["capture_pane"], missing["send_keys"], missing["read_file"]) == (["tmux"], ["tmux"], [])


def test_schemas_are_printed_for_a_provider_and_for_none(program: Program) -> None:
    plain = json.loads(program.run("tools", "schema", "time").stdout)
    assert set(plain) == {"name", "description", "input_schema"}
    assert "write_file" in [item["name"] for item in json.loads(program.run("tools", "schema", "all").stdout)]
    openai = json.loads(program.run("tools", "schema", "bash", "--provider", "openai").stdout)
    assert openai["function"]["name"] == "run_shell"
    for provider in ("anthropic", "gemini", "generic", "openai-responses"):
        assert json.loads(program.run("tools", "schema", "all", "--provider", provider).stdout)
    done = program.run("tools", "schema", "time", "--provider", "acme")
    assert (done.returncode, b"not one of anthropic" in done.stderr) == (125, True)
    done = program.run("tools", "schema", "tmie")
    assert (done.returncode, b"did you mean 'time'?" in done.stderr) == (125, True)


def test_a_call_that_changes_nothing_runs_and_prints_its_result(program: Program) -> None:
    (program.home / "f").write_bytes(b"caf\xe9\n")
    done = program.run("tools", "call", "read_file", '{"path": "f"}')
    assert (done.returncode, done.stdout, done.stderr) == (0, b"caf\xe9\n", b"")
    code, out, _ = call(program, "time")
    assert (code, out.strip().isdecimal()) == (0, True)


def test_arguments_can_come_from_standard_input(program: Program) -> None:
    (program.home / "f").write_text("x\n")
    assert call(program, "read_file", "-", stdin=b'{"path": "f"}')[:2] == (0, "x\n")


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("read_file", {"path": "missing"}, 1, ""),
        ("run_shell", {"command": "false"}, 1, ""),
        ("reed_file", {"path": "x"}, 125, "did you mean 'read_file'?"),
        ("read_file", {"pth": "x"}, 125, "did you mean 'path'?"),
        ("read_file", "{", 125, "not a JSON object"),
        ("send_keys", {"enter": True}, 125, "send_keys needs tmux (use --tmux)"),
        ("write_file", {"path": "new", "content": "x"}, 126, "no approver is available"),
        ("read_file", {"path": "/etc/shadow"}, 126, "is a secret"),
    ],
)
def test_every_way_to_fail_has_its_code_and_a_line(
    program: Program, name: str, arguments: object, code: int, message: str
) -> None:
    found, out, err = call(program, name, arguments)
    assert found == code, (out, err)
    assert message in err
    assert bool(out) == (code == 1)
    assert len(err.splitlines()) == (code != 1)
    assert not (program.home / "new").exists()


def test_a_hook_that_fails_after_the_call_is_told_and_its_words_hold_no_secret(program: Program) -> None:
    settings = program.home / "config" / "harness" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("""[[hooks.post_tool]]\ncommand = "echo password=Tr0ub4dor-3x >&2; exit 1"\n""")
    code, out, err = call(program, "time")
    assert (code, out.strip().isdecimal()) == (0, True)
    assert err.splitlines() == ["harness: a hook failed: password=[redacted]"]


def test_json_of_a_call_has_no_exact_bytes_that_would_bring_a_secret_back(program: Program) -> None:
    (program.home / "f").write_bytes(b"password=Tr0ub4dor-3x \xff")
    done = program.run("--json", "tools", "call", "run_shell", '{"command": "cat f"}')
    data = json.loads(done.stdout)["data"]
    assert data["stdout"] == "password=[redacted] \ufffd"
    assert not [name for name in data if "base64" in name]


def test_json_says_everything_whatever_came_of_it(program: Program) -> None:
    for name, arguments, expected in (
        ("time", {}, (0, "ok", False, "")),
        ("read_file", {"path": "missing"}, (1, "error", True, "file_not_found")),
        ("read_file", {}, (125, "error", True, "invalid_args")),
        ("write_file", {"path": "new", "content": "x"}, (126, "denied", True, "denied")),
    ):
        code, out, _ = call(program, name, arguments, "--json")
        document = json.loads(out)
        assert (code, document["status"], document["is_error"], document["error_code"]) == expected
        assert (document["tool"], document["target"]) == (name, "local:")


def test_yes_approves_what_is_asked_and_not_what_is_denied(program: Program) -> None:
    assert call(program, "write_file", {"path": "new", "content": "x"}, "--batch")[0] == 126
    done = program.run("tools", "call", "--yes", "write_file", '{"path": "new", "content": "x"}')
    assert (done.returncode, (program.home / "new").read_text()) == (0, "x")
    done = program.run("tools", "call", "--yes", "write_file", '{"path": ".ssh/id_rsa", "content": "x"}')
    assert (done.returncode, (program.home / ".ssh").exists()) == (126, False)


def test_nothing_is_written_over_that_the_session_has_not_read(program: Program) -> None:
    (program.home / "f").write_text("old")
    done = program.run("tools", "call", "--yes", "write_file", '{"path": "f", "content": "x"}')
    assert (done.returncode, b"read it before changing it" in done.stdout) == (1, True)
    assert (program.home / "f").read_text() == "old"


def test_ctrl_c_cancels_the_call_and_the_audit_says_so(program: Program) -> None:
    os.mkfifo(program.home / "started")
    arguments = json.dumps({"command": "echo $$ > started; exec sleep 60"})
    running = program.start("tools", "call", "--yes", "run_shell", arguments)
    pid = int((program.home / "started").read_text())  # it waits for the command to get there
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    (shown,) = json.loads(program.run("audit", "show", "--json").stdout)
    assert (shown["call"]["tool"], shown["status"]) == ("run_shell", "cancelled")


def at_terminal(program: Program, arguments: str) -> pexpect.spawn[str]:
    words = ["tools", "call", "run_shell", arguments]
    return pexpect.spawn(program.path, words, env=program.environ, cwd=str(program.home), encoding="utf-8", timeout=30)


def test_a_terminal_shows_the_control_characters_of_a_result_and_does_not_obey_them(program: Program) -> None:
    (program.home / "f").write_bytes(b"one\n\x1b]0;title\x07\x1b[2J\ttwo\n")
    words = ["tools", "call", "read_file", '{"path": "f"}']
    child = pexpect.spawn(program.path, words, env=program.environ, cwd=str(program.home), timeout=30)
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, child.before) == (0, b"one\r\n\\x1b]0;title\\x07\\x1b[2J\ttwo\r\n")
    assert b"\x1b]0;" in program.run(*words).stdout  # a program gets what is there


@pytest.mark.parametrize(("typed", "code", "made"), [("y", 0, True), ("n", 126, False), ("", 126, False)])
def test_the_operator_is_asked_at_the_terminal(program: Program, typed: str, code: int, made: bool) -> None:
    child = at_terminal(program, '{"command": "touch made # \\u001b[2J", "why": "to see", "risk": "high"}')
    child.expect_exact("may run_shell run on local:")
    child.expect_exact("touch made # \\x1b[2J")  # shown, not obeyed
    child.expect_exact("why: to see")
    child.expect_exact("y = yes, a = always exactly this, n = no: ")
    child.sendline(typed)
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, (program.home / "made").exists()) == (code, made)


def test_an_unclear_answer_is_asked_for_again(program: Program) -> None:
    child = at_terminal(program, '{"command": "touch made"}')
    child.expect_exact("n = no: ")
    child.sendline("perhaps")
    child.expect_exact("answer with one of the letters: ")
    child.sendline("yes")
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, (program.home / "made").exists()) == (0, True)


def test_ctrl_c_at_the_question_ends_it_and_nothing_runs(program: Program) -> None:
    child = at_terminal(program, '{"command": "touch made"}')
    child.expect_exact("n = no: ")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, (program.home / "made").exists()) == (130, False)


def test_a_secret_of_the_settings_is_not_shown(program: Program) -> None:
    file = program.home / "config" / "harness" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[env]\nDEPLOY_TOKEN = "correct-horse"\n')
    code, out, _ = call(program, "run_shell", {"command": "echo token-was-correct-horse"})
    assert (code, "token-was" in out, "horse" in out) == (0, True, False)


def test_what_was_approved_for_always_is_not_asked_again(program: Program) -> None:
    child = at_terminal(program, '{"command": "touch made"}')
    child.expect_exact("n = no: ")
    child.sendline("a")
    child.expect(pexpect.EOF)
    child.close()
    Path(program.home / "made").unlink()
    assert call(program, "run_shell", {"command": "touch made"})[0] == 0
    assert call(program, "run_shell", {"command": "touch made2"})[0] == 126
    assert (program.home / "made").exists()


def test_a_declared_tool_is_listed_and_called(program: Program) -> None:
    folder = program.home / "config" / "harness" / "tools"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        '[[tool]]\nname = "count"\ndescription = "Count."\nbinary = "wc"\nwords = ["-c"]\nmutating = false\n'
        '[[tool.parameter]]\nname = "file"\npositional = true\nrequired = true\n'
    )
    (folder / "wrong.toml").write_text("[[tool]]\n")
    done = program.run("tools", "list")
    assert b"file:mine.toml" in done.stdout
    assert b"wrong.toml: tool.0." in done.stderr
    (program.home / "-c").write_text("four")
    found, out, err = call(program, "count", {"file": "-c"})
    assert (found, out) == (0, "4 -c\n"), err


def test_a_call_in_a_terminal_reaches_the_panes(there: Program) -> None:
    there.always = (*there.always, "--tmux")
    code, out, err = call(there, "run_shell", {"command": "pwd", "why": "to see"})
    assert (code, out.splitlines()[0]) == (0, "exit code: 0"), err
    code, out, err = call(there, "capture-pane")
    assert (code, "pwd" in out) == (0, True), err


def test_a_person_can_say_what_he_has_seen(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "conf"
    path.write_text("a\nb\n")
    change = {"path": str(path), "old_string": "b", "new_string": "c"}
    code, said, _ = call(program, "edit", change, "--json")
    assert (code, json.loads(said)["error_code"]) == (126, "denied")
    done = program.run("tools", "call", "edit", json.dumps(change), "--yes")
    assert (done.returncode, path.read_text()) == (1, "a\nb\n")
    done = program.run("tools", "call", "edit", json.dumps(change), "--yes", "--assume-read", str(path))
    assert (done.returncode, path.read_text()) == (0, "a\nc\n")
    done = program.run("tools", "call", "time", "--assume-read", str(tmp_path / "nothing"))
    assert (done.returncode, b"no such file" in done.stderr) == (125, True)
