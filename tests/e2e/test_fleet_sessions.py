"""Sessions on many hosts as programs: ``harness exec``, the prompt and ``harness mcp`` with ``--hosts``."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_exec import configure, returned, sent
from tests.support.fleet_hosts import FleetHosts, fleet_hosts, fleet_program
from tests.support.mcp_program import Home, stdio_client_of
from tests.support.model_server import Answer, Asked, Call, call, model_server, say
from tests.support.program import Program
from tests.support.seats import Seats, seats

__all__ = ["fleet_hosts", "fleet_program", "seats"]

WHY = {"risk": "low", "mutation": True, "why": "a test"}
DENIED = '[permissions]\nmode = "auto"\ndeny = [{ tool = "run_shell", hosts = "@db" }]\n'


def shell(command: str, hosts: str) -> Answer:
    return call("run_shell", {"hosts": hosts, "command": command, **WHY})


def homes_with(hosts: FleetHosts, file: str) -> list[str]:
    return [name for name in hosts.servers if (hosts.home(name) / file).exists()]


# -- harness exec


def test_an_agent_works_on_many_hosts(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    with model_server([shell("touch ~/ran; echo $((6*7))", "web[1-2]"), say("Done."), say("Again.")]) as server:
        configure(fleet_program, server, '[permissions]\nmode = "auto"\n')
        done = fleet_program.run("exec", "--hosts", "web[1-3]", "go")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"Done.\n", b"")
        again = fleet_program.run("exec", "--last", "--hosts", "web[1-3]", "more")
        assert (again.returncode, again.stdout, again.stderr) == (0, b"Again.\n", b"")
        assert server.refused == []
    told = str(sent(server, 0)[0]["content"])
    assert "- 3 hosts: web[1-3]" in told
    assert "you are notified when it has ended" in told
    assert "2 hosts: 2 exit code 0" in returned(server, 1)
    assert returned(server, 1).count("42") == 1
    assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]


def test_without_an_approver_a_command_runs_on_no_host(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    with model_server([shell("touch ~/ran", "*"), say("Denied.")]) as server:
        configure(fleet_program, server)
        done = fleet_program.run("exec", "--hosts", "web[1-3]", "go")
        assert (done.returncode, done.stdout) == (126, b"Denied.\n")
    assert homes_with(fleet_hosts, "ran") == []


def test_approve_allows_a_command_on_the_hosts_of_the_session(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    with model_server([shell("touch ~/ran", "*"), say("Done.")]) as server:
        configure(fleet_program, server)
        done = fleet_program.run("exec", "--ssh", "web1", "--ssh", "web2", "--approve", "touch *", "go")
        assert (done.returncode, done.stdout) == (0, b"Done.\n")
    assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]


def test_a_rule_about_a_group_of_the_inventory_denies_there(
    fleet_program: Program, fleet_hosts: FleetHosts, tmp_path: Path
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text("[web]\nweb1\nweb2\n[db]\nweb3\n")
    with model_server([shell("touch ~/ran", "*"), say("Done.")]) as server:
        configure(fleet_program, server, DENIED)
        done = fleet_program.run("exec", "--inventory", str(inventory), "go")
        assert (done.returncode, done.stdout) == (0, b"Done.\n")
        assert "web3 (1 host):\nnot allowed: matched rule: deny run_shell on hosts @db" in returned(server, 1)
    assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]


def test_a_stored_rule_about_hosts_denies_there_only(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    with model_server([shell("touch ~/ran", "*"), say("Done.")]) as server:
        configure(fleet_program, server, '[permissions]\nmode = "auto"\n')
        added = fleet_program.run("permissions", "add", "--deny", "--hosts", "web[2-3],!web3", "--any")
        assert added.returncode == 0
        assert fleet_program.run("exec", "--hosts", "web[1-3]", "go").returncode == 0
    assert homes_with(fleet_hosts, "ran") == ["web1", "web3"]


# -- background jobs


def background(command: str, hosts: str) -> Answer:
    arguments = {"hosts": hosts, "command": command, "wait": False, **WHY}
    return call("run_shell", arguments)


def test_equal_ends_of_background_jobs_are_one_notice_to_the_model(
    fleet_program: Program, fleet_hosts: FleetHosts
) -> None:
    command = "echo out; while [ ! -e ~/go ]; do sleep 0.1; done; touch ~/ended; exit 3"
    release = [shell("touch ~/go; until [ -e ~/ended ]; do sleep 0.1; done", "*"), shell("sleep 4", "web1")]
    with model_server([background(command, "*"), *release, say("Done.")]) as server:
        configure(fleet_program, server, '[permissions]\nmode = "auto"\n')
        done = fleet_program.run("exec", "--hosts", "web[1-3]", "go")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"Done.\n", b"")
        assert "is still running" in returned(server, 1)
        told = json.dumps(sent(server, 3))
    assert "3 background jobs on 3 hosts have ended, with exit code 3" in told
    assert told.count("have ended, with exit code") == 1


def test_a_job_that_is_left_running_is_named_with_its_host_and_announced_after_a_resume(
    fleet_program: Program, fleet_hosts: FleetHosts
) -> None:
    command = "while [ ! -e ~/go ]; do sleep 0.1; done; exit 4"
    steps = iter([background(command, "web2"), say("Started.")])

    def answer(asked: Asked) -> Answer:
        if (step := next(steps, None)) is not None:
            return step
        is_told = "the background job" in asked.text or len(server.asked) > 60
        return say("Ended.") if is_told else shell("sleep 0.5", "web1")

    with model_server(answer) as server:
        configure(fleet_program, server, '[permissions]\nmode = "auto"\n')
        first = fleet_program.run("exec", "--hosts", "web[1-3]", "go")
        assert (first.returncode, first.stdout) == (0, b"Started.\n")
        found = re.search(
            r"is still running on web2 \(harness (.*) --ssh web2 jobs wait (\d+)\)", first.stderr.decode()
        )
        assert found is not None, first.stderr
        (fleet_hosts.home("web2") / "go").touch()
        waited = fleet_program.run(*shlex.split(found[1]), "--ssh", "web2", "jobs", "wait", found[2])
        assert waited.returncode == 4, waited.stderr
        again = fleet_program.run("exec", "--last", "--hosts", "web[1-3]", "more")
        assert (again.returncode, again.stdout, again.stderr) == (0, b"Ended.\n", b"")
        told = json.dumps(sent(server, len(server.asked) - 1))
    assert f"the background job {found[2]} on web2 has ended, with exit code 4" in told


# -- sub-agents


def test_a_sub_agent_works_on_the_hosts_of_the_session(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    def answer(asked: Asked) -> Answer:
        messages = asked.body["messages"]
        if "THE WORK" in str(messages[1]["content"]):
            steps = [shell("touch ~/ran; echo out", "web[1-2]"), background("exec sleep 300", "web3"), say("Worked.")]
            return steps[sum(one["role"] == "tool" for one in messages)]
        tasks = [
            call("task", {"prompt": "THE WORK", "description": "work", "backend": "ssh://other"}),
            call("task", {"prompt": "THE WORK", "description": "work"}),
            say("Done."),
        ]
        return tasks[sum(one["role"] == "tool" for one in messages)]

    with model_server(answer) as server:
        configure(fleet_program, server, '[permissions]\nmode = "auto"\n')
        done = fleet_program.run("exec", "--hosts", "web[1-3]", "go")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"Done.\n", b"")
        results = [str(one["content"]) for one in sent(server, len(server.asked) - 1) if one["role"] == "tool"]
    assert "agents of a session on many hosts work on its hosts: omit backend" in results[0]
    assert "Worked." in results[1]
    assert re.search(r"jobs that it had left running were killed: \d+ on web3", results[1])
    assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]
    told = str(sent(server, 2)[0]["content"])
    assert "- 3 hosts: web[1-3]" in told


# -- stored conversations


def test_a_conversation_is_resumed_on_its_own_hosts(
    fleet_program: Program, fleet_hosts: FleetHosts, tmp_path: Path
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text("[web]\nweb1\nweb2\n")
    with model_server([say("One."), shell("touch ~/ran", "*"), say("Two.")]) as server:
        configure(fleet_program, server, '[permissions]\nmode = "auto"\n')
        first = fleet_program.run("exec", "--inventory", str(inventory), "--hosts", "@web", "go")
        assert (first.returncode, first.stderr) == (0, b"")
        session = json.loads(fleet_program.run("--json", "resume", "--list").stdout)[0]["session_id"]

        inventory.write_text("[web]\nweb1\nweb2\nweb3\n")  # a host that the conversation does not know
        done = fleet_program.run("exec", "--conversation", session, "more")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"Two.\n", b"")
        assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]
        listed = fleet_program.run("--json", "resume", "--list", "--hosts", "web[1-2]").stdout
        assert [one["session_id"] for one in json.loads(listed)] == [session]

        for text, problem in (
            ("[web]\nweb1\n", f"{inventory} does not have web2 any more"),
            ("[other]\nweb1\nweb2\n", "no host matches '@web'"),
            ("[web]\nweb1 ansible_host=web3\nweb2\n", "web1 was ssh://web1, and now is ssh://web3"),
        ):
            inventory.write_text(text)
            for words in (("exec", "--conversation", session, "more"), ("resume", session)):
                done = fleet_program.run(*words)
                assert done.returncode == 125
                assert f"conversation {session} works on fleet://web[1-2]: ".encode() in done.stderr
                assert problem.encode() in done.stderr
                assert b"--allow-other-target" in done.stderr
        inventory.unlink()
        done = fleet_program.run("resume", session)
        assert (done.returncode, b"hosts.ini" in done.stderr) == (125, True)


def test_other_hosts_are_refused(fleet_program: Program) -> None:
    with model_server([say("One.")]) as server:
        configure(fleet_program, server)
        assert fleet_program.run("exec", "--ssh", "web1", "--ssh", "web2", "go").returncode == 0
        done = fleet_program.run("resume", "--last", "--ssh", "web1")
        assert (done.returncode, b"no conversation with ssh://web1 is stored" in done.stderr) == (125, True)
        session = json.loads(fleet_program.run("--json", "resume", "--list").stdout)[0]["session_id"]
        for words in (("--hosts", "web[1-3]"), ("--ssh", "web1")):
            done = fleet_program.run("resume", session, *words)
            assert done.returncode == 125
            assert b"belongs to fleet://web[1-2], not to " in done.stderr
        done = fleet_program.run("resume", session)
        assert b"the prompt needs a terminal" in done.stderr


async def test_the_prompt_resumes_a_conversation_on_its_hosts(seats: Seats, fleet_hosts: FleetHosts) -> None:
    seat = seats.take(*fleet_hosts.options, "--hosts", "web[1-2]", script=[say("The first.")], size=(120, 40))
    await seat.sees("harness on 2 hosts: web[1-2]")
    await seat.on_screen("»", "scripted")
    seat.enter("go")
    await seat.sees("The first.")
    await seat.on_screen("idle")
    seat.press("C-d")
    assert await seat.ended() == 0

    script = [shell("touch ~/ran", "*"), say("It ran.")]
    again = seats.take(*fleet_hosts.options, "resume", "--last", script=script, size=(120, 40))
    await again.sees("harness on 2 hosts: web[1-2]", "(1 turn)")
    await again.on_screen("»", "scripted")
    again.enter("more")
    await again.on_screen("answer (denied after")
    again.type("y")
    await again.sees("It ran.")
    await again.on_screen("idle")
    assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]
    again.press("C-d")
    assert await again.ended() == 0


# -- harness mcp and the prompt


@pytest.mark.parametrize("words", [("exec", "go"), ("mcp",)])
def test_hosts_and_a_target_contradict_each_other(fleet_program: Program, words: tuple[str, ...]) -> None:
    with model_server([]) as server:
        configure(fleet_program, server)
        done = fleet_program.run(words[0], "--hosts", "web1", "--ssh", "web2", *words[1:])
    assert done.returncode == 125
    assert b"contradict each other" in done.stderr


def test_hosts_before_a_command_are_refused(fleet_program: Program) -> None:
    done = fleet_program.run("--hosts", "web1", "run", "true")
    assert (done.returncode, b"--hosts must come after run" in done.stderr) == (125, True)


# -- harness mcp


async def test_a_client_names_the_hosts(fleet_hosts: FleetHosts, tmp_path: Path) -> None:
    home = Home.make(tmp_path, '[permissions]\nmode = "auto"\n')
    async with stdio_client_of(home, *fleet_hosts.options, "--hosts", "web[1-2]") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "hosts" in tools["run_shell"].input_schema["required"]
        assert "hosts" not in tools["time"].input_schema["properties"]
        result = await client.call_tool("run_shell", {"hosts": "*", "command": "touch ~/ran; basename ~"})
        data: Any = result.structured_content
        assert [(one["host"], one["exit_code"]) for one in data["hosts"]] == [("web1", 0), ("web2", 0)]
        assert not result.is_error
        wrong = await client.call_tool("run_shell", {"hosts": "web3", "command": "touch ~/ran"})
        assert wrong.is_error
        assert "the hosts are web[1-2]" in json.dumps(wrong.model_dump(mode="json"))
        assert (await client.list_resources()).resources
    assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]


# -- the prompt


async def test_the_prompt_asks_once_for_all_hosts(seats: Seats, fleet_hosts: FleetHosts) -> None:
    script = [Answer((Call("run_shell", {"hosts": "web[1-2]", "command": "touch ~/ran", **WHY}),)), say("It ran.")]
    seat = seats.take(*fleet_hosts.options, "--hosts", "web[1-3]", script=script, size=(120, 40))
    await seat.sees("harness on 3 hosts: web[1-3]")
    await seat.on_screen("»", "scripted")
    seat.enter("!echo from-$(basename ~)")
    await seat.sees("web1: from-web1", "web2: from-web2", "web3: from-web3", "3 hosts: 3 exit code 0")
    seat.enter("go")
    await seat.sees("touch ~/ran", "web[1-2] (2 hosts)")
    assert homes_with(fleet_hosts, "ran") == []
    await seat.on_screen("answer (denied after")
    seat.type("y")
    await seat.sees("It ran.")
    assert homes_with(fleet_hosts, "ran") == ["web1", "web2"]
    seat.press("C-d")
    assert await seat.ended() == 0
