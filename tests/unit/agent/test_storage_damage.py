"""Damaged rows of stored conversations: which one it is, is said, and the others are as they were."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from harness.agent.storage import ConversationCorrupt, ConversationRetention, ConversationStore, NewConversation

START = NewConversation(target="local:", identity="local:", model="claude", options={})


@pytest.fixture
def store(tmp_path: Path) -> ConversationStore:
    return ConversationStore(tmp_path / "sessions")


async def begun(store: ConversationStore, prompt: str) -> str:
    """A conversation with one turn."""
    session_id = (await store.create(START)).session_id
    async with store.writing(session_id) as log:
        await log.turn_started("t", prompt)
        await log.turn_ended("t", "completed", {})
    return session_id


@pytest.mark.parametrize(
    "change",
    ["changed = 'soon'", "title = CAST(x'c328ff' AS TEXT)", "name = x'c328ff'", "bytes = 'many', turns = 'many'"],
)
async def test_one_damaged_conversation_harms_no_other_and_can_be_removed(
    change: str, store: ConversationStore, tmp_path: Path
) -> None:
    first, second, third = [await begun(store, prompt) for prompt in ("one", "two", "three")]
    with sqlite3.connect(tmp_path / "sessions/sessions.db") as db:
        db.execute(f"UPDATE sessions SET {change} WHERE session_id = ?", (second,))
    db.close()
    listed = await store.listed()
    assert [one.session_id for one in listed.found] == [third, first]
    assert [one.session_id for one in listed.damaged] == [second]
    assert f"the conversation {second} is damaged" in str(listed.damaged[0])
    assert (await store.find(first)).title == "one"
    assert (await store.load(third)).turns[0].prompt == "three"
    assert await store.prune(ConversationRetention()) == 0
    with pytest.raises(ConversationCorrupt, match=f"{second} is damaged"):
        await store.find(second)
    await store.delete(second)
    assert (await store.listed()).damaged == ()
