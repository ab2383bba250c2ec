"""Every limit of the judge: what is beyond it is not known, so the command asks or is denied, and never just runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.support.permits import desk, found_nothing

from harness.command import Command
from harness.results import Status
from harness.testing.memory import MemoryBackend, ScriptedReply, memory_context
from harness.toolkit.permissions import access_requests
from harness.toolkit.permissions.paths import git_shown_files, hard_denials
from harness.toolkit.permissions.paths.hard_denials import SIZE_LIMIT, BelowSearch
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.shell import classification, paths

PACKAGE = Path(classification.__file__).parents[1]
RULES = tuple(
    Rule(Action.DENY, tool="run_shell", argument=pattern, match=Match.GLOB) for pattern in ("touch *", "*--force")
)
FILLER = " ".join(f"w{number}" for number in range(40))
PARTS = ";".join(f"a{number} b" for number in range(600))
NAMES = ",".join(f"n{number}" for number in range(40))

BEYOND = {
    "classification.MAX_NAMES": "; ".join(f"ln -s /srv/a{n} b{n}" for n in range(140)) + "; python3 x",
    "classification.MAX_LENGTH": "make " + "x" * (16 << 10),
    "classification._DEPTH": "env " * 9 + "make",
    "classification._MAX_COMMANDS": "make;" * 450,
    "parse.DEPTH": "(" * 70 + "make" + ")" * 70,
    "strict_text.DEPTH": "echo " + "$(echo " * 12 + "x" + ")" * 12 + "; python3 -c 'open(\"/etc/shadow\")'",
    "paths.MAX_PATHS": "python3 x " + " ".join(f"f{n}" for n in range(257)),
    "paths._KEPT": "python3 x $HOME/a ${HOME}/a ~/a " + " ".join(f"f{n}" for n in range(1100)) + " /etc/shadow",
    "paths._MAX_DIRECTORIES": ";".join(f"cd d{n}" for n in range(8)) + "; cd /etc; python3 x shadow",
    "paths._MAX_FORMS": "python3 x {a,/etc}{/shadow," + NAMES + "}{,x}{,y}",
    "paths._BRACES": "python3 x {/etc/shadow,b}" + "{,a}" * 7,
    "paths._MAX_PATH_CHARS": f"python3 x --a={'a' * 4100},src=/etc/shadow",
    "paths._MAX_VALUE_CHARS": ";".join(f"v{n}=$v{n + 1}$v{n + 1}" for n in range(30)) + ";v30=/etc/shadow; make $v0",
    "settings._MAX_NAME_CHARS": "python3 x id_rsa" + ".bak" * 8,
    "commands_in_words.MAX_VALUES": "for f in "
    + " ".join(f"f{n}" for n in range(40))
    + " /etc/shadow; do python3 x $f; done",
    "unknown_words._ROUNDS": "a=$b;b=$c;c=$d;d=$e;e=$(x); cat $a",
    "unknown_words._FORMS": ";".join(f"a=f{n}" for n in range(9)) + "; cat $a$a$a$a$a$a$a$a$a$a$a$a$a$a$a$a$a$a",
    "unknown_words._MAX_FORM_CHARS": "a=" + "$b" * 900 + ";b=" + "$c" * 900 + ";c=x; cat $a",
    "commands_in_words.MAX_CHARS": f"perl -e '{'a ' * 8000}'",
    "commands_in_words._LIST_WORDS": f'python3 -c \'run(["rm", "-r", {", ".join(FILLER.split())}, "/"])\'',
    "file_words._PROSE": f"python3 -c \"run('{FILLER} cat ./id_rsa')\"",
    "hard_denials.DEPTH": "cat /" + "d/" * 300 + "x",
    "special_programs.MAX_CHARS": "awk '{print " + "1+" * 1100 + '1; system("touch y")}\'',
    "languages._LIMIT": "sed '" + "p;" * 1100 + "w id_rsa' x",
}
"""A command beyond each limit. Mode ``auto`` would run it if what is beyond counted for nothing."""
ELSEWHERE = {
    "hard_denials.SIZE_LIMIT": "excludes everything",
    "hard_denials.KEPT": "is read again",
    "hard_denials.SECONDS": "asks: test_what_could_not_be_found_out_asks",
    "hard_denials.ANSWER": "asks",
    "hard_denials.PATTERNS": "asks",
    "git_shown_files.SECONDS": "asks: test_what_could_not_be_found_out_asks",
    "git_shown_files.MAX_ANSWER_BYTES": "asks",
    "git_shown_files.MAX_DIRECTORIES": "what is below the repository is looked for",
    "access_requests._MAX_LINE_CHARS": "is not shown; the keys ask",
    "typed_keys.PROMPT_TIMEOUT": "asks: the prompt counts as not empty",
    "typed_keys.PROMPT_INTERVAL": "no limit",
    "operand_paths.MAX_LOOKUPS": "their directories are listed; more links than that ask",
    "policy.AT_ONCE": "further hosts wait",
    "policy.FRESH": "the rule file is read again",
    "request_text.SHOWN": "can be allowed once only",
    "request_text.SAID": "is not shown; the call asks",
    "approver.LINES": "is not shown; the write asks",
    "approver.WIDTH": "is not shown; the write asks",
    "store.VERSION": "no limit",
    "store.LOCK_LIMIT": "no rule is written",
    "store.SIZE_LIMIT": "the file is not used, and everything asks",
    "target_paths.LINKS": "no system follows so many",
    "target_paths.MATCHES": "asks: the target's answer is an error",
    "target_paths.DIRECTORIES": "asks",
    "remembered_answers.LONGEST": "is no answer in advance",
    "access_requests.MAX_DIRECTORIES": "asks",
    "policy.THREAD_THRESHOLD": "no limit: a thread does it",
}
"""Those of which the target says that they were reached, those of what is shown, and numbers that are no limits."""


def numbers() -> set[str]:
    """The constants of the package that are numbers."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_number(node.value):
                found.add(f"{path.stem}.{node.targets[0].id}")
    return found


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp):
        return any(map(_is_number, (value.left, value.right)))
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


async def holding(backend: MemoryBackend, *paths: str, text: str = "") -> MemoryBackend:
    """The backend, with these files."""
    for path in paths:
        await memory_context(backend).write_file(path, text.encode(), parents=True)
    return backend


def test_every_limit_is_in_the_list() -> None:
    assert numbers() == {*BEYOND, *ELSEWHERE}


@pytest.mark.parametrize("limit", BEYOND)
async def test_what_is_beyond_a_limit_does_not_run_unasked(limit: str) -> None:
    assert not await desk(mode=Mode.AUTO, rules=RULES).allows("run_shell", BEYOND[limit])


EVASIONS = [
    f'python3 -c "{PARTS}; secret-tool lookup x"',
    f'python3 -c "{PARTS}; touch y"',
    f'perl -e "{FILLER} touch y"',
    f"tini harness tools call {FILLER} --yes",
    f'perl -e "{FILLER} git push {FILLER} --force"',
    'python3 -c \'run(["touch", "y"])\'',
    'node -e \'spawn("touch", ["y"])\'',
    "ln -s /etc a; ln -s a b; ln -s b c; ln -s c d; ln -s d e; python3 x e/shadow",
    "a=/e;b=tc;c=/sh;d=ad;e=ow; make $a$b$c$d$e",
    "a=/etc; a=$a/shadow; make $a",
    ";".join(["d=/srv"] * 260) + "; d=/etc; make $d/shadow",
    "perl -e '" + "/tmp/a " * 400 + " /etc/shadow'",
    f"openssl x {NAMES},/etc/shadow",
    "openssl x -in=" + "x" * 600 + ",src=/etc/shadow",
    "python3 -c 'open(\"" + "./" * 110 + "id_rsa\")'",
    "cat id_rsa.bak.bak.bak.bak.bak",
    "tool -abcdefghijk.env",
]
"""Each was run unasked in mode ``auto``, by what a limit left out."""


@pytest.mark.parametrize("command", EVASIONS)
async def test_filler_hides_no_command_and_no_file(command: str) -> None:
    assert not await desk(mode=Mode.AUTO, rules=RULES).allows("run_shell", command)


ORDINARY = [
    "PATH=$PATH:/opt/x/bin; make",
    "d=build; d=$d/x; make $d",
    "mv build/out build; make",
    "mkdir -p src/{a,b,c}/{x,y}",
    "for i in " + " ".join(map(str, range(60))) + "; do make t$i; done",
    "python3 - <<'EOF'\n" + "\n".join(f"value_{n} = compute(a, {n})" for n in range(400)) + "\nEOF",
    "python3 - <<'EOF'\n" + "\n".join(f"# a line of prose, such as people write {n}" for n in range(250)) + "\nEOF",
    "make " + " ".join(f"target{n}" for n in range(60)),
]


@pytest.mark.parametrize("command", ORDINARY)
async def test_ordinary_long_commands_run(command: str) -> None:
    assert await desk(mode=Mode.AUTO, rules=RULES).allows("run_shell", command)


async def test_more_patterns_or_directories_than_are_looked_for_ask() -> None:
    search = BelowSearch(memory_context(MemoryBackend(found_nothing)), privileged=False)
    assert isinstance(await search.named(["/x"], {"/x": [f"p{n}" for n in range(hard_denials.PATTERNS)]}), list)
    found = await search.named(["/x"], {"/x": [f"p{n}" for n in range(hard_denials.PATTERNS + 1)]})
    assert isinstance(found, str)
    assert "too many patterns" in found
    backend = await holding(
        MemoryBackend(found_nothing), *(f"/x/d{n}/f" for n in range(access_requests.MAX_DIRECTORIES + 1))
    )
    many = " ".join(f"/x/d{n}" for n in range(access_requests.MAX_DIRECTORIES + 1))
    assert not await desk(mode=Mode.AUTO, backend=backend).allows("run_shell", f"chmod -R a+r {many}")


@pytest.mark.parametrize(
    "reply",
    [
        ScriptedReply("x" * hard_denials.ANSWER),
        ScriptedReply("/x/.aiexclude\n", status=Status.TIMED_OUT),
        ScriptedReply("/x/.aiexclude\n"),
    ],
)
async def test_a_look_below_a_directory_that_was_cut_short_asks(reply: ScriptedReply) -> None:
    def answer(command: Command) -> ScriptedReply:
        return reply if "find " in command.command else ScriptedReply()

    backend = await holding(MemoryBackend(answer), "/x/a")
    assert not await desk(mode=Mode.AUTO, backend=backend).allows("run_shell", "chmod -R a+r /x")


async def test_an_answer_of_git_that_fills_the_limit_asks() -> None:
    def answer(command: Command) -> ScriptedReply:
        return (
            ScriptedReply("/r\n" + "x" * (git_shown_files.MAX_ANSWER_BYTES - 3))
            if "git" in command.command
            else ScriptedReply("end 0\n")
        )

    assert not await desk(mode=Mode.AUTO, backend=MemoryBackend(answer), cwd="/r").allows("run_shell", "git log -p")


async def test_an_aiexclude_that_is_too_long_excludes_everything() -> None:
    backend = await holding(MemoryBackend(found_nothing), "/x/.aiexclude", text="#" * (SIZE_LIMIT + 1))
    assert not await desk(mode=Mode.AUTO, backend=backend).allows("run_shell", "cat /x/a")
    backend = await holding(MemoryBackend(found_nothing), "/x/.aiexclude", text="#" * SIZE_LIMIT)
    assert await desk(mode=Mode.AUTO, backend=backend).allows("run_shell", "cat /x/a")


def test_paths_that_turn_out_to_be_one_leave_more_than_are_judged() -> None:
    """``~``, ``$HOME`` and ``${HOME}`` are one file, and so are ``.``, ``$PWD``, ``${PWD}`` and ``~+``."""
    assert paths._KEPT // 4 > paths.MAX_PATHS


async def test_what_fails_in_the_judge_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(classification, "scan", fails)
    assert not await desk(mode=Mode.AUTO).allows("run_shell", "make a-text-that-no-other-test-judges")
