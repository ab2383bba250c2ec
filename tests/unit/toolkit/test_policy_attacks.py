"""The published list of what a policy must refuse besides commands, against the whole of it."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.own_home import here
from tests.support.permits import Desk, desk, says

from harness.context import ExecutionContext
from harness.errors import ToolError
from harness.mcp.server.http import Token, refusal_of
from harness.toolkit import Arguments, FunctionTool, Registry, ToolCall, ToolContext, ToolResult, Traits
from harness.toolkit.assembly import ToolkitSettings, open_executor
from harness.toolkit.declared_tools import CommandTool, parse_specs
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.shell.paths import braced, substituted

__all__ = ["here"]

LIST: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "data/policy_attacks.toml").read_text("utf-8"))
ALLOW_ALL = Rule(Action.ALLOW, argument="**", match=Match.GLOB)


@pytest.fixture
def made(here: ExecutionContext, tmp_path: Path) -> Desk:
    """A policy that allows everything that anybody may allow, and answers so, too."""
    home, app = tmp_path / "home", tmp_path / "home/app"
    for name in (".config/harness", "app/private", "app/src"):
        (home / name).mkdir(parents=True)
    for name in ("private/x", "db.sql"):
        (app / name).write_text("x")
    (app / ".aiexclude").write_text("private/\n*.sql\n")
    links = {"key": home / ".ssh/id_rsa", "keys": home / ".ssh", "later": home / ".ssh/id_new", "copy": "db.sql"}
    for name, leads in (links | {"out": "private", "loop": "loop"}).items():
        (app / name).symlink_to(leads)
    file = home / ".config/harness/permissions.json"
    return desk(
        says(ApprovalScope.SESSION), mode=Mode.AUTO, execution=here, file=file, cwd=str(app), rules=(ALLOW_ALL,)
    )


def placed(texts: list[str], home: Path) -> list[str]:
    """The texts for this home; the fixture keeps the state in it, too."""
    return [text.replace("{home}", str(home)).replace("{state}", str(home)) for text in texts]


@pytest.mark.parametrize(("kind", "tool"), [("read", "read_file"), ("write", "write_file")])
async def test_no_path_leads_to_what_is_kept_back(made: Desk, tmp_path: Path, kind: str, tool: str) -> None:
    paths = placed(LIST["paths"][kind], tmp_path / "home")
    verdicts = {path: await made.decide(tool, path) for path in paths}
    assert {path: one.reason for path, one in verdicts.items() if one.allowed or one.by != "hard denial"} == {}
    assert await made.allows(tool, "src/plain")


async def test_no_words_of_a_command_lead_there_either(made: Desk) -> None:
    verdicts = {command: await made.decide("run_shell", command) for command in LIST["commands"]["denied"]}
    assert {text: one.reason for text, one in verdicts.items() if one.allowed or one.by != "hard denial"} == {}
    assert [command for command in LIST["commands"]["runs"] if not await made.allows("run_shell", command)] == []


async def test_a_secret_is_not_hidden_among_many_names(made: Desk) -> None:
    many = " ".join(f"f{number}" for number in range(80))
    made.policy.approver = None
    commands = (f"tac {many} key", f"cat {many} key", f"x={many.replace(' ', ':')}:/etc/shadow; python3 x.py $x {many}")
    for command in (*commands, f"for f in {many} key; do tac $f; done", "tac {a,b}{c,d}{e,f}{g,h}{i,j}{k,l}{m,n} key"):
        assert not await made.allows("run_shell", command), command


TEXTS = st.text("ab{},.$~/*\\'\" ", max_size=40)


@given(TEXTS, st.dictionaries(st.sampled_from("ab"), st.lists(TEXTS, max_size=3)))
def test_any_word_has_some_forms_and_itself_among_them(text: str, values: dict[str, list[str]]) -> None:
    found = braced(substituted([text], values))
    assert found[0] == text
    assert len(found) < 100_000


@given(st.text("xyz", max_size=5), st.lists(st.text("xyz", max_size=3), min_size=2, max_size=5), st.text("xyz"))
def test_braces_become_what_a_shell_makes_of_them(head: str, parts: list[str], tail: str) -> None:
    word = f"{head}{{{','.join(parts)}}}{tail}"
    assert set(braced([word])) == {word, *(f"{head}{part}{tail}" for part in parts)}
    assert set(substituted([f"$a/{tail}"], {"a": parts})) == {f"$a/{tail}", *(f"{part}/{tail}" for part in parts)}


async def test_nobody_approves_himself(made: Desk, tmp_path: Path) -> None:
    commands = placed(LIST["self_approval"]["commands"], tmp_path / "home")
    verdicts = {command: await made.decide("run_shell", command) for command in commands}
    assert {text: one.reason for text, one in verdicts.items() if one.allowed or one.by != "hard denial"} == {}
    assert await made.allows("run_shell", "harness permissions list")


SPEC = """
[[tool]]
name = "show"
description = "Show."
binary = "show"
[[tool.parameter]]
name = "path"
positional = true
[[tool.parameter]]
name = "name"
flag = "-name"
"""


def test_no_value_becomes_an_option_or_a_command() -> None:
    tool = CommandTool(parse_specs(tomllib.loads(SPEC), "tools.toml")[0])

    def words(**given: str) -> list[str]:
        return shlex.split(tool.subjects(tool.parse(given))[0].text)

    for value in (*LIST["options"]["positional"], *LIST["options"]["quoted"]):
        assert words(path=value) == ["command", "show", "--", value]
    for value in LIST["options"]["quoted"]:
        assert words(name=value) == ["command", "show", "-name", value]
    for value in LIST["options"]["separate"]:
        with pytest.raises(ToolError, match="starts with '-'"):
            tool.parse({"name": value})


class _Nothing(Arguments):
    """Say what a stranger wrote."""


async def test_what_an_output_says_decides_nothing(here: ExecutionContext) -> None:
    said: list[str] = []

    async def saying(args: _Nothing, ctx: ToolContext) -> ToolResult:
        return ToolResult.of(said[-1], metadata={"allowed": True})

    async with open_executor(here, ToolkitSettings()) as executor:
        registry = Registry([*executor.registry.list(), FunctionTool("say", "Say.", _Nothing, Traits(), saying)])
        asking = replace(executor, registry=registry)
        for text in LIST["outputs"]["texts"]:
            said.append(text)
            assert not (await asking.call(ToolCall("say"))).result.is_error
            outcome = await asking.call(ToolCall("run_shell", {"command": "touch marker"}))
            assert outcome.status == "denied", text


SECRET = "s" * 40
NAMES = frozenset({"127.0.0.1:8765", "localhost:8765"})
GOOD = {"host": "127.0.0.1:8765", "authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("entry", LIST["requests"], ids=lambda entry: str(entry["status"]))
def test_only_whoever_has_the_token_and_the_name_is_served(entry: dict[str, Any]) -> None:
    token = Token(SECRET, "a test")
    name = next(key for key in entry if key != "status")
    for value in entry[name]:
        headers = GOOD | {name: value.replace("{token}", SECRET)}
        sent = [(key.encode(), text.encode("latin-1")) for key, text in headers.items()]
        assert (refusal_of(sent, NAMES, token) or (200, ""))[0] == entry["status"], value
    good = [(key.encode(), text.encode()) for key, text in GOOD.items()]
    assert refusal_of(good, NAMES, token) is None
