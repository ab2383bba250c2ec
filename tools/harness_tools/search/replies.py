"""What the target said of a tree: frames become facts. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.toolkit import ToolResult

from .ignoring import IGNORE_LIMIT, Ignored, IgnoreRule, parse_ignore

__all__ = ["Tree", "count_of", "frames_of", "learn_rules", "plain", "read_tree", "refusal_of", "text_of"]


@dataclass(slots=True)
class Tree:
    """A tree as it was found. ``paths`` are as the target gave them, in its order.

    ``unreadable`` counts directories and files that could not be looked into. ``is_whole``: the search came to its
    end. ``is_cut``: there is more than was taken.
    """

    real: str = ""
    refusal: str = ""
    paths: list[bytes] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unreadable: int = 0
    is_whole: bool = False
    is_cut: bool = False
    rules: dict[str, tuple[IgnoreRule, ...]] = field(default_factory=dict)
    repositories: set[str] = field(default_factory=set)
    other: dict[str, list[bytes]] = field(default_factory=dict)
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """What was said of paths from that number on, together."""

    @property
    def ignored(self) -> Ignored:
        """What its ignore files leave out."""
        above = {name: _between(name, self.real) for name in self.rules if name.startswith("/")}
        return Ignored(self.rules, frozenset(self.repositories), above)


def _between(directory: str, real: str) -> tuple[str, ...]:
    return tuple(name for name in real[len(directory) :].split("/") if name)


def text_of(data: bytes) -> str:
    """Bytes of the target as text that stands for them exactly."""
    return data.decode("utf-8", "surrogateescape")


def plain(path: bytes) -> str:
    """A path of the target, without the ``./`` that it begins with."""
    return text_of(path.removeprefix(b"./"))


def count_of(data: bytes) -> int:
    """A number that ``wc`` or a shell wrote."""
    text = data.strip()
    return int(text) if text.isdigit() else 0


def frames_of(output: bytes) -> Iterator[bytes]:
    """The frames, without what was cut off at the end."""
    yield from output.split(b"\0")[:-1]


def read_tree(output: bytes, limit: int | None = None) -> Tree:
    """The tree. ``other`` holds the frames of letters that are not the tree's own.

    Args:
        limit: bytes, of which no more were taken: what has as many was cut, in the middle of a frame.
    """
    tree = Tree(is_cut=limit is not None and len(output) >= limit)
    if tree.is_cut:
        body, mark, end = output.rpartition(b"\0E")
        output = body[: body.rfind(b"\0")] + mark + end
    frames = frames_of(output)
    for frame in frames:
        letter, rest = frame[:1], frame[1:]
        if letter == b".":
            tree.paths.append(frame)
        elif letter in b"IP" and letter:
            directory = plain(posixpath.dirname(rest)) if letter == b"I" else text_of(rest) or "/"
            learn_rules(tree, "" if directory == "." else directory, next(frames, b""))
        elif letter == b"N":
            directory = plain(posixpath.dirname(rest))
            tree.repositories.add("" if directory == "." else directory)
        else:
            _take(tree, letter, rest)
    return tree


def learn_rules(tree: Tree, directory: str, content: bytes) -> None:
    """Take what an ignore file says; of one that was cut, whole lines."""
    if len(content) >= IGNORE_LIMIT:
        content = content[: content.rfind(b"\n") + 1]
        tree.unreadable += 1
    tree.rules[directory] = parse_ignore(text_of(content))


def _take(tree: Tree, letter: bytes, rest: bytes) -> None:
    if letter == b"R":
        tree.real = text_of(rest)
    elif letter == b"S":
        tree.skipped.append(plain(rest))
    elif letter == b"T":
        tree.batches.append((len(tree.paths), rest))
    elif letter == b"X":
        tree.refusal = text_of(rest)
    elif letter == b"E":
        tree.unreadable, tree.is_whole = tree.unreadable + count_of(rest), True
    elif letter:
        tree.other.setdefault(letter.decode("latin-1"), []).append(rest)


def refusal_of(refusal: str, path: str) -> ToolResult:
    """The result for a place that cannot be searched."""
    code, text = {
        "missing": ("file_not_found", f"{path}: no such file or directory"),
        "denied": ("permission_denied", f"{path}: permission denied"),
        "directory": ("not_a_directory", f"{path} is not a directory"),
    }.get(refusal, ("not_a_file", f"{path} is neither a directory nor a regular file"))
    return ToolResult.failure(code, text)
