"""Conversations on the disk: what is written is there, for one process at a time, and nobody else sees it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agent.settings import AgentSettings, agent_settings_of
from harness.agent.storage import (
    ConversationInUse,
    ConversationNotFound,
    ConversationRetention,
    ConversationStore,
    MemoryLog,
    NewConversation,
)
from harness.agent.storage.document import parsed
from harness.agent.storage.rows import title_of
from harness.agent.storage.values import is_session_id, new_session_id, normalize_id_prefix
from harness.errors import ConfigError, HarnessError
from harness.settings import SettingsTable

START = NewConversation(
    target="ssh://web1", identity="ssh://web1", tmux="harness", model="claude", options={"ssh": "web1"}
)
TEXTS = ('{"kind":"request"}', '{"text":"half of a pair: \ud83d, a NUL: \0, ünï"}', '{"three":3}')


@pytest.fixture
def store(tmp_path: Path) -> ConversationStore:
    return ConversationStore(tmp_path / "sessions")


async def begun(store: ConversationStore, *prompts: str, start: NewConversation = START) -> str:
    """A conversation with one turn for each prompt."""
    session_id = (await store.create(start)).session_id
    async with store.writing(session_id) as log:
        for number, prompt in enumerate(prompts):
            await log.turn_started(f"t{number}", prompt)
            await log.append([json.dumps({"said": prompt})])
            await log.turn_ended(f"t{number}", "completed", {"input_tokens": 7})
    return session_id


# -- ids and titles


def test_ids_are_short_and_whatever_is_typed_of_one_finds_it() -> None:
    session_id = new_session_id()
    assert is_session_id(session_id)
    assert len(session_id) == 14
    for text in (session_id, session_id.upper(), session_id.replace("-", ""), f" {session_id} "):
        assert normalize_id_prefix(text) == session_id
    assert normalize_id_prefix(session_id[:6]) == session_id[:6]
    assert normalize_id_prefix("O1Il-a") == "0111-a"
    for text in ("", "-", "../../etc", "k3f9\0", "a" * 13, "uuuu"):
        assert normalize_id_prefix(text) is None
    for text in ("k3f9-02mx", "../x", "k3f9-02mx-7yqa\n", "K3F9-02MX-7YQA"):
        assert not is_session_id(text)


@given(st.text())
def test_no_text_makes_a_prefix_that_is_no_beginning_of_an_id(text: str) -> None:
    prefix = normalize_id_prefix(text)
    assert prefix is None or is_session_id(prefix + "0000-0000-0000"[len(prefix) :])


def test_a_title_is_the_first_line_of_a_prompt() -> None:
    assert title_of("\n  why is it full?  \nlook") == "why is it full?"
    assert title_of(" \n") == ""
    assert len(title_of("x" * 500)) == 100


# -- what is written is there


async def test_what_was_handed_over_is_loaded_exactly(store: ConversationStore) -> None:
    summary = await store.create(START)
    async with store.writing(summary.session_id) as log:
        await log.turn_started("t1", "one\ntwo \ud800", "jobs")
        await log.append(TEXTS)
        await log.noted("model", "other")
        during = await store.load(summary.session_id)
    assert during.messages == TEXTS
    assert during.unfinished is not None
    assert (during.unfinished.prompt, during.unfinished.origin) == ("one\ntwo \ud800", "jobs")
    assert during.session.title == "one"
    assert during.session.unfinished
    async with store.writing(summary.session_id) as log:
        await log.turn_ended("t1", "cancelled", {"cost": 0.25})
        await log.append(["{}"])
    stored = await store.load(summary.session_id)
    assert stored.unfinished is None
    assert (stored.turns[0].status, stored.turns[0].usage) == ("cancelled", {"cost": 0.25})
    assert [(note.kind, note.text) for note in stored.notes] == [("model", "other")]
    assert (stored.session.messages, stored.session.turns, stored.session.model) == (4, 1, "other")
    assert stored.session.options == {"ssh": "web1"}


async def test_replaced_messages_count_no_more_and_stay_on_the_disk(store: ConversationStore, tmp_path: Path) -> None:
    session_id = await begun(store, "one", "two")
    async with store.writing(session_id) as log:
        await log.replaced(['{"short":1}'], "the summary")
        await log.append(['{"next":1}'])
    stored = await store.load(session_id)
    assert stored.messages == ('{"short":1}', '{"next":1}')
    assert stored.session.messages == 2
    assert [(note.kind, note.text) for note in stored.notes] == [("compacted", "the summary")]
    with sqlite3.connect(tmp_path / "sessions/sessions.db") as db:
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (4,)
    db.close()


async def test_a_cancelled_writer_has_written(store: ConversationStore) -> None:
    session_id = (await store.create(START)).session_id
    async with store.writing(session_id) as log:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.append(["{}"])
        await log.append(['{"second":2}'])
    assert (await store.load(session_id)).messages == ("{}", '{"second":2}')


async def test_what_can_never_be_kept_holds_nothing_else_up(store: ConversationStore) -> None:
    session_id = (await store.create(START)).session_id
    async with store.writing(session_id) as log:
        await log.turn_started("t1", "do it")
        log.note("kind", "before")
        with pytest.raises(TypeError):
            await log.turn_ended("t1", "completed", {"cost": object()})  # type: ignore[dict-item]  # that is the point
        await log.append(["{}"])
        await log.turn_ended("t1", "failed")
    stored = await store.load(session_id)
    assert (stored.messages, stored.turns[0].status, stored.notes[0].text) == (("{}",), "failed", "before")


async def test_many_writers_at_once_keep_the_order_of_each(store: ConversationStore) -> None:
    session_id = (await store.create(START)).session_id
    async with store.writing(session_id) as log, anyio.create_task_group() as group:

        async def write(name: int) -> None:
            for number in range(20):
                await log.append([json.dumps([name, number])])

        for name in range(4):
            group.start_soon(write, name)
    found = [json.loads(text) for text in (await store.load(session_id)).messages]
    for name in range(4):
        assert [number for who, number in found if who == name] == list(range(20))


async def test_a_log_in_memory_keeps_the_same() -> None:
    log = MemoryLog()
    await log.turn_started("t1", "do it")
    await log.append(["{}"])
    await log.replaced(["[]"], "short")
    await log.turn_ended("t1", "completed", {"cost": 1})
    assert log.messages == ["[]"]
    assert [(turn.prompt, turn.status, turn.usage) for turn in log.turns] == [("do it", "completed", {"cost": 1})]
    assert [(note.kind, note.text) for note in log.notes] == [("compacted", "short")]


# -- one process at a time, and nobody else


OTHER = """
import anyio, sys
from pathlib import Path
from harness.agent.storage import ConversationStore
async def main():
    async with ConversationStore(Path(sys.argv[1])).writing(sys.argv[2]):
        print("open", flush=True)
        input()
anyio.run(main)
"""


@contextmanager
def another_process(directory: Path, session_id: str) -> Iterator[subprocess.Popen[str]]:
    """One that has the conversation open."""
    argv = [sys.executable, "-c", OTHER, str(directory), session_id]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            yield other
        finally:
            other.kill()


@pytest.mark.usefixtures("needs_process")
async def test_a_second_writer_is_refused_and_told_who_the_first_is(store: ConversationStore, tmp_path: Path) -> None:
    session_id = await begun(store, "one")
    with another_process(tmp_path / "sessions", session_id) as other:
        with pytest.raises(ConversationInUse, match=f"{session_id} is open in process {other.pid} "):
            async with store.writing(session_id):
                raise AssertionError
        with pytest.raises(ConversationInUse):
            await store.delete(session_id)
        assert await store.prune(ConversationRetention(max_age=0, least=0)) == 0
    async with store.writing(session_id) as log:
        await log.append(["{}"])
        with pytest.raises(ConversationInUse):
            async with store.writing(session_id):
                raise AssertionError
    assert list((tmp_path / "sessions/locks").iterdir()) == []


async def test_only_its_owner_can_look_into_the_files(store: ConversationStore, tmp_path: Path) -> None:
    session_id = await begun(store, "one")
    directory = tmp_path / "sessions"
    async with store.writing(session_id) as log:
        await log.append(["{}"])
        paths = [directory, *directory.rglob("*")]
        assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
        assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}
    directory.chmod(0o755)
    with pytest.raises(HarnessError, match="other users may look into it"):
        await store.list()
    with pytest.raises(HarnessError, match="other users may look into it"):
        await store.create(START)


async def test_nothing_is_made_before_the_first_conversation(store: ConversationStore, tmp_path: Path) -> None:
    assert await store.list() == ()
    assert await store.last() is None
    with pytest.raises(ConversationNotFound):
        await store.find("abcd")
    with pytest.raises(ConversationNotFound):
        await store.load("abcd-abcd-abcd")
    with pytest.raises(ConversationNotFound):
        await store.delete("abcd-abcd-abcd")
    assert not (tmp_path / "sessions").exists()


@pytest.mark.parametrize("session_id", ["../../x", "", "k3f9", "0000-0000-0000"])
async def test_no_file_is_locked_for_what_is_no_conversation(
    session_id: str, store: ConversationStore, tmp_path: Path
) -> None:
    await begun(store, "one")
    with pytest.raises(ConversationNotFound):
        async with store.writing(session_id):
            raise AssertionError
    assert list((tmp_path / "sessions/locks").iterdir()) == []


# -- finding, renaming, removing


async def test_conversations_are_listed_and_found(store: ConversationStore) -> None:
    first = await begun(store, "why is the DISK full?")
    second = await begun(store, "restart it", start=NewConversation(target="local:", identity="local:"))
    assert [one.session_id for one in await store.list()] == [second, first]
    assert [one.session_id for one in await store.list(identity="ssh://web1")] == [first]
    assert [one.session_id for one in await store.list(text="disk")] == [first]
    assert [one.session_id for one in await store.list(limit=1)] == [second]
    assert (await store.find(first[:9].upper())).session_id == first
    last = await store.last("ssh://web1")
    assert last is not None
    assert last.session_id == first
    renamed = await store.rename(first, " the  disk ")
    assert renamed.name == "the disk"
    assert (await store.find("the disk")).session_id == first
    with pytest.raises(HarnessError, match="another conversation has the name 'the disk'"):
        await store.rename(second, "the disk")
    with pytest.raises(ConversationNotFound, match="conversation 'nothing' not found"):
        await store.find("nothing")
    with pytest.raises(ConversationNotFound):
        await store.find("")


async def test_the_last_conversation_is_the_one_that_was_worked_on_last_whatever_the_clock_says(
    store: ConversationStore, tmp_path: Path
) -> None:
    first, second = await begun(store, "one"), await begun(store, "two")
    with sqlite3.connect(tmp_path / "sessions/sessions.db") as db:
        db.execute("UPDATE sessions SET changed = changed + 86400 WHERE session_id = ?", (first,))  # it was set back
    db.close()
    await store.create(START)  # a prompt that nobody typed anything at
    for found in (await store.last(), await store.last("ssh://web1"), await store.last(target="ssh://web1")):
        assert found is not None
        assert found.session_id == second
    assert await store.last("ssh://web2") is None
    assert await store.last(target="ssh://web2") is None


async def test_an_ambiguous_beginning_names_what_it_could_be(
    store: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["aaaa-bbbb-0001", "aaaa-bbbb-0002"])
    monkeypatch.setattr("harness.agent.storage.store.new_session_id", lambda: next(ids))
    await begun(store, "one")
    await begun(store, "two")
    with pytest.raises(ConversationNotFound, match=r"'aaaa' matches 2.*aaaa-bbbb-0002, aaaa-bbbb-0001"):
        await store.find("aaaa")
    assert (await store.find("aaaabbbb0002")).title == "two"


async def test_a_deleted_conversation_is_gone_from_the_disk(store: ConversationStore, tmp_path: Path) -> None:
    gone, kept = await begun(store, "unmistakable words"), await begun(store, "others")
    await store.delete(gone)
    with pytest.raises(ConversationNotFound):
        await store.load(gone)
    assert [one.session_id for one in await store.list()] == [kept]
    data = b"".join(path.read_bytes() for path in (tmp_path / "sessions").iterdir() if path.is_file())
    assert b"unmistakable" not in data
    assert b"others" in data


async def test_what_is_too_old_or_too_much_goes_the_oldest_first(store: ConversationStore) -> None:
    ids = [await begun(store, "x" * 1000 + str(number)) for number in range(5)]
    assert await store.prune(ConversationRetention()) == 0
    assert await store.prune(ConversationRetention(max_bytes=2500)) == 3
    assert [one.session_id for one in await store.list()] == [ids[4], ids[3]]
    assert await store.prune(ConversationRetention(max_age=-1)) == 0
    async with store.writing(ids[3]):
        assert await store.prune(ConversationRetention(max_age=-1, least=0)) == 1
    assert [one.session_id for one in await store.list()] == [ids[3]]


def test_the_settings_say_how_much_is_kept() -> None:
    def of(**values: object) -> AgentSettings:
        return agent_settings_of([SettingsTable("file", values)])

    kept = of(conversations_max_age="90d", conversations_max_bytes="256MiB")
    assert (kept.conversations_max_age, kept.conversations_max_bytes) == (90 * 86400.0, 256 << 20)
    for name, value in (
        *(("conversations_max_age", "soon"), ("conversations_max_age", 5), ("conversations_max_age", [1])),
        *(("conversations_max_bytes", "1k"), ("conversations_max_bytes", True), ("conversations_max_bytes", -5)),
    ):
        with pytest.raises(ConfigError, match=f"file: agent.{name}: "):
            of(**{name: value})


async def test_ten_thousand_conversations_are_listed_at_once(store: ConversationStore, tmp_path: Path) -> None:
    await begun(store, "the first")
    columns = "created, changed, target, identity, tmux, pane, model, name, title, options"
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
    with sqlite3.connect(tmp_path / "sessions/sessions.db") as db:
        db.execute(
            f"{numbers} INSERT INTO sessions (session_id, {columns})"
            " SELECT 'x' || i, i, i, 'ssh://web1', 'ssh://web1', '', '', '', '', 'title ' || i, '{}' FROM n"
        )
    db.close()
    with anyio.fail_after(60):
        assert len(await store.list()) == 10_001
        assert len(await store.list(limit=20)) == 20


# -- damage


async def test_a_damaged_file_is_left_as_it_is_and_named(store: ConversationStore, tmp_path: Path) -> None:
    session_id = await begun(store, *(f"prompt {number}" for number in range(200)))
    path = tmp_path / "sessions/sessions.db"
    data = path.read_bytes()
    for damaged in (b"no database at all\n" * 500, data[:4096] + b"\xff" * (len(data) - 8192) + data[-4096:]):
        path.write_bytes(damaged)
        for attempt in (lambda: store.load(session_id), lambda: store.create(START), lambda: store.delete(session_id)):
            with pytest.raises(HarnessError, match="the file is damaged") as refused:
                await attempt()
            assert f"move {path} away" in refused.value.hint
        assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sessions SET created = 1e300",
        "UPDATE sessions SET changed = 'soon'",
        "UPDATE sessions SET title = CAST(x'c328ff' AS TEXT)",
        "UPDATE sessions SET name = x'c328ff'",
        "UPDATE sessions SET name = 5.5 WHERE 0; UPDATE sessions SET turns = 'many'",
        "UPDATE sessions SET options = '[]'",
        "UPDATE turns SET origin = 'nobody'",
        "UPDATE turns SET status = 'odd'",
        "UPDATE turns SET started = -1",
        "UPDATE turns SET usage = replace(hex(zeroblob(100000)), '0', '[')",
        "UPDATE notes SET at = 'x'",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = -1",
    ],
)
async def test_what_nobody_wrote_into_the_database_is_called_damage(
    change: str, store: ConversationStore, tmp_path: Path
) -> None:
    session_id = await begun(store, "one")
    async with store.writing(session_id) as log:
        await log.noted("kind", "text")
    db = sqlite3.connect(tmp_path / "sessions/sessions.db")
    db.executescript(change)
    db.close()
    with pytest.raises(HarnessError, match="is damaged"):
        await store.load(session_id)


async def test_a_log_whose_database_was_emptied_is_not_removed(store: ConversationStore, tmp_path: Path) -> None:
    session_id = await begun(store, "one")
    directory, copy = tmp_path / "sessions", tmp_path / "copy"
    async with store.writing(session_id) as log:
        await log.append(["{}"])
        shutil.copytree(directory, copy)
    (copy / "sessions.db").write_bytes(b"")
    kept = (copy / "sessions.db-wal").read_bytes()
    other = ConversationStore(copy)
    for attempt in (other.list, lambda: other.create(START)):
        with pytest.raises(HarnessError, match=r"the file is damaged .it is empty, and its log is not"):
            await attempt()
    assert (copy / "sessions.db-wal").read_bytes() == kept


async def test_the_database_of_a_newer_harness_is_not_touched(store: ConversationStore, tmp_path: Path) -> None:
    await begun(store, "one")
    with sqlite3.connect(tmp_path / "sessions/sessions.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    for attempt in (store.list, lambda: store.create(START)):
        with pytest.raises(HarnessError, match="a newer harness made it"):
            await attempt()


# -- export and import


async def test_an_exported_conversation_can_be_imported_anywhere(store: ConversationStore, tmp_path: Path) -> None:
    session_id = await begun(store, "one \ud800", "two")
    async with store.writing(session_id) as log:
        await log.append([TEXTS[1].replace("\0", "")])
        await log.turn_started("t9", "unfinished")
        await log.noted("paused", "by a person")
    document = await store.exported(session_id)
    assert document.isascii()
    other = ConversationStore(tmp_path / "other")
    imported = await other.imported(document)
    before, after = await store.load(session_id), await other.load(imported.session_id)
    assert imported.session_id != session_id
    assert [json.loads(text) for text in after.messages] == [json.loads(text) for text in before.messages]
    assert (after.turns, after.notes) == (before.turns, before.notes)
    assert (after.session.target, after.session.tmux, after.session.title) == ("ssh://web1", "harness", "one \ud800")
    assert after.unfinished == before.unfinished
    again = await other.imported(document)
    assert again.session_id not in (session_id, imported.session_id)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda doc: {}, "not a harness conversation"),
        (lambda doc: {**doc, "format": "another"}, "not a harness conversation"),
        (lambda doc: {**doc, "version": 2}, "a newer harness wrote the document"),
        (lambda doc: {**doc, "version": "1"}, "damaged: version"),
        (lambda doc: {**doc, "more": 1}, "damaged: more"),
        (lambda doc: {**doc, "messages": ["text"]}, "damaged: messages.0"),
        (lambda doc: {**doc, "turns": [{**doc["turns"][0], "status": "odd"}]}, "damaged: turns.0.status"),
        (lambda doc: {**doc, "session": {**doc["session"], "target": 1}}, "damaged: session.target"),
        (lambda doc: [doc], "not a harness conversation"),
    ],
)
async def test_what_is_no_document_of_ours_is_refused(change: object, said: str, store: ConversationStore) -> None:
    document = json.loads(await store.exported(await begun(store, "one")))
    with pytest.raises(HarnessError, match=said):
        await store.imported(json.dumps(change(document)))  # type: ignore[operator]  # each is a function
    assert len(await store.list()) == 1


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_text_breaks_the_reader_of_documents(text: str) -> None:
    with pytest.raises(HarnessError, match="the document"):
        parsed(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": "harness conversation", "version": 1'])
def test_a_nested_or_cut_document_is_refused(text: str) -> None:
    with pytest.raises(HarnessError, match="the document is not JSON"):
        parsed(text)
