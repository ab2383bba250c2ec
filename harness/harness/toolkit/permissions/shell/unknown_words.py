"""Commands with words only known at run time that a hard denial may apply to. Pure.

``harness``, ``rm -r``, blocked programs, and programs that read or write the files in their operands are denied by
their words. Words from ``xargs``, a substitution or a variable are unknown, so the command asks in every mode.
Variables set in the same text, wildcards and braces are resolved.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING

from ..rules.rule import RUNNERS, is_harness, may_block, removes_recursively
from .paths import CHANGING, COPYING, READING, SEARCHING, listed, takes_names
from .read_only.programs import PROGRAMS
from .words import Options, Word, grammar, parse_options

if TYPE_CHECKING:
    from .classification import CommandClassification, SimpleCommand

__all__ = ["unclear_programs", "unknown_words_reason"]

_CONTENT = frozenset({"paths", "pattern"})
_FILES = frozenset(
    [
        *(name for name, program in PROGRAMS.items() if program.operands in _CONTENT),
        *("sed", "awk", "gawk", "mawk", "tar", "less", "more", "dd", "tee", "truncate", "unlink", "gzip", "gunzip"),
        *(*SEARCHING, *READING, *COPYING, *CHANGING),
    ]
) - {"chmod", "chown", "chgrp", "setfacl", "chattr", "chcon", "restorecon"}
"""Programs that show or replace the content of the files in their operands."""
_SCRIPTS = frozenset({"sed", "awk", "gawk", "mawk"})
"""Programs whose first operand is a script."""
_PASSING = frozenset({"xargs", "sudo", "cd", "env", "nice", "timeout"})
_FILTERS = frozenset({"grep", "egrep", "fgrep", "sort", "uniq", "head", "tail"})
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_PLAIN_VALUE = re.compile(
    r"\$(?:\$|\?|#|\((?:date(?: -u)? (?:-[uI]|[\"']?\+[\w%:.-]+[\"']?)|hostname(?: -s)?|whoami|id -un?|uname -r)\))"
    r"|^\$(?:HOME|PWD|\{HOME\}|\{PWD\})(?=/|$)|^\"\$(?:HOME|PWD)\"(?=/|$)"
)
"""Values that do not name another file: a number, a date, a host name or a user name."""
_ROUNDS = 3
_FORMS = 64
_MAX_FORM_CHARS = 16 << 10
"""Limits of expansion; beyond them a word counts as unknown."""


def unknown_words_reason(classification: CommandClassification, blocked: Sequence[str]) -> str:
    """Return why it is unknown whether a hard denial applies to one of the commands; empty if it is known."""
    names = _Values(classification)
    return next((why for one in classification.commands if (why := _reason(one, names, blocked))), "")


def unclear_programs(classification: CommandClassification) -> tuple[str, ...]:
    """Return the programs with words only known at run time, to which a deny rule for the program may apply."""
    return tuple(
        dict.fromkeys(
            one.argv[0] for one in classification.commands if any(not _written_out(word) for word in one.words[1:])
        )
    )


def _reason(command: SimpleCommand, values: _Values, blocked: Sequence[str]) -> str:
    name = posixpath.basename(command.argv[0]) if command.argv else ""
    words = command.words[1:]
    unknown = [word for word in words if not word.known]
    if unknown and (is_harness(command.argv) or _may_run_harness(name, words)):
        return f"whether it answers for the operator is only known at run time: {command.text}"
    if name == "rm" and (why := _removal(command, values)):
        return why
    if unknown and may_block(command.argv, blocked):
        return f"whether it is blocked is only known at run time: {command.text}"
    if takes_names(command.argv) and not values.feeds_names:
        return f"which files it opens is only known at run time: {command.text}"
    files = [*_files_of(name, words), *command.targets] if name in _FILES else [*command.targets]
    missing = next((word for word in files if not values.resolves(word)), None)
    return f"a file is only known at run time: {missing.raw}" if missing is not None else ""


def _may_run_harness(name: str, words: Sequence[Word]) -> bool:
    """Return whether a runner may start harness because its module is unknown: ``python -m $(echo harness)``."""
    plain = [word for word in words if not word.text.startswith("-") and word.text not in ("run", "tool", "x", "exec")]
    return bool(RUNNERS.fullmatch(name)) and bool(plain) and not _written_out(plain[0])


def _removal(command: SimpleCommand, values: _Values) -> str:
    unknown = [word for word in command.words[1:] if not values.resolves(word) or values.become_options(word)]
    if unknown and (removes_recursively(command.argv) or any(word.spread or not word.lead for word in unknown)):
        return f"what it removes is only known at run time: {unknown[0].raw}"
    return ""


def _written_out(word: Word) -> bool:
    """Return whether the word is known, apart from the names of files that match it."""
    return word.known or (word.pattern and word.text != "{}")


def _files_of(name: str, words: Sequence[Word]) -> Iterable[Word]:
    """Return the words that are or may become files; a word that may become several may also become an option."""
    program = PROGRAMS.get(name)
    if program is None:
        first = next((word for word in words if not word.text.startswith("-")), None)
        skipped = first if name in _SCRIPTS and first is not None and not first.spread else None
        return [word for word in words if word is not skipped]
    known = grammar(program.options, one_dash=program.one_dash, own=program.own)
    options = parse_options(words, known, permute=program.permute, loose=True)
    if options.reason:
        return words
    spread = [word for word in words if word.spread]
    return [*options.paths, *_operands(program.operands, options), *spread]


def _operands(kind: str, options: Options) -> Sequence[Word]:
    given = options.has("-e", "-f", "--regexp", "--file", "--expression")
    return options.operands[0 if given or kind != "pattern" else 1 :]


class _Values:
    """Values of the variables in one text, and whether the names that ``xargs`` reads are known."""

    def __init__(self, classification: CommandClassification) -> None:
        named = {word.text for command in classification.commands for word in command.words[1:]}
        self._values = {name: forms for name, forms in classification.values.items() if name not in named}  # read f
        self.feeds_names = _feeds_names(classification.commands)
        self._finds_below = all(_lists(command) for command in classification.commands if listed(command.argv))

    def resolves(self, word: Word) -> bool:
        """Return whether the text shows which files a word may be."""
        if _written_out(word) or word.text == "/dev/null":
            return True
        if word.text == "{}":  # a file that find found
            return self._finds_below
        if word.raw == word.text and not re.search(r"[$`<{]", word.text):
            return self.feeds_names  # the names that xargs adds
        return self._spelled_out(word.text)

    def become_options(self, word: Word) -> bool:
        """Return whether variables may turn the word into options or several words."""
        forms = self._forms(word.text) if "$" in word.text and not word.known else []
        return forms is None or any(form.startswith("-") or re.search(r"\s", form) for form in forms)

    def _spelled_out(self, text: str) -> bool:
        forms = self._forms(text)
        return forms is not None and not any(re.search(r"[$`]|<\(", form) for form in forms)

    def _forms(self, text: str) -> list[str] | None:
        """Return the forms that a word may take; None if there are too many."""
        forms = [text]
        for _ in range(_ROUNDS):
            more = (new for form in forms for new in self._replaced(_PLAIN_VALUE.sub("0", form)))
            forms = list(dict.fromkeys(islice(more, _FORMS)))
            if next(more, None) is not None or any(len(form) > _MAX_FORM_CHARS for form in forms):
                return None
        return forms

    def _replaced(self, form: str) -> Iterable[str]:
        names = [match[1] or match[2] for match in _VARIABLE.finditer(form)]
        choices = [self._values.get(name, (f"${name}",)) for name in names]
        pieces = _VARIABLE.split(form)[::3]
        for chosen in product(*choices):
            yield "".join(part for pair in zip(pieces, (*chosen, ""), strict=True) for part in pair)


def _feeds_names(commands: Sequence[SimpleCommand]) -> bool:
    """Return whether ``xargs`` can only read names below directories that are in the text, none of them ``/``."""
    if not any(listed(command.argv) for command in commands):
        return False
    takers = (at for at, one in enumerate(commands) if one.argv and (_base(one) == "xargs" or takes_names(one.argv)))
    at = next(takers, len(commands))
    return all(_lists(command) for command in commands[:at])


def _lists(command: SimpleCommand) -> bool:
    name = _base(command) if command.argv else ""
    if name in _PASSING or (name in _FILTERS and not command.paths):
        return True
    roots = listed(command.argv)
    return bool(roots) and all(map(_written_out, command.words)) and not any(map(_is_root, roots))


def _base(command: SimpleCommand) -> str:
    return posixpath.basename(command.argv[0])


def _is_root(path: str) -> bool:
    return path.startswith("/") and not posixpath.normpath(path).strip("/")
