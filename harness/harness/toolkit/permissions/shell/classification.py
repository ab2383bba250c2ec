"""Classification of a shell command: what it would run, and whether all of it only reads.

The text is parsed with the grammar of bash. To count as reading, a small strict parser of what every shell parses the
same way must find the same words. Nothing is decided by searching for substrings.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from ....deprecated_names import renamed_names
from ...redaction.patterns import is_secret_name
from ..lookalikes import hidden_character, strange_letter
from .commands_in_words import commands_in_options, commands_in_variables, evaluates_text, unrolled, written_script
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
from .read_only.host_programs import lookup_reason
from .read_only.program_check import HARMLESS_NAME, ReadOnlyResult, examine, readable_path
from .read_only.programs import takes_rights_away
from .shell_state import keeps_lines, shows_values
from .strict_text import parse_strict
from .words import CommandClassification, ParsedCommand, Redirect, ShellParse, SimpleCommand, Word, harmless_assignment
from .wrappers import WrappedCommands, program_name, unwrap

__all__ = ["CommandClassification", "SimpleCommand", "classify_command"]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, CommandJudgement="CommandClassification", judge_command="classify_command")


MAX_NAMES = 256
"""New names that ``ln``, ``mv`` and others in one text may create; with more, the text is not classified."""
MAX_LENGTH = 16 << 10
"""Characters; a longer command is not classified."""
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_NOTHING = "it contains no command"
LOOKS_ELSEWHERE = "it queries another host, and permissions.network_lookups is off"
_DEPTH = 6
"""Maximum nesting of wrappers and shell texts."""
_MAX_COMMANDS = 400
"""Maximum number of simple commands in one text."""
_COSTLY = {"|": 500, "=(": 200, "<<": 100}
"""Maximum occurrences in one text: parse time is quadratic in them. (A parse cannot be cut short: a stopped parser
resumes with the old text.)"""


@lru_cache(maxsize=1024)
def classify_command(text: str, *, lookups: bool = False) -> CommandClassification:
    """Classify a command.

    Never raises. Pure, so results are cached. Without the parser (``harness-ops[policy]``) no command is parsed, and
    each one asks.

    Args:
        text: the command.
        lookups: commands that look something up on other hosts count as reading.

    Returns:
        The classification of the whole command.
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
        return f"it contains {costly[0]!r} too often to be classified"
    hidden = hidden_character(text)
    if hidden:
        return f"it contains a hidden or misleading character: {hidden}"
    return "" if text.strip(" \t\n") else _NOTHING


def _judge(text: str, lookups: bool) -> CommandClassification:
    classifier = _Classifier(lookups)
    classifier.script(text, _ExecutionContext(), 0)
    doubt = classifier.doubts[0] if classifier.doubts else ""
    strange = strange_letter(text)
    if strange:
        doubt = f"it contains a character that can be mistaken for another: {strange}"
    names = renamings(item.argv for item in classifier.commands)
    if len(names) > MAX_NAMES:
        classifier.unknown.append("it gives files too many new names to be classified")
        names = ()
    unsure = next(iter(classifier.unknown), "") or doubt or _secret_variable(text) or _values_without_names(classifier)
    commands = tuple(_settled(item, classifier, unsure, names) for item in classifier.commands)
    reason = next(iter(classifier.unknown), "") or (doubt if strange else "")
    reason = reason or next((item.reason for item in commands if item.reason), "") or doubt
    reason = reason if commands or reason else _NOTHING
    return CommandClassification(not classifier.unknown, not reason, commands, reason, doubt, classifier.values)


def _secret_variable(text: str) -> str:
    """Return why a variable that the text expands may be a secret; empty if none may be."""
    names = (match[1] for match in _VARIABLE.finditer(text))
    return next((f"the value of ${name} may be a secret" for name in names if is_secret_name(name)), "")


def _values_without_names(classifier: _Classifier) -> str:
    if not any(shows_values(command.argv) for command in classifier.commands):
        return ""
    cutting = next((command for command in classifier.commands if not keeps_lines(command.argv)), None)
    what = cutting.argv[0] if cutting is not None else ""
    return f"it shows the environment, and {what} may print a value without its name" if what else ""


def _settled(
    command: SimpleCommand, classifier: _Classifier, unsure: str, names: Sequence[tuple[str, str]]
) -> SimpleCommand:
    """Complete a command with what the whole text says: a ``cd`` in a loop also affects earlier commands."""
    reason = command.reason or unsure
    directories = classifier.directories
    if directories.lost and any(not path.startswith(("/", "~")) for path in command.paths):
        reason = reason or "after a cd to a directory only known at run time, a relative path may be any file"
    content = [path for path in command.paths if path not in command.named]
    content_paths = renamed(directories.of(braced(substituted(content, classifier.values))), names)
    paths = renamed(directories.of(braced(substituted(command.paths, classifier.values))), names)
    named = tuple(path for path in paths if path not in content_paths)
    return replace(command, read_only=not reason, reason=reason, paths=paths, named=named)


@dataclass(frozen=True, slots=True)
class _ExecutionContext:
    """Where a command runs: why not as the caller (``privileged``), and inside which wrapper (``through``)."""

    privileged: str = ""
    through: str = ""


class _Classifier:
    """Classifies one text and all the texts inside it."""

    def __init__(self, lookups: bool) -> None:
        self._lookups = lookups
        self.commands: list[SimpleCommand] = []
        self.unknown: list[str] = []
        self.doubts: list[str] = []
        self.directories = Directories()
        self.values: dict[str, list[str]] = {}

    def script(self, text: str, place: _ExecutionContext, depth: int) -> None:
        """Classify a text for a shell."""
        if depth > _DEPTH or len(self.commands) > _MAX_COMMANDS:
            self.unknown.append("it is nested too deeply or runs too many commands to be classified")
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
        """Return the commands, those in loops once for each value unless that exceeds the limit."""
        room = _MAX_COMMANDS // 2 - len(self.commands)
        if len(found) > room:
            return found
        changed = _set_otherwise(found)
        each = [one for item in found for one in unrolled(item, changed=changed)]
        return each if len(each) <= room else found

    def _compare(self, text: str, found: ShellParse) -> None:
        reading = parse_strict(text)
        if reading.reason:
            self.doubts.append(f"shells may parse it differently: {reading.reason}")
        elif _plain(found.shapes) != _plain(reading.commands) or _plain(found.targets) != _plain(reading.redirects):
            self.doubts.append("the bash parser and the strict parser find different words")

    def _found(self, found: ParsedCommand, place: _ExecutionContext, depth: int) -> None:
        if len(self.commands) > _MAX_COMMANDS:
            self.unknown.append("it runs too many commands to be classified")
            return
        self._remember(found)
        self._evaluated(found, place, depth)
        why = found.special or _assignments(found) or _redirects(found.redirects)
        if not found.words:
            given = (*(word for _, word in found.assigned), *found.values)
            paths = (*(word.text for word in _files(found.redirects)), *paths_in(given))
            reason = why or place.privileged
            writes, targets = _written(found.redirects), tuple(_files(found.redirects))
            named = paths_in(found.values)  # the loop itself shows no content; commands in its body may
            self._add(
                SimpleCommand((), found.text, not reason, reason, paths, writes=writes, targets=targets, named=named),
                place,
            )
            return
        self._run(found.words, found, why, place, depth)

    def _remember(self, found: ParsedCommand) -> None:
        """Record the values that variables may get; all of them if one is set several times."""
        for name, value in found.assigned:
            self.values.setdefault(name.removesuffix("+"), []).extend(word.text for word in (found.values or (value,)))
        for word in found.words[1:]:  # export x=y
            name, equals, text = word.text.partition("=")
            if equals and name.isidentifier():
                self.values.setdefault(name, []).append(text)

    def _evaluated(self, found: ParsedCommand, place: _ExecutionContext, depth: int) -> None:
        """Classify commands that are written as values, such as those of ``PAGER``."""
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
            reason = reason or f"{words[0].text} is a path outside the system directories"
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
    """Return the paths that a wrapper names only in the command that it runs."""
    if inner is None or inner.unknown:
        return ()
    passed = [*(word for argv in inner.argvs for word in argv[1:]), *inner.scripts]
    inside = {id(word) for word in passed}
    own = paths_in(word for word in words[1:] if id(word) not in inside)
    return tuple(path for path in paths_in(passed) if path not in own)


def _set_otherwise(found: Sequence[ParsedCommand]) -> list[str]:
    """Return the variables that not only one loop sets: assigned twice, or named in a word such as that of ``read``."""
    assigned = [name.removesuffix("+") for item in found for name, _ in item.assigned]
    words = {word.text for item in found for word in item.words[1:]}
    return [name for name, count in Counter(assigned).items() if count > 1 or name in words]


_Read = TypeVar("_Read")


def _plain(placed: list[tuple[int, _Read]]) -> list[_Read]:
    """Return what was parsed, in the order of the text."""
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
