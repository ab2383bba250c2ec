"""Documents of conversations: what is damaged or hostile is refused as a whole, and what passes is the same again."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agent.messages.history import loaded
from harness.agent.storage import ConversationStore, InvalidDocument, NewConversation
from harness.agent.storage.document import parsed
from harness.agent.storage.recovery import jobs_left
from harness.agent.storage.values import IMPORTED
from harness.agent.stored_usage import SubagentLog, spent_in
from harness.agent.sub_agents import messages_of

START = NewConversation(
    target="ssh://web1", identity="ssh://web1", tmux="ops", pane="%3", model="claude", name="the disk"
)
REQUEST = '{"kind":"request","parts":[{"part_kind":"user-prompt","content":"hi","timestamp":"2026-01-02T03:04:05Z"}]}'
RESPONSE = '{"kind":"response","parts":[{"part_kind":"text","content":"yes \\ud83d\\ude00 NUL \\u0000"}]}'
USAGE = {"input_tokens": 7, "cost": 0.25, "cache_read_tokens": 0, "answers": 1}
Change = Callable[[dict[str, Any]], object]


async def conversation(store: ConversationStore) -> str:
    """A conversation with one of everything that is kept."""
    session_id = (await store.create(START)).session_id
    async with store.writing(session_id) as log:
        await log.turn_started("t1", "one \udc80")
        await log.append([REQUEST, RESPONSE])
        await log.turn_ended("t1", "completed", USAGE)
        helper = SubagentLog(log, f"{session_id}/explore-1")
        await helper.turn_started("s1", "look \udc80")
        await helper.append([REQUEST])
        await helper.turn_ended("s1", "completed", {**USAGE, "cost": None})
        await log.noted("job_left", "4")
        await log.noted("model", "other")
        await log.turn_started("t2", "two", "jobs")
        await log.replaced([REQUEST], "the summary")
        await log.append([RESPONSE])
    return session_id


async def exported(store: ConversationStore) -> str:
    return await store.exported(await conversation(store))


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """The document of a conversation with one of everything."""
    found: dict[str, Any] = json.loads(anyio.run(exported, ConversationStore(tmp_path / "first")))
    return found


def put(*path: str | int, value: object) -> Change:
    """Another value at that place."""

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


def subagent(**facts: object) -> str:
    return json.dumps({"agent": "a", "what": "messages", **facts})


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


def with_content(content: object) -> object:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": content, "timestamp": "2026-01-02"}]}


INF, NAN = float("inf"), float("nan")
URL = {"kind": "image-url", "url": "http://169.254.169.254/"}
REFUSED: list[tuple[Change, str]] = [
    *(
        (put("session", "target", value=url), "session.target: expected a target")
        for url in ("", "web1", "ssh://-oProxy=x", "ssh://")
    ),
    (put("session", "target", value="ssh://web1; rm -rf /"), "session.target: expected a target"),
    (put("session", "identity", value="../etc"), "session.identity: expected a target"),
    (put("session", "identity", value="ssh://web1#\x1b[2J"), "session.identity: expected one printable line"),
    (put("session", "identity", value="ssh://web1#\u202e"), "session.identity: expected one printable line"),
    (put("session", "tmux", value="-x"), "session.tmux: expected a session name"),
    (put("session", "tmux", value="$(id)"), "session.tmux: expected a session name"),
    (put("session", "tmux", value="a\n"), "session.tmux: expected a session name"),
    (put("session", "pane", value="%1;kill-server"), "session.pane: expected a pane's name"),
    (put("session", "model", value="\ud800"), "session.model: "),
    (put("session", "model", value="x" * 2000), "session.model: expected one printable line"),
    (put("session", "name", value="x" * 2000), "session.name: expected at most"),
    (put("session", "session_id", value="../../x"), "session.session_id: expected the id"),
    (put("session", "session_id", value="K3F9-02MX-7YQA"), "session.session_id: expected the id"),
    *(
        (put("session", "created", value=at), "session.created: ")
        for at in (-1, INF, NAN, 1e300, 10**400, "1", True, None)
    ),
    (put("turns", 0, "started", value=NAN), "turns.0.started: "),
    (put("turns", 0, "ended", value=-0.5), "turns.0.ended: "),
    (put("turns", 0, "ended", value=None), "turns.0: ended and status"),
    (put("turns", 1, "turn_id", value="t1"), "turns.1.turn_id: duplicate id"),
    *((put("turns", 1, "turn_id", value=name), "turns.1.turn_id: ") for name in ("", "a/b", "x; y", "\ud800", "t\n")),
    (put("turns", 0, "origin", value="nobody"), "turns.0.origin: "),
    (put("turns", 0, "prompt", value=["x"]), "turns.0.prompt: expected a text"),
    *(
        (put("turns", 0, "usage", value={"cost": value}), "turns.0.usage: cost: expected a number")
        for value in (-1, INF, NAN, True, "1", {"of": 1}, [1], 10**30)
    ),
    (put("turns", value={}), "turns: "),
    (put("messages", 1, value=None), "messages.1: "),
    (put("messages", 0, value={"kind": "strange"}), "message 1 is invalid"),
    (put("messages", 0, value=with_content([URL])), "message 1 is invalid: it refers to an external file (image-url)"),
    (put("messages", 0, value=with_content("half \ud800")), "message 1 is invalid"),
    (put("messages", 0, value=with_content(nested(400))), "it is nested too deeply"),
    (put("notes", 0, "at", value=INF), "notes.0.at: "),
    (put("notes", 0, "kind", value="A b"), "notes.0.kind: "),
    (put("notes", 0, value={"at": 1, "kind": "job_left", "text": "1; rm x"}), "notes.0: expected the id of a job"),
    (put("notes", 0, value={"at": 1, "kind": "model", "text": "\x1b]0;x\x07"}), "notes.0: expected one printable line"),
    (put("notes", 0, value={"at": 1, "kind": "spent", "text": "{}"}), "notes.0: turn: "),
    (
        put("notes", 0, value={"at": 1, "kind": "spent", "text": '{"turn": "", "usage": {"cost": -1}}'}),
        "notes.0: usage: cost: expected a number",
    ),
    (put("notes", 0, "text", value="no JSON"), "notes.0: the document is not JSON"),
    (put("notes", 0, "text", value="[" * 100_000), "notes.0: the document is not JSON"),
    (put("notes", 0, "text", value="[]"), "notes.0: "),
    (put("notes", 0, "text", value=subagent(what="odd")), "notes.0: what: "),
    (put("notes", 0, "text", value=subagent(agent=1)), "notes.0: agent: "),
    (put("notes", 0, "text", value=subagent(messages=[{}])), "notes.0: messages.0: expected a text"),
    (put("notes", 0, "text", value=subagent(messages=["{}"])), "message 1 of notes.0 is invalid"),
    (
        put("notes", 0, "text", value=subagent(messages=[json.dumps(with_content([URL]))])),
        "message 1 of notes.0 is invalid",
    ),
    (
        put("notes", 0, "text", value=subagent(what="turn_ended", usage={"cost": -1})),
        "notes.0: usage: cost: expected a number",
    ),
    (put("notes", 0, "text", value=subagent(usage={"cost": {"of": 1}})), "notes.0: usage: cost: expected a number"),
    (put("version", value=10**400), "a newer harness"),
    (put("version", value=0), "version: "),
    (put("version", value=True), "version: "),
    (put("\x1b[2Jx" * 1000, value=1), "extra inputs"),
]


async def test_what_is_damaged_or_hostile_is_refused_with_its_place_and_leaves_nothing(
    document: dict[str, Any], tmp_path: Path
) -> None:
    store = ConversationStore(tmp_path / "second")
    for change, said in REFUSED:
        changed = copy.deepcopy(document)
        change(changed)
        with pytest.raises(InvalidDocument) as refused:
            await store.imported(json.dumps(changed), check=loaded)
        assert said in refused.value.message
        assert len(refused.value.message) < 500
    twice = json.dumps(document).replace('"origin"', '"prompt": "x", "origin"', 1)
    for text, said in (
        (twice, "duplicate name 'prompt'"),
        ("\ufeff{}", "BOM"),
        ("1" * 5000, "not JSON"),
        ("NaN", "not a harness conversation"),
    ):
        with pytest.raises(InvalidDocument, match=said):
            await store.imported(text, check=loaded)
    assert not (tmp_path / "second").exists()


async def test_what_passes_is_loaded_and_exported_the_same(document: dict[str, Any], tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "second")
    document["session"]["name"] = "the disk"
    document["turns"][0]["started"] = 4e9  # of a clock that is ahead
    imported = await store.imported(json.dumps(document), check=loaded)
    again = json.loads(await store.exported(imported.session_id))
    mine = {"session_id": imported.session_id, "created": imported.created}
    assert again == {**document, "session": {**document["session"], **mine}}
    stored = await store.load(imported.session_id)
    assert stored.session.options == {IMPORTED: {"turns": 2, "notes": 6}}
    assert stored.session.changed < 4e9
    assert (stored.session.model, stored.session.name, stored.unfinished is not None) == ("other", "the disk", True)
    assert list(messages_of(stored.notes)) == [json.loads(stored.notes[0].text)["agent"]]
    assert (spent_in(stored).cost, jobs_left(stored.notes)) == (0.25, {"4"})
    twin = await store.imported(json.dumps(document), check=loaded)
    assert twin.name == ""
    shadow = json.dumps(document).replace("the disk", imported.session_id[:6])
    assert (await store.imported(shadow, check=loaded)).name == ""
    await store.rename(twin.session_id, imported.session_id)
    assert (await store.find(imported.session_id)).session_id == imported.session_id


PLACES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)


def paths(value: object, before: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of a document."""
    steps: list[tuple[Any, Any]] = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [before, *(path for step, inner in steps for path in paths(inner, (*before, step)))]


@given(st.data())
def test_any_change_is_refused_in_one_way_or_passes(document: dict[str, Any], data: st.DataObject) -> None:
    changed = copy.deepcopy(document)
    place = data.draw(st.sampled_from(paths(changed)[1:]))
    put(*place, value=data.draw(PLACES))(changed)
    try:
        found = parsed(json.dumps(changed), loaded)
    except InvalidDocument:
        return
    assert json.dumps([json.loads(text) for text in found.messages]) == json.dumps(changed["messages"])
