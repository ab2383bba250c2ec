"""Commands that no mode and no answer lets through. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from .globs import matches

__all__ = [
    "BLOCKED",
    "RUNNERS",
    "blocked",
    "command_forms",
    "is_harness",
    "may_begin_blocked",
    "may_block",
    "removes_recursively",
    "runs_past_the_policy",
]

BLOCKED = (
    "security find-*-password*",
    "security dump-keychain*",
    "secret-tool lookup*",
    "secret-tool search*",
)
"""What reads a keychain."""
DECISIONS = (
    ("permissions", "add"),
    ("permissions", "remove"),
    ("tools", "call", "--yes"),
    ("servers", "accept"),
    ("audit", "resolve"),
    ("exec", "--approve"),
    ("exec", "--dangerously-auto-approve"),
)
"""What only a person decides, as words of harness's command line: options may stand between them."""
RUNS = frozenset({"run", "exec", "resume", "keys", "mcp", "call", "demo"})
"""Commands of harness that run other commands, by rules of their own or by none."""
HARMLESS = frozenset(
    [
        "run",  # what it runs is judged beside it
        *("read", "write", "capture", "panes", "sessions", "jobs", "attach", "permissions", "disconnect", "tools"),
        *("models", "servers", "memory", "audit", "trace", "doctor", "config", "init", "completion"),
        *("--version", "--help", "-h"),
    ]
)
DELETES = frozenset({"rm", "shred", "unlink"})
FINDS_SOME = re.compile(
    r"-(?:i?(?:name|path|regex|lname)|wholename|user|group|uid|gid|size|[acm](?:time|min)|newer.*|inum)"
)
LINKS = ("-H", "-L", "-P")
RUNNERS = re.compile(r"(?:python|pypy)[\d.]*|uvx?|pipx|poetry|hatch|pdm")
SHELLS = frozenset({".", "source", "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"})
"""What runs the script of that name, which pip makes one of ``sh`` where its path is long."""
OURS = re.compile(r"(?:-[A-Za-z]*m)?(?:.*/)?harness(?:\.[\w.]*|/__main__\.py|/cli/\w+\.py)?")


def blocked(argv: Sequence[str], patterns: Iterable[str], paths: Iterable[str] = ()) -> str:
    """Why a simple command is blocked: the pattern, or what it would destroy; empty when it is not.

    Args:
        paths: further names of what it is given: where a ``cd`` leads, and what the target says that they are.
    """
    if _removes_root(argv, paths):
        return "it removes the whole file system"
    if decision := _decision(argv):
        return f"'harness {decision}' is blocked: only a person decides that"
    forms = command_forms(argv)
    return next((f"{pattern!r} is blocked" for pattern in patterns for form in forms if matches(pattern, form)), "")


def may_block(argv: Sequence[str], patterns: Iterable[str]) -> bool:
    """Whether a pattern speaks of this program, whatever its words are."""
    programs = [form.split(" ", 1)[0] for form in command_forms(argv[:1])]
    return any(matches(pattern.split(" ", 1)[0], program) for pattern in patterns for program in programs)


def may_begin_blocked(program: str, patterns: Iterable[str]) -> bool:
    """Whether a command of this program may be blocked: a cheap question for many words."""
    name = posixpath.basename(program)
    known = name in ("rm", "find", "harness") or name in SHELLS or RUNNERS.fullmatch(name) is not None
    return known or may_block((program,), patterns)


def command_forms(argv: Sequence[str]) -> tuple[str, ...]:
    """A command as patterns see it: its words with one space between, and the same without the program's directory."""
    if not argv:
        return ()
    plain = [posixpath.basename(argv[0]), *argv[1:]]
    return tuple(dict.fromkeys((" ".join(argv), " ".join(plain))))


def is_harness(argv: Sequence[str]) -> bool:
    """Whether a simple command runs harness."""
    return _after_harness(argv) is not None


def runs_past_the_policy(argv: Sequence[str]) -> str:
    """Why a command of harness may run commands that nobody has judged; empty when it does not."""
    words = _after_harness(argv)
    runs = RUNS - {"run"} if posixpath.basename(argv[0] if argv else "") == "harness" else RUNS
    if words is None or (runs.isdisjoint(words) and not HARMLESS.isdisjoint(words)):
        return ""
    return "it runs a harness that runs commands, which are not judged here"


def _after_harness(argv: Sequence[str]) -> Sequence[str] | None:
    """The words behind the name of harness; None for another program."""
    program = posixpath.basename(argv[0]) if argv else ""
    if program == "harness":
        return argv[1:]
    begin = next((number for number, word in enumerate(argv) if OURS.fullmatch(word)), None)
    if begin is None or not (RUNNERS.fullmatch(program) or argv[0] in SHELLS or program in SHELLS):
        return None
    return argv[begin + 1 :]


def _decision(argv: Sequence[str]) -> str:
    """What the command would decide in a person's place."""
    words = _after_harness(argv)
    if words is None:
        return ""
    names = [word.partition("=")[0] if word.startswith("--") else word for word in words]
    return next((" ".join(decision) for decision in DECISIONS if _in_order(decision, names)), "")


def _in_order(words: Sequence[str], argv: Sequence[str]) -> bool:
    rest = iter(argv)
    return all(word in rest for word in words)


def removes_recursively(argv: Sequence[str]) -> bool:
    """Whether a simple command is ``rm -r``."""
    if not argv or posixpath.basename(argv[0]) != "rm":
        return False
    ended = argv.index("--") if "--" in argv else len(argv)
    return any(
        ("--recursive".startswith(word) and len(word) > 2) or (word[1:2] != "-" and not {"r", "R"}.isdisjoint(word))
        for word in argv[1:ended]
        if word.startswith("-")
    )


def _removes_root(argv: Sequence[str], paths: Iterable[str]) -> bool:
    name = posixpath.basename(argv[0]) if argv else ""
    if name == "rm" and removes_recursively(argv):
        ended = argv.index("--") if "--" in argv else len(argv)
        operands = [word for word in argv[1:ended] if not word.startswith("-")] + list(argv[ended + 1 :])
        return any(map(_is_root, (*operands, *paths)))
    return name == "find" and _deletes_all(argv) and any(map(_is_root, _find_roots(argv)))


def _find_roots(argv: Sequence[str]) -> Sequence[str]:
    end = next((at for at, word in enumerate(argv[1:], 1) if word[:1] in ("-", "(", "!") and word not in LINKS), None)
    return [word for word in argv[1:end] if word not in LINKS]


def _deletes_all(argv: Sequence[str]) -> bool:
    """``find`` deletes whatever it finds, and finds everything."""
    for word, after in pairwise((*argv, "")):
        if FINDS_SOME.fullmatch(word) and after.strip("*/"):
            return False  # a test behind what deletes keeps nothing
        if word == "-delete" or (word in ("-exec", "-execdir") and posixpath.basename(after) in DELETES):
            return True
    return False


def _is_root(word: str) -> bool:
    directory = re.sub(r"/(?:\*|\.\*|\.\[!\.\]\*)+$", "", word) or "/"
    return directory.startswith("/") and posixpath.normpath(directory).strip("/") == ""
