"""The tables of stored conversations, and the operations on them within one transaction. Everything here blocks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast, get_args

from ...toolkit.values import JsonObject
from ..events import Origin, TurnStatus
from .values import (
    ConversationCorrupt,
    ConversationList,
    ConversationNote,
    ConversationSummary,
    NewConversation,
    StoredConversation,
    StoredTurn,
)

__all__ = [
    "LATEST",
    "SCHEMA",
    "VERSION",
    "DamagedRow",
    "add_messages",
    "add_note",
    "begun_with",
    "conversation",
    "delete",
    "end_turn",
    "insert",
    "last",
    "listed",
    "move",
    "named",
    "number_of",
    "rename",
    "replace_messages",
    "start_turn",
    "summary_of",
    "title_of",
    "touch",
]


# -- The tables


VERSION = 1
"""``PRAGMA user_version`` of the database."""

SCHEMA = (
    # ``epoch`` grows with each compaction; messages of earlier epochs are kept.
    """CREATE TABLE sessions (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      session_id TEXT NOT NULL UNIQUE,
      created REAL NOT NULL,
      changed REAL NOT NULL,
      target TEXT NOT NULL,
      identity TEXT NOT NULL,
      tmux TEXT NOT NULL,
      pane TEXT NOT NULL,
      model TEXT NOT NULL,
      name TEXT NOT NULL,
      title TEXT NOT NULL,
      options TEXT NOT NULL,
      epoch INTEGER NOT NULL DEFAULT 0,
      turns INTEGER NOT NULL DEFAULT 0,
      messages INTEGER NOT NULL DEFAULT 0,
      bytes INTEGER NOT NULL DEFAULT 0,
      unfinished INTEGER NOT NULL DEFAULT 0
    )""",
    "CREATE INDEX sessions_by_change ON sessions (changed)",
    """CREATE TABLE messages (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
      epoch INTEGER NOT NULL,
      body TEXT NOT NULL
    )""",
    "CREATE INDEX messages_of ON messages (session, epoch)",
    """CREATE TABLE turns (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
      turn_id TEXT NOT NULL,
      prompt TEXT NOT NULL,
      origin TEXT NOT NULL,
      started REAL NOT NULL,
      ended REAL,
      status TEXT,
      usage TEXT NOT NULL DEFAULT '{}'
    )""",
    "CREATE INDEX turns_of ON turns (session, turn_id)",
    """CREATE TABLE notes (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
      at REAL NOT NULL,
      kind TEXT NOT NULL,
      text TEXT NOT NULL
    )""",
    "CREATE INDEX notes_of ON notes (session)",
)


# -- Operations on the tables, within one transaction. Everything here blocks.


T = TypeVar("T")
Values = Sequence[object] | Mapping[str, object]
ORIGINS: Sequence[Origin] = get_args(Origin)
STATUSES: Sequence[TurnStatus] = get_args(TurnStatus)
LATEST = 253_402_300_799.0
"""The last second of the year 9999."""
TITLE = 100
"""Maximum characters of a title."""
COLUMNS = (
    *("session_id", "created", "changed", "target", "identity", "tmux", "pane", "model", "name", "title"),
    *("turns", "messages", "unfinished", "options"),
)
SELECT = f"SELECT {', '.join(COLUMNS)} FROM sessions"  # noqa: S608  # names of columns
INSERT = (
    "INSERT INTO sessions (session_id, created, changed, target, identity, tmux, pane, model, name, title, options)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?)"
)


class DamagedRow(sqlite3.DatabaseError):
    """A row with an invalid value."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


# -- texts: SQLite accepts no surrogates in a TEXT, so such texts are stored as a BLOB


def _in(text: str) -> str | bytes:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _out(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogatepass")
    raise DamagedRow("a value is not a text")


def _time(value: object) -> float:
    """Return a valid time in seconds since the epoch."""
    if isinstance(value, float) and 0 <= value <= LATEST:
        return value
    raise DamagedRow("a value is not a valid time")


def _count(value: object) -> int:
    if isinstance(value, int) and value >= 0:
        return value
    raise DamagedRow("a value is not a valid number")


def _one_of(value: object, known: Sequence[T]) -> T:
    found = next((one for one in known if one == value), None)
    if found is None:
        raise DamagedRow("a value is not one of the known words")
    return found


def _object(text: str | bytes) -> JsonObject:
    try:
        value = json.loads(_out(text))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DamagedRow("a value is not a JSON object")
    return cast(JsonObject, value)


def title_of(prompt: str) -> str:
    """Return the title of a conversation: the first line of its first prompt. Pure."""
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE else f"{line[: TITLE - 3]}..."


# -- writing


def insert(db: sqlite3.Connection, session_id: str, start: NewConversation, at: float) -> ConversationSummary:
    """Create a conversation."""
    values = (start.target, start.identity, start.tmux, start.pane, start.model, start.name)
    db.execute(INSERT, (session_id, at, at, *map(_in, values), json.dumps(dict(start.options))))
    found = summary_of(db, session_id)
    assert found is not None
    return found


def number_of(db: sqlite3.Connection, session_id: str) -> int | None:
    """Return the row number of a conversation, which the other tables refer to."""
    row = db.execute("SELECT number FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    return int(row[0]) if row else None


def add_messages(db: sqlite3.Connection, session: int, messages: Sequence[str], at: float) -> None:
    """Append messages."""
    (epoch,) = db.execute("SELECT epoch FROM sessions WHERE number = ?", (session,)).fetchone()
    rows = [(session, epoch, _in(body)) for body in messages]
    db.executemany("INSERT INTO messages (session, epoch, body) VALUES (?, ?, ?)", rows)
    size = sum(len(body) for body in messages)
    change = "UPDATE sessions SET messages = messages + ?, bytes = bytes + ?, changed = ? WHERE number = ?"
    db.execute(change, (len(rows), size, at, session))


def replace_messages(db: sqlite3.Connection, session: int, messages: Sequence[str], summary: str, at: float) -> None:
    """Replace all current messages."""
    db.execute("UPDATE sessions SET epoch = epoch + 1, messages = 0 WHERE number = ?", (session,))
    add_messages(db, session, messages, at)
    add_note(db, session, "compacted", summary, at)


def start_turn(db: sqlite3.Connection, session: int, turn: StoredTurn) -> None:
    """Record the start of a turn."""
    db.execute(
        "INSERT INTO turns (session, turn_id, prompt, origin, started, ended, status, usage)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(session, _in(turn.turn_id), _in(turn.prompt), turn.origin, turn.started, turn.ended, turn.status),
            json.dumps(dict(turn.usage)),
        ),
    )
    db.execute(
        "UPDATE sessions SET turns = turns + 1, unfinished = ?, changed = max(changed, ?),"
        " title = CASE title WHEN '' THEN ? ELSE title END WHERE number = ?",
        (turn.status is None, turn.started, _in(title_of(turn.prompt)), session),
    )


def end_turn(
    db: sqlite3.Connection, session: int, turn_id: str, status: TurnStatus, usage: JsonObject, at: float
) -> None:
    """Record the end of a turn."""
    change = "UPDATE turns SET status = ?, usage = ?, ended = ? WHERE session = ? AND turn_id = ? AND status IS NULL"
    db.execute(change, (status, json.dumps(dict(usage)), at, session, _in(turn_id)))
    db.execute("UPDATE sessions SET unfinished = 0, changed = ? WHERE number = ?", (at, session))


def add_note(db: sqlite3.Connection, session: int, kind: str, text: str, at: float) -> None:
    """Store a note about another event."""
    row = (session, at, _in(kind), _in(text))
    db.execute("INSERT INTO notes (session, at, kind, text) VALUES (?, ?, ?, ?)", row)
    if kind == "model":
        db.execute("UPDATE sessions SET model = ? WHERE number = ?", (_in(text), session))


def touch(db: sqlite3.Connection, session: int, at: float) -> None:
    """Set the time of the last change, whatever the times of the turns are."""
    db.execute("UPDATE sessions SET changed = ? WHERE number = ?", (at, session))


def rename(db: sqlite3.Connection, session_id: str, name: str) -> ConversationSummary | None:
    """Set the name of a conversation."""
    db.execute("UPDATE sessions SET name = ? WHERE session_id = ?", (_in(name), session_id))
    return summary_of(db, session_id)


def move(db: sqlite3.Connection, session_id: str, place: NewConversation) -> ConversationSummary | None:
    """Move a conversation to another target."""
    db.execute(
        "UPDATE sessions SET target = ?, identity = ?, tmux = ?, pane = ?, options = ? WHERE session_id = ?",
        (
            *(_in(text) for text in (place.target, place.identity, place.tmux, place.pane)),
            *(json.dumps(dict(place.options)), session_id),
        ),
    )
    return summary_of(db, session_id)


def delete(db: sqlite3.Connection, session_id: str) -> bool:
    """Delete a conversation with everything that belongs to it; False if it does not exist."""
    return bool(db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,)).rowcount)


# -- reading


def summary_of(db: sqlite3.Connection, session_id: str) -> ConversationSummary | None:
    """Return the summary of a conversation, or None if it does not exist."""
    return next(iter(_found(db, "WHERE session_id = ?", (session_id,))), None)


def listed(
    db: sqlite3.Connection, *, identity: str | None = None, limit: int | None = None, text: str = ""
) -> ConversationList:
    """Return conversations, the last changed first, and the damaged ones."""
    where = (
        "WHERE (:identity IS NULL OR identity = :identity)"
        " AND (:text = '' OR instr(lower(name), :text) OR instr(lower(title), :text))"
        " ORDER BY changed DESC, number DESC LIMIT :limit"
    )
    values = {"identity": identity, "text": text.lower(), "limit": -1 if limit is None else limit}
    found: list[ConversationSummary] = []
    damaged: list[ConversationCorrupt] = []
    for number in _numbers(db, where, values):
        try:
            found.append(_at(db, number))
        except ConversationCorrupt as error:
            damaged.append(error)
    return ConversationList(tuple(found), tuple(damaged))


def last(db: sqlite3.Connection, *, identity: str | None = None, target: str = "") -> ConversationSummary | None:
    """Return the conversation whose turn started last, by order of writing: the clock may have been set back."""
    values = {"identity": identity, "target": target}
    where = "(:identity IS NULL OR identity = :identity) AND (:target = '' OR target = :target)"
    latest = "(SELECT max(number) FROM turns WHERE session = sessions.number)"
    return next(iter(_found(db, f"WHERE {where} ORDER BY {latest} DESC, number DESC LIMIT 1", values)), None)


def named(db: sqlite3.Connection, name: str) -> tuple[ConversationSummary, ...]:
    """Return the conversations with that name."""
    return _found(db, "WHERE name = ? ORDER BY changed DESC, number DESC", (_in(name),))


def begun_with(db: sqlite3.Connection, prefix: str) -> tuple[ConversationSummary, ...]:
    """Return the conversations whose ids start with ``prefix``."""
    where = "WHERE session_id >= ? AND session_id < ? ORDER BY changed DESC, number DESC"
    return _found(db, where, (prefix, f"{prefix}~"))


def _numbers(db: sqlite3.Connection, where: str, values: Values) -> list[int]:
    query = f"SELECT number FROM sessions {where}"  # noqa: S608  # texts of this module
    return [int(number) for (number,) in db.execute(query, values)]


def _found(db: sqlite3.Connection, where: str, values: Values) -> tuple[ConversationSummary, ...]:
    """Return matching conversations. Raises :class:`ConversationCorrupt` for the first damaged one."""
    return tuple(_at(db, number) for number in _numbers(db, where, values))


def _at(db: sqlite3.Connection, number: int) -> ConversationSummary:
    with _damage_of(db, number):
        return _summary(db.execute(f"{SELECT} WHERE number = ?", (number,)).fetchone())


@contextmanager
def _damage_of(db: sqlite3.Connection, number: int) -> Iterator[None]:
    """Raise :class:`ConversationCorrupt` for invalid rows of a conversation; damage of the file is raised unchanged."""
    try:
        yield
    except (DamagedRow, UnicodeError, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.OperationalError) and not str(error).startswith("Could not decode"):
            raise
        what = error if isinstance(error, DamagedRow) else "a text is not valid UTF-8"
        raise ConversationCorrupt(_id_at(db, number), what) from error


def _id_at(db: sqlite3.Connection, number: int) -> str:
    """Return the id of a conversation, even if it is damaged."""
    (found,) = db.execute("SELECT CAST(session_id AS BLOB) FROM sessions WHERE number = ?", (number,)).fetchone()
    return bytes(found).decode("utf-8", "backslashreplace")


def _summary(row: tuple[Any, ...]) -> ConversationSummary:
    session_id, created, changed, *texts, turns, messages, unfinished, options = row
    target, identity, tmux, pane, model, name, title = map(_out, texts)
    return ConversationSummary(
        session_id=_out(session_id),
        created=_time(created),
        changed=_time(changed),
        target=target,
        identity=identity,
        tmux=tmux,
        pane=pane,
        model=model,
        name=name,
        title=title,
        turns=_count(turns),
        messages=_count(messages),
        unfinished=bool(unfinished),
        options=_object(options),
    )


def conversation(db: sqlite3.Connection, session_id: str) -> StoredConversation | None:
    """Return a conversation with its current messages. Raises :class:`ConversationCorrupt`."""
    session = summary_of(db, session_id)
    number = number_of(db, session_id)
    if session is None or number is None:
        return None
    with _damage_of(db, number):
        return _conversation(db, session, number)


def _conversation(db: sqlite3.Connection, session: ConversationSummary, number: int) -> StoredConversation:
    messages = db.execute(
        "SELECT body FROM messages WHERE session = :number"
        " AND epoch = (SELECT epoch FROM sessions WHERE number = :number) ORDER BY number",
        {"number": number},
    )
    turns = db.execute(
        "SELECT turn_id, prompt, origin, started, ended, status, usage FROM turns WHERE session = ? ORDER BY number",
        (number,),
    )
    notes = db.execute("SELECT at, kind, text FROM notes WHERE session = ? ORDER BY number", (number,))
    return StoredConversation(
        session=session,
        messages=tuple(_out(body) for (body,) in messages),
        turns=tuple(_turn(row) for row in turns),
        notes=tuple(ConversationNote(at=_time(at), kind=_out(kind), text=_out(text)) for at, kind, text in notes),
    )


def _turn(row: tuple[Any, ...]) -> StoredTurn:
    turn_id, prompt, origin, started, ended, status, usage = row
    return StoredTurn(
        turn_id=_out(turn_id),
        prompt=_out(prompt),
        origin=_one_of(origin, ORIGINS),
        started=_time(started),
        ended=None if ended is None else _time(ended),
        status=None if status is None else _one_of(status, STATUSES),
        usage=_object(usage),
    )
