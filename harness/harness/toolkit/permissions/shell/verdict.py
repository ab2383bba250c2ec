"""What a shell command would run, and whether all of it only reads.

The text is parsed by the grammar of bash and, for the answer "it only reads", a second time by a small strict reader of
what every shell takes in the same way: both must find the same words. Nothing is decided by searching for substrings.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from ....deprecated_names import renamed_names
from ...redaction.patterns import is_secret_name
from ..lookalikes import hidden_character, strange_letter
from .commands_in_words import commands_in_options, commands_in_variables, evaluates_text, unrolled, written_script
from .host_programs import lookup_reason
from .parse import ShellParserMissing, scan
from .paths import (
    Directories,
    TooManyPaths,
    braced,
    code_read,
    named_paths,
    paths_in,
    paths_in_input,
    paths_in_values,
    renamed,
    renamings,
    substituted,
)
from .read_only import HARMLESS_NAME, ReadOnlyResult, examine, readable_path
from .read_only_programs import takes_rights_away
from .shell_state import keeps_lines, shows_values
from .strict_text import parse_strict
from .words import ParsedCommand, Redirect, ShellParse, Word, harmless_assignment
from .wrappers import WrappedCommands, program_name, unwrap

__all__ = ["CommandClassification", "SimpleCommand", "classify_command"]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, CommandJudgement="CommandClassification", judge_command="classify_command")


MAX_NAMES = 256
"""Of names that a text gives; with more it is not judged."""
MAX_LENGTH = 16 << 10
"""Characters; a longer command is not judged."""
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_NOTHING = "there is no command in it"
LOOKS_ELSEWHERE = "it asks another host, and permissions.network_lookups is off"
_DEPTH = 6
"""Wrappers and shell texts inside one another."""
_MAX_COMMANDS = 400
"""Simple commands in one text."""
_COSTLY = {"|": 500, "=(": 200, "<<": 100}
"""How often these may stand in one text: the parser's time grows with their square. (Cut short, it cannot be: a parser
that was stopped goes on with the old text.)"""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One program that would run. A wrapper (``sudo``, ``timeout``) stands beside what it runs.

    ``argv`` are its words with quotes undone; what is only known at run time stands there as it is written, and
    ``argv`` is empty for what is no program (``x=1``, ``>file``, a function). ``reason`` says why it is not read-only.
    ``paths`` are the files it names, as written (``~``, patterns and relative ones too), and those that a ``cd`` before
    it would make of them. ``writes`` are those that its own ``>`` opens, as written. ``privileged``: it runs as another
    user, elsewhere, or later; then it is never read-only.
    """

    argv: tuple[str, ...]
    text: str
    read_only: bool
    reason: str
    paths: tuple[str, ...] = ()
    privileged: bool = False
    writes: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()
    """The words of ``argv`` with what is known of each."""
    targets: tuple[Word, ...] = ()
    """The files that its own redirections open."""
    named: tuple[str, ...] = ()
    """Those of its ``paths`` of which it shows and changes no content."""
    code: str = ""
    """What it reads as an interpreter, a script that it writes, and the variables that are set for it."""


@dataclass(frozen=True, slots=True)
class CommandClassification:
    """The whole command. When it is not ``parsed``, it is not known what would run, and ``commands`` may lack some.

    ``doubt`` is why another shell, or a person, may read it otherwise than bash does; empty when none would.
    ``read_only``: every part of it only reads, in whichever shell. ``reason`` says why it is not; empty when it is.
    ``values`` are what variables become that are set in the text.
    """

    parsed: bool
    read_only: bool
    commands: tuple[SimpleCommand, ...]
    reason: str
    doubt: str = ""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)


@lru_cache(maxsize=1024)
def classify_command(text: str, *, lookups: bool = False) -> CommandClassification:
    """Judge a command. Never raises; pure, so that answers are remembered.

    Args:
        lookups: commands that look something up on other hosts count as reading.

    Without the parser (``harness-ops[policy]``) nothing is parsed, and everything asks.
    """
    refused = _refused_text(text)
    if refused:
        return CommandClassification(False, False, (), refused)
    try:
        return _judge(text, lookups)
    except ShellParserMissing as missing:
        return CommandClassification(False, False, (), str(missing))
    except RecursionError:
        return CommandClassification(False, False, (), "it is nested too deeply")
    except TooManyPaths as many:
        return CommandClassification(False, False, (), str(many))


def _refused_text(text: str) -> str:
    if len(text) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH} characters"
    costly = [mark for mark, most in _COSTLY.items() if text.count(mark) > most]
    if costly:
        return f"it contains {costly[0]!r} more often than is judged"
    hidden = hidden_character(text)
    if hidden:
        return f"it contains a character that is not seen as what it is: {hidden}"
    return "" if text.strip(" \t\n") else _NOTHING


def _judge(text: str, lookups: bool) -> CommandClassification:
    court = _Classifier(lookups)
    court.script(text, _ExecutionContext(), 0)
    doubt = court.doubts[0] if court.doubts else ""
    strange = strange_letter(text)
    if strange:
        doubt = f"it contains a character that is easily taken for another: {strange}"
    names = renamings(item.argv for item in court.commands)
    if len(names) > MAX_NAMES:
        court.unknown.append("it gives more new names than are judged")
        names = ()
    unsure = next(iter(court.unknown), "") or doubt or _secret_variable(text) or _values_without_names(court)
    commands = tuple(_settled(item, court, unsure, names) for item in court.commands)
    reason = next(iter(court.unknown), "") or (doubt if strange else "")
    reason = reason or next((item.reason for item in commands if item.reason), "") or doubt
    reason = reason if commands or reason else _NOTHING
    return CommandClassification(not court.unknown, not reason, commands, reason, doubt, court.values)


def _secret_variable(text: str) -> str:
    """A variable of the target whose value would be shown: it is as secret as the environment."""
    names = (match[1] for match in _VARIABLE.finditer(text))
    return next((f"the value of ${name} may be a secret" for name in names if is_secret_name(name)), "")


def _values_without_names(court: _Classifier) -> str:
    if not any(shows_values(command.argv) for command in court.commands):
        return ""
    cutting = next((command for command in court.commands if not keeps_lines(command.argv)), None)
    what = cutting.argv[0] if cutting is not None else ""
    return f"it shows the environment, and {what} may show a value without its name" if what else ""


def _settled(
    command: SimpleCommand, court: _Classifier, unsure: str, names: Sequence[tuple[str, str]]
) -> SimpleCommand:
    """A command when the whole text is known: a ``cd`` in a loop also moves what stands before it."""
    reason = command.reason or unsure
    directories = court.directories
    if directories.lost and any(not path.startswith(("/", "~")) for path in command.paths):
        reason = reason or "after a cd that is only known at run time, a relative path may be any file"
    content = [path for path in command.paths if path not in command.named]
    content_paths = renamed(directories.of(braced(substituted(content, court.values))), names)
    paths = renamed(directories.of(braced(substituted(command.paths, court.values))), names)
    named = tuple(path for path in paths if path not in content_paths)
    return replace(command, read_only=not reason, reason=reason, paths=paths, named=named)


@dataclass(frozen=True, slots=True)
class _ExecutionContext:
    """Where a command runs: as whom (``privileged`` says why not as the caller), and inside what."""

    privileged: str = ""
    through: str = ""


class _Classifier:
    """Collects the judgement of one text and of all the texts inside it."""

    def __init__(self, lookups: bool) -> None:
        self._lookups = lookups
        self.commands: list[SimpleCommand] = []
        self.unknown: list[str] = []
        self.doubts: list[str] = []
        self.directories = Directories()
        self.values: dict[str, list[str]] = {}

    def script(self, text: str, place: _ExecutionContext, depth: int) -> None:
        """Judge a text for a shell."""
        if depth > _DEPTH or len(self.commands) > _MAX_COMMANDS:
            self.unknown.append("it is nested too deeply, or too long to be judged")
            return
        if not text.strip(" \t\n"):
            return
        found = scan(text)
        self.unknown += found.unknown
        self.doubts += found.doubts
        self._compare(text, found)
        for item in self._each(found.found):
            self._found(item, place, depth)

    def _each(self, found: Sequence[ParsedCommand]) -> Sequence[ParsedCommand]:
        """The commands, in loops once for each value, as long as these are not too many."""
        room = _MAX_COMMANDS // 2 - len(self.commands)
        if len(found) > room:
            return found
        changed = _set_otherwise(found)
        each = [one for item in found for one in unrolled(item, changed=changed)]
        return each if len(each) <= room else found

    def _compare(self, text: str, found: ShellParse) -> None:
        reading = parse_strict(text)
        if reading.reason:
            self.doubts.append(f"shells may read it differently: {reading.reason}")
        elif _plain(found.shapes) != _plain(reading.commands) or _plain(found.targets) != _plain(reading.redirects):
            self.doubts.append("two readings of it do not find the same words")

    def _found(self, found: ParsedCommand, place: _ExecutionContext, depth: int) -> None:
        if len(self.commands) > _MAX_COMMANDS:
            self.unknown.append("it runs more commands than are judged")
            return
        self._remember(found)
        self._evaluated(found, place, depth)
        why = found.special or _assignments(found) or _redirects(found.redirects)
        if not found.words:
            given = (*(word for _, word in found.assigned), *found.values)
            paths = (*(word.text for word in _files(found.redirects)), *paths_in(given))
            reason = why or place.privileged
            writes, targets = _written(found.redirects), tuple(_files(found.redirects))
            named = paths_in(found.values)  # a loop shows nothing of them, but what is in it may
            self._add(
                SimpleCommand((), found.text, not reason, reason, paths, writes=writes, targets=targets, named=named),
                place,
            )
            return
        self._run(found.words, found, why, place, depth)

    def _remember(self, found: ParsedCommand) -> None:
        """What variables may become: of one that is set twice, both."""
        for name, value in found.assigned:
            self.values.setdefault(name.removesuffix("+"), []).extend(word.text for word in (found.values or (value,)))
        for word in found.words[1:]:  # export x=y
            name, equals, text = word.text.partition("=")
            if equals and name.isidentifier():
                self.values.setdefault(name, []).append(text)

    def _evaluated(self, found: ParsedCommand, place: _ExecutionContext, depth: int) -> None:
        """Judge what runs though it stands as a value."""
        if reason := evaluates_text(found):
            self.unknown.append(reason)
        for text in commands_in_variables(found):
            self.script(text.text, place, depth + 1)

    def _run(self, words: Sequence[Word], found: ParsedCommand, why: str, place: _ExecutionContext, depth: int) -> None:
        name = program_name(words[0])
        inner = unwrap(words, found.input)
        reason, paths = why, named_paths(words)
        named = paths if takes_rights_away(name, words[1:]) else _judged_inside(inner, words)
        if not words[0].known:
            self.unknown.append(f"the program {words[0].raw} is only known at run time")
            reason = reason or self.unknown[-1]
        elif not name:
            reason = reason or f"{words[0].text} is a path outside the system's directories"
        elif inner is None or name == "find":
            finding = self._examine(name, words[1:], found)
            reason = reason or finding.reason
            if finding.read_only:
                paths, named = finding.paths, () if finding.shows_content else finding.paths
        reason = reason or (inner.reason if inner is not None else "") or place.privileged
        self.directories.enter(name, words)
        away = bool(place.privileged) or (inner is not None and inner.privileged)
        files = [word.text for word in _files(found.redirects)]
        files += (*paths_in_values(word for _, word in found.assigned), *paths_in_input(words, found.input))
        argv = tuple(word.text for word in words)
        shown = found.text if words is found.words else " ".join(argv)
        writes, targets = _written(found.redirects), tuple(_files(found.redirects))
        named = tuple(path for path in named if path not in files)
        every = (*paths, *files)
        script = written_script(name, words, found.input, [*writes, *(word.text for word in targets)] if writes else ())
        code = "\n".join((code_read(words, found.input), script, *(word.text for _, word in found.assigned)))
        self._add(
            SimpleCommand(argv, shown, not reason, reason, every, away, writes, tuple(words), targets, named, code),
            place,
        )
        if inner is not None:
            self._inside(inner, words[0].text, found, place, depth)
        for text in commands_in_options(posixpath.basename(words[0].text), words[1:]):
            self.script(text.text, place, depth + 1)

    def _examine(self, name: str, words: Sequence[Word], found: ParsedCommand) -> ReadOnlyResult:
        finding = examine(name, words)
        lookup = lookup_reason(name, words, found) if finding.reason else None
        if lookup is None:
            return finding
        return ReadOnlyResult(lookup if self._lookups or lookup else LOOKS_ELSEWHERE)

    def _inside(
        self, inner: WrappedCommands, wrapper: str, found: ParsedCommand, place: _ExecutionContext, depth: int
    ) -> None:
        if inner.unknown:
            self.unknown.append(inner.unknown)
        if depth >= _DEPTH:
            self.unknown.append("it is nested too deeply")
            return
        if inner.privileged:
            place = _ExecutionContext(f"{wrapper}: {inner.reason}", wrapper)
        for argv in inner.argvs:
            nested = replace(found, words=argv, assigned=(), redirects=(), special="")
            self._run_deeper(argv, nested, place, depth + 1)
        for script in inner.scripts:
            if script.known:
                self.script(script.text, place, depth + 1)
            else:
                self.unknown.append(f"what {wrapper} would run is only known at run time: {script.raw}")

    def _run_deeper(self, argv: Sequence[Word], found: ParsedCommand, place: _ExecutionContext, depth: int) -> None:
        if depth > _DEPTH:
            self.unknown.append("it is nested too deeply")
            return
        self._run(argv, found, "", place, depth)

    def _add(self, command: SimpleCommand, place: _ExecutionContext) -> None:
        if place.privileged and not command.privileged:
            command = replace(command, privileged=True)
        self.commands.append(command)


def _judged_inside(inner: WrappedCommands | None, words: Sequence[Word]) -> tuple[str, ...]:
    """What a wrapper's words name only for what it runs."""
    if inner is None or inner.unknown:
        return ()
    passed = [*(word for argv in inner.argvs for word in argv[1:]), *inner.scripts]
    inside = {id(word) for word in passed}
    own = paths_in(word for word in words[1:] if id(word) not in inside)
    return tuple(path for path in paths_in(passed) if path not in own)


def _set_otherwise(found: Sequence[ParsedCommand]) -> list[str]:
    """The names that something else than one loop may set: a second assignment, or a word such as that of ``read``."""
    assigned = [name.removesuffix("+") for item in found for name, _ in item.assigned]
    words = {word.text for item in found for word in item.words[1:]}
    return [name for name, count in Counter(assigned).items() if count > 1 or name in words]


_Read = TypeVar("_Read")


def _plain(placed: list[tuple[int, _Read]]) -> list[_Read]:
    """What was read, in the order of the text."""
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


def _assignments(found: ParsedCommand) -> str:
    for name, value in found.assigned:
        reason = "" if HARMLESS_NAME.fullmatch(name) else harmless_assignment(name, value)
        if reason:
            return reason
    return ""


def _files(redirects: Iterable[Redirect]) -> list[Word]:
    return [item.word for item in redirects if item.word is not None and item.word.text != "/dev/null"]


def _written(redirects: Sequence[Redirect]) -> tuple[str, ...]:
    return tuple(word.raw for word in _files(item for item in redirects if item.writes))


def _redirects(redirects: Sequence[Redirect]) -> str:
    for item in redirects:
        if item.word is None:
            continue
        null = item.word.known and item.word.text == "/dev/null"
        if item.writes and not null:
            return f"{item.operator} writes {item.word.raw}"
        if not item.writes and (reason := readable_path(item.word)):
            return reason
    return ""
