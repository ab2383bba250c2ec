"""What is skipped because a text lacks a literal, or a line a hint, contains no secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.toolkit.test_redaction_directives import ORDINARY, REDACTED, SECRETS

from harness.toolkit.redaction import commands, file_formats, named_secrets, patterns
from harness.toolkit.redaction.file_formats import _DIRECTIVES
from harness.toolkit.redaction.literals import Literals, SearchedText
from harness.toolkit.redaction.patterns import compiled

ALL = Literals(
    literal
    for group in (
        *(commands._PROGRAM_NAMES, commands._LOOSE_WORDS, file_formats._DIRECTIVE_LITERALS),
        *(named_secrets._NAMES, named_secrets._OPTIONS, patterns._PREFIXES),
    )
    for literal in group
)
ODD = ("", "a", "Zz9", "\u212a", "\u0130", "ß", "秘密", "\ud800", " ", "\n", "-", "_", "0", "\x1b[1m")

MORE = [
    *(f"[mail.example.com]:{port} me@example.com:{{}}" for port in (25, 465, 587, 2525)),
    *(f"mail.example.com:{port}\tme:{{}} and more\nb.example.com:{port} you:{{}}" for port in (25, 465, 587, 2525)),
    "db.example.com:5432:name:me:{}",
    "me:1000:0123456789abcdef0123456789abcdef",
    "me:x1:0123456789abcdef0123456789abcdef\n  you:[U ]:0123456789abcdef0123456789abcdef",
    "@example.com me@example.com:{}",
]


@given(st.lists(st.sampled_from((*ALL, *ODD)).flatmap(lambda word: st.sampled_from((word, word.upper(), word[1:])))))
def test_every_literal_is_found(words: list[str]) -> None:
    text = "".join(words)
    searched = SearchedText(text)
    assert searched.found(ALL) == [literal for literal in ALL if literal in text]
    assert searched.found_lowered(ALL) == [literal for literal in ALL if literal in searched.low]
    assert len(searched.low) == len(text)


@given(st.text(min_size=1), st.text(), st.text())
def test_a_literal_of_any_characters_is_found(literal: str, before: str, after: str) -> None:
    assert SearchedText(f"{before}{literal}{after}").found(Literals([literal])) == [literal]


@pytest.mark.parametrize("directive", [one for one in _DIRECTIVES if one.hint], ids=lambda one: one.literal)
def test_a_hint_is_in_each_line_that_a_directive_matches(directive: file_formats._Directive) -> None:
    cases = [case.replace("{}", secret) for case in (*REDACTED, *ORDINARY, *MORE) for secret in SECRETS]
    text = "\n".join(cases).lower()
    found = [match.span() for match in compiled(f"(?m){directive.pattern}").finditer(text)]
    assert found
    assert [match.span() for match in file_formats._matches(directive, text)] == found
