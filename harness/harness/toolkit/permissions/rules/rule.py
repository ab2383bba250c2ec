"""Permission rules, the blocklist, and an index of rules."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise, product
from typing import Literal

from ....patterns.wildcards import Kind, has_wildcard, literal_prefix, matches

__all__ = [
    "ANYTHING",
    "BLOCKED",
    "RUNNERS",
    "Action",
    "Allows",
    "Match",
    "Rule",
    "RuleIndex",
    "RuleSubject",
    "blocked",
    "command_forms",
    "is_harness",
    "may_begin_blocked",
    "may_block",
    "removes_recursively",
    "runs_past_the_policy",
    "target_matches",
]


# -- A rule: the action for a target, a tool and an argument. Pure.


ANYTHING = "*"


class Action(StrEnum):
    """The action of a rule."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class Match(StrEnum):
    """How a rule's argument is compared."""

    LITERAL = "literal"
    """It is the exact text; approval decisions always create such rules."""
    GLOB = "glob"
    """It is a pattern (see :mod:`.globs`), from a settings file or ``--glob`` only."""
    BELOW = "below"
    """It is a directory on the target, with everything in it."""


Allows = Literal["any", "broad", "exact", "none"]
"""``broad``: rules for any argument or for exactly this text; ``exact``: only the latter; ``none``: no rule."""


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """A text that rules are matched against, with its target and tool."""

    identity: str
    """The target with its identity: ``docker://app#3f2a``."""
    tool: str
    text: str
    kind: Kind = "text"
    cwd: str = ""
    """The start directory of a command; empty if unknown."""
    allows: Allows = "any"
    """Which allow rules may match it; deny and ask rules always may."""

    @property
    def url(self) -> str:
        """The target without its identity."""
        return self.identity.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Rule:
    """A permission rule.

    ``target``: a URL, a URL with an identity, or a pattern of one; ``*`` for any. ``tool``: ``*`` for any.
    ``argument``: None for any. ``cwd``: set in a rule from an approval decision about a command, as the same words have
    another effect in another directory. ``origin``: the file, or who approved.
    """

    action: Action
    target: str = ANYTHING
    tool: str = ANYTHING
    argument: str | None = None
    match: Match = Match.LITERAL
    cwd: str | None = None
    origin: str = ""
    hosts: str | None = None

    @property
    def rule_id(self) -> str:
        """A short id of its content, independent of its origin."""
        where = () if self.hosts is None else (self.hosts,)
        what = (self.action, self.target, self.tool, self.argument, self.match, self.cwd, *where)
        return hashlib.sha256(repr(tuple(map(str, what))).encode("utf-8", "backslashreplace")).hexdigest()[:8]

    @property
    def is_exact(self) -> bool:
        """Whether it matches by equality only, so that it can be looked up."""
        fixed = self.match is Match.LITERAL or self.argument is None
        return fixed and not any(has_wildcard(part) and part != ANYTHING for part in (self.target, self.tool))

    def covers(self, what: RuleSubject) -> bool:
        """Return whether it applies to a text."""
        return (
            self.cwd in (None, what.cwd)
            and self._argument_covers(what)
            and self._may_decide(what)
            and matches(self.tool, what.tool)
            and target_matches(self.target, what)
        )

    def _may_decide(self, what: RuleSubject) -> bool:
        if self.action is not Action.ALLOW or what.allows == "any":
            return True
        if what.allows == "broad" and self.argument is None:
            return True
        return what.allows != "none" and self.argument == what.text

    def _argument_covers(self, what: RuleSubject) -> bool:
        if self.argument is None or self.argument == what.text:
            return True
        if self.match is Match.BELOW:
            return what.kind == "path" and what.text.startswith(f"{self.argument.rstrip('/')}/")
        return self.match is Match.GLOB and matches(self.argument, what.text, what.kind)

    def __str__(self) -> str:
        argument = "" if self.argument is None else f" {self.argument!r}"
        below = " and below" if self.match is Match.BELOW else ""
        where = "" if self.target == ANYTHING else f" on {self.target}"
        hosts = "" if self.hosts is None else f" on hosts {self.hosts}"
        inside = f" in {self.cwd}" if self.cwd else ""
        return f"{self.action} {self.tool}{argument}{below}{where}{hosts}{inside}"


def target_matches(pattern: str, what: RuleSubject) -> bool:
    """Return whether a rule's target matches the URL of the target, with or without its identity."""
    if pattern == ANYTHING or pattern in (what.identity, what.url):
        return True
    return has_wildcard(pattern) and (matches(pattern, what.identity) or matches(pattern, what.url))


# -- An index of rules: with ten thousand rules, a decision takes as long as with ten. Pure.


class _PrefixIndex:
    """Numbers of patterns, by the literal beginning of the texts that they match."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._lengths: tuple[int, ...] = ()

    def add(self, beginning: str, number: int) -> None:
        self._numbers.setdefault(beginning.lower(), []).append(number)
        self._lengths = tuple(sorted({*self._lengths, len(beginning)}))

    def of(self, text: str) -> Iterator[int]:
        folded = text.lower()
        for length in self._lengths:
            if length > len(folded):
                return
            yield from self._numbers.get(folded[:length], ())


class RuleIndex:
    """An ordered list of rules, of which the first match applies.

    Exact rules are looked up by (target, tool, argument). Patterns are tried if their literal beginning is that of the
    text.

    Args:
        rules: the rules, in order.
        names: tools by their other names: a rule for such a name is a rule for the tool.
    """

    def __init__(self, rules: Iterable[Rule] = (), names: Mapping[str, str] | None = None) -> None:
        self.rules = tuple(rules)
        self._named = [replace(rule, tool=(names or {}).get(rule.tool, rule.tool)) for rule in self.rules]
        self.tools = frozenset(rule.tool for rule in self.rules)
        """The tool names and patterns in the rules."""
        self._actions = frozenset(rule.action for rule in self.rules)
        self._exact: dict[tuple[str, str, str | None], list[int]] = {}
        self._texts = _PrefixIndex()
        self._last_names = _PrefixIndex()
        for number, rule in enumerate(self._named):
            self._add(number, rule)

    def _add(self, number: int, rule: Rule) -> None:
        argument = rule.argument or ""
        if rule.is_exact:
            self._exact.setdefault((rule.target, rule.tool, rule.argument), []).append(number)
        elif rule.match is Match.GLOB:
            self._texts.add(literal_prefix(argument).rstrip("/"), number)
            if "/" not in argument:
                self._last_names.add(literal_prefix(argument), number)
        else:
            self._texts.add(argument.rstrip("/"), number)

    def first(self, forms: Iterable[RuleSubject], actions: Iterable[Action] = tuple(Action)) -> Rule | None:
        """Return the first rule with one of the actions that covers one of the texts, or None."""
        wanted = self._actions.intersection(actions)
        if not wanted:
            return None
        best: int | None = None
        for what in forms:
            for number in self._candidates(what):
                rule = self._named[number]
                if (best is None or number < best) and rule.action in wanted and rule.covers(what):
                    best = number
        return None if best is None else self.rules[best]

    def _candidates(self, what: RuleSubject) -> Iterator[int]:
        targets, tools, arguments = {what.identity, what.url, ANYTHING}, (what.tool, ANYTHING), (what.text, None)
        for key in product(targets, tools, arguments):
            yield from self._exact.get(key, ())
        yield from self._texts.of(what.text)
        if what.kind == "path":
            yield from self._last_names.of(what.text.rpartition("/")[2])


# -- Commands that are denied in every mode and cannot be approved. Pure.


BLOCKED = (
    "security find-*-password*",
    "security dump-keychain*",
    "secret-tool lookup*",
    "secret-tool search*",
)
"""Commands that read a keychain."""
DECISIONS = (
    ("permissions", "add"),
    ("permissions", "remove"),
    ("tools", "call", "--yes"),
    ("servers", "accept"),
    ("audit", "resolve"),
    ("exec", "--approve"),
    ("exec", "--dangerously-auto-approve"),
    ("lend",),
)
"""harness commands that only the operator may run, as words of its command line; options may stand between them."""
RUNS = frozenset({"run", "exec", "resume", "keys", "mcp", "acp", "call", "demo"})
"""harness commands that run other commands, with their own rules or none."""
HARMLESS = frozenset(
    [
        "run",  # its command is classified separately
        *("read", "write", "capture", "panes", "sessions", "jobs", "attach", "permissions", "disconnect", "tools"),
        *("models", "servers", "memory", "audit", "trace", "recordings", "doctor", "config", "init", "completion"),
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
"""Programs that may run the ``harness`` script, which pip writes as an ``sh`` script if its path is long."""
OURS = re.compile(r"(?:-[A-Za-z]*m)?(?:.*/)?harness(?:\.[\w.]*|/__main__\.py|/cli/\w+\.py)?")


def blocked(argv: Sequence[str], patterns: Iterable[str], paths: Iterable[str] = ()) -> str:
    """Return why a simple command is blocked; empty if it is not.

    Args:
        argv: the words of the command.
        patterns: the blocked commands.
        paths: further names of its files: joined with the directory of a ``cd``, and resolved by the target.
    """
    if _removes_root(argv, paths):
        return "it removes the whole file system"
    if decision := _decision(argv):
        return f"'harness {decision}' is blocked: only the operator may run it"
    forms = command_forms(argv)
    return next((f"{pattern!r} is blocked" for pattern in patterns for form in forms if matches(pattern, form)), "")


def may_block(argv: Sequence[str], patterns: Iterable[str]) -> bool:
    """Return whether a pattern may match this program with other words."""
    programs = [form.split(" ", 1)[0] for form in command_forms(argv[:1])]
    return any(matches(pattern.split(" ", 1)[0], program) for pattern in patterns for program in programs)


def may_begin_blocked(program: str, patterns: Iterable[str]) -> bool:
    """Return whether a command of this program may be blocked; a cheap check for many words."""
    name = posixpath.basename(program)
    known = name in ("rm", "find", "harness") or name in SHELLS or RUNNERS.fullmatch(name) is not None
    return known or may_block((program,), patterns)


def command_forms(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of a command for patterns: its words joined by spaces, with and without the directory."""
    if not argv:
        return ()
    plain = [posixpath.basename(argv[0]), *argv[1:]]
    return tuple(dict.fromkeys((" ".join(argv), " ".join(plain))))


def is_harness(argv: Sequence[str]) -> bool:
    """Return whether a simple command runs harness."""
    return _after_harness(argv) is not None


def runs_past_the_policy(argv: Sequence[str]) -> str:
    """Return why a harness command may run unchecked commands; empty if it does not."""
    words = _after_harness(argv)
    runs = RUNS - {"run"} if posixpath.basename(argv[0] if argv else "") == "harness" else RUNS
    if words is None or (runs.isdisjoint(words) and not HARMLESS.isdisjoint(words)):
        return ""
    return "it runs harness, which may run further commands that are not checked here"


def _after_harness(argv: Sequence[str]) -> Sequence[str] | None:
    """Return the words after the name of harness; None for another program."""
    program = posixpath.basename(argv[0]) if argv else ""
    if program == "harness":
        return argv[1:]
    begin = next((number for number, word in enumerate(argv) if OURS.fullmatch(word)), None)
    if begin is None or not (RUNNERS.fullmatch(program) or argv[0] in SHELLS or program in SHELLS):
        return None
    return argv[begin + 1 :]


def _decision(argv: Sequence[str]) -> str:
    """Return the decision that the command would make for the operator; empty if it makes none."""
    words = _after_harness(argv)
    if words is None:
        return ""
    names = [word.partition("=")[0] if word.startswith("--") else word for word in words]
    return next((" ".join(decision) for decision in DECISIONS if _in_order(decision, names)), "")


def _in_order(words: Sequence[str], argv: Sequence[str]) -> bool:
    rest = iter(argv)
    return all(word in rest for word in words)


def removes_recursively(argv: Sequence[str]) -> bool:
    """Return whether a simple command is ``rm -r``."""
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
    """Return whether ``find`` deletes everything below its start, without a test that selects files."""
    for word, after in pairwise((*argv, "")):
        if FINDS_SOME.fullmatch(word) and after.strip("*/"):
            return False  # only a test before the deletion protects files
        if word == "-delete" or (word in ("-exec", "-execdir") and posixpath.basename(after) in DELETES):
            return True
    return False


def _is_root(word: str) -> bool:
    directory = re.sub(r"/(?:\*|\.\*|\.\[!\.\]\*)+$", "", word) or "/"
    return directory.startswith("/") and posixpath.normpath(directory).strip("/") == ""
