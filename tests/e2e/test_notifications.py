"""Notifications, as operators get them: in real terminals, on a desktop, by a program, and from real web servers."""

from __future__ import annotations

import json
import signal
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import trustme
from mcp import types
from tests.support.desktop import Desktop, desktop
from tests.support.mcp_program import Home, stdio_client_of
from tests.support.model_server import Answer, ReportedUsage, call, say
from tests.support.program import Program, program
from tests.support.seats import Seats, seats
from tests.support.web_dashboard import web_program
from tests.support.web_servers import Reply, WebServer, redirect, web_server

__all__ = ["desktop", "program", "seats"]

SECRET = "hunter2-battery-staple"


def shell(command: str, **more: Any) -> Answer:
    told = {"why": "to see", "risk": "low", "mutation": True, "privesc": False}
    return call("run_shell", {"command": command, **told, **more})


def settings(program: Program, text: str) -> None:
    path = program.home / "config/harness/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[notifications]\n{text}")


def webhook(server: WebServer, path: str = "/hook", more: str = "") -> str:
    return f'min_duration = 0\n{more}\n[[notifications.webhooks]]\nurl = "{server.url(path)}"\n'


def sent(server: WebServer) -> list[dict[str, Any]]:
    return [json.loads(asked.body) for asked in server.asked]


async def until(condition: Callable[[], object], what: str, timeout: float = 60.0) -> None:
    with anyio.move_on_after(timeout):
        while not condition():  # noqa: ASYNC110  # of another process
            await anyio.sleep(0.05)
        return
    raise AssertionError(f"never: {what}")


# -- commands


def test_the_end_of_a_command_is_sent_without_its_text(program: Program) -> None:
    with web_server({"/hook": Reply(b"ok")}) as server:
        settings(program, webhook(server))
        done = program.run("run", "--", f"echo PASSWORD={SECRET}; exit 3")
    assert (done.returncode, done.stderr) == (3, b"")
    (found,) = sent(server)
    assert found["title"] == "harness: a job ended on local"
    assert found["items"][0] | {"seconds": 0, "session": ""} == {
        "event": "job_ended",
        "summary": "the command has ended: exit code 3",
        "target": "local",
        "session": "",
        "exit_code": 3,
        "seconds": 0,
    }
    assert server.asked[0].headers["user-agent"] == "harness"
    assert all(text not in server.asked[0].body for text in (SECRET, "echo"))


def test_its_text_is_redacted_if_it_is_asked_for(program: Program) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server, more="include_command = true"))
        program.run("run", "--env", f"DB_PASSWORD={SECRET}", "--", f"echo {SECRET}; echo PASSWORD=other-{SECRET}x")
    (found,) = sent(server)
    assert "echo [redacted]" in found["text"]
    assert "hunter2" not in server.asked[0].body


def test_the_last_lines_of_its_output_are_redacted_and_plain(program: Program) -> None:
    command = f"seq 20; printf 'a\\033[31mred\\033]0;evil\\a words\\n'; echo PASSWORD={SECRET}"
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server, more="include_output = true"))
        program.run("run", "--", command)
    (found,) = sent(server)
    lines = found["items"][0]["output"].splitlines()
    assert lines == [*(str(number) for number in range(13, 21)), "ared words", "PASSWORD=[redacted]"]


def test_no_output_shows_what_the_settings_make_secret(program: Program) -> None:
    more = "include_output = true"
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server, more=more) + '[tools]\nredact_patterns = ["emp-[0-9]+"]\n')
        path = program.home / "config/harness/config.toml"
        path.write_text(f'env = {{ DB_PASSWORD = "{SECRET}" }}\n{path.read_text()}')
        program.run("run", "--", "echo $DB_PASSWORD emp-4711")
        job = program.run("run", "--no-wait", "--", "echo $DB_PASSWORD emp-4712").stdout.decode().strip()
        assert program.run("jobs", "wait", job).returncode == 0
    assert [found["items"][0]["output"] for found in sent(server)] == ["[redacted] [redacted]"] * 2


def test_a_wrong_pattern_of_the_redaction_is_an_error_before_the_command(program: Program) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server) + '[tools]\nredact_patterns = ["("]\n')
        done = program.run("run", "--", "touch made")
    assert (done.returncode, (program.home / "made").exists(), server.asked) == (125, False, [])
    assert b"not a regular expression" in done.stderr


def test_short_commands_and_no_notify_send_nothing_and_notify_sends_all(program: Program) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server).replace("min_duration = 0", ""))
        program.run("run", "--", "true")
        program.run("run", "--no-notify", "--", "true")
        assert server.asked == []
        program.run("run", "--notify", "--", "true")
    assert len(server.asked) == 1


def test_a_job_that_is_waited_for_notifies_of_its_end(program: Program) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server))
        job = program.run("run", "--no-wait", "--", "exit 4").stdout.decode().strip()
        assert server.asked == []
        assert program.run("jobs", "wait", job).returncode == 4
    (found,) = sent(server)
    assert (found["items"][0]["exit_code"], "session" in found["items"][0]) == (4, False)


def test_a_run_on_many_hosts_is_one_notification(program: Program) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server))
        done = program.run("run", "--hosts", "no[1-40].invalid", "--", "true")
    assert done.returncode == 125
    (found,) = sent(server)
    assert (found["event"], found["counts"]) == ("fleet_ended", {"fleet_ended": 1})
    assert "on 40 hosts has ended: 40 unreachable" in found["text"]


def test_a_slow_webhook_delays_the_exit_by_three_seconds_at_most(program: Program) -> None:
    with web_server({"/hook": Reply(stays_silent=True)}) as server:
        settings(program, webhook(server))
        with program.start("run", "--", "echo out; exit 5") as process:
            assert process.stdout is not None
            assert process.stdout.read(4) == b"out\n"
            started = time.monotonic()
            assert process.wait(30) == 5
        assert time.monotonic() - started < 6.0
    assert len(server.asked) == 1


def slow_import(tmp_path: Path, seconds: float) -> str:
    """Return a ``PYTHONPATH`` with which the HTTP library is loaded as on a busy machine."""
    (tmp_path / "sitecustomize.py").write_text(
        f"""import sys, time
from importlib.machinery import PathFinder
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "httpcore":
            spec = PathFinder.find_spec(name)
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (time.sleep({seconds}), load(module))
            return spec
sys.meta_path.insert(0, Slow())
"""
    )
    return str(tmp_path)


def test_what_a_delivery_needs_is_loaded_while_the_command_runs(program: Program, tmp_path: Path) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server))
        done = program.run("run", "--", "sleep 8; exit 5", PYTHONPATH=slow_import(tmp_path, 4.0))
    assert (done.returncode, done.stderr, len(server.asked)) == (5, b"", 1)


def test_a_notification_that_takes_too_long_at_the_end_is_a_warning(program: Program, tmp_path: Path) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server))
        started = time.monotonic()
        done = program.run("run", "--", "exit 5", PYTHONPATH=slow_import(tmp_path, 60.0))
    assert (done.returncode, server.asked) == (5, [])
    assert b"cannot notify by webhook 1 (127.0.0.1): it took longer than 3 s at the end" in done.stderr
    assert time.monotonic() - started < 30.0


def test_an_interrupted_command_notifies_of_nothing(program: Program) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings(program, webhook(server))
        with program.start("run", "--", "echo out; sleep 60") as process:
            assert process.stdout is not None
            assert process.stdout.read(4) == b"out\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
    assert server.asked == []


async def test_a_terminated_harness_ends_the_program_that_notifies(program: Program) -> None:
    file = program.home / "pid"
    settings(program, f"min_duration = 0\ncommand = ['sh', '-c', 'echo $$ > {file}; exec sleep 600']\n")
    with program.start("run", "--", "true") as process:
        await until(lambda: file.exists() and file.read_text().endswith("\n"), "the start of the program")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, 128 + signal.SIGTERM)
    assert not Path(f"/proc/{file.read_text().strip()}").exists()


def test_a_directory_of_others_can_set_no_notification(program: Program, tmp_path: Path) -> None:
    text = f'[notifications]\nmin_duration = 0\ncommand = ["touch", "{tmp_path}/ran"]\n'
    (program.home / "harness.toml").write_text(text)
    for words in (["run", "--", "touch here"], ["run", "--notify", "--", "touch here"], ["notify", "test"]):
        done = program.run(*words)
        assert done.returncode == 125
        assert b"[notifications] may only be set by files that are trusted" in done.stderr
    assert not (tmp_path / "ran").exists()
    assert not (program.home / "here").exists()
    settings(program, "")
    (program.home / "config/harness/config.toml").write_text(f'trusted_dirs = ["{program.home}"]\n')
    assert program.run("run", "--", "touch here").returncode == 0
    assert (tmp_path / "ran").exists()


# -- channels, and their test


def test_each_channel_is_tested_and_failures_say_why(program: Program) -> None:
    pages = {
        "/ok": Reply(b"ok"),
        "/bad": Reply(b"no_\x1b[31mteam\n", 403),
        "/moved": redirect("http://127.0.0.1:1/"),
        "/busy": Reply(b"", 503),
    }
    with web_server(pages) as server:
        hooks = "".join(f'[[notifications.webhooks]]\nurl = "{server.url(path)}"\n' for path in pages)
        missing = '[[notifications.webhooks]]\nname = "team"\nurl = { env = "TEAM_URL" }\n'
        unsafe = '[[notifications.webhooks]]\nname = "unsafe"\nurl = { env = "UNSAFE_URL" }\n'
        settings(program, f'desktop = true\ncommand = ["cat"]\n{hooks}{missing}{unsafe}')
        done = program.run("notify", "test", PATH="/usr/bin:/bin", UNSAFE_URL="http://hooks.invalid/abcdefghijkl")
        assert len([path for path in server.paths if path == "/busy"]) == 2
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 1
    assert lines[0].startswith("desktop: ")
    assert lines[1:6] == [
        "command: sent: cat",
        "webhook 1 (127.0.0.1): sent: HTTP 200",
        "webhook 2 (127.0.0.1): FAILED: 127.0.0.1 refused it: HTTP 403: no_ [31mteam",
        "webhook 3 (127.0.0.1): FAILED: 127.0.0.1 redirects elsewhere (HTTP 302) (set url to the final address)",
        "webhook 4 (127.0.0.1): FAILED: 127.0.0.1 did not take it: HTTP 503",
    ]
    assert lines[6].startswith("webhook 5 (team): FAILED: the variable TEAM_URL is not set")
    assert lines[7].startswith(
        "webhook 6 (unsafe): FAILED: the URL in the variable UNSAFE_URL must start with https://"
    )
    assert "abcdefghijkl" not in done.stdout.decode()


def test_a_damaged_file_of_the_dashboard_fails_no_channel(program: Program) -> None:
    directory = program.home / "state/harness/web"
    directory.mkdir(parents=True, mode=0o700)
    for content in ("{", '{"url": "http://localhost:1", "server": "[1]", "invitations": [], "logins": []}'):
        (directory / "logins.json").write_text(content)
        with web_server({"/hook": Reply()}) as server:
            settings(program, webhook(server))
            done = program.run("notify", "test")
            assert (done.returncode, done.stdout) == (0, b"webhook 1 (127.0.0.1): sent: HTTP 200\n")
            assert program.run("run", "--", "exit 6").returncode == 6
            assert len(server.asked) == 2


def test_without_a_channel_it_says_how_to_set_one(program: Program) -> None:
    done = program.run("notify", "test")
    assert (done.returncode, b"add a [notifications] table" in done.stderr) == (125, True)
    assert b"no notifications" in program.run("notify").stdout
    settings(program, "bell = true")
    assert b"standard error is not a terminal" in program.run("notify", "test").stderr


def test_the_certificate_of_a_webhook_is_verified(program: Program, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    token = program.home / "token"
    token.write_text("tk_0123456789abcdef\n")
    token.chmod(0o600)
    with web_server({"/": Reply()}, context=context) as server:
        url = server.url("/topic", "localhost")
        more = 'template = "ntfy"\ntoken = { file = "~/token" }\nheaders = { "X-Team" = "ops" }\n'
        settings(program, f'[[notifications.webhooks]]\nurl = "{url}"\n{more}')
        refused = program.run("notify", "test")
        taken = program.run("notify", "test", SSL_CERT_FILE=str(tmp_path / "ca.pem"))
    assert (refused.returncode, b"certificate verify failed" in refused.stdout.lower()) == (1, True)
    assert (taken.returncode, taken.stdout) == (0, b"webhook 1 (localhost): sent: HTTP 200\n")
    (asked,) = server.asked
    assert (asked.headers["authorization"], asked.headers["x-team"]) == ("Bearer tk_0123456789abcdef", "ops")
    assert json.loads(asked.body)["topic"] == "topic"


def test_a_failing_channel_is_one_warning_and_no_secret_is_logged(program: Program) -> None:
    url = "http://127.0.0.1:9/services/T0123456789/abcdefghijkl"
    settings(program, f'min_duration = 0\n[[notifications.webhooks]]\nurl = "{url}"\n')
    done = program.run("-vvv", "run", "--", "exit 6")
    assert done.returncode == 6
    assert done.stderr.count(b"cannot notify by webhook 1 (127.0.0.1)") == 1
    assert b"abcdefghijkl" not in done.stderr


def test_the_command_gets_json_and_facts_and_no_secret(program: Program) -> None:
    script = program.home / "notify.sh"
    script.write_text(f"#!/bin/sh\ncat > '{program.home}/json'\nenv > '{program.home}/env'\necho \"$#\" > args\n")
    script.chmod(0o700)
    settings(program, 'min_duration = 0\ncommand = ["~/notify.sh", "$(touch evil)", "{title}"]')
    program.run("run", "--", "true", API_TOKEN=SECRET)
    found = json.loads((program.home / "json").read_text())
    environment = dict(line.split("=", 1) for line in (program.home / "env").read_text().splitlines() if "=" in line)
    assert found["event"] == environment["HARNESS_NOTIFICATION_EVENT"] == "job_ended"
    assert environment["HARNESS_NOTIFICATION_TITLE"] == "harness: a job ended on local"
    assert SECRET not in str(environment)
    assert not (program.home / "evil").exists()


def test_the_desktop_shows_texts_as_they_are(program: Program, desktop: Desktop) -> None:
    settings(program, "min_duration = 0\ndesktop = true\ninclude_command = true")
    command = "printf '<b>\\n' # & --help \\x1b[31m \x1b]0;evil\x07"
    program.run("run", "--", command, DBUS_SESSION_BUS_ADDRESS=desktop.address)
    (shown,) = desktop.shown
    assert (shown["application"], shown["title"], shown["urgency"]) == ("harness", "harness: a job ended on local", 1)
    detail = "printf '&lt;b&gt;\\n' # &amp; --help \\x1b[31m ]0;evil"
    assert shown["body"] == f"the command has ended: exit code 0\n  {detail}"


# -- terminals


async def test_the_terminal_gets_a_bell_and_one_sequence_that_no_command_can_end(seats: Seats) -> None:
    evil = "true '\x1b]52;c;ZXZpbA==\x07' # \u009d0;evil\u009c"
    seat = seats.take("run", "--notify", "--", evil, settings="[notifications]\ninclude_command = true\n")
    assert await seat.ended() == 0
    text = "harness: a job ended on local: the command has ended: exit code 0; true ' ]52;c;ZXZpbA== ' # 0;evil"
    await seat.until(lambda: f"\x1b]9;{text}\x1b\\\a".encode() in seat.bytes, "the sequence")
    assert b"\x1b]52" not in seat.bytes


async def test_a_sequence_passes_through_tmux(seats: Seats) -> None:
    inner = f"tmux -L {seats.target_socket} -f /dev/null set -g allow-passthrough on \\; new-session"
    words = f"{seats.program} run --notify -- sleep 1"
    seat = seats.take("-c", f"{inner} '{words}'", program="/bin/sh", settings='[notifications]\nterminal = "osc777"\n')
    await seat.until(lambda: b"\x1b]777;notify;harness: a job ended on local;" in seat.bytes, "the sequence")


async def test_a_stopped_terminal_stops_no_command(seats: Seats) -> None:
    with web_server({"/hook": Reply()}) as server:
        settings = f"[notifications]\nbell = true\n{webhook(server)}"
        seat = seats.take("run", "--", "touch begun; while ! test -e go; do sleep 0.1; done", settings=settings)
        await seat.until((seats.home / "begun").exists, "the start")
        seat.press("C-s")
        (seats.home / "go").touch()
        assert await seat.ended() == 0
        assert len(server.asked) == 1


# -- agents


async def test_an_approval_that_waits_is_sent_and_one_that_was_answered_is_not(seats: Seats) -> None:
    with web_server({"/hook": Reply()}) as server:
        script = [shell("touch one"), shell(f"echo PASSWORD={SECRET}; touch two"), say("all done")]
        prompt = seats.take(script=script, settings=f"[notifications]\n{webhook(server)}", size=(100, 40))
        await prompt.on_screen("»", "scripted")
        prompt.enter("go")
        await prompt.on_screen("touch one", "answer")
        prompt.press("y")
        await prompt.on_screen("touch two", "answer")
        await until(lambda: server.asked, "the notification")
        (found,) = sent(server)
        assert found["event"] == "approval_waiting"
        assert found["text"].startswith("run_shell waits for approval\nanswer it where the session runs")
        assert found["url"] == ""
        assert all(text not in server.asked[0].body for text in (SECRET, "touch"))
        prompt.press("y")
        await prompt.sees("all done")
        await until(lambda: len(server.asked) == 2, "the end of the turn")
        assert sent(server)[1]["event"] == "agent_stopped"
        assert "all done" not in server.asked[1].body
        prompt.press("C-d")
        assert await prompt.ended() == 0
    assert len(server.asked) == 2


async def test_the_link_is_that_of_the_running_dashboard_without_its_token(seats: Seats) -> None:
    async with web_program(seats.program, seats.environment) as web:
        base, _, token = web.url.partition("#token=")
        with web_server({"/hook": Reply()}) as server:
            settings = f"[notifications]\n{webhook(server)}"
            prompt = seats.take(script=[shell("touch one"), say("done")], settings=settings)
            await prompt.on_screen("»", "scripted")
            prompt.enter("go")
            await until(lambda: server.asked, "the notification")
            (found,) = sent(server)
            assert found["url"].startswith(f"{base}#/session/{prompt.pid}-")
            assert found["url"].endswith(f"%2F{found['items'][0]['session']}")
            assert token not in server.asked[0].body


async def test_a_background_job_and_a_budget_notify_and_the_prompt_stays_usable(seats: Seats) -> None:
    usage = ReportedUsage(input=900, output=10)
    waits = f"echo PASSWORD={SECRET}; while ! test -e go; do sleep 0.1; done; echo the end; exit 7"
    job = call("run_shell", {"command": waits, "wait": False, "why": "w"})
    more = seats.home / "more.toml"
    more.write_text(
        '[agent]\nconversation_max_tokens = 1000\non_job_exit = "next_turn"\n[permissions]\nmode = "auto"\n'
    )
    with web_server({"/hook": Reply(stays_silent=True), "/two": Reply()}) as server:
        hooks = webhook(server) + f'[[notifications.webhooks]]\nurl = "{server.url("/two")}"\n'
        hooks = f"include_output = true\n{hooks}"
        table = f"[notifications]\nevents = ['job_ended', 'budget_nearly_used']\n{hooks}"
        script = [replace(job, usage=usage), say("started")]
        prompt = seats.take("--config", str(more), script=script, settings=table, size=(100, 40))
        await prompt.on_screen("»", "scripted")
        prompt.enter("go")
        await prompt.sees("91% of conversation_max_tokens is used: 910 of 1000")
        (seats.home / "go").touch()
        found: list[dict[str, Any]] = []

        def ended() -> bool:
            found[:] = [json.loads(one.body) for one in server.asked if one.path == "/two"]
            return any(one["event"] == "job_ended" for one in found)

        await until(ended, "the end of the job")
        ended_job = found[-1]["items"][-1]
        assert (ended_job["exit_code"], ended_job["output"]) == (7, "PASSWORD=[redacted]\nthe end")
        assert found[0]["event"] == "budget_nearly_used"
        prompt.enter("!echo still here")
        await prompt.sees("still here", "exit code 0")
        prompt.press("C-d")
        assert await prompt.ended() == 0


def test_an_agent_without_a_terminal_notifies_of_its_end_before_it_exits(program: Program) -> None:
    from tests.support.model_server import model_server
    from tests.support.seats import settings_for

    with web_server({"/hook": Reply()}) as server, model_server([say("the answer")]) as model:
        path = program.home / "config/harness/config.toml"
        path.parent.mkdir(parents=True)
        path.write_text(settings_for(model, f"[notifications]\n{webhook(server, more='include_output = true')}"))
        done = program.run("exec", "hello", SCRIPTED_KEY="a-key-nobody-may-see")
    assert done.returncode == 0, done.stderr
    (found,) = sent(server)
    assert (found["event"], found["items"][0]["output"]) == ("agent_stopped", "the answer")


async def test_an_approval_of_an_mcp_client_that_waits_is_sent(needs_process: None, tmp_path: Path) -> None:
    with web_server({"/hook": Reply()}) as server:
        home = Home.make(tmp_path / "home", f"[notifications]\n{webhook(server)}")

        async def allow(context: object, request: types.ElicitRequestParams) -> types.ElicitResult:
            await until(lambda: server.asked, "the notification")
            return types.ElicitResult(action="accept", content={"decision": "once"})

        async with stdio_client_of(home, elicitation_callback=allow) as client:
            await client.call_tool("run_shell", {"command": "touch made", "why": "w"})
    (found,) = sent(server)
    assert (found["event"], found["items"][0]["summary"]) == ("approval_waiting", "run_shell waits for approval")
