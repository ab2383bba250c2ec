"""Completion: slash commands at once, paths of the target when they are asked for."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ...results import DirEntry
from ...tasks import BackgroundTasks
from .printable import one_line

__all__ = ["PathWord", "PromptCompleter", "Suggested", "named", "path_word"]

LIMIT = 3.0
"""Seconds that the target has for the names in a directory."""
MOST = 200
"""Names that are offered."""
_WORD = re.compile(r"""(?:\\.|[^\s\\"'<>|;&()=])*$""")
_SPECIAL = re.compile(r"""([\s\\"'`$<>|;&()*?\[\]{}!#~=])""")


class Suggested(Protocol):
    """A completion of a slash command: a text from the character ``start`` of the line to its end."""

    @property
    def text(self) -> str: ...  # see the class
    @property
    def start(self) -> int: ...  # see the class
    @property
    def about(self) -> str: ...  # see the class


@dataclass(frozen=True, slots=True)
class PathWord:
    """The path that is being typed: its directory as the target knows it, and the beginning of a name."""

    directory: str
    start: str
    shown: str
    """The directory as it was typed, quoted as it was."""
    length: int
    """Characters of it that were typed."""
    quoted: bool
    """It is a word of a shell command."""


def path_word(before: str) -> PathWord | None:
    """The path in front of the cursor, if the word there is one. In a ``!`` line every word may be. Pure."""
    command = before.lstrip().startswith("!")
    match = _WORD.search(before)
    word = match[0] if match else ""
    word = word.lstrip("!") if before.lstrip() == word else word
    if not command:
        word = word.removeprefix("@")
    if not command and "/" not in word and not word.startswith("~"):
        return None
    shown, slash, name = word.rpartition("/")
    shown += slash
    return PathWord(_unquoted(shown) or ".", _unquoted(name), shown, len(word), command)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def named(word: PathWord, entries: Iterable[DirEntry]) -> list[tuple[str, str]]:
    """What could stand in the place of the word: a text, and what is shown of it. Pure."""
    hidden = word.start.startswith(".")
    fitting = [one for one in entries if one.name.startswith(word.start) and (hidden or not one.name.startswith("."))]
    visible = sorted((one for one in fitting if one.name.isprintable()), key=lambda one: one.name)
    found = []
    for entry in [*visible[: MOST - 1], *visible[MOST - 1 :][-1:]]:  # the last one: Tab types what all have in common
        ending = "/" if entry.type == "dir" else ""
        name = _SPECIAL.sub(r"\\\1", entry.name) if word.quoted else entry.name
        found.append((f"{word.shown}{name}{ending}", f"{entry.name}{ending}"))
    return found


@dataclass
class _Lookup:
    entries: Sequence[DirEntry] = ()
    done: anyio.Event = field(default_factory=anyio.Event)


class PromptCompleter(Completer):
    """Completes what is typed.

    The target is asked by a task of its own, in which nothing is cut off when the operator types on: the channel that
    carries the answer is everybody's.

    Args:
        commands: what could stand at the end of a line that begins with a slash.
        list_dir: the names in a directory of the target.
    """

    def __init__(
        self,
        commands: Callable[[str], Iterable[Suggested]],
        list_dir: Callable[[str], Awaitable[Sequence[DirEntry]]],
        tasks: Callable[[], BackgroundTasks | None],
    ) -> None:
        self._commands = commands
        self._list_dir = list_dir
        self._tasks = tasks
        self._running: dict[str, _Lookup] = {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The slash commands."""
        line = document.text_before_cursor
        for one in self._commands(line) if line.startswith("/") and "\n" not in document.text else ():
            yield Completion(one.text, one.start - len(line), display_meta=one_line(one.about, 60))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Slash commands, or the paths when Tab was pressed."""
        found = list(self.get_completions(document, complete_event))
        for one in found:
            yield one
        word = path_word(document.text_before_cursor)
        if found or word is None or not complete_event.completion_requested:
            return
        for text, shown in named(word, await self._entries(word.directory)):
            yield Completion(text, -word.length, display=shown)

    async def _entries(self, directory: str) -> Sequence[DirEntry]:
        lookup = self._running.get(directory)
        tasks = self._tasks()
        if tasks is None:
            return ()
        if lookup is None:
            lookup = self._running[directory] = _Lookup()
            tasks.start_soon(self._look, directory, lookup)
        await lookup.done.wait()
        return lookup.entries

    async def _look(self, directory: str, lookup: _Lookup) -> None:
        try:
            with anyio.move_on_after(LIMIT):
                lookup.entries = await self._list_dir(directory)
        except Exception:  # noqa: S110  # no such directory, no link: then there is nothing to offer
            pass
        finally:
            del self._running[directory]
            lookup.done.set()
