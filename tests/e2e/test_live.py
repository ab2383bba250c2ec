"""Running harness processes as dashboards see them: what is shown, what can be done, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from tests.support.dashboards import dashboard
from tests.support.mcp_program import Home, stdio_client_of
from tests.support.model_server import Answer, call, say
from tests.support.program import Program, program
from tests.support.seats import Seat, Seats, seats

from harness.errors import HarnessError
from harness.live.client import open_client, open_stream
from harness.live.protocol import LineBuffer, Request, Watch, decode, encode
from harness.live.sockets import connect_to, listed_processes
from harness.system.process_identity import this_process

__all__ = ["program", "seats"]


def shell(command: str, **more: Any) -> Answer:
    why = {"why": "to see", "risk": "low", "mutation": True, "privesc": False}
    return call("run_shell", {"command": command, **why, **more})


async def asked(seat: Seat, number: int) -> None:
    await seat.until(lambda: seat.history.count("▲ may ") == number, f"question {number}")
    await seat.until(lambda: "\nanswer (denied after" in seat.screen, "the place for the answer")


@contextmanager
def started(program: Program, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program, and end it at the end of the test, whatever happens."""
    with program.start(*words) as process:
        try:
            yield process
        finally:
            process.kill()


def sockets_of(environment: dict[str, str]) -> list[Path]:
    return sorted(Path(environment["XDG_STATE_HOME"]).glob("harness/live/at-*/[0-9]*"))


# -- what is shown


async def test_a_command_is_shown_while_it_runs_and_can_be_cancelled(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dashboard(program.environ, monkeypatch) as seen:
        with started(program, "run", "--", "echo Bearer abcdefghij0123456789abcdefghij; sleep 600") as process:
            found, session = await seen.until(lambda one: one.kind == "run")
            assert (found.facts.pid, found.facts.kind, session.target) == (process.pid, "run", "local")
            assert session.title == "echo Bearer [redacted]; sleep 600"
            (path,) = sockets_of(program.environ)
            assert [stat.S_IMODE(one.lstat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
            await seen.act(found, session, "cancel")
            await seen.gone(found.key)
            assert await to_thread.run_sync(process.wait) == 130
        assert sockets_of(program.environ) == []


async def test_a_killed_process_is_shown_as_lost_and_its_socket_removed(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dashboard(program.environ, monkeypatch) as seen:
        with started(program, "run", "--", "sleep 30") as process:
            await seen.until(lambda one: one.doing == "running")
            os.kill(process.pid, signal.SIGKILL)
            found, session = await seen.until(lambda one: one.doing == "lost")
            assert (session.title, found.lost_at > 0, session.actions) == ("sleep 30", True, ())
            assert sockets_of(program.environ) == []


async def test_every_dashboard_shows_a_killed_process_as_lost_and_one_that_ends_as_gone(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        all_seen = [await stack.enter_async_context(dashboard(program.environ, monkeypatch)) for _ in range(2)]
        with started(program, "run", "--", "sleep 30") as killed, started(program, "run", "--", "sleep 31") as ends:
            for seen in all_seen:
                await seen.until(lambda one: (one.doing, one.title) == ("running", "sleep 30"))
                found, _ = await seen.until(lambda one: (one.doing, one.title) == ("running", "sleep 31"))
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()  # what follows happens before these dashboards notice
            assert len(listed_processes(this_process())) == 1  # another dashboard has noticed
            ends.send_signal(signal.SIGINT)
            for seen in all_seen:
                await seen.until(lambda one: (one.doing, one.title) == ("lost", "sleep 30"))
                await seen.gone(found.key)
    assert sockets_of(program.environ) == []


async def test_what_a_killed_process_left_is_removed_by_the_next_dashboard(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(program, "run", "--", "sleep 30") as process:
        while not sockets_of(program.environ):  # noqa: ASYNC110  # of another process, which sets no event
            await anyio.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert len(sockets_of(program.environ)) == 1
    async with dashboard(program.environ, monkeypatch) as seen:
        await seen.overview.wait_complete()
        assert seen.overview.rows() == []
    assert sockets_of(program.environ) == []


async def test_a_run_on_many_hosts_shows_how_far_it_is(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    (program.home / "hosts").write_text("a ansible_connection=local\nb ansible_connection=local\n")
    command = "test -e go || { touch waits; while ! test -e go; do sleep 0.1; done; }"
    async with dashboard(program.environ, monkeypatch) as seen:
        with started(program, "run", "--inventory", "hosts", "--forks", "1", "--", f"cd {program.home}; {command}"):
            found, session = await seen.until(lambda one: one.hosts is not None and one.hosts.running == 1)
            assert (session.kind, session.target, session.hosts and session.hosts.total) == ("fleet", "a,b", 2)
            (program.home / "go").touch()
            await seen.gone(found.key)


# -- approvals


async def test_a_dashboard_approves_denies_and_changes_calls_of_a_prompt(
    seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [shell("touch one"), shell("touch two"), shell("touch three"), shell("touch five"), say("all done")]
    seat = seats.take(script=script, size=(160, 50))
    async with dashboard(seats.environment, monkeypatch) as seen:
        await seat.on_screen("»", "scripted")
        seat.enter("go")
        process, session, request = await seen.asked("touch one")
        await asked(seat, 1)
        assert (session.kind, session.doing, session.title) == ("agent", "waiting", "go")
        assert (request.tool, request.why, request.editable) == ("run_shell", "to see", "command")
        await seen.act(process, session, "approve", request_id=request.request_id)
        await seat.sees("→ yes, once, by dashboard: anna")
        *_, request = await seen.asked("touch two")
        await asked(seat, 2)
        await seen.act(process, session, "deny", request_id=request.request_id, reason="not today")
        await seat.sees("→ no, by dashboard: anna: not today")
        *_, request = await seen.asked("touch three")
        await asked(seat, 3)
        await seen.act(process, session, "edit", request_id=request.request_id, text="touch four")
        await seat.sees("→ yes, once, changed, by dashboard: anna")
        *_, request = await seen.asked("touch five")
        await asked(seat, 4)
        seat.press("Enter")  # keys for a question that was answered elsewhere are dropped until a pause, or Enter
        seat.enter("n")
        await seat.sees("all done")
        _, session = await seen.until(lambda one: one.doing == "idle")
        with pytest.raises(HarnessError, match="is over"):
            await seen.act(process, session, "approve", request_id=request.request_id)
        assert session.input_tokens > 0
        await seat.sees("all done")
    exist = {name: (seats.home / name).exists() for name in ("one", "two", "three", "four", "five")}
    assert exist == {"one": True, "two": False, "three": False, "four": True, "five": False}
    assert seat.model is not None
    told = json.dumps(seat.model.asked[-1].body)
    assert "not today" in told
    assert "touch four" in told
    seat.press("C-d")
    await seat.ended()
    audit = subprocess.run(
        [seats.program, "audit", "export"], env=seats.environment, capture_output=True, check=True, cwd=seats.home
    ).stdout.decode()
    assert "dashboard: anna (once)" in audit
    assert "dashboard: anna (deny-once)" in audit


async def test_without_a_terminal_a_connected_dashboard_is_asked(seats: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard(seats.environment, monkeypatch) as seen:
        script = [call("run_shell", {"command": "cat gate", "why": "w"}), shell("touch made"), say("done")]
        settings = '[permissions]\nallow = ["cat gate"]\n'
        os.mkfifo(seats.home / "gate")
        seat = seats.take("exec", "go", script=script, settings=settings, redirect="< /dev/null > out 2>&1")
        await seen.until(lambda one: one.kind == "agent")  # the dashboard is connected, and then asked
        await to_thread.run_sync((seats.home / "gate").write_text, "")
        process, session, request = await seen.asked("touch made")
        assert process.facts.kind == "exec"
        await seen.act(process, session, "approve", request_id=request.request_id)
        assert await seat.ended() == 0
    assert (seats.home / "made").exists()


async def test_a_dashboard_that_only_watches_is_no_approver(seats: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard(seats.environment, monkeypatch, name="") as seen:
        seat = seats.take(script=[shell("touch made"), say("done")], size=(160, 50))
        await seat.on_screen("»", "scripted")
        seat.enter("go")
        process, session, request = await seen.asked("touch made")
        with pytest.raises(HarnessError, match="has not proved"):
            await seen.act(process, session, "approve", request_id=request.request_id)
        await asked(seat, 1)
        seat.enter("n")
        await seat.sees("done")
    assert not (seats.home / "made").exists()


async def test_of_many_answers_at_once_exactly_one_counts(seats: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 8
    script = [shell(f"touch made{number}") for number in range(rounds)]
    seat = seats.take(script=[*script, say("all done")], size=(160, 50))
    answers: list[str] = []
    async with dashboard(seats.environment, monkeypatch) as seen:
        await seat.on_screen("»", "scripted")
        seat.enter("go")
        for number in range(rounds):
            process, session, request = await seen.asked(f"touch made{number}")
            await asked(seat, number + 1)

            async def answer(action: str, at: Any = (process, session), request: Any = request) -> None:
                with suppress(HarnessError):
                    await seen.act(*at, action, request_id=request.request_id)
                    answers.append(action)

            answers.clear()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer, "deny")
                tasks.start_soon(answer, "approve")
                tasks.start_soon(to_thread.run_sync, seat.enter, "y")
            assert len(answers) <= 1
            await seen.until(lambda one, number=number: not any(f"made{number}" in a.text for a in one.approvals))  # type: ignore[misc]  # the loop's number
            if answers == ["deny"]:
                assert not (seats.home / f"made{number}").exists()
        await seat.sees("all done")


# -- acting on agents, jobs and panes


async def test_an_agent_is_paused_resumed_and_its_jobs_read_and_killed(
    seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = '[permissions]\nmode = "auto"\n'
    command = "echo token=abcdefghij0123456789abcdefghij; echo visible; sleep 600"
    script = [call("run_shell", {"command": command, "wait": False, "why": "w"}), say("started"), say("later")]
    seat = seats.take("--tmux", script=script, settings=settings, size=(120, 40))
    async with dashboard(seats.environment, monkeypatch) as seen:
        await seat.on_screen("»", "scripted")
        seat.enter("go")
        process, session = await seen.until(lambda one: bool(one.jobs) and one.doing == "idle")
        job_id = session.jobs[0].job_id
        text = ""
        async for item in open_stream(process.path, session.session, "tail", {"job_id": job_id}):
            text += item["text"]
            if "visible" in text:
                break
        assert "[redacted]" in text
        assert "abcdefghij0123456789" not in text
        await seen.act(process, session, "pause")
        _, session = await seen.until(lambda one: one.doing == "paused")
        assert session.paused_by == "dashboard: anna"
        await seat.sees("paused by dashboard: anna")
        with pytest.raises(HarnessError, match="dashboard: anna has paused the agent again; nothing was resumed"):
            await seen.act(process, session, "resume", paused_by="dashboard: bert")
        await seen.act(process, session, "resume", paused_by=session.paused_by)
        await seen.until(lambda one: one.doing == "idle")
        with pytest.raises(HarnessError, match="that turn has ended; nothing was cancelled"):
            await seen.act(process, session, "cancel", work=["a turn that has ended"])
        assert process.client is not None
        assert "main" in json.dumps(await process.client.request(session.session, "panes"))
        await seen.act(process, session, "kill_job", job_id=job_id)
        await seen.until(lambda one: not any(job.is_running for job in one.jobs))
    done = subprocess.run(
        [seats.program, "audit", "export"], env=seats.environment, capture_output=True, cwd=seats.home
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    acted = {one["tool"]: one for one in records if str(one.get("tool", "")).startswith("dashboard_")}
    assert set(acted) == {"dashboard_pause", "dashboard_resume", "dashboard_cancel", "dashboard_kill_job"}, records
    assert "dashboard: anna" in json.dumps(acted["dashboard_kill_job"])


async def test_a_pane_is_typed_into_only_by_who_took_it_over_and_the_agent_waits(
    seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = seats.take("--tmux", script=[say("hello"), say("again")], size=(120, 40))
    async with dashboard(seats.environment, monkeypatch) as seen:
        await seat.on_screen("»", "scripted")
        seat.enter("go")
        process, session = await seen.until(lambda one: one.kind == "agent" and one.title == "go")
        with pytest.raises(HarnessError, match="taken over first"):
            await seen.act(process, session, "type", text="touch typed", keys=["Enter"])
        await seen.act(process, session, "take_pane")
        assert process.client is not None
        with pytest.raises(HarnessError, match="is taken over by dashboard: anna"):
            await process.client.request(session.session, "take_pane", {}, name="bert")
        await seen.act(process, session, "type", text="touch typed", keys=["Enter"])
        await seat.until((seats.home / "typed").exists, "what was typed")
        _, session = await seen.until(lambda one: one.doing == "paused")
        assert session.taken_by == {"main": "dashboard: anna"}
        await seen.act(process, session, "release_pane")
        await seen.act(process, session, "resume", paused_by=session.paused_by)
        await seen.until(lambda one: one.doing == "idle" and not one.taken_by)


async def test_clients_that_read_nothing_delay_and_grow_nothing(seats: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "seq 1 400000; sleep 600"
    script = [
        call("run_shell", {"command": command, "wait": False, "why": "w"}),
        say("started"),
        *(call("run_shell", {"command": f"seq {number} 300000", "why": "w"}) for number in range(3)),
        say("all done"),
    ]
    seat = seats.take(script=script, settings='[permissions]\nmode = "auto"\n', size=(120, 40))
    async with dashboard(seats.environment, monkeypatch) as seen:
        await seat.on_screen("»", "scripted")
        seat.enter("go")
        process, session = await seen.until(lambda one: bool(one.jobs) and one.doing == "idle")
        requests = [("events", {}), ("tail", {"job_id": session.jobs[0].job_id})] * 4
        with ExitStack() as opened:
            for action, arguments in requests:
                stuck = opened.enter_context(connect_to(process.path))
                stuck.send(encode(Watch()) + encode(Request(1, session.session, action, arguments)))
            before = resident_bytes(process.facts.pid)
            seat.enter("again")
            await seat.sees("all done")
            assert resident_bytes(process.facts.pid) - before < 64 << 20
            await seen.act(process, session, "pause")
            await seen.until(lambda one: one.doing == "paused")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- MCP


async def test_a_session_of_an_mcp_client_is_shown_and_its_calls_approved(
    tmp_path: Path, needs_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.make(tmp_path / "home")
    environment = {**home.environment, "XDG_STATE_HOME": str(home.path / ".local/state")}
    async with dashboard(environment, monkeypatch) as seen, stdio_client_of(home) as client:
        process, session = await seen.until(lambda one: one.kind == "mcp")
        assert session.doing == "idle"
        results: list[Any] = []

        async def use() -> None:
            results.append(await client.call_tool("run_shell", {"command": f"touch {home.path}/made"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use)
            process, session, request = await seen.asked("touch")
            await seen.act(process, session, "approve", request_id=request.request_id)
        assert not results[0].is_error
    assert (home.path / "made").exists()


# -- what is refused


CONNECTS = """
import sys, anyio
from pathlib import Path
from harness.live.client import open_client
async def main():
    async with open_client(Path(sys.argv[1])) as client:
        await client.authorize("agent")
anyio.run(main)
"""


async def test_what_a_session_of_harness_runs_may_not_act(seats: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of an agent on this machine, in the pane and without it, and one of another harness process."""
    (seats.home / "connects.py").write_text(CONNECTS)
    seat = seats.take(script=[say("hello")], size=(160, 50))
    async with dashboard(seats.environment, monkeypatch) as seen:
        await seat.on_screen("»", "scripted")
        process, _ = await seen.until(lambda one: one.kind == "agent")
        line = f"{sys.executable} {seats.home}/connects.py {process.path}"
        run = [seats.program, "run", "--"]
        for words in (run, [*run[:1], "--tmux", *run[1:]], [*run, "setsid", "-w", "sh", "-c"]):
            done = await to_thread.run_sync(
                lambda words=words: subprocess.run(
                    [*words, line], env=seats.environment, capture_output=True, cwd=seats.home
                )
            )
            assert b"this client may not act" in done.stderr + done.stdout, done
            assert done.returncode == 1
        # the same program, started by the operator
        done = await to_thread.run_sync(
            lambda: subprocess.run(["sh", "-c", line], env=seats.environment, capture_output=True, cwd=seats.home)
        )
        assert (done.returncode, done.stderr) == (0, b"")


async def test_without_the_token_or_with_that_of_another_connection_nothing_is_done(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dashboard(program.environ, monkeypatch) as seen:
        with started(program, "run", "--", "sleep 600") as process:
            found, session = await seen.until(lambda one: one.kind == "run")
            token = Path(program.environ["XDG_STATE_HOME"]) / "harness/live/token"
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
            kept = token.read_bytes()
            token.write_bytes(b"0" * 64)
            async with open_client(found.path) as client:
                monkeypatch.setattr("harness.live.client.read_token", lambda create: b"1" * 64)
                with pytest.raises(HarnessError, match="does not have the token"):
                    await client.authorize("eve")
                with pytest.raises(HarnessError, match="has not proved"):
                    await client.request(session.session, "cancel")
            token.write_bytes(kept)
            await seen.act(found, session, "cancel")
            assert await to_thread.run_sync(process.wait) == 130


def test_tools_may_not_read_the_token_nor_change_what_lies_beside_it(program: Program) -> None:
    folder = Path(program.environ["XDG_STATE_HOME"]) / "harness/live"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "token").write_text("0" * 64)
    config = program.home / "config/harness/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[permissions]\nmode = "auto"\n')
    for tool, arguments in (
        ("read_file", {"path": f"{folder}/token"}),
        ("run_shell", {"command": f"cat {folder}/token", "why": "w"}),
        ("run_shell", {"command": f"cp -r {folder} /tmp/copy-of-live", "why": "w"}),
        ("write_file", {"path": f"{folder}/token", "content": "1"}),
        ("write_file", {"path": f"{folder}/at-x/1-1", "content": "1"}),
    ):
        done = program.run("tools", "call", tool, json.dumps(arguments))
        assert done.returncode == 126, (tool, arguments, done)
    assert (folder / "token").read_text() == "0" * 64


@pytest.mark.usefixtures("needs_root")
async def test_another_user_is_refused_even_if_the_directories_let_them_in(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    connects = (
        "import os, socket, sys; os.chdir(sys.argv[1]); s = socket.socket(1); s.connect(sys.argv[2]); print(s.recv(9))"
    )
    async with dashboard(program.environ, monkeypatch) as seen:
        with started(program, "run", "--", "sleep 600") as process:
            found, session = await seen.until(lambda one: one.kind == "run")
            words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c"]

            def as_nobody() -> subprocess.CompletedProcess[bytes]:
                argv = [*words, connects, str(found.path.parent), found.path.name]
                return subprocess.run(argv, capture_output=True, cwd="/")

            assert b"PermissionError" in (await to_thread.run_sync(as_nobody)).stderr
            for path in (found.path, *found.path.parents):
                if path.stat().st_uid == os.geteuid() and str(path).startswith(str(program.home.parent)):
                    path.chmod(0o777)
            for path in list(program.home.parents)[:-2]:
                path.chmod(0o755)
            assert (await to_thread.run_sync(as_nobody)).stdout == b"b''\n"
            await seen.act(found, session, "cancel")
            await to_thread.run_sync(process.wait)


async def test_a_client_that_reads_nothing_or_sends_nonsense_disturbs_nobody(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dashboard(program.environ, monkeypatch) as seen:
        with started(program, "run", "--", "sleep 600") as process, ExitStack() as opened:
            found, session = await seen.until(lambda one: one.kind == "run")
            stuck = opened.enter_context(connect_to(found.path))
            line = b'{"kind":"request","request":%d,"session":"x","action":"jobs"}\n'
            with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):  # it is not read, or had to go
                for number in range(1_000_000):
                    stuck.send(line % number)
            for nonsense in (b"{" * 100_000 + b"\n", b"[]\n", b'{"kind":"authorize"}\n', b"x" * (2 << 20), b"\0\xff\n"):
                with connect_to(found.path) as rude:
                    rude.settimeout(20)
                    await to_thread.run_sync(lambda rude=rude, nonsense=nonsense: _send(rude, nonsense))  # type: ignore[misc]  # of the loop
                    received = await to_thread.run_sync(lambda rude=rude: _all_of(rude))  # type: ignore[misc]  # of the loop
                    kinds = [json.loads(one)["kind"] for one in received.splitlines()]
                    assert kinds == ["hello", "goodbye"], nonsense[:20]
            await seen.act(found, session, "cancel")
            assert await to_thread.run_sync(process.wait) == 130


def _send(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


def _all_of(connection: socket.socket) -> bytes:
    found = b""
    with suppress(OSError):
        while data := connection.recv(1 << 16):
            found += data
    return found


async def test_unknown_kinds_and_fields_are_ignored(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard(program.environ, monkeypatch) as seen:
        with started(program, "run", "--", "sleep 600") as process:
            found, session = await seen.until(lambda one: one.kind == "run")
            with connect_to(found.path) as later:
                later.settimeout(20)
                later.sendall(b'{"kind":"from_the_future","x":1}\n{"kind":"watch","more":[1]}\n')
                lines, kinds = LineBuffer(), list[str]()
                while "complete" not in kinds:
                    received = lines.feed(await to_thread.run_sync(later.recv, 1 << 16))
                    kinds += [message.kind for line in received if (message := decode(line)) is not None]
            assert kinds == ["hello", "session", "complete"]
            await seen.act(found, session, "cancel")
            await to_thread.run_sync(process.wait)
