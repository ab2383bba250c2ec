"""Loops over words of the text: each command in the body is judged with each value."""

from __future__ import annotations

import pytest

from harness.toolkit.permissions.shell.classification import classify_command


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for f in a b; do cat $f; done", True),
        ("for f in 'a b'; do cat \"$f\"; done", True),
        ('for f in *.pem; do openssl x509 -in "$f" -noout; done', True),
        ("for d in /srv /var; do for n in a b; do cat $d/${n}.conf; done; done", True),
        ('for n in 1 2; do [ "$n" -gt 1 ] && echo $n; done', True),
        ("for f in 'a b'; do cat $f; done", False),
        ('for f in $(ls); do cat "$f"; done', False),
        ('for f; do cat "$f"; done', False),
        ("for f in -o; do sort $f x; done", False),
        ('for f in a; do f=$(cat x); cat "$f"; done', False),
        ('for f in a; do read f; cat "$f"; done', False),
        ('for f in a; do cat "$g"; done', False),
        ('for f in a; do :; done; cat "$f"', False),
        ('cat "$f"; for f in a; do cat "$f"; done', False),
        ("for f in a; do cat $f:h; done", False),  # zsh: the directory of it
        ("for f in *; do sort $f x; done", False),  # the name of a file may be an option
        ("for f in '*'; do sort $f x; done", False),
        ("for f in '*'; do sort \"$f\" x; done", True),
        ("for f in a; do sort $f* x; done", True),
        ("for f in ~+; do cat $f/x; done", False),
        ("for f in rm; do $f x; done", False),
        ("for f in 'rm x'; do sh -c \"$f\"; done", False),
        ("for f in x; do echo a > $f; done", False),
        ("for f in '1 -o a[$(id)]'; do [ \"$f\" -gt 1 ]; done", False),
    ],
)
def test_what_a_loop_does_with_its_values(text: str, expected: bool) -> None:
    assert classify_command(text).read_only is expected


def test_the_files_are_those_of_the_values() -> None:
    judged = classify_command('for d in /etc /srv; do cat "$d/shadow"; done')
    assert {"/etc/shadow", "/srv/shadow"} <= {path for command in judged.commands for path in command.paths}


def test_many_values_are_judged_as_unknown_ones() -> None:
    values = " ".join(f"f{number}" for number in range(25))
    assert not classify_command(f"for f in {values}; do cat $f; done").read_only
    assert classify_command(f"for f in {values}; do echo $f; done").read_only


def test_a_long_text_in_a_loop_is_still_understood() -> None:
    body = "; ".join("ls $f" for _ in range(300))
    assert classify_command(f"for f in a b c d e f g h; do {body}; done").parsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ps -fp $(pgrep nginx)", True),
        ("docker logs $(docker ps -lq)", True),
        ("ls -l $(hostname)", True),
        ("for i in $(seq 1 5); do echo $i; sleep 1; done", True),
        ("for i in {1..5}; do echo $i; done", True),
        ("for p in $(pgrep nginx); do cat /proc/$p/status; done", True),
        ("pgrep nginx | xargs ps -o pid,cmd -p", True),
        ("cat $(hostname)", False),
        ("for p in $(pgrep nginx); do cat $p; done", False),
        ("for p in $(pgrep -a nginx); do ls -l $p; done", True),
        ("for p in $(pgrep -a nginx); do du -s $p; done", False),  # with -a it prints the words of programs
        ("sort $(pgrep none)-o x", False),  # it may become nothing
        ("sort -k $(pgrep none) x", False),
        ("uniq $(pgrep none) x y", False),
        ("docker ps | xargs du -s", False),
        ("rm $(docker ps -q)", False),
    ],
)
def test_substitutions_whose_output_is_known_in_kind(text: str, expected: bool) -> None:
    assert classify_command(text).read_only is expected
