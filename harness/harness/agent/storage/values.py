"""Values of the conversation store, and ids that sort by time."""

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


# -- Ids of conversations: short enough to be typed, and never alike by chance. Pure, but for the making of new ones.


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""No i, l, o and u: what is read aloud or copied by hand stays the same."""
GROUPS, LENGTH = 3, 4
_ID = re.compile(rf"[{ALPHABET}]{{{LENGTH}}}(?:-[{ALPHABET}]{{{LENGTH}}}){{{GROUPS - 1}}}", re.ASCII)
_ALIKE = str.maketrans("ilo", "110")


def new_session_id() -> str:
    """A new one: ``k3f9-02mx-7yqa``."""
    import secrets

    return _grouped("".join(secrets.choice(ALPHABET) for _ in range(GROUPS * LENGTH)))


def is_session_id(text: str) -> bool:
    """Whether that is a whole id, safe as the name of a file."""
    return _ID.fullmatch(text) is not None


def normalize_id_prefix(text: str) -> str | None:
    """The beginning of an id as people write it, with or without its dashes; None when no id begins so."""
    letters = text.strip().lower().replace("-", "").translate(_ALIKE)
    if not letters or len(letters) > GROUPS * LENGTH or set(letters) - set(ALPHABET):
        return None
    return _grouped(letters)


def _grouped(letters: str) -> str:
    return "-".join(letters[start : start + LENGTH] for start in range(0, len(letters), LENGTH))


# -- What is stored of conversations, as values.


IMPORTED = "imported"
"""Among the options of a conversation: how many turns and notes came with a document, from another place."""


class ConversationNotFound(HarnessError):
    """No stored conversation has that id, or more than one could be meant."""


class ConversationInUse(HarnessError):
    """Another process goes on with that conversation."""


class ConversationCorrupt(HarnessError):
    """A stored conversation holds what nobody wrote. The others are not harmed."""

    def __init__(self, session_id: str, what: object) -> None:
        said = " ".join(str(what).split())
        super().__init__(
            f"the conversation {session_id} is damaged ({said})",
            hint=f"harness resume {session_id} --delete removes it",
        )
        self.session_id = session_id


class InvalidDocument(HarnessError):
    """What is to be imported is no conversation that harness exported, or not any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConversation:
    """What is known of a conversation when it begins."""

    target: str
    """The target's URL."""
    identity: str
    """``ExecutionContext.identity``: another container of the same name has another."""
    tmux: str = ""
    """The tmux session; empty is a target without one."""
    pane: str = ""
    model: str = ""
    """The name of the model's profile."""
    name: str = ""
    """What the operator calls it."""
    options: JsonObject = field(default_factory=dict)
    """How the target was chosen on the command line, to choose it so again."""


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
    """The beginning of the first prompt, in one line."""
    turns: int = 0
    messages: int = 0
    """How many there are now; those that were put together into a summary do not count."""
    unfinished: bool = False
    """Its last turn has no end: it runs, or the harness that ran it is gone."""
    options: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConversationList:
    """Conversations, the one that was changed last first; ``damaged`` says which cannot be read, and why."""

    found: tuple[ConversationSummary, ...] = ()
    damaged: tuple[ConversationCorrupt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """One turn. ``status`` is empty as long as it has no end."""

    turn_id: str
    prompt: str
    origin: Origin = "operator"
    started: float = 0.0
    ended: float | None = None
    status: TurnStatus | None = None
    usage: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationNote:
    """Something else that happened in a conversation: ``kind`` is one word (``compacted``, ``model``, ``paused``)."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """One conversation as it is on the disk. ``messages`` are texts as they were handed over, oldest first."""

    session: ConversationSummary
    messages: tuple[str, ...] = ()
    turns: tuple[StoredTurn, ...] = ()
    notes: tuple[ConversationNote, ...] = ()

    @property
    def unfinished(self) -> StoredTurn | None:
        """The turn that was going on when its harness died; None when the last one has an end."""
        return self.turns[-1] if self.turns and self.turns[-1].status is None else None
