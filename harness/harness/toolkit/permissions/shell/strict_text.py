"""Strict parser of the part of the shell language that every shell parses the same way.

A read-only command must have the same words here as in the bash grammar. What bash, zsh, dash, ash, mksh and fish do
not all parse the same way (``$'..'``, here-documents, ``{a,b}``, ``!x`` in a shell with history, a ``#`` that zsh does
not treat as a comment) ends the parse with a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["StrictParse", "parse_strict"]

DEPTH = 8

_SPACE = re.compile(r"[ \t]+")
_CONTINUED = re.compile(r"\\\n[ \t]*")
_COMMENT = re.compile(r"#[A-Za-z0-9 ,.:_/-]*(?=\n|\Z)")
_REDIRECT = re.compile(r"[0-9]?(?:(?P<copy>[<>]&[0-9-](?=[ \t\n;|&)]|\Z))|(?P<file>>>|>\||[<>])(?![<>(&|?!])[ \t]*)")
_OPERATOR = re.compile(r"&&|\|\|(?!&)|\|(?![&|])|;(?![;&|])|&(?=[ \t\n)]|\Z)(?!>)|\n|\(|\)")
_BARE = re.compile(
    r"(?:[A-Za-z0-9_./:,+@%=*?\[\]\u00c0-\u017f-]|~(?!\[)|\\[^A-Za-z0-9\n\u0080-\U0010ffff])+#?|\{\}(?![^ \t\n;)])"
)
_EQUAL = re.compile(r"=(?![ \t])")
_SINGLE = re.compile(r"'(?:[^'\\\n]|\\(?!['\\\n]))*'")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*+|\{[A-Za-z_][A-Za-z0-9_]*+\}|[0-9?$#@*](?![A-Za-z0-9_{(]))(?!\[)")
_RANGE = re.compile(r"\{[0-9]{1,4}\.\.[0-9]{1,4}\}(?=[ \t\n;)]|\Z)")
"""In a shell that does not expand it, it is an ordinary word."""
_NUMBERS = re.compile(r"\$\(\((?:[0-9+*/% \t-]|\([0-9+*/% \t-]+\))+\)\)")
"""Arithmetic on numbers only, without variables, which some shells would evaluate as expressions."""
_QUOTED = re.compile(r"(?:[^\"\\$`!\n]|\\[^`!\n]|!(?=[ =])|\$(?=[\"|) ]))+")

_OPENERS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "{", "!"})
_CLOSERS = frozenset({"fi", "done", "}"})
_REFUSED = frozenset({"case", "esac", "select", "function", "repeat", "foreach", "coproc", "in", "end", "always"})
_DIALECT = frozenset({"for", "[[", *_OPENERS, *_CLOSERS}) - {"!"}
_SAYS = {
    "`": "not every shell treats backquotes as a substitution; use $( )",
    "$'": "not every shell treats $'..' as quotes",
    '$"': 'not every shell treats $".." as quotes',
    "${": "an expansion with an operator",
    "$(": "arithmetic may run a command in a variable",
    "{": "only some shells expand braces",
    "}": "only some shells expand braces",
    "!": "an interactive shell may treat ! as history expansion",
    "#": "not every shell treats # here as a comment",
    "^": "some shells treat ^ as a redirection or a pattern; quote it",
    "<": "not every shell supports this here-document, here-string or substitution",
    "=": "zsh replaces =command by its path",
    "'": "shells differ on where these quotes end",
    "\\": "shells parse this backslash differently",
    "&": "some shells parse & here differently",
    "|": "some shells parse |& and || & differently",
    ";": ";; or ;& outside a case",
}


class _DialectDifference(Exception):
    """Shells differ here, or this parser does not support it."""


@dataclass(slots=True)
class StrictParse:
    """The simple commands of a text, each with its offset and raw words, or the reason why they are unknown."""

    commands: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    redirects: list[tuple[int, str]] = field(default_factory=list)
    """The offsets and words of redirection targets."""
    reason: str = ""


def parse_strict(text: str) -> StrictParse:
    """Parse a command as every shell does.

    Never raises; takes time proportional to the length of the text.

    Args:
        text: the command.

    Returns:
        Its commands, or the reason why shells may parse it differently.
    """
    reader = _Reader(text)
    try:
        end = reader.read_list(0, 0)
        if end != len(text):
            raise _DialectDifference("a closing parenthesis without an opening one")
        if reader.continued and reader.dialect:
            raise _DialectDifference("a continued line in a text that not every shell supports")
    except _DialectDifference as why:
        return StrictParse(reason=str(why))
    return StrictParse(sorted(reader.commands), sorted(reader.redirects))


class _Reader:
    """Parses one text from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.commands: list[tuple[int, tuple[str, ...]]] = []
        self.redirects: list[tuple[int, str]] = []
        self.continued = False
        self.dialect = False

    def read_list(self, at: int, depth: int) -> int:
        """Parse commands up to the end of the text or a closing parenthesis and return its offset."""
        if depth > DEPTH:
            raise _DialectDifference(f"more than {DEPTH} nested substitutions")
        open_groups = 0
        current = _Command()
        while at < len(self.text):
            here = self._skip(at, current)
            if here != at:
                at = here
                continue
            match = _OPERATOR.match(self.text, at)
            if match is None:
                at = self._read_part(at, current, depth)
                continue
            if match[0] == ")" and not open_groups:
                break
            open_groups += {"(": 1, ")": -1}.get(match[0], 0)
            self._operator(match[0], current)
            at = match.end()
        if open_groups:
            raise _DialectDifference("a parenthesis is not closed")
        self._keep(current)
        return at

    def _skip(self, at: int, current: _Command) -> int:
        match = _SPACE.match(self.text, at)
        if match is None and (match := _CONTINUED.match(self.text, at)):
            self.continued = True
        if match is None and self.text[at] == "#":
            alone = not self.text[self.text.rfind("\n", 0, at) + 1 : at].strip(" \t")
            match = _COMMENT.match(self.text, at) if alone and current.empty else None
        return match.end() if match else at

    def _operator(self, operator: str, current: _Command) -> None:
        if operator == "(":
            if not current.empty or current.closed:
                raise _DialectDifference("a parenthesis inside a command")
            self.dialect = True
        self._keep(current)
        current.reset(closed=operator == ")")

    def _keep(self, current: _Command) -> None:
        if current.words:
            self.commands.append((current.start, tuple(current.words)))

    def _read_part(self, at: int, current: _Command, depth: int) -> int:
        match = _REDIRECT.match(self.text, at)
        if match is not None:
            if at and self.text[at - 1] not in " \t\n;|&()":
                raise _DialectDifference("a redirection follows a word without a space; put a space before it")
            if match["copy"]:
                return match.end()
            end = self._read_word(match.end(), depth)
            self.redirects.append((match.end(), self.text[match.end() : end]))
            return end
        end = self._read_word(at, depth)
        self._take(self.text[at:end], at, current)
        return end

    def _take(self, word: str, at: int, current: _Command) -> None:
        if current.closed:
            raise _DialectDifference(f"{word!r} after the end of a compound command")
        if not current.words:
            if word in _REFUSED:
                raise _DialectDifference(f"{word} differs between shells")
            self.dialect = self.dialect or word in _DIALECT
            if word in _OPENERS:
                return
            if word in _CLOSERS:
                current.closed = True
                return
            current.start = at
        if current.words == ["for"] and not re.fullmatch(r"[A-Za-z_]\w*", word, re.ASCII):
            raise _DialectDifference("the variable of a loop is not a plain name")
        if len(current.words) == 2 and current.words[0] == "for" and word == "in":
            return
        current.words.append(word)

    def _read_word(self, at: int, depth: int) -> int:
        """Return the end of the word that starts here."""
        start = at
        if _EQUAL.match(self.text, at):
            raise _DialectDifference(_SAYS["="])
        if range_ := _RANGE.match(self.text, at):
            self.dialect = True
            return range_.end()
        if self.text[at : at + 1] in "{}" and self.text[at + 1 : at + 2] in ("", " ", "\t", "\n", ";", ")"):
            return at + 1
        if self.text.startswith("!", at) and self.text[at + 1 : at + 2] in (" ", "\t"):
            return at + 1
        while at < len(self.text) and (end := self._read_piece(at, depth)) != at:
            at = end
        if at < len(self.text) and self.text[at] not in " \t\n;|&<>()":
            raise _DialectDifference(self._why(at))
        if at == start or (at < len(self.text) and self.text[at] == "("):
            raise _DialectDifference(self._why(at))
        return at

    def _read_piece(self, at: int, depth: int) -> int:
        for piece in (_BARE, _SINGLE, _VARIABLE):
            if match := piece.match(self.text, at):
                self.dialect = self.dialect or match[0].startswith("${")
                return match.end()
        if self.text.startswith('"', at):
            return self._read_quoted(at + 1, depth)
        return self._read_substitution(at, depth)

    def _read_quoted(self, at: int, depth: int) -> int:
        while at < len(self.text) and self.text[at] != '"':
            match = _QUOTED.match(self.text, at) or _VARIABLE.match(self.text, at)
            end = match.end() if match else self._read_substitution(at, depth)
            if end == at:
                raise _DialectDifference(self._why(at))
            at = end
        if at >= len(self.text):
            raise _DialectDifference("quotes are not closed")
        return at + 1

    def _read_substitution(self, at: int, depth: int) -> int:
        if numbers := _NUMBERS.match(self.text, at):
            self.dialect = True
            return numbers.end()
        if not self.text.startswith("$(", at) or self.text.startswith("$((", at):
            return at
        self.dialect = True
        end = self.read_list(at + 2, depth + 1)
        if not self.text.startswith(")", end):
            raise _DialectDifference("a substitution is not closed")
        return end + 1

    def _why(self, at: int) -> str:
        two, one = self.text[at : at + 2], self.text[at : at + 1]
        said = _SAYS.get(two) or _SAYS.get(one)
        return said or (f"shells parse {one!r} differently" if one else "a word is missing")


@dataclass(slots=True)
class _Command:
    """The simple command being parsed; ``closed``: a compound command has just ended."""

    words: list[str] = field(default_factory=list)
    start: int = 0
    closed: bool = False

    @property
    def empty(self) -> bool:
        return not self.words

    def reset(self, *, closed: bool) -> None:
        self.words, self.start, self.closed = [], 0, closed
