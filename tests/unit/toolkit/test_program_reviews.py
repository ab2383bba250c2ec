"""The review table: every program that may run unasked has a row, and each row's claims hold for the whole policy.

The rows are in ``tests/data/program_reviews/*.toml``; ``README.md`` there describes their fields.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from tests.support.own_home import here
from tests.support.permits import Desk, desk

from harness.context import ExecutionContext
from harness.toolkit.permissions.shell.classification import classify_command
from harness.toolkit.permissions.shell.read_only.languages import SPECIAL
from harness.toolkit.permissions.shell.read_only.program_grammar import Program
from harness.toolkit.permissions.shell.read_only.programs import PROGRAMS
from harness.toolkit.permissions.shell.wrappers import WRAPPERS

__all__ = ["here"]

DIRECTORY = Path(__file__).parents[2] / "data/program_reviews"
FIELD_HINT = "see tests/data/program_reviews/README.md"


@dataclass(frozen=True)
class Review:
    """One row: what was found in the manual of a program, and example commands with their verdicts."""

    names: list[str]
    version: str
    judged: str
    runs: list[str]
    reads: tuple[str, ...] | list[str] = ()
    writes: tuple[str, ...] | list[str] = ()
    variables: tuple[str, ...] | list[str] = ()
    directories: str = ""
    responses: bool = False
    asks: tuple[str, ...] | list[str] = ()
    denied: tuple[str, ...] | list[str] = ()

    @property
    def base(self) -> str:
        """A command that runs, to which probes are added."""
        return self.runs[0]


def expanded(name: str) -> list[str]:
    """``docker|podman ps`` is ``docker ps`` and ``podman ps``."""
    return [" ".join(words) for words in itertools.product(*(word.split("|") for word in name.split()))]


def read_reviews() -> list[Review]:
    known = {field.name for field in fields(Review)}
    reviews = []
    for file in sorted(DIRECTORY.glob("*.toml")):
        for row in tomllib.loads(file.read_text("utf-8"))["program"]:
            assert set(row) <= known, f"{file.name}: {row.get('names')}: unknown {set(row) - known}; {FIELD_HINT}"
            reviews.append(Review(**row))
    return reviews


def listed_programs(name: str, program: Program) -> Iterator[str]:
    """The program's name, or those of its sub-commands."""
    if program.alone or not program.commands:
        yield name
    for command, inner in program.commands.items():
        yield from listed_programs(f"{name} {command}", inner)


def all_listed(programs: Mapping[str, Program] = PROGRAMS) -> set[str]:
    wrappers = {name for name, wrapper in WRAPPERS.items() if not wrapper.reason} | {"sh", "command", "busybox"}
    listed = {name for key, program in programs.items() for name in listed_programs(key, program)}
    return listed | set(SPECIAL) | wrappers


REVIEWS = read_reviews()


def test_every_program_that_may_run_unasked_has_exactly_one_row() -> None:
    counted = Counter(name for review in REVIEWS for text in review.names for name in expanded(text))
    assert all_listed() - set(counted) == set(), f"add a row for each; {FIELD_HINT}"
    assert [name for name, count in counted.items() if count > 1] == []


def test_a_row_says_which_manual_was_read_and_shows_what_it_found() -> None:
    for review in REVIEWS:
        assert review.version, review.names
        assert review.judged, review.names
        assert review.runs, review.names
        shown = " ".join((*review.runs, *review.asks, *review.denied))
        assert not review.directories or "kept" in shown, f"{review.names}: an example has a directory operand"
        for text in review.names:
            for name in expanded(text):
                assert any(name in command for command in (*review.runs, *review.asks)) or "|" in text, name


# -- what the row says of options and variables: nothing of it, in any form, runs unasked


def claims_key(command: str) -> bool:
    """Whether the policy would see that the command opens the file ``key``, or ask in any case."""
    judged = classify_command(command)
    return not judged.read_only or any("key" in found.paths for found in judged.commands)


def option_forms(option: str, value: str) -> Iterator[str]:
    """Every way to write an option with a value; long ones abbreviated, too."""
    yield f"{option} {value}"
    yield f"{option}={value}"
    if not option.startswith("--"):
        yield f"{option}{value}"
    for end in range(max(4, len(option) - 3), len(option) if option.startswith("--") else 0):
        yield f"{option[:end]}={value}"
        yield f"{option[:end]} {value}"


def with_words(review: Review, words: str) -> str:
    """The row's first command with more words behind the program's name."""
    names = sorted((name for text in review.names for name in expanded(text)), key=len, reverse=True)
    name = next(name for name in names if f"{review.base} ".startswith(f"{name} "))
    return f"{name} {words}{review.base[len(name) :]}"


def with_options(options: Callable[[Review], Iterable[str]], bare: bool = False) -> Iterator[str]:
    """The first command of every row with each of its options in every form; ``bare``: also without a value."""
    for review in REVIEWS:
        for option in options(review):
            yield from (with_words(review, form) for form in option_forms(option, "key"))
            if bare:
                yield with_words(review, option)


def test_an_option_that_reads_a_file_claims_it_or_asks() -> None:
    commands = with_options(lambda review: review.reads)
    assert [command for command in commands if not claims_key(command)] == []


def test_an_option_that_writes_or_runs_something_asks() -> None:
    commands = with_options(lambda review: review.writes, bare=True)
    assert [command for command in commands if classify_command(command).read_only] == []


def test_a_variable_that_names_a_file_or_a_program_asks() -> None:
    commands = [
        f"{how}{variable}=key {review.base}"
        for review in REVIEWS
        for variable in review.variables
        for how in ("", "env ")
    ]
    assert [command for command in commands if classify_command(command).read_only] == []


def test_a_response_file_asks_wherever_it_stands() -> None:
    words = ("@key", "'@key'", '@"$x"', "*", '"$x"')
    commands = [with_words(review, word) for review in REVIEWS if review.responses for word in words]
    assert [command for command in commands if classify_command(command).read_only] == []


# -- the examples, against the whole policy, on this machine


def make_repository(home: Path) -> None:
    """Two commits: the first has ``.env``, the second changes ``x``."""
    git = ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.com"]
    (home / ".env").write_text("secret\n")
    for words in (["init", "-q"], ["add", ".env", "x", "a"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=home, check=True)
    (home / "x").write_text("other\n")
    subprocess.run([*git, "commit", "-qam", "second"], cwd=home, check=True)


@pytest.fixture
async def home_desk(here: ExecutionContext, tmp_path: Path) -> Desk:
    """A policy in mode ask. ``key`` and ``d/key`` are a secret, and ``kept/s.txt`` is kept back."""
    home = tmp_path / "home"
    for name in ("a", "d", "kept", "repo"):
        (home / name).mkdir()
    for name in ("x", "y", "a/s.txt", "a/x", "d/x", "kept/s.txt", "kept/s.gz", "kept/x"):
        (home / name).write_text("text\n")
    (home / "kept/.aiexclude").write_text("s.txt\n*.gz\n")
    (home / "key").symlink_to(".ssh/id_rsa")
    (home / "d/key").symlink_to("../.ssh/id_rsa")
    return desk(execution=here, cwd=str(home))


async def wrong_verdicts(made: Desk, review: Review) -> list[str]:
    wrong = []
    for expected, commands in (("runs", review.runs), ("asks", review.asks), ("denied", review.denied)):
        for command in commands:
            verdict = await made.decide("run_shell", command)
            found = "runs" if verdict.allowed else "denied" if verdict.by == "hard denial" else "asks"
            if found != expected:
                wrong.append(f"{command}: {found} ({verdict.reason}), not {expected}")
    return wrong


@pytest.mark.parametrize("in_a_repository", [False, True])
async def test_each_example_gets_the_verdict_that_its_row_claims(
    in_a_repository: bool, home_desk: Desk, tmp_path: Path
) -> None:
    if in_a_repository:
        make_repository(tmp_path / "home")
    reviews = [review for review in REVIEWS if review.names[0].startswith("git") == in_a_repository]
    assert len(reviews) > 10
    assert [wrong for review in reviews for wrong in await wrong_verdicts(home_desk, review)] == []


def test_the_table_would_show_a_program_that_was_added_without_a_review() -> None:
    assert {"new", "new sub"} <= all_listed({"new": Program(alone=True, commands={"sub": Program()})})
    assert expanded("docker|podman container ps") == ["docker container ps", "podman container ps"]


# -- what the programs of this machine say of themselves


FILE_OPTION = re.compile(
    r"(?<![\w-])(--?[A-Za-z][A-Za-z0-9-]*)(?:[ =]|\[=)[<\[{]?"
    r"(?:[A-Za-z0-9_-]*(?:file|path|dir|directory|folder|filename|program|command|pager|script|root|config)[0-9]?|F|PROG)"
    r"[>\]}]?(?![A-Za-z-])",
    re.IGNORECASE,
)
"""An option whose value is a file, a directory or a program, as help texts write it."""
NAMED_ONLY = {
    *(("findmnt", "--target"), ("realpath", "--relative-base"), ("realpath", "--relative-to"), ("rg", "--files")),
    ("systemd-cgtop", "--order"),
}
"""Options of which the value is only compared or sorted by, or that have none."""


def help_of(name: str) -> str:
    words = [shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin") or name, "--help"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, cwd="/tmp", check=False)
    return (done.stdout + done.stderr).decode(errors="replace")


@pytest.mark.usefixtures("needs_node")
def test_no_file_option_in_the_help_of_an_installed_program_reads_unseen() -> None:
    installed = [name for name, program in sorted(PROGRAMS.items()) if not program.commands and shutil.which(name)]
    assert len(installed) >= 40
    unseen = []
    for name in installed:
        for option in sorted(set(FILE_OPTION.findall(help_of(name)))):
            forms = (f"{option} key", f"{option}=key" if option.startswith("--") else f"{option}key")
            if (name, option) not in NAMED_ONLY:
                unseen += [form for form in forms if not claims_key(f"{name} {form} x")]
    assert unseen == []
