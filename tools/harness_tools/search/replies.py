"""Parsing the target's replies about a tree: frames, refusals and notes. Pure."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.errors import ToolError
from harness.patterns.ignore_rules import IGNORE_LIMIT, Ignored, IgnoreRule, parse_ignore
from harness.results import ShellResult, Status
from harness.toolkit import Json, OutputLimit, ToolContext, ToolResult
from harness.toolkit.values import ShownForm
from harness.wording import counted

__all__ = [
    "LIMIT",
    "Tree",
    "absolute",
    "ask",
    "can_search",
    "count_fitting",
    "count_of",
    "frames_of",
    "learn_rules",
    "plain",
    "read_tree",
    "refusal_of",
    "shown_path",
    "text_of",
    "tree_data",
    "tree_notes",
    "unreadable_answer",
]


# -- Parsing frames. Pure.


@dataclass(slots=True)
class Tree:
    """A tree as it was found; ``paths`` are as the target printed them, in its order.

    ``unreadable`` counts unreadable directories and files. ``is_whole``: the search was completed. ``is_cut``: the
    output was truncated.
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
    """Facts about the paths from that number on, in one text."""

    @property
    def ignored(self) -> Ignored:
        """What its ignore files exclude."""
        above = {name: _between(name, self.real) for name in self.rules if name.startswith("/")}
        return Ignored(self.rules, frozenset(self.repositories), above)


def _between(directory: str, real: str) -> tuple[str, ...]:
    return tuple(name for name in real[len(directory) :].split("/") if name)


def text_of(data: bytes) -> str:
    """Decode bytes of the target without loss."""
    return data.decode("utf-8", "surrogateescape")


def plain(path: bytes) -> str:
    """Return a path of the target without the leading ``./``."""
    return text_of(path.removeprefix(b"./"))


def count_of(data: bytes) -> int:
    """Parse a number that ``wc`` or a shell wrote."""
    text = data.strip()
    return int(text) if text.isdigit() else 0


def frames_of(output: bytes) -> Iterator[bytes]:
    """Yield the frames, without an incomplete one at the end."""
    yield from output.split(b"\0")[:-1]


def read_tree(output: bytes, limit: int | None = None) -> Tree:
    """Parse a tree; ``other`` holds the frames of other letters.

    Args:
        limit: Maximum bytes of the output; output of that size was truncated, possibly within a frame.
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
    """Store the rules of an ignore file; of a truncated one, whole lines."""
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
    """Return the result for a path that cannot be searched."""
    code, text = {
        "missing": ("file_not_found", f"{path}: no such file or directory"),
        "denied": ("permission_denied", f"{path}: permission denied"),
        "directory": ("not_a_directory", f"{path} is not a directory"),
    }.get(refusal, ("not_a_file", f"{path} is neither a directory nor a regular file"))
    return ToolResult.failure(code, text)


# -- What a search omitted, as text and as data. Pure.


LIMIT = OutputLimit(30_000, 1_500)
"""The end of a long result is kept, because its notes say what is missing."""
NAMED = 100
"""Maximum directories that are named in the data."""


def count_fitting(texts: Iterable[str], form: ShownForm) -> int:
    """Return how many of the texts, one per line, fit together with notes after them; at least one.

    The rest can then be counted with what is omitted for other reasons, and nothing is truncated afterwards.
    """
    room = min(LIMIT.characters, form.room)
    room -= min(LIMIT.tail, room // 5)
    count = 0
    for text in texts:
        room -= form.measure(text) + 1
        if room < 0 and count:
            break
        count += 1
    return count


def shown_path(base: str, path: str) -> str:
    """Return a path below a directory, as the caller may pass it to another tool."""
    if base in ("", "."):
        return path
    return f"{base.rstrip('/')}/{path}"


def skipped_note(skipped: Sequence[str]) -> str:
    """Return the names of what the default excludes skipped; empty if that is nothing."""
    if not skipped:
        return ""
    counts = Counter(posixpath.basename(path) for path in skipped)
    names = (f"{name} ({count})" if count > 1 else name for name, count in sorted(counts.items()))
    return f"not searched: {', '.join(names)} (no_default_excludes searches them)"


def tree_notes(tree: Tree, ignored: int) -> list[str]:
    """Return notes about the omitted parts of a tree."""
    notes = [skipped_note(tree.skipped)]
    if ignored:
        notes.append(f"{counted(ignored, 'entry')} ignored by .gitignore (no_default_excludes shows them)")
    if tree.unreadable:
        notes.append(f"{counted(tree.unreadable, 'entry')} could not be read")
    if tree.is_cut:
        notes.append("the tree is too large: the rest was not searched; search a part of it")
    elif not tree.is_whole:
        notes.append("the search did not complete: there may be more")
    return [note for note in notes if note]


def tree_data(tree: Tree, ignored: int) -> dict[str, Json]:
    """Return the omitted parts as data."""
    return {
        "skipped": [*sorted(tree.skipped)[:NAMED]],
        "ignored": ignored,
        "unreadable": tree.unreadable,
        "complete": tree.is_whole and not tree.is_cut,
    }


# -- Running one helper command on the target, with limits and error messages.


ANSWER = 32 << 20
"""Maximum bytes of one reply, more than any script sends."""
SECONDS = 60.0
"""Timeout of a search on the target, in seconds."""


async def absolute(ctx: ToolContext, path: str) -> str:
    """Return a path made absolute: relative to the call's directory, else to the home.

    Raises:
        FileError: It is in the home of an unknown user.
    """
    home = ctx.execution.capabilities.home or "/"
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    if path.startswith("~"):
        return (await ctx.execution.stat(path)).path
    start = ctx.cwd or home
    start = home + start[1:] if start == "~" or start.startswith("~/") else start
    return posixpath.join(home, start, path)


def can_search(ctx: ToolContext, *programs: str) -> bool:
    """Return whether the target has these programs."""
    return all(ctx.execution.capabilities.has(program) for program in programs)


async def ask(ctx: ToolContext, script: str, stdin: bytes | None = None) -> bytes:
    """Run a script in a fresh ``sh`` outside the terminal, and return its output.

    Raises:
        ToolError: The script timed out or did not complete.
    """
    done = await ctx.execution.run_helper(script, timeout=SECONDS, max_output=ANSWER, stdin=stdin)
    if done.status is not Status.COMPLETED or done.truncated:
        raise _failed(done)
    return done.stdout_bytes


def unreadable_answer(ctx: ToolContext) -> ToolError:
    """Return the error for a reply that the usual programs would not print."""
    return ToolError(
        f"{ctx.execution.identity}: the search returned invalid output",
        hint="check which find and stat are in the PATH of the target's shell",
    )


def _failed(done: ShellResult) -> ToolError:
    if done.status is Status.TIMED_OUT:
        hint = "search a smaller directory, or with a narrower pattern"
        return ToolError(f"the search timed out after {SECONDS:.0f} s", hint=hint)
    if done.truncated:
        return ToolError("the search output is too large", hint="search a smaller directory")
    return ToolError(f"the search did not complete ({done.status})")
