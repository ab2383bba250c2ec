"""Servers that end, are slow, or change: what is listed meanwhile, and what a call gets."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import anyio
import pytest
from tests.support.mcp_servers import QUICK, Workbench, eventually, raw, workbench

from harness.errors import ConfigError
from harness.mcp.client.configuration import ServerConfig
from harness.mcp.client.definitions import DefinitionStore
from harness.mcp.client.session import RestartPolicy
from harness.toolkit.values import CallStatus


def starts(journal: Path) -> int:
    """How often a server was started."""
    return journal.read_text().count('"started"') if journal.exists() else 0


def record(directory: Path) -> Path:
    """The file in which a server is known."""
    [file] = (directory / "state").glob("*.json")
    return file


@pytest.mark.usefixtures("needs_process")
async def test_a_server_that_keeps_dying_is_given_up_and_comes_back_when_asked(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--journal", str(journal))) as bench:
        for _ in range(4):
            assert (await bench.call("raw_die")).status is CallStatus.UNKNOWN
        await bench.until(lambda: bench.sources.states["raw"].state == "unavailable")
        state = bench.sources.states["raw"]
        assert "killed by signal 9" in state.reason
        assert starts(journal) == 4, "the first start and three more"
        assert "raw_echo" in bench.names(), "its tools stay listed"
        outcome = await bench.call("raw_echo", text="x")
        assert (outcome.status, outcome.result.error_code) == (CallStatus.ERROR, "mcp_server_unavailable")
        assert "killed by signal 9" in outcome.result.text
        assert "nothing was run" in outcome.result.text
        assert starts(journal) == 4
        bench.sources.restart("raw")
        assert (await bench.call("raw_echo", text="back")).result.text == "back"
        assert starts(journal) == 5


@pytest.mark.usefixtures("needs_process")
async def test_a_call_after_the_window_tries_again_by_itself(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    rules = RestartPolicy(restarts=1, window=0.5, backoff=0.01)
    async with workbench(tmp_path, raw("--journal", str(journal)), rules=rules) as bench:
        await bench.call("raw_die")
        await bench.call("raw_die")
        await bench.until(lambda: bench.sources.states["raw"].state == "unavailable")
        with anyio.fail_after(10):
            while (await bench.call("raw_echo", text="back")).result.text != "back":  # noqa: ASYNC110  # a clock decides
                await anyio.sleep(0.02)
        assert starts(journal) == 3


@pytest.mark.usefixtures("needs_process")
async def test_a_server_that_cannot_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with workbench(tmp_path, raw("--crash", "--journal", str(journal))) as bench:
        reason = bench.sources.states["raw"].reason
        assert "ended with exit code 3" in reason
        assert "it said: cannot open the database[31m" in reason
        assert "\x1b" not in reason
        assert starts(journal) == 4
        assert bench.names() == []
        assert any("is unavailable" in notice for notice in bench.notices)


@pytest.mark.usefixtures("needs_process")
async def test_a_server_that_never_answers_is_given_up_after_its_time(tmp_path: Path) -> None:
    rules = RestartPolicy(restarts=0)
    async with workbench(tmp_path, raw("--silent", start_timeout=0.5), rules=rules) as bench:
        assert "did not answer within 0.5 s" in bench.sources.states["raw"].reason


@pytest.mark.usefixtures("needs_process")
async def test_a_slow_server_holds_up_neither_the_start_nor_a_lookup_nor_its_neighbour(tmp_path: Path) -> None:
    slow, quick = raw("--slow-start", "30", name="slow", start_timeout=60), raw(name="quick")
    with anyio.fail_after(10):
        async with workbench(tmp_path, slow, quick, wait=False) as bench:
            assert bench.box.executor.registry.get("slow_echo") is None
            await bench.until(lambda: "quick_echo" in bench.names())
            assert (await bench.call("quick_echo", text="here")).result.text == "here"
            assert not await bench.sources.wait_listed(0.01)


@pytest.mark.usefixtures("needs_process")
async def test_what_is_known_from_the_last_time_is_listed_at_once_and_calls_wait_for_the_server(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        names = bench.names()
    file = record(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    async with workbench(tmp_path, raw(), wait=False) as bench:
        assert bench.names() == names
        assert bench.sources.states["raw"].state == "starting"
        assert (await bench.call("raw_echo", text="soon")).result.text == "soon"


@pytest.mark.usefixtures("needs_process")
async def test_a_lazy_server_that_is_known_starts_with_the_first_call(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    lazy = raw("--journal", str(journal), lazy=True)
    async with workbench(tmp_path, lazy) as bench:
        assert starts(journal) == 1, "nothing was known of it"
    async with workbench(tmp_path, lazy) as bench:
        assert "raw_echo" in bench.names()
        assert bench.sources.states["raw"].state == "idle"
        assert starts(journal) == 1
        assert (await bench.call("raw_echo", text="up")).result.text == "up"
        assert starts(journal) == 2


@pytest.mark.usefixtures("needs_process")
async def test_what_is_known_of_a_server_is_not_taken_for_another_command(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()):
        pass
    async with workbench(tmp_path, raw("--slow-start", "20", start_timeout=60), wait=False) as bench:
        assert bench.names() == []


@pytest.mark.usefixtures("needs_process")
async def test_a_server_with_many_tools_in_small_pages_is_listed_and_known(tmp_path: Path) -> None:
    many = raw("--extra", *(f"t{number}" for number in range(1_200)))
    async with workbench(tmp_path, many) as bench:
        assert len(bench.names()) == 1_219
    async with workbench(tmp_path, many, wait=False) as bench:
        assert len(bench.names()) == 1_219
    async with workbench(tmp_path, raw("--extra", *(f"t{number}" for number in range(2_000)))) as bench:
        assert "lists more than 2000 tools" in bench.sources.states["raw"].reason


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("text", ["", "{", '{"version": 9}', '{"version": 1, "tools": [3], "accepted": {}}'])
async def test_a_damaged_record_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    async with workbench(tmp_path, raw()):
        pass
    record(tmp_path).write_text(text)
    async with workbench(tmp_path, raw()) as bench:
        await bench.until(lambda: bench.sources.states["raw"].state == "ready")
        assert (await bench.call("raw_echo", text="x")).result.text == "x"


# -- tools that change


def pinned(*arguments: str) -> ServerConfig:
    return raw(*arguments, pin_tools=True)


async def assert_disabled(bench: Workbench) -> None:
    registry = bench.box.executor.registry
    await bench.until(lambda: registry.lookup("raw_echo").schema["properties"] == {})
    tool = registry.lookup("raw_echo")
    assert "id_ed25519" not in tool.description, "the new text does not reach a model"
    outcome = await bench.call("raw_echo", text="x")
    assert (outcome.status, outcome.result.error_code) == (CallStatus.ERROR, "tool_changed")
    assert bench.sources.changed("raw") == ("echo",)


@pytest.mark.usefixtures("needs_process")
async def test_a_tool_whose_description_changes_is_disabled_until_it_is_accepted(tmp_path: Path) -> None:
    async with workbench(tmp_path, pinned()) as bench:
        assert (await bench.call("raw_echo", text="x")).result.text == "x"
        await bench.call("raw_poison")
        await bench.until(lambda: bench.sources.changed("raw") == ("echo",))
        await assert_disabled(bench)
        assert bench.notices == [
            "the tool raw_echo of server 'raw' is new or has changed; it is disabled until it is accepted"
        ]
        assert (await bench.call("raw_steps")).result.text == "done", "the others go on"
        await bench.sources.accept("raw", ["echo"])
        assert (await bench.call("raw_echo", text="y")).result.text == "y"
        assert "id_ed25519" in bench.box.executor.registry.lookup("raw_echo").description


@pytest.mark.usefixtures("needs_process")
async def test_a_tool_that_changed_between_two_runs_is_disabled_too(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\nexec {raw().reach.command[0].text} {raw().reach.command[1].text}\n")
    program.chmod(0o755)
    from harness.mcp.client.configuration import server_config

    config = server_config("raw", {"command": str(program), "pin_tools": True}, "test")
    async with workbench(tmp_path, config):
        pass
    program.write_text(program.read_text().rstrip() + " --poisoned\n")
    async with workbench(tmp_path, config) as bench:
        await bench.until(lambda: bench.sources.states["raw"].state == "ready")
        await assert_disabled(bench)
    async with workbench(tmp_path, config) as bench:
        await assert_disabled(bench)
        await bench.sources.accept("raw")
    async with workbench(tmp_path, config) as bench:
        assert (await bench.call("raw_echo", text="fine")).result.text == "fine"


@pytest.mark.usefixtures("needs_process")
async def test_what_another_harness_accepted_is_not_lost(tmp_path: Path) -> None:
    async with workbench(tmp_path, pinned()) as one:
        await one.call("raw_poison")
        await one.until(lambda: one.sources.changed("raw") == ("echo",))
        poisoned = next(item for item in one.sources.definitions("raw") if item.name == "echo")
        other = DefinitionStore(tmp_path / "state")
        await anyio.to_thread.run_sync(lambda: other.update(pinned(), lambda known: known.accepting([poisoned])))
        one.sources.restart("raw")
        await one.until(lambda: one.sources.states["raw"].state != "ready")
        await one.until(lambda: one.sources.states["raw"].state == "ready")
        assert one.sources.changed("raw") == ("echo",), "the server is as it was at first: not what was accepted now"
        await one.call("raw_poison")
        registry = one.box.executor.registry
        await one.until(lambda: registry.lookup("raw_echo").schema["properties"] != {})
        assert one.sources.changed("raw") == ()
        assert (await one.call("raw_echo", text="x")).result.text == "x"


@pytest.mark.usefixtures("needs_process")
async def test_a_tool_that_is_added_to_a_pinned_server_is_disabled(tmp_path: Path) -> None:
    async with workbench(tmp_path, pinned()) as bench:
        await bench.call("raw_change")
        await bench.until(lambda: bench.names() == ["raw_brand_new", "raw_echo"])
        assert bench.sources.changed("raw") == ("brand_new",)
        assert (await bench.call("raw_brand_new")).result.error_code == "tool_changed"
        assert (await bench.call("raw_echo", text="as before")).result.text == "as before"


@pytest.mark.usefixtures("needs_process")
async def test_without_pinned_tools_a_change_is_only_told(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw()) as bench:
        await bench.call("raw_poison")
        await bench.until(lambda: bool(bench.notices))
        assert bench.notices == ["the tool raw_echo of server 'raw' is new or has changed; its new definition is used"]
        assert (await bench.call("raw_echo", text="x")).result.text == "x"


@pytest.mark.usefixtures("needs_process")
async def test_with_a_damaged_record_nothing_of_a_pinned_server_counts_as_accepted(tmp_path: Path) -> None:
    async with workbench(tmp_path, pinned()):
        pass
    record(tmp_path).write_text("{")
    async with workbench(tmp_path, pinned()) as bench:
        assert (await bench.call("raw_echo", text="x")).result.error_code == "tool_changed"
        assert json.loads(record(tmp_path).read_text())["accepted"] == {}, "and it stays so"
    async with workbench(tmp_path, pinned()) as bench:
        assert (await bench.call("raw_echo", text="x")).result.error_code == "tool_changed"


@pytest.mark.usefixtures("needs_process")
async def test_an_unknown_server_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw(), raw(name="off", disabled=True)) as bench:
        with pytest.raises(ConfigError, match=r"unknown server 'off'.*there are: raw"):
            bench.sources.restart("off")


@pytest.mark.usefixtures("needs_process")
async def test_a_record_that_cannot_be_kept_is_told_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    async with workbench(tmp_path, raw()) as bench:
        assert (await bench.call("raw_echo", text="x")).result.text == "x"
        assert "cannot store" in bench.notices[0]
        with pytest.raises(ConfigError, match="cannot store"):
            await bench.sources.accept("raw")


@pytest.mark.usefixtures("needs_process")
async def test_closing_does_not_wait_for_a_server_that_ignores_everything(tmp_path: Path) -> None:
    async with workbench(tmp_path, raw(name="a"), raw(name="b")) as bench:
        await bench.call("a_grandchild", file=str(tmp_path / "a"))
        await bench.call("b_grandchild", file=str(tmp_path / "b"))
        began = anyio.current_time()
    assert anyio.current_time() - began < 5
    for name in "ab":
        pid = int((tmp_path / name).read_text())
        await eventually(lambda pid=pid: not _there(pid))


def _there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_rules_of_the_tests_differ_from_the_real_ones_in_the_pause_only() -> None:
    assert (QUICK.restarts, QUICK.window) == (RestartPolicy().restarts, RestartPolicy().window) == (3, 60.0)
