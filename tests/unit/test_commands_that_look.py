"""The corpora of commands: those by which operators only look run unasked, and their look-alikes never do."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.permits import Desk, desk

from harness.toolkit.permissions.decision import DecisionStep
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.shell.classification import classify_command
from harness.toolkit.permissions.shell.read_only.special_programs import awk_program_only_prints

DATA = Path(__file__).parents[1] / "data"
MAX_FALSE_ALARMS = 0.03
LOOK, LOOK_UP, MORE = (
    [json.loads(line) for line in (DATA / f"commands_that_{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    for name in ("look", "look_up", "do_more")
)


def commands(corpus: Sequence[dict[str, str]], decision: str = "") -> list[str]:
    return [case["command"] for case in corpus if decision in ("", case["decision"])]


async def running(made: Desk, corpus: Sequence[str]) -> list[str]:
    return [command for command in corpus if await made.allows("run_shell", command)]


async def test_at_most_three_of_a_hundred_commands_that_only_look_ask() -> None:
    looking = commands(LOOK, "allow")
    assert len(looking) >= 1_100
    ran = await running(desk(cwd="/srv/app"), looking)
    alarms = [command for command in looking if command not in ran]
    assert len(alarms) <= MAX_FALSE_ALARMS * len(looking), alarms


async def test_no_command_that_looks_like_them_and_does_more_runs_unasked() -> None:
    assert len(commands(MORE)) >= 640
    assert commands(MORE, "allow") == []
    assert await running(desk(cwd="/srv/app"), commands(MORE)) == []
    lenient = desk(cwd="/srv/app", network_lookups=True)
    assert await running(lenient, commands(MORE)) == []


async def test_what_shows_a_secret_is_denied() -> None:
    denied = commands(MORE, "deny")
    assert len(denied) >= 30
    steps = [(await desk(cwd="/srv/app").decide("run_shell", command)).by for command in denied]
    assert set(steps) == {DecisionStep.HARD}


async def test_nothing_of_them_runs_in_mode_strict() -> None:
    assert await running(desk(mode=Mode.STRICT, cwd="/srv/app"), commands(LOOK)[:50]) == []


async def test_look_ups_on_other_hosts_run_by_the_setting_alone() -> None:
    assert await running(desk(), commands(LOOK_UP)) == commands(LOOK_UP, "allow")
    assert await running(desk(network_lookups=True), commands(LOOK_UP)) == commands(LOOK_UP)
    assert "permissions.network_lookups" in classify_command("dig example.com").reason


@pytest.mark.parametrize(
    "command",
    [
        "dig -f names",
        "dig -k key example.com",
        'dig "$X"',
        "dig $(cat x).example.com",
        "ping example.com",
        "ping -f -c 3 example.com",
        "mtr example.com",
        "curl https://example.com",
        "curl -I file:///etc/hosts",
        "curl -I https://user:secret@example.com",
        "curl -I ftp://example.com",
        "curl -I -o out https://example.com",
        "curl -I -d x https://example.com",
        "curl -I -T x https://example.com",
        "curl -I -X DELETE https://example.com",
        "curl -I -K settings https://example.com",
        "curl -I -H @x https://example.com",
        "curl -I https://example.com https://example.org",
        "curl -s -o /dev/null -w '%output{x}' https://example.com",
        "curl -s -o /dev/null -w @x https://example.com",
        "curl -s -o /dev/null -o x https://example.com",
        "cat /etc/hosts | openssl s_client -connect example.com:443",
        "openssl s_client -connect example.com:443 < /etc/hosts",
        "{ openssl s_client -connect example.com:443; } < /etc/hosts",
        "echo x | openssl s_client -connect example.com:443",
        "openssl s_client -connect example.com:443 -keylogfile x",
        "openssl s_client -connect example.com:443 -sess_out x",
        "nc example.com 80",
        "nc -z -e sh example.com 80",
        "nc -l 80",
        "nslookup",
        "ntpdate pool.ntp.org",
        "whois -h evil.example x",
        "traceroute --module=x example.com",
    ],
)
def test_a_look_up_that_does_more_asks(command: str) -> None:
    assert not classify_command(command, lookups=True).read_only


# -- programs of awk

AWKS = [name for name in ("gawk", "mawk", "original-awk", "awk") if shutil.which(name)]
PIECES = (
    *(
        "print ",
        "printf ",
        "x",
        "a",
        "$1",
        "1",
        '"marker"',
        '"touch marker"',
        '"%s"',
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ";",
    ),
    *(
        "\n",
        ",",
        " ",
        "/",
        "/x/",
        '/"/',
        ">",
        ">>",
        ">=",
        "|",
        "||",
        "&&",
        "|&",
        "!",
        "~",
        "+",
        "++",
        "=",
        "==",
        "?",
        ":",
    ),
    *("if (1) ", "if (x) ", "else ", "while (0) ", "for (i in a) ", "do ", "BEGIN ", "END ", "in ", "getline ", "< "),
    *(
        "system(",
        "length",
        "substr(x, 1)",
        "gsub(/x/, a)",
        "close(",
        '"',
        "\\",
        "#",
        "return ",
        "delete a",
        "exit",
        "-",
    ),
)
BEGINNINGS = (
    "{print ",
    "BEGIN {print ",
    "{ if ($1) ",
    "$1 > 1 ",
    "{x = 1; print ",
    "/x/ {print ",
    "{printf ",
    "{a[1] ",
)


def test_awk_is_here() -> None:
    assert AWKS


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("awk", AWKS)
def test_programs_of_awk_that_only_print_change_nothing(awk: str, tmp_path: Path) -> None:
    chance = random.Random(AWKS.index(awk))
    (tmp_path / "x").write_text("x 1\n2 3\n")
    done = 0
    for _ in range(300_000):
        middle = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 7)))
        program = f"{chance.choice(BEGINNINGS)}{middle}{chance.choice(('}', '', '; print x}'))}"
        if not awk_program_only_prints(program) or not set(middle) & set('>|"/'):
            continue
        subprocess.run([awk, program, "x"], cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL, timeout=20)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["x"], program
        done += 1
        if done == 300:
            break
    assert done == 300


@pytest.mark.parametrize(
    "program",
    [
        '{print > "f"}',
        '{print $1, $2 > "f"}',
        '{print(1) > "f"}',
        '{print 1,\n2 > "f"}',
        '{printf "%s", x >> "f"}',
        '{print | "sh"}',
        '"id" | getline x',
        '{getline x < "f"}',
        '{system("id")}',
        '{if (1) /"/; system("id") #"/}',
        '{if (x) /"/; print "a" > "f" # "/}',
        '{print ENVIRON["X"]}',
        'BEGIN {ARGV[1] = "f"; ARGC = 2}',
        '@load "x"',
        "function f() {} {f()}",
        "{f()}",
        'BEGIN {for (print "x" > "f"; 0;) ;}',
        '/[/]/ {print "x" > "f" } #/]/',
        '{print (a)(b) > "f"}',
        '{print ((a) > 1) > "f"}',
        '{print a[1] >= "f"}',
        '{print; print 1 > "f"}',
        '{if (x) print 1; else print 2 > "f"}',
        "{print SECRETS}",
        "{x = NO_SUCH_NAME}",
        "{N(1)}",
        "{printx(1)}",
        '{print "open',
        "{print 1 & 2}",
        "{print 1}" + " " * 1992,
    ],
)
def test_a_program_of_awk_that_does_more_is_not_taken_for_printing(program: str) -> None:
    assert not awk_program_only_prints(program)


@pytest.mark.parametrize(
    "program",
    [
        "{print $1}",
        "{N += $1} END {print N}",
        "{print (a)(b)(1 > 0)}",
        "{print (a > 1), (b >= 2)}",
        "$1 > 1 {print NR, NF, FNR, FILENAME}",
        "{if ($1 > 2) print; x = y > 1}",
        '{print length($0), substr($1, 2), toupper("a")}',
        "{print systime()}",
        'NR % 2 == 0 && /x/ || !y {printf "%s\\n", $2}',
        "{print 4 / 2; print $1 / 2}",
        "{for (i = 1; i <= NF; i++) if ($i ~ /[ab]x/) n++} END {print n + 0}",
        "{print 1,\n2}",
        "{print 1}" + " " * 1991,
    ],
)
def test_a_program_of_awk_that_only_prints_is_known(program: str) -> None:
    assert awk_program_only_prints(program)
