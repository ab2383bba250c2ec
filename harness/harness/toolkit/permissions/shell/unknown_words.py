"""Commands that a hard denial may concern, with words that are only known at run time. Pure.

``harness``, ``rm -r``, blocked programs, and programs that read or write the files that they are given are denied by
their words. A word that comes from ``xargs``, a substitution or a variable is not seen, so the command asks in every
mode. Variables that get their value in the same text are seen, and so are wildcards and braces.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING

from ..rules.rule import RUNNERS, is_harness, may_block, removes_recursively
from .paths import CHANGING, COPYING, READING, SEARCHING, listed, takes_names
from .read_only_programs import PROGRAMS
from .words import Options, Word, grammar, parse_options

if TYPE_CHECKING:
    from .verdict import CommandClassification, SimpleCommand

__all__ = ["unclear_programs", "unknown_words_reason"]

_CONTENT = frozenset({"paths", "pattern"})
_FILES = frozenset(
    [
        *(name for name, program in PROGRAMS.items() if program.operands in _CONTENT),
        *("sed", "awk", "gawk", "mawk", "tar", "less", "more", "dd", "tee", "truncate", "unlink", "gzip", "gunzip"),
        *(*SEARCHING, *READING, *COPYING, *CHANGING),
    ]
) - {"chmod", "chown", "chgrp", "setfacl", "chattr", "chcon", "restorecon"}
"""Programs that show or replace what is in the files that they are given."""
_SCRIPTS = frozenset({"sed", "awk", "gawk", "mawk"})
"""Their first operand is a script."""
_PASSING = frozenset({"xargs", "sudo", "cd", "env", "nice", "timeout"})
_FILTERS = frozenset({"grep", "egrep", "fgrep", "sort", "uniq", "head", "tail"})
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_PLAIN_VALUE = re.compile(
    r"\$(?:\$|\?|#|\((?:date(?: -u)? (?:-[uI]|[\"']?\+[\w%:.-]+[\"']?)|hostname(?: -s)?|whoami|id -un?|uname -r)\))"
    r"|^\$(?:HOME|PWD|\{HOME\}|\{PWD\})(?=/|$)|^\"\$(?:HOME|PWD)\"(?=/|$)"
)
"""Values of which nobody makes the name of another file: a number, a date, a name of the host or the user."""
_ROUNDS = 3
_FORMS = 64
_MAX_FORM_CHARS = 16 << 10
"""What a word may become beyond these is taken for anything."""


def unknown_words_reason(judgement: CommandClassification, blocked: Sequence[str]) -> str:
    """Why nobody knows whether a hard denial concerns one of the commands; empty when that is known."""
    names = _Values(judgement)
    return next((why for one in judgement.commands if (why := _reason(one, names, blocked))), "")


def unclear_programs(judgement: CommandClassification) -> tuple[str, ...]:
    """The programs with words that are only known at run time: a rule that denies one of them may concern it."""
    return tuple(
        dict.fromkeys(
            one.argv[0] for one in judgement.commands if any(not _written_out(word) for word in one.words[1:])
        )
    )


def _reason(command: SimpleCommand, values: _Values, blocked: Sequence[str]) -> str:
    name = posixpath.basename(command.argv[0]) if command.argv else ""
    words = command.words[1:]
    unknown = [word for word in words if not word.known]
    if unknown and (is_harness(command.argv) or _may_run_harness(name, words)):
        return f"whether a person must decide that is only known at run time: {command.text}"
    if name == "rm" and (why := _removal(command, values)):
        return why
    if unknown and may_block(command.argv, blocked):
        return f"whether it is blocked is only known at run time: {command.text}"
    if takes_names(command.argv) and not values.feeds_names:
        return f"which files it takes is only known at run time: {command.text}"
    files = [*_files_of(name, words), *command.targets] if name in _FILES else [*command.targets]
    missing = next((word for word in files if not values.resolves(word)), None)
    return f"which file it is, is only known at run time: {missing.raw}" if missing is not None else ""


def _may_run_harness(name: str, words: Sequence[Word]) -> bool:
    """``python -m $(echo harness)``: what it runs is not known."""
    plain = [word for word in words if not word.text.startswith("-") and word.text not in ("run", "tool", "x", "exec")]
    return bool(RUNNERS.fullmatch(name)) and bool(plain) and not _written_out(plain[0])


def _removal(command: SimpleCommand, values: _Values) -> str:
    unknown = [word for word in command.words[1:] if not values.resolves(word) or values.become_options(word)]
    if unknown and (removes_recursively(command.argv) or any(word.spread or not word.lead for word in unknown)):
        return f"what it removes is only known at run time: {unknown[0].raw}"
    return ""


def _written_out(word: Word) -> bool:
    """It is known but for the names of files that match it."""
    return word.known or (word.pattern and word.text != "{}")


def _files_of(name: str, words: Sequence[Word]) -> Iterable[Word]:
    """The words that are, or may become, files. A word that may become several may become an option, too."""
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
    """What variables are worth in one text, and what lists the names that ``xargs`` reads."""

    def __init__(self, judgement: CommandClassification) -> None:
        named = {word.text for command in judgement.commands for word in command.words[1:]}
        self._values = {name: forms for name, forms in judgement.values.items() if name not in named}  # read f
        self.feeds_names = _feeds_names(judgement.commands)
        self._finds_below = all(_lists(command) for command in judgement.commands if listed(command.argv))

    def resolves(self, word: Word) -> bool:
        """Whether the files that a word may be are seen in the text."""
        if _written_out(word) or word.text == "/dev/null":
            return True
        if word.text == "{}":  # what find finds
            return self._finds_below
        if word.raw == word.text and not re.search(r"[$`<{]", word.text):
            return self.feeds_names  # the names that xargs adds
        return self._spelled_out(word.text)

    def become_options(self, word: Word) -> bool:
        """Whether the values of variables may make options, or several words, of one."""
        forms = self._forms(word.text) if "$" in word.text and not word.known else []
        return forms is None or any(form.startswith("-") or re.search(r"\s", form) for form in forms)

    def _spelled_out(self, text: str) -> bool:
        forms = self._forms(text)
        return forms is not None and not any(re.search(r"[$`]|<\(", form) for form in forms)

    def _forms(self, text: str) -> list[str] | None:
        """What a word becomes; None when that is too much to be known."""
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
    """Whether all that ``xargs`` can read are names below directories that are in the text, none of them ``/``."""
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
