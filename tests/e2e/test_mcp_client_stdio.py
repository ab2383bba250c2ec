"""Tools of servers that are programs on this machine, called through the whole pipeline."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from tests.support.mcp_servers import SERVERS, alive, eventually, raw, workbench
from tests.support.toolbox import toolbox

from harness.errors import ConfigError, ConnectionLost, ToolError
from harness.mcp.client.configuration import server_config
from harness.mcp.client.sources import open_sources
from harness.toolkit import Image, Text
from harness.toolkit.events import ToolCallProgress
from harness.toolkit.values import CallStatus, Category, ToolCall


@pytest.mark.usefixtures("needs_process")
async def test_tools_of_a_server_are_listed_under_its_name_and_called(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        registry = bench.box.executor.registry
        tool = registry.lookup("raw_echo")
        assert (tool.traits.category, tool.traits.mutating, tool.traits.parallelizable) == (Category.MCP, True, False)
        assert registry.source_of("raw_echo") == "mcp:raw"
        assert tool.description == "[raw] Do echo."
        assert len(bench.names()) == 19, "the second page of the list is there, too"
        outcome = await bench.call("raw_echo", text="hello")
        assert (outcome.status, outcome.result.text, outcome.result.data) == (CallStatus.OK, "hello", {"text": "hello"})
        assert outcome.result.metadata["untrusted"] is True
        [request] = bench.box.policy.requests
        assert [subject.text for subject in request.subjects] == ['raw/echo {"text":"hello"}']
    assert bench.names() == []


@pytest.mark.usefixtures("needs_process")
async def test_a_servers_word_that_a_tool_only_reads_counts_when_it_is_trusted(tmp_path: Path) -> None:
    async with workbench(
        tmp_path,
        raw(name="no", read_only=["hang"]),
        raw(name="yes", trust_annotations=True, category="network", parallelizable=True),
        raw(name="all", read_only=True),
    ) as bench:
        mutating = {tool.name for tool in bench.box.executor.registry.list() if tool.traits.mutating}
        assert {"no_echo", "no_fail", "yes_fail"} <= mutating
        assert mutating & {"no_hang", "yes_echo", "all_fail", "all_echo"} == set()
        traits = bench.box.executor.registry.lookup("yes_echo").traits
        assert (traits.category, traits.parallelizable) == (Category.NETWORK, True)


@pytest.mark.usefixtures("needs_process")
async def test_wrong_arguments_never_reach_the_server(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--journal", str(journal))) as bench:
        missing = await bench.call("raw_echo")
        assert missing.result.error_code == "invalid_args"
        assert "text: required" in missing.result.text
        unknown = await bench.call("raw_tree", root={"value": 1, "next": {"value": "x"}})
        assert "root.next.value: 'x' is not of type 'integer'" in unknown.result.text
        right = await bench.call("raw_tree", root={"value": 1, "next": {"value": 2}})
        assert json.loads(right.result.text) == {"root": {"value": 1, "next": {"value": 2}}}
        coerced = await bench.call("raw_huge", size="3")
        assert coerced.result.text == "xxx"
    assert journal.read_text().count("tools/call") == 2


@pytest.mark.usefixtures("needs_process")
async def test_blocks_of_each_kind_come_through_or_are_marked(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        content = (await bench.call("raw_blocks")).result.content
        texts = [block.text for block in content if isinstance(block, Text)]
        assert [type(block) for block in content] == [Text, Image, Text, Text, Text, Text]
        assert isinstance(content[1], Image)
        assert content[1].media_type == "image/png"
        assert content[1].data.startswith(b"\x89PNG")
        assert texts == [
            "first",
            "[a sound, audio/wav, 3 bytes, which cannot be shown]",
            "[the resource file:///a.txt]\ninside",
            "[the resource file:///b.bin, application/x, 3 bytes, which cannot be shown]",
            "[a link to the resource c: https://example.invalid/c]",
        ]


@pytest.mark.usefixtures("needs_process")
async def test_failures_come_on_their_axis(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        failed = await bench.call("raw_fail")
        assert (failed.status, failed.result.error_code, failed.result.text, failed.error) == (
            CallStatus.ERROR, "tool_failed", "it went wrong", None,
        )  # fmt: skip
        refused = await bench.call("raw_refuse")
        assert refused.result.error_code == "mcp_refused"
        assert "no such account (code -32602)" in refused.result.text
        nonsense = await bench.call("raw_nonsense")
        assert nonsense.result.error_code == "bad_answer"
        assert (await bench.call("raw_echo", text="on")).result.text == "on"


@pytest.mark.usefixtures("needs_process")
async def test_a_server_that_is_killed_during_a_call_leaves_it_unknown_and_nothing_is_repeated(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--journal", str(journal))) as bench:
        outcome = await bench.call("raw_die")
        assert outcome.status is CallStatus.UNKNOWN
        assert isinstance(outcome.error, ToolError)
        assert isinstance(outcome.error.__cause__, ConnectionLost)
        assert outcome.result.error_code == "backend_lost"
        assert "killed by signal 9" in outcome.result.text
        assert "it may have changed something" in outcome.result.text
        assert (await bench.call("raw_echo", text="again")).result.text == "again"
    lines = journal.read_text().splitlines()
    assert sum('"die"' in line for line in lines) == 1
    assert sum('"started"' in line for line in lines) == 2


@pytest.mark.usefixtures("needs_process")
async def test_a_read_only_call_that_was_lost_says_that_it_may_be_repeated(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw(read_only=["die"])) as bench:
        outcome = await bench.call("raw_die")
        assert (outcome.status, outcome.result.error_code) == (CallStatus.ERROR, "mcp_server_lost")
        assert "it may be called again" in outcome.result.text


@pytest.mark.usefixtures("needs_process")
async def test_the_answer_of_a_server_that_dies_right_after_it_is_kept(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        for _ in range(3):
            bench.sources.restart("raw")
            await bench.until(lambda: bench.sources.states["raw"].state != "ready")
            assert (await bench.call("raw_die_after_answer", text="last words")).result.text == "last words"


@pytest.mark.usefixtures("needs_process")
async def test_a_call_that_hangs_ends_in_its_time_and_the_server_is_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--journal", str(journal), timeout=2)) as bench:
        with anyio.fail_after(5):
            outcome = await bench.call("raw_hang")
        assert (outcome.status, outcome.result.error_code) == (CallStatus.TIMEOUT, "timeout")
        assert (await bench.call("raw_echo", text="next")).result.text == "next"
        await bench.until(lambda: "notifications/cancelled" in journal.read_text())


@pytest.mark.usefixtures("needs_process")
async def test_a_cancelled_call_is_cancelled_at_the_server_and_its_neighbour_goes_on(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--journal", str(journal))) as bench:
        executor = bench.box.executor
        outcomes = {}

        async def call(name: str, **arguments: str) -> None:
            outcomes[name] = await executor.call(ToolCall(name, arguments, call_id=name))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "raw_hang")
            await bench.until(lambda: '"hang"' in journal.read_text())
            tasks.start_soon(lambda: call("raw_slow", text="mine"))
            executor.cancel("raw_hang")
        assert outcomes["raw_hang"].status is CallStatus.CANCELLED
        assert outcomes["raw_slow"].result.text == "mine"
        await bench.until(lambda: "notifications/cancelled" in journal.read_text())
        [cancel] = [json.loads(line) for line in journal.read_text().splitlines() if "cancelled" in line]
        [hang] = [json.loads(line) for line in journal.read_text().splitlines() if '"hang"' in line]
        assert cancel["params"]["requestId"] == hang["id"]


@pytest.mark.usefixtures("needs_process")
async def test_what_is_no_message_is_left_out(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        assert (await bench.call("raw_noise")).result.text == "still here"


@pytest.mark.usefixtures("needs_process")
async def test_an_answer_of_a_hundred_megabytes_fails_its_call_alone(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw(timeout=60)) as bench:
        outcome = await bench.call("raw_huge", size=100 << 20)
        assert outcome.result.error_code == "answer_too_large"
        assert "has run it" in outcome.result.text
        assert (await bench.call("raw_echo", text="on")).result.text == "on"


@pytest.mark.usefixtures("needs_process")
async def test_a_server_that_writes_only_garbage_is_given_up(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw("--garbage", start_timeout=5)) as bench:
        state = bench.sources.states["raw"]
        assert state.state == "unavailable"
        assert "not MCP" in state.reason


@pytest.mark.usefixtures("needs_process")
async def test_another_version_of_the_protocol_is_refused_at_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--version", "1999-01-01", "--journal", str(journal))) as bench:
        state = bench.sources.states["raw"]
        assert state.state == "unavailable"
        assert "speaks another version of the protocol: 1999-01-01" in state.reason
    assert journal.read_text().count("started") == 1, "it would be no better the second time"


@pytest.mark.usefixtures("needs_process")
async def test_a_server_that_reads_nothing_more_is_ended_and_started_again(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw(timeout=3)) as bench:
        assert (await bench.call("raw_deaf")).result.text == "what?"
        with anyio.fail_after(10):
            stuck = await bench.call("raw_echo", text="x" * (1 << 20))
        assert stuck.status in {CallStatus.TIMEOUT, CallStatus.UNKNOWN}
        assert (await bench.call("raw_echo", text="heard")).result.text == "heard"


@pytest.mark.usefixtures("needs_process")
async def test_a_server_that_speaks_only_the_newest_form_of_the_protocol_is_understood(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw("--modern")) as bench:
        assert (await bench.call("raw_echo", text="modern")).result.text == "modern"
        assert (await bench.call("raw_refuse")).result.error_code == "mcp_refused"
        await bench.call("raw_change")
        await bench.until(lambda: bench.names() == ["raw_brand_new", "raw_echo"])


@pytest.mark.usefixtures("needs_process")
async def test_progress_is_shown_and_cleaned(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        with bench.box.events.subscribe() as events:
            assert (await bench.call("raw_steps")).result.text == "done"
            shown = [event.text for event in events.drain() if isinstance(event, ToolCallProgress)]
        assert shown[0] == "1/3 step [2J1\n"


@pytest.mark.usefixtures("needs_process")
async def test_what_a_server_asks_its_client_is_declined(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        said = json.loads((await bench.call("raw_ask")).result.text)
        assert said["elicitation/create"] == {"action": "decline"}
        assert "not supported" in said["sampling/createMessage"]["message"]
        assert "not supported" in said["roots/list"]["message"]


@pytest.mark.usefixtures("needs_process")
async def test_a_server_knows_nothing_of_our_environment_but_what_it_is_given(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from-a-file\n")
    secret.chmod(0o600)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "HARNESS_TARGET": "ssh://web1",
        "SSH_AUTH_SOCK": "/run/agent",
        "TOKEN": "t0ken",
        "SHELL": "() { :; }",
    }
    extras = {"A": "plain", "B": "x-${TOKEN}", "C": f"${{file:{secret}}}", "D": "${MISSING:-default}"}
    async with workbench(tmp_path, raw(env=extras), environ=environ) as bench:
        seen = json.loads((await bench.call("raw_environ")).result.text)
    seen.pop("LC_CTYPE", None)  # the interpreter sets it
    assert {name: seen.pop(name) for name in extras} == {
        "A": "plain",
        "B": "x-t0ken",
        "C": "from-a-file",
        "D": "default",
    }
    assert seen == {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}


@pytest.mark.usefixtures("needs_process")
async def test_a_server_ends_with_everything_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--journal", str(journal))) as bench:
        assert (await bench.call("raw_grandchild", file=str(pids))).result.text == "started"
        grandchild = int(pids.read_text())
        server = json.loads(journal.read_text().splitlines()[0])["started"]
        assert alive(grandchild)
        assert os.getpgid(server) == server != os.getpgid(0)
    assert not Path(f"/proc/{server}").exists(), "it is not even a zombie"
    await eventually(lambda: not alive(grandchild) and not alive(server))


@pytest.mark.usefixtures("needs_process")
async def test_what_a_dead_server_started_does_not_outlive_it(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    async with workbench(tmp_path, raw()) as bench:
        await bench.call("raw_grandchild", file=str(pids))
        grandchild = int(pids.read_text())
        assert (await bench.call("raw_die")).status is CallStatus.UNKNOWN, "noticed though its pipes are still held"
        await eventually(lambda: not alive(grandchild))
        assert (await bench.call("raw_echo", text="new")).result.text == "new"


@pytest.mark.usefixtures("needs_process")
async def test_two_servers_work_at_once_and_their_answers_are_not_mixed(tmp_path: Path) -> None:
    both = [raw(name="one", parallelizable=True), raw(name="two", parallelizable=True)]
    async with workbench(tmp_path, *both) as bench:
        calls = [ToolCall(f"{name}_slow", {"text": f"{name} {n}"}) for n in range(4) for name in ("one", "two")]
        outcomes = await bench.box.executor.batch(calls)
        assert [outcome.result.text for outcome in outcomes] == [call.arguments["text"] for call in calls]
        await bench.call("one_die")
        assert (await bench.call("two_echo", text="alive")).result.text == "alive"


@pytest.mark.usefixtures("needs_process")
async def test_tools_that_change_replace_the_old_ones_as_a_whole(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        await bench.call("raw_change")
        await bench.until(lambda: bench.names() == ["raw_brand_new", "raw_echo"])
        assert (await bench.call("raw_brand_new")).result.text == "brand_new"
        assert (await bench.call("raw_steps")).result.error_code == "unknown_tool"


@pytest.mark.usefixtures("needs_process")
async def test_names_that_meet_after_cleaning_stay_apart(tmp_path: Path) -> None:
    odd = ["a.b", "a/b", "a_b", "ü", "x" * 100]
    async with workbench(tmp_path, raw("--tools", "echo", "--extra", *odd)) as bench:
        registry = bench.box.executor.registry
        remote = {tool.name: getattr(tool, "remote_name", "") for tool in registry.list()}
        assert sorted(remote.values()) == sorted(["echo", *odd])
        assert {name: own for name, own in remote.items() if own in ("echo", "a_b")} == {
            "raw_echo": "echo",
            "raw_a_b": "a_b",
        }
        for name, own in remote.items():
            if own != "echo":
                assert (await bench.call(name)).result.text == own


@pytest.mark.usefixtures("needs_process")
async def test_tools_whose_names_cannot_be_told_are_left_out_with_a_word(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw("--tools", "echo", "--extra", "two words", "a\u202eb")) as bench:
        assert bench.names() == ["raw_echo"]
        assert len([notice for notice in bench.notices if "an invalid name" in notice]) == 2


@pytest.mark.usefixtures("needs_process")
async def test_a_name_that_is_taken_is_an_error_that_says_so_and_the_first_tool_stays(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw("--tools", "echo", name="one", lazy=True)) as bench:
        registry = bench.box.executor.registry
        taken = registry.lookup("one_echo")
        async with workbench(tmp_path / "other", raw("--twice", name="two")) as twice:
            assert "lists the tool 'echo' twice" in twice.sources.states["two"].reason
        registry.remove_source("mcp:one")
        registry.register(taken, "builtin")
        bench.sources.restart("one")
        await bench.until(lambda: bench.sources.states["one"].state == "unavailable")
        assert "a tool is already called 'one_echo'" in bench.sources.states["one"].reason
        assert registry.source_of("one_echo") == "builtin"


@pytest.mark.usefixtures("needs_process")
async def test_two_servers_of_one_name_are_refused_before_either_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 servers have the name 'raw': test and test"):
        async with workbench(tmp_path, raw("--tools", "echo"), raw("--tools", "other")):
            raise AssertionError
    async with workbench(tmp_path, raw("--tools", "echo")) as bench:
        with pytest.raises(ConfigError, match="the tools of a server 'raw' are already registered"):
            async with open_sources(bench.box.executor.registry, [raw("--tools", "other")], directory=tmp_path):
                raise AssertionError
        assert bench.names() == ["raw_echo"]


@pytest.mark.usefixtures("needs_process")
async def test_several_registries_have_the_tools_of_one_server(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--journal", str(journal))) as bench:
        second, third = toolbox([]), toolbox([])
        third.executor.registry.register(bench.box.executor.registry.lookup("raw_echo"), "builtin")
        with (
            bench.sources.attached(second.executor.registry),
            bench.sources.attached(third.executor.registry),
        ):
            outcome = await second.executor.call(ToolCall("raw_echo", {"text": "second"}))
            assert outcome.result.text == "second"
            assert [tool.name for tool in third.executor.registry.list()] == ["raw_echo"], "a name is taken there"
            assert "a tool is already called 'raw_echo'" in bench.notices[0]
            await bench.call("raw_change")
            changed = ["raw_brand_new", "raw_echo"]
            await bench.until(lambda: [tool.name for tool in second.executor.registry.list()] == changed)
            assert [tool.name for tool in third.executor.registry.list()] == ["raw_echo"]
            assert bench.sources.states["raw"].state == "ready"
        assert second.executor.registry.list() == []
    assert journal.read_text().count("started") == 1


@pytest.mark.usefixtures("needs_process")
async def test_a_pinned_program_starts_and_another_in_its_place_does_not(tmp_path: Path) -> None:
    program = tmp_path / "bin/server"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/started\nexec {sys.executable} {SERVERS}/raw.py\n")
    program.chmod(0o755)
    (tmp_path / "link").symlink_to(program)
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    config = server_config("x", {"command": str(tmp_path / "link"), "program_sha256": f"sha256:{digest}"}, "test")
    async with workbench(tmp_path, config) as bench:
        assert (await bench.call("x_echo", text="pinned")).result.text == "pinned"
        program.write_text(program.read_text() + "#\n")
        bench.sources.restart("x")
        await bench.until(lambda: bench.sources.states["x"].state == "unavailable")
        assert "is not the pinned program: its SHA-256 is" in bench.sources.states["x"].reason
    assert (tmp_path / "started").read_text() == "\n"


async def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    async with workbench(tmp_path, server_config("x", {"command": "no-such-program"}, "test")) as bench:
        assert "program 'no-such-program' not found" in bench.sources.states["x"].reason


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_ends_when_harness_ends(tmp_path: Path, number: signal.Signals) -> None:
    """A killed harness closes its pipes, and a server that reads them ends."""
    journal = tmp_path / "journal"
    script = (
        "import anyio, os, pathlib, sys\n"
        "from tests.support.mcp_servers import raw, workbench\n"
        "async def main():\n"
        f"    async with workbench(pathlib.Path({str(tmp_path)!r}), raw('--journal', {str(journal)!r})):\n"
        "        print('ready', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    async with await anyio.open_process([sys.executable, "-c", script], cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        with anyio.fail_after(30):
            assert (await process.stdout.receive()).startswith(b"ready")
        server = json.loads(journal.read_text().splitlines()[0])["started"]
        process.send_signal(number)
        await process.wait()
    await eventually(lambda: not alive(server))
