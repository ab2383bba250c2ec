"""What is called read-only changes nothing, whichever shell runs it: compositions at random, run in real ones."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.toolkit.permissions.shell.classification import classify_command

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-c"],
    "zsh": ["zsh", "-f", "-c"],
    "dash": ["dash", "-c"],
    "ash": ["busybox", "ash", "-c"],
    "mksh": ["mksh", "-c"],
    "fish": ["fish", "--no-config", "-c"],
}
HERE = [name for name, argv in SHELLS.items() if shutil.which(argv[0])]
BEGINNINGS = (
    "ls",
    "cat x",
    "echo a",
    "grep a x",
    "sort x",
    "find . -name x",
    "head -1 x",
    "[ -f x ]",
    "wc -l x",
    "uniq x",
    "",
)
PLAIN = r"""
ls cat echo sort uniq touch find sed [ ] x y marker ./marker -o -n -exec {} \; + -c sh env xargs A=1 i=x $i "$x" ' " \ ;
& && |
|& > >> < <<< 2>&1 &> >marker >&2 $( ` ) ( # $' ${ } * ? [a-z] ~ = ^ % - -- -i /dev/null <( $(( )) -eq {a,b} a\ '\'
end 3> -k1
"""
SPACED = (
    *(
        "{ ",
        "; }",
        "if ",
        "; then ",
        "; fi",
        "for i in a b; do ",
        "; done",
        "while read l; do ",
        "! ",
        "'w marker'",
        "eval ",
    ),
    *(
        "touch marker",
        "[[ ",
        " ]]",
        "'a[$(touch marker)]'",
        "f() { ",
        "\\\n",
        "\n",
        "time ",
        "command ",
        "\t",
        "not ",
        "and ",
    ),
    *("begin; ", "uniq x marker", "'a b'", "printf '%s' a", "sed -n p x", "xargs echo"),
)
PIECES = (*PLAIN.split(), *SPACED)
WANTED = 50


def texts(seed: int) -> Iterator[str]:
    """Compositions that the judge calls read-only."""
    chance = random.Random(seed)
    for _ in range(20_000):
        pieces = [chance.choice(PIECES) for _ in range(chance.randint(1, 8))]
        text = f"{chance.choice(BEGINNINGS)} {(' ' if chance.random() < 0.6 else '').join(pieces)}"
        if classify_command(text).read_only:
            yield text


def run(text: str, shell: str, place: Path) -> list[str]:
    """Run it in a directory of its own; what is there afterwards."""
    place.mkdir()
    (place / "x").write_text("a\nb\n")
    (place / "y").write_text("c\n")
    process = subprocess.Popen(
        [*SHELLS[shell], text],
        cwd=place,
        env={"PATH": "/usr/bin:/bin", "HOME": str(place.parent), "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return sorted(f"{file.name}:{file.read_text()}" for file in place.iterdir())


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", HERE)
def test_what_is_called_read_only_changes_nothing(shell: str, tmp_path: Path) -> None:
    wrong, done = [], 0
    for text in texts(seed=sorted(SHELLS).index(shell)):
        if run(text, shell, tmp_path / str(done)) != ["x:a\nb\n", "y:c\n"]:
            wrong.append(text)
        done += 1
        if done == WANTED:
            break
    assert done == WANTED
    assert wrong == []


def test_the_shells_that_differ_most_are_here() -> None:
    assert {"bash", "dash", "zsh"} <= set(HERE)


@pytest.mark.usefixtures("needs_process")
def test_the_directory_would_show_a_change(tmp_path: Path) -> None:
    assert run("touch marker", "bash", tmp_path / "1") != run("true", "bash", tmp_path / "2")
