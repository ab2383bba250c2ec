"""What the words of a command are worth: quotes and escapes undone, and what is only known at run time kept apart."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from .plain_outputs import prints_plain_words
from .shelltypes import Word

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["hides_substitution", "word_of"]

_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\(\n|["\\$`])')
_GLOB = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_BRACES = re.compile(r"(?<!\\)(?:\\\\)*(?:\{(?!\})|(?<!\{)\})")
_RANGE = re.compile(r"\{[0-9]{1,4}\.\.[0-9]{1,4}\}")
_SUBSTITUTION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$\(|[<>]\()")
_BARE = frozenset({"word", "number", "variable_name", "extglob_pattern", "test_operator"})
_LITERAL = frozenset({"raw_string", "ansi_c_string", "command_substitution", "process_substitution"})
_ANSI = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ANSI_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b"}


def word_of(node: Node, source: bytes) -> Word:
    """The value of a word's node. Pure."""
    raw = _text(node, source)
    if raw == "{}":
        return Word.of(raw)
    if node.type != "concatenation":
        return _join(raw, [_part(node, source)])
    if _gaps(node):
        return Word.unknown(raw)
    parts: list[Word] = []
    for is_bare, group in groupby(node.children, key=lambda child: child.type in _BARE):
        children = list(group)
        if is_bare:  # the grammar cuts at braces
            parts.append(_bare("".join(_text(child, source) for child in children)))
        else:
            parts += [_part(child, source) for child in children]
    return _join(raw, parts)


def hides_substitution(node: Node, source: bytes) -> bool:
    """A leaf of a word's tree has a substitution in it that the grammar took for text. Pure."""
    if node.type in _LITERAL:
        return False
    if node.named_child_count:
        return any(hides_substitution(child, source) for child in node.named_children)
    return node.is_named and _SUBSTITUTION.search(_text(node, source)) is not None


def _gaps(node: Node) -> bool:
    """Something stands between the parts that the grammar has no name for."""
    ends = [child.end_byte for child in node.children[:-1]]
    return any(end != child.start_byte for end, child in zip(ends, node.children[1:], strict=True))


def _join(raw: str, parts: list[Word]) -> Word:
    lead, pieces = "", [part for part in parts if part.text or not part.known]
    if len(pieces) == 1 and pieces[0].plain:
        return replace(pieces[0], raw=raw)
    for part in parts:
        lead += "" if part.plain else part.lead  # it may be empty
        if not part.known:
            break
    return Word(
        raw=raw,
        text="".join(part.text for part in parts),
        known=all(part.known for part in parts),
        lead=lead,
        spread=any(part.spread for part in parts),
        pattern=all(part.known or part.pattern for part in parts) and not all(part.known for part in parts),
    )


def _part(node: Node, source: bytes) -> Word:
    raw = _text(node, source)
    if node.type in _BARE:
        return _bare(raw)
    if node.type == "raw_string":
        return _exactly(raw, raw[1:-1])
    if node.type == "ansi_c_string":
        return _ansi(raw)
    if node.type in ("string", "translated_string"):
        return _string(node, source)
    if prints_plain_words(raw):
        return Word(raw, raw, known=False, lead="0", spread=True, plain=True)
    return Word.unknown(raw)


def _bare(raw: str) -> Word:
    text = _ESCAPE.sub(lambda match: "" if match[1] == "\n" else match[1], raw)
    if _RANGE.fullmatch(raw):  # some shells leave it as it is
        return Word(raw, raw, known=False, lead="0", spread=True, plain=True)
    if _BRACES.search(raw):
        return Word(raw, text, known=False, spread=True)
    match = _GLOB.search(raw)
    if match is None:
        return _exactly(raw, text)
    lead = _ESCAPE.sub(lambda found: found[1], raw[: match.end() - 1])
    return Word(raw, text, known=False, lead=lead, spread=False, pattern=True)


def _exactly(raw: str, text: str) -> Word:
    return Word(raw, text, lead=text)


def _ansi(raw: str) -> Word:
    """``$'..'``, as bash and zsh read it."""

    def value(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else ""
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        if code[0] == "c" and len(code) > 1:
            return chr(ord(code[1]) & 0x1F)
        return _ANSI_NAMED.get(code, code)

    return _exactly(raw, _ANSI.sub(value, raw[2:-1]))


def _string(node: Node, source: bytes) -> Word:
    """A string in double quotes: what is expanded in it is one word, and unknown."""
    parts: list[Word] = []
    opening = node.children[0] if node.children else node
    at = opening.end_byte
    for child in node.children[1:]:
        if child.is_named and child.type != "string_content":
            parts += [_literal(source[at : child.start_byte]), _inside(_text(child, source))]
            at = child.end_byte
    parts.append(_literal(source[at : node.end_byte - 1]))
    return _join(_text(node, source), parts)


def _inside(raw: str) -> Word:
    """An expansion in double quotes; ``"$@"`` alone becomes several words."""
    if prints_plain_words(raw):
        return Word(raw, raw, known=False, lead="0", plain=True)
    return Word.unknown(raw, spread="@" in raw or "[" in raw)


def _literal(data: bytes) -> Word:
    text = data.decode("utf-8", "replace")
    return _exactly(text, _QUOTED_ESCAPE.sub(lambda match: "" if match[1] == "\n" else match[1], text))


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")
