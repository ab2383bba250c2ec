"""Values of the conversation store, and the ids of conversations."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...deprecated_names import renamed_names
from ...errors import HarnessError
from ...toolkit.values import JsonObject
from ..events import Origin, TurnStatus

__all__ = [
    "IMPORTED",
    "ConversationCorrupt",
    "ConversationInUse",
    "ConversationList",
    "ConversationNotFound",
    "ConversationNote",
    "ConversationSummary",
    "InvalidDocument",
    "NewConversation",
    "StoredConversation",
    "StoredTurn",
    "is_session_id",
    "new_session_id",
    "normalize_id_prefix",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        SessionNotFound="ConversationNotFound",
        SessionInUse="ConversationInUse",
        SessionDamaged="ConversationCorrupt",
    )


# -- Ids of conversations: short enough to type, and unique.


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Without i, l, o and u, so that an id survives being read aloud or copied by hand."""
GROUPS, LENGTH = 3, 4
_ID = re.compile(rf"[{ALPHABET}]{{{LENGTH}}}(?:-[{ALPHABET}]{{{LENGTH}}}){{{GROUPS - 1}}}", re.ASCII)
_ALIKE = str.maketrans("ilo", "110")


def new_session_id() -> str:
    """Return a new random id, such as ``k3f9-02mx-7yqa``."""
    import secrets

    return _grouped("".join(secrets.choice(ALPHABET) for _ in range(GROUPS * LENGTH)))


def is_session_id(text: str) -> bool:
    """Return whether the text is a complete id, which is safe as a file name."""
    return _ID.fullmatch(text) is not None


def normalize_id_prefix(text: str) -> str | None:
    """Return the start of an id in normal form, typed with or without dashes; None if no id can start like that."""
    letters = text.strip().lower().replace("-", "").translate(_ALIKE)
    if not letters or len(letters) > GROUPS * LENGTH or set(letters) - set(ALPHABET):
        return None
    return _grouped(letters)


def _grouped(letters: str) -> str:
    return "-".join(letters[start : start + LENGTH] for start in range(0, len(letters), LENGTH))


# -- Values


IMPORTED = "imported"
"""The option with the numbers of turns and notes that were imported with a document."""


class ConversationNotFound(HarnessError):
    """No stored conversation matches, or more than one does."""


class ConversationInUse(HarnessError):
    """Another process has the conversation open."""


class ConversationCorrupt(HarnessError):
    """A stored conversation has invalid data; the others are not affected."""

    def __init__(self, session_id: str, what: object) -> None:
        said = " ".join(str(what).split())
        super().__init__(
            f"the conversation {session_id} is damaged ({said})",
            hint=f"harness resume {session_id} --delete removes it",
        )
        self.session_id = session_id


class InvalidDocument(HarnessError):
    """The document to import is not a conversation that harness exported, or it is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConversation:
    """The properties of a new conversation."""

    target: str
    """The target's URL."""
    identity: str
    """``ExecutionContext.identity``; another container of the same name has a different one."""
    tmux: str = ""
    """The tmux session; empty for a target without one."""
    pane: str = ""
    model: str = ""
    """The name of the model's profile."""
    name: str = ""
    """The operator's name for it."""
    options: JsonObject = field(default_factory=dict)
    """Command-line options that selected the target, to select it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """One conversation in a list. Times are seconds since the epoch."""

    session_id: str
    created: float
    changed: float
    target: str
    identity: str
    tmux: str = ""
    pane: str = ""
    model: str = ""
    name: str = ""
    title: str = ""
    """The start of the first prompt, on one line."""
    turns: int = 0
    messages: int = 0
    """The current messages, without those that were compacted."""
    unfinished: bool = False
    """Whether its last turn has no end: it is running, or its harness process exited."""
    options: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConversationList:
    """Conversations, the last changed first; ``damaged`` are the errors of unreadable ones."""

    found: tuple[ConversationSummary, ...] = ()
    damaged: tuple[ConversationCorrupt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """One turn. ``status`` is None until it ends."""

    turn_id: str
    prompt: str
    origin: Origin = "operator"
    started: float = 0.0
    ended: float | None = None
    status: TurnStatus | None = None
    usage: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationNote:
    """Another event of a conversation; ``kind`` is one word (``compacted``, ``model``, ``paused``)."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """A conversation from disk. ``messages`` are texts as they were stored, oldest first."""

    session: ConversationSummary
    messages: tuple[str, ...] = ()
    turns: tuple[StoredTurn, ...] = ()
    notes: tuple[ConversationNote, ...] = ()

    @property
    def unfinished(self) -> StoredTurn | None:
        """The turn that was running when harness exited; None if the last one has an end."""
        return self.turns[-1] if self.turns and self.turns[-1].status is None else None
