"""The judge of shell commands: what it finds, what it names, and that it never raises nor hangs."""

from __future__ import annotations

import builtins
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.extras import install_extra
from harness.toolkit.permissions.shell import parse
from harness.toolkit.permissions.shell.classification import (
    MAX_LENGTH,
    CommandClassification,
    SimpleCommand,
    classify_command,
)


def judge(text: str) -> CommandClassification:
    return classify_command(text)


def only(text: str) -> SimpleCommand:
    (command,) = judge(text).commands
    return command


def names(text: str) -> list[str]:
    return [command.argv[0] for command in judge(text).commands if command.argv]


# -- what it finds


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("rm -rf 'a b'", ("rm", "-rf", "a b")),
        ('r"m" \\-f "a\\"b"', ("rm", "-f", 'a"b')),
        ("$'\\x72m' $'a\\tb'", ("rm", "a\tb")),
        ("rm x$HOME", ("rm", "x$HOME")),
        ("rm >f a b", ("rm", "a", "b")),
        ("2>/dev/null rm a", ("rm", "a")),
        ("A=1 rm a", ("rm", "a")),
        ("rm *.c ~", ("rm", "*.c", "~")),
    ],
)
def test_words_are_unquoted_and_the_unknown_stays_as_it_is_written(text: str, argv: tuple[str, ...]) -> None:
    assert only(text).argv == argv


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a | b; c && d || e & f", ["a", "b", "c", "d", "e", "f"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("for x in $(a); do b; done; while c; do d; done", ["a", "b", "c", "d"]),
        ("case x in a) b;; *) c;; esac", ["b", "c"]),
        ("f() { a; }; { b; }; (c)", ["a", "b", "c"]),
        ("sudo -u x env A=1 timeout 5 a", ["sudo", "env", "timeout", "a"]),
        ("sh -c 'a; bash -c \"b\"'", ["sh", "a", "bash", "b"]),
        ("ssh -p 22 h 'a | b'", ["ssh", "a", "b"]),
        ("find . -exec a {} \\; -execdir b {} +", ["find", "a", "b"]),
        ("sh <<E\na\nE", ["sh", "a"]),
        ("docker exec -it c sh -c a", ["docker", "sh", "a"]),
        ("kubectl exec p -- a b", ["kubectl", "a"]),
        ("eval a b", ["eval", "a"]),
        ("xargs -n 1 a", ["xargs", "a"]),
    ],
)
def test_everything_that_runs_is_found(text: str, expected: list[str]) -> None:
    assert sorted(names(text)) == sorted(expected)


@pytest.mark.parametrize(
    "text", ["sudo ls", "ssh h ls", "docker exec c ls", "su -c ls", "chroot / ls", "at now <<E\nls\nE"]
)
def test_what_runs_elsewhere_or_as_another_is_privileged_and_not_read_only(text: str) -> None:
    for command in judge(text).commands:
        assert command.privileged
        assert not command.read_only
        assert command.reason


def test_a_harmless_wrapper_is_read_only_with_what_it_runs() -> None:
    assert [command.read_only for command in judge("timeout 5 df -h").commands] == [True, True]
    assert [command.read_only for command in judge("timeout 5 rm x").commands] == [True, False]
    assert judge("timeout 5 rm x").read_only is False


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("cat /etc/shadow", {"/etc/shadow"}),
        ("cat < ~/.ssh/id_rsa", {"~/.ssh/id_rsa"}),
        ("cd /etc && cat shadow", {"/etc", "shadow", "/etc/shadow"}),
        ("cd /a; cd b; cat c", {"/a", "b", "/a/b", "c", "/a/c", "b/c", "/a/b/c"}),
        ("for x in 1 2; do cat shadow; cd /etc; done", {"shadow", "/etc/shadow", "/etc"}),
        ("grep -f /x pattern /y", {"/x", "/y"}),
        ("myprog --file=/etc/shadow -d@/x host:/y if=/z -I/inc", {"/etc/shadow", "/x", "/y", "/z", "/inc"}),
        ("git -C /repo show HEAD:.env", {"/repo", "HEAD:.env", "/repo/HEAD:.env"}),
        ("find /srv -name x", {"/srv"}),
        ("ls /var/log/*.log", {"/var/log/*.log"}),
    ],
)
def test_the_files_are_named(text: str, paths: set[str]) -> None:
    assert paths <= {path for command in judge(text).commands for path in command.paths}


def test_the_files_that_a_redirection_opens_are_told_apart() -> None:
    (command,) = judge("sort <in >out 2>>log").commands
    assert command.writes == ("out", "log")
    assert "in" in command.paths


@pytest.mark.parametrize(
    "text", ["cd $X; cat passwd", "cd - && cat passwd", "pushd /etc; cat passwd", "cd /dev; cat sda"]
)
def test_after_a_directory_that_is_not_known_a_relative_file_is_not_read_unasked(text: str) -> None:
    assert not judge(text).read_only


@pytest.mark.parametrize(
    "text",
    [
        "$x",
        '"$x" y',
        "`a`",
        "$(a) b",
        'sh -c "$x"',
        "eval $x",
        "curl x | sh",
        "sudo --bogus ls",
        "a 'b",
        "a )",
        "",
        "  \n ",
    ],
)
def test_what_cannot_be_known_is_not_parsed_and_says_why(text: str) -> None:
    judged = judge(text)
    assert not judged.parsed
    assert not judged.read_only
    assert judged.reason


@pytest.mark.parametrize(
    ("character", "name"),
    [("\u200b", "ZERO WIDTH SPACE"), ("\u202e", "RIGHT-TO-LEFT OVERRIDE"), ("\x00", "U+0000"), ("\x1b", "U+001B"),
     ("\u00a0", "NO-BREAK SPACE"), ("\udc80", "U+DC80"), ("\r", "U+000D")],
)  # fmt: skip
def test_hidden_characters_are_named(character: str, name: str) -> None:
    judged = judge(f"ls {character}x")
    assert not judged.parsed
    assert name in judged.reason


def test_a_letter_that_looks_like_another_is_named() -> None:
    assert "CYRILLIC SMALL LETTER ES" in judge("l\u0441").reason
    assert judge("grep 'Zürich' x").read_only


def test_a_text_that_is_too_long_is_not_judged() -> None:
    assert not judge("ls " + "a" * MAX_LENGTH).parsed
    assert judge("ls " + "a" * (MAX_LENGTH - 10)).parsed


def test_without_the_parser_everything_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("tree_sitter"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.setattr(parse._local, "parser", None, raising=False)
    classify_command.cache_clear()
    judged = classify_command("ls -l /unseen")
    classify_command.cache_clear()
    assert (judged.parsed, judged.read_only) == (False, False)
    assert install_extra("policy") in judged.reason


@pytest.mark.usefixtures("needs_process")
def test_the_parser_is_loaded_with_the_first_command_only() -> None:
    script = (
        "import sys, harness.toolkit.permissions.shell.typed_keys\n"
        "import harness.toolkit.permissions.shell.classification as s\n"
        "assert not [n for n in sys.modules if n.startswith('tree_sitter')]\n"
        "s.classify_command('ls'); assert 'tree_sitter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# -- it never raises, never hangs, and a whole is never better than its parts


LETTERS = "ab xrm-/.*?$(){}[]<>|&;!#'\"`\\\n\t=~^%@:,0123456789"
WORDS = (
    "$(",
    "<<",
    "EOF",
    "ls ",
    "sh -c ",
    "&&",
    "${",
    "$'",
    "if ",
    "fi",
    "do ",
    "done",
    "case ",
    "sudo ",
    "\u200b",
    "é",
)
ALPHABET = st.sampled_from([*LETTERS, *WORDS])


@given(st.lists(ALPHABET, max_size=60).map("".join))
def test_it_judges_any_text(text: str) -> None:
    judged = classify_command(text)
    assert judged.read_only <= judged.parsed
    assert judged.read_only == (not judged.reason)
    if judged.read_only:
        assert all(command.read_only for command in judged.commands)


@given(st.text(max_size=80))
def test_it_judges_any_characters(text: str) -> None:
    assert classify_command(text).read_only <= classify_command(text).parsed


HOSTILE = (
    *("(", "$(", "`", '"$(', "{ ", "sh -c ", "a|", "ls;", "<<a ", "if ", "[[ ", "((", "${", "case x in ", "sudo "),
    *("find . -exec ", "eval '", "\\", "'", "{a,b}", "x=$(", "f() { ", "a\n", "a=(", "ls >", "$((", "a &&\n", "# a\n;"),
    *("sed '[", "<(", "for x in ", "$'", "~", "!", "a'\\", "\u00e9"),
)


def test_hostile_texts_take_no_time() -> None:
    for text in HOSTILE:
        for whole in ((text * MAX_LENGTH)[:MAX_LENGTH], (text * 450)[:MAX_LENGTH]):
            started = time.process_time()
            judged = classify_command(whole)
            assert time.process_time() - started < 5  # a hang is what this looks for; the slowest takes half a second
            assert judged.reason


def test_one_judgement_leaves_nothing_for_the_next() -> None:
    for text in HOSTILE:
        classify_command((text * 450)[:MAX_LENGTH])
        classify_command.cache_clear()
        assert names("ls -l | cat") == ["ls", "cat"]


GOOD = ("ls -l", "df -h", "grep -c x y", "cat /etc/hosts", "git status", "sort a b", "find . -name x", "ps aux")
BAD = ("rm x", "ls >f", "sort -o a b", "find . -delete", "$x", "sudo ls", "touch x", "PATH=. ls", "git -c a=b status")
AROUND = (
    "{}; {}",
    "{} | {}",
    "{} && {}",
    "{}\n{}",
    "{} || {}",
    "( {}; {} )",
    "if {}; then {}; fi",
    "! {} | {}",
    "{} & {}",
)
THROUGH = ("timeout 5 {}", "nice -n 1 {}", "env {}", "echo $({})", 'echo "$({})"', "( {} )", "time {}", "command {}")


@given(st.sampled_from(GOOD), st.sampled_from(GOOD), st.sampled_from(AROUND))
def test_what_only_reads_only_reads_together(left: str, right: str, around: str) -> None:
    assert classify_command(around.format(left, right)).read_only


@given(st.sampled_from(GOOD), st.sampled_from(BAD), st.sampled_from(AROUND), st.booleans())
def test_one_bad_part_spoils_the_whole(good: str, bad: str, around: str, first: bool) -> None:
    parts = (bad, good) if first else (good, bad)
    assert not classify_command(around.format(*parts)).read_only


@given(st.sampled_from(BAD), st.lists(st.sampled_from(THROUGH), max_size=4))
def test_no_wrapper_makes_a_bad_command_good(bad: str, wrappers: list[str]) -> None:
    text = bad
    for wrapper in wrappers:
        text = wrapper.format(text)
    assert not classify_command(text).read_only


@given(st.sampled_from(GOOD), st.sampled_from(THROUGH))
def test_a_plain_wrapper_keeps_a_good_command_good(good: str, wrapper: str) -> None:
    assert classify_command(wrapper.format(good)).read_only


@given(st.sampled_from(GOOD), st.sampled_from(BAD))
def test_a_quoted_command_is_text(good: str, bad: str) -> None:
    assert classify_command(f"echo '{bad}'; {good}").read_only == ("'" not in bad)


def test_a_word_from_the_input_is_named_once_in_the_reason() -> None:
    reason = judge("xargs harness").reason
    assert reason == ("what harness would run is unknown: a word is only known at run time: arguments from stdin")
