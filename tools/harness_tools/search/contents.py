"""Contents of many files of the target, fetched to be searched here."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from harness.errors import FileError
from harness.toolkit import ToolContext

from .frames import frames_of
from .target import ask, can_search
from .treescripts import NO_ENGINE, needs

__all__ = ["ALL_BYTES", "FILE_BYTES", "Contents", "fetch", "fetch_words", "read_contents", "take_frame"]

FILE_BYTES = 4 << 20
"""Of one file; a longer one is not searched."""
ALL_BYTES = 24 << 20
"""Of all."""


@dataclass(slots=True)
class Contents:
    """What was fetched, by path as the target named it. ``is_cut``: there was no room for the rest."""

    texts: dict[bytes, bytes] = field(default_factory=dict)
    binary: list[bytes] = field(default_factory=list)
    large: list[bytes] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    is_cut: bool = False

    def without(self, names: Collection[bytes]) -> Contents:
        """The same without these files."""

        def kept(kind: list[bytes]) -> list[bytes]:
            return [name for name in kind if name not in names]

        texts = {name: text for name, text in self.texts.items() if name not in names}
        return Contents(texts, kept(self.binary), kept(self.large), kept(self.unreadable), self.is_cut)


def fetch_words() -> str:
    """A command that prints the contents of the files that are its arguments, text by text."""
    script = (
        'for f do s=$(wc -c <"$f") 2>/dev/null || { printf "U%s\\0" "$f"; continue; }; '
        f'if [ "$s" -gt {FILE_BYTES} ]; then printf "Z%s\\0" "$f"; '
        'elif [ "$(tr -dc "\\000" <"$f" | head -c 1 | wc -c)" -gt 0 ]; then printf "B%s\\0" "$f"; '
        f'else printf "F%s\\0" "$f"; head -c {FILE_BYTES} <"$f" | tr -d "\\000"; printf "\\0"; fi; done'
    )
    return f"sh -c {shlex.quote(script)} sh"


def read_contents(output: bytes) -> Contents:
    """What such a command printed. Pure."""
    found = Contents(is_cut=len(output) >= ALL_BYTES)
    frames = frames_of(output)
    for frame in frames:
        take_frame(found, frame, frames)
    return found


def take_frame(found: Contents, frame: bytes, following: Iterator[bytes]) -> bool:
    """Take one frame, and that with the text behind it; False when it is none of contents."""
    letter, name = frame[:1], frame[1:]
    if letter == b"F":
        text = next(following, None)
        if text is not None:
            found.texts[name] = text
        return True
    kinds = {b"B": found.binary, b"Z": found.large, b"U": found.unreadable}
    if letter in kinds:
        kinds[letter].append(name)
    return letter in kinds


async def fetch(ctx: ToolContext, directory: str, names: Sequence[bytes]) -> Contents:
    """The contents of files below a directory, by names relative to it: in one round trip where there is a shell.

    Raises:
        ToolError: it took too long.
    """
    if not names:
        return Contents()
    if can_search(ctx, "find"):
        script = (
            f"{needs('xargs', 'head', 'tr', 'wc')}LC_ALL=C; export LC_ALL; cd {shlex.quote(directory)} || exit 0; "
            f"xargs -0 {fetch_words()} 2>/dev/null | head -c {ALL_BYTES}"
        )
        output = await ask(ctx, script, b"".join(name + b"\0" for name in names))
        if output != NO_ENGINE:
            return read_contents(output)
    return await _one_by_one(ctx, directory, names)


async def _one_by_one(ctx: ToolContext, directory: str, names: Sequence[bytes]) -> Contents:
    found, room = Contents(), ALL_BYTES
    for name in names:
        path = f"{directory.rstrip('/')}/{name.decode('utf-8', 'surrogateescape').removeprefix('./')}"
        try:
            content = await ctx.execution.read_file(path, limit=FILE_BYTES + 1)
        except FileError:
            found.unreadable.append(name)
            continue
        room -= len(content.data)
        if room < 0:
            found.is_cut = True
            break
        if content.size > FILE_BYTES:
            found.large.append(name)
        elif b"\0" in content.data:
            found.binary.append(name)
        else:
            found.texts[name] = content.data
    return found
