"""Declared tools: the words that their arguments become, on shells that quote differently, and what they give back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples
from tests.support.toolbox import toolbox

from harness import ExecutionContext, connect
from harness.errors import ConfigError, ToolError
from harness.results import Status
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import CallStatus, Category, ToolCall
from harness.toolkit.declared_tools import CommandSpec, CommandTool, command_words, parse_specs, quote_word

DECLARED = """
[[tool]]
name = "show"
description = "Show."
binary = "printf"
words = ["%s;"]
mutating = false
packs = ["mine"]

[[tool.parameter]]
name = "depth"
type = "integer"
description = "how deep"
flag = "--depth"
minimum = 0

[[tool.parameter]]
name = "unit"
choices = ["k", "m"]
default = "k"
flag = "-u"

[[tool.parameter]]
name = "name"
flag = "-name"

[[tool.parameter]]
name = "all"
type = "boolean"
flag = "--all"

[[tool.parameter]]
name = "skip"
type = "array"
flag = "--skip"

[[tool.parameter]]
name = "path"
required = true
positional = true

[[tool.parameter]]
name = "json"
type = "array"
positional = true
"""


def specs(text: str) -> tuple[CommandSpec, ...]:
    return parse_specs(tomllib.loads(text), "tools.toml")


def show(extra: str = "") -> CommandTool:
    return CommandTool(specs(DECLARED.replace('binary = "printf"', f'binary = "printf"\n{extra}'))[0])


def words(tool: CommandTool, **arguments: Any) -> list[str]:
    return command_words(tool.spec, dict(tool.parse(arguments)))


def test_words_come_in_the_order_of_the_declaration_and_positions_after_the_divider() -> None:
    given = {"json": ["x", "-y"], "path": "-rf", "all": True, "skip": ["a", "-b"], "name": "n", "depth": "2"}
    assert words(show(), **given) == [
        *("command", "printf", "%s;", "--depth=2", "-uk", "-name", "n", "--all", "--skip=a", "--skip=-b"),
        *("--", "-rf", "x", "-y"),
    ]
    assert words(show(), path="p", all=False) == ["command", "printf", "%s;", "-uk", "--", "p"]


def test_the_schema_is_that_of_the_declaration() -> None:
    schema = show().schema
    assert list(schema["properties"]) == ["depth", "unit", "name", "all", "skip", "path", "json"]  # type: ignore[arg-type]  # an object
    assert schema["required"] == ["path"]
    assert schema["properties"]["unit"] == {"enum": ["k", "m"], "type": "string", "default": "k"}  # type: ignore[index,call-overload]  # an object
    assert '"minimum": 0,' in json.dumps(schema["properties"])  # not 0.0: models copy what they see
    assert schema["properties"]["depth"] == {"description": "how deep", "minimum": 0, "type": "integer"}  # type: ignore[index,call-overload]  # an object


def test_the_traits_are_careful_unless_declared() -> None:
    careful = CommandTool(specs('[[tool]]\nname = "x"\ndescription = "X."\nbinary = "/usr/bin/x"')[0])
    assert (careful.traits.category, careful.traits.mutating, careful.traits.parallelizable) == (
        *(Category.SHELL, True, False),
    )
    assert set(careful.arguments.model_fields) == {"risk", "mutation", "privesc", "why"}
    assert command_words(careful.spec, {}) == ["/usr/bin/x"]
    assert (show().traits.mutating, show().traits.requires, show().traits.packs) == (False, ("printf",), ("mine",))


def test_the_policy_sees_the_exact_command() -> None:
    tool = show()
    subject = tool.subjects(tool.parse({"path": "a b; reboot"}))[0]
    assert (subject.kind, subject.text) == ("command", "command printf '%s;' -uk -- 'a b; reboot'")


@pytest.mark.parametrize(
    ("extra", "arguments", "message"),
    [
        ("", {"path": "p", "name": "-delete"}, "name: it starts with '-'"),
        ("divider = false", {"path": "--checkpoint-action=exec=sh"}, "path: it starts with '-'"),
        ("", {"path": "a\0b"}, "NUL"),
        ("", {"path": "p", "unit": "g"}, "unit: "),
        ("", {"path": "p", "depth": -1}, "depth: "),
        ("", {"path": "p", "detph": 1}, "did you mean 'depth'"),
        ("", {}, "path: required"),
    ],
)
def test_a_value_that_would_be_taken_for_an_option_is_a_mistake(extra: str, arguments: Any, message: str) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        show(extra).parse(arguments)
    assert caught.value.code == "invalid_args"


def test_an_empty_value_is_not_attached_to_its_flag() -> None:
    text = '[[tool]]\nname = "x"\ndescription = "X."\nbinary = "x"\n'
    tool = CommandTool(specs(text + '[[tool.parameter]]\nname = "n"\nflag = "-n"')[0])
    with pytest.raises(ToolError, match="it is empty"):
        tool.parse({"n": ""})
    assert words(tool, n="-5") == ["command", "x", "-n-5"]


def test_a_pattern_must_match_the_whole_value() -> None:
    text = '[[tool]]\nname = "x"\ndescription = "X."\nbinary = "x"\n'
    tool = CommandTool(
        specs(text + '[[tool.parameter]]\nname = "unit"\npositional = true\npattern = "[a-z]+|[0-9]"')[0]
    )
    assert words(tool, unit="nginx")[-1] == "nginx"
    for value in ("nginx;", "nginx\n", "@x", "", "12"):
        with pytest.raises(ToolError, match="unit: "):
            tool.parse({"unit": value})


HEAD = '[[tool]]\nname = "x"\ndescription = "X."\nbinary = "x"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[tool]]\nname = "x y"\ndescription = "X."\nbinary = "x"', "tool.0.name: use letters"),
        ('[[tool]]\nname = "x"\ndescription = "X."\nbinary = "./x"', "tool.0.binary: name a program"),
        ('[[tool]]\nname = "x"\ndescription = "X."\nbinary = "-x"', "tool.0.binary"),
        ('[[tool]]\nname = "x"\ndescription = "X."\nbinary = "x; y"', "tool.0.binary"),
        ('[[tool]]\nname = "x"\nbinary = "x"', "tool.0.description: field required"),
        (HEAD + 'flags = "y"', "tool.0.flags: extra inputs"),
        (HEAD + 'words = ["--"]', "tool.0: words contain"),
        (HEAD + 'stdin = "text"', "unknown parameter text"),
        (HEAD + '[[tool.parameter]]\nname = "a"', "it must be exactly one of flag"),
        (HEAD + 'stdin = "a"\n[[tool.parameter]]\nname = "a"\nflag = "-a"', "it must be exactly one of flag"),
        (HEAD + '[[tool.parameter]]\nname = "a"\nflag = "-a"\npositional = true', "contradict"),
        (HEAD + '[[tool.parameter]]\nname = "a"\nflag = "--"', "'--' is not a flag"),
        (HEAD + '[[tool.parameter]]\nname = "a"\nflag = "-a;reboot"', "is not a flag"),
        (HEAD + '[[tool.parameter]]\nname = "a"\ntype = "boolean"\npositional = true', "a boolean requires a flag"),
        (HEAD + '[[tool.parameter]]\nname = "a"\ntype = "integer"\nflag = "-a"\npattern = "x"', "are for strings"),
        (HEAD + '[[tool.parameter]]\nname = "a"\nflag = "-a"\nstyle = "equals"', "two dashes"),
        (HEAD + '[[tool.parameter]]\nname = "a"\nflag = "-a"\n[[tool.parameter]]\nname = "a"\nflag = "-b"', "twice"),
        ('[[tol]]\nname = "x"', "tol: extra inputs"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_names_the_file_and_the_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^tools.toml: .*{message}"):
        specs(text)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ('name = "why"\nflag = "-a"', "why is a reserved argument name"),
        ('name = "model_dump"\nflag = "-a"', "model_dump"),
        ('name = "a"\nflag = "-a"\npattern = "("', "a parameter is invalid"),
        ('name = "a"\nflag = "-a"\ntype = "integer"\ndefault = "many"', "a parameter is invalid"),
        ('name = "a"\nflag = "-a"\nchoices = ["x"]\ndefault = "y"', "a parameter is invalid"),
    ],
)
def test_a_parameter_that_cannot_be_had_is_refused(parameter: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CommandTool(specs(f"{HEAD}[[tool.parameter]]\n{parameter}")[0])


# -- quoting


def shells() -> list[str]:
    return [name for name in ("sh", "bash", "dash", "zsh", "mksh", "fish", "busybox") if shutil.which(name)]


NASTY = [
    "", "a b", "$HOME", "`id`", "$(id)", "'", '"', "\\", "a\\", "\\'", "'; touch x; '", "a\nb", "*", "~", "!x", "{a,b}",
    "#x", "-n", "=ls", "é", "\\\\", "a'b\\c\"d", "&&", "<(id)", "\t", "%s", "^x^y", "[a]", "\\n", "x=y",
]  # fmt: skip


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", shells())
def test_every_word_arrives_as_it_is_in_every_shell(shell: str) -> None:
    argv = [shell, "sh"] if shell == "busybox" else [shell]
    text = " ".join(["printf '%s\\0'", *(quote_word(f":{word}") for word in NASTY)])
    done = subprocess.run([*argv, "-c", text], capture_output=True, timeout=20)
    assert done.stdout.decode().split("\0")[:-1] == [f":{word}" for word in NASTY]


@pytest.mark.usefixtures("needs_process")
@few_examples()
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=20))
def test_words_survive_the_shell(found: list[str]) -> None:
    text = " ".join(["printf '%s\\0'", *map(quote_word, found)])
    done = subprocess.run(["sh", "-c", text], capture_output=True, timeout=20)
    assert done.stdout.decode().split("\0")[:-1] == found


@given(
    st.dictionaries(st.sampled_from(["name", "path"]), st.text(max_size=5)), st.lists(st.text(max_size=4), max_size=3)
)
def test_no_value_becomes_an_option(given: dict[str, str], more: list[str]) -> None:
    tool = show()
    try:
        found = words(tool, **({"path": "p"} | given), json=more, skip=more)
    except ToolError:
        return
    divider = found.index("--")
    options = [word for word in found[3:divider] if word.startswith("-")]
    assert all(word in ("-uk", "-name") or word.startswith("--skip=") for word in options)
    assert found[divider + 1 :] == [given.get("path", "p"), *more]


# -- on targets


async def run(tool: CommandTool, reply: ScriptedReply, **arguments: Any) -> Any:
    backend = MemoryBackend(lambda command: reply)
    made = toolbox([tool], backend=backend)
    return (await made.executor.call(ToolCall(tool.name, arguments))), backend.received


async def test_json_becomes_data_and_anything_else_stays_text() -> None:
    for printed, data in (('{"a": [1]}\n', {"a": [1]}), ("[]", []), ("3", 3)):
        outcome, _ = await run(show(), ScriptedReply(printed), path="p")
        assert (outcome.result.text, outcome.result.data) == (printed, data)
    for printed in ("plain\n", "{", "NaN", '{"a": 1} {"b": 2}'):
        outcome, _ = await run(show(), ScriptedReply(printed), path="p")
        assert (outcome.result.text, outcome.result.data["stdout"]) == (printed, printed)


async def test_more_data_than_a_client_can_be_sent_is_text_alone() -> None:
    printed = json.dumps(["x" * 100] * 1000)
    outcome, _ = await run(show(), ScriptedReply(printed), path="p")
    assert isinstance(outcome.result.data, dict)
    assert len(json.dumps(outcome.result.data)) < 100_000
    assert "left out" in outcome.result.data["stdout"]
    assert "left out" in outcome.result.text


async def test_what_the_target_left_out_of_a_long_output_is_told_once() -> None:
    outcome, _ = await run(show(), ScriptedReply("x" * 3_000_000), path="p")
    [(missing, total)] = re.findall(r"(\d+) of (\d+) bytes left out; job", outcome.result.text)
    assert (int(total), int(missing)) == (3_000_000, 3_000_000 - outcome.result.text.count("x"))
    [(missing, total)] = re.findall(r"(\d+) of (\d+) bytes of output left out; job", outcome.result.data["stdout"])
    assert (int(total), int(missing)) == (3_000_000, 3_000_000 - outcome.result.data["stdout"].count("x"))


async def test_a_failure_says_the_code_and_everything_that_was_printed() -> None:
    outcome, _ = await run(show(), ScriptedReply("half", "no such disk\n", 2), path="p")
    assert (outcome.status, outcome.result.error_code) == (CallStatus.ERROR, "exit_code")
    assert outcome.result.text == "exit code: 2\nstdout:\nhalf\nstderr:\nno such disk"


async def test_a_code_that_is_declared_a_success_is_one() -> None:
    outcome, _ = await run(show("success = [0, 1]"), ScriptedReply("", "", 1), path="p")
    assert (outcome.status, outcome.result.text) == (CallStatus.OK, "(no output)")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.TIMED_OUT, CallStatus.TIMEOUT),
        (Status.INTERRUPTED, CallStatus.CANCELLED),
        (Status.UNKNOWN, CallStatus.UNKNOWN),
    ],
)
async def test_a_command_that_did_not_end_is_what_it_is(status: Status, expected: CallStatus) -> None:
    outcome, _ = await run(show(), ScriptedReply("so far", status=status), path="p")
    assert (outcome.status, outcome.result.is_error) == (expected, True)
    assert "so far" in outcome.result.text


async def test_the_declared_parameter_is_the_standard_input() -> None:
    text = HEAD + 'stdin = "body"\n[[tool.parameter]]\nname = "body"\ntype = "array"\n'
    _, received = await run(CommandTool(specs(text)[0]), ScriptedReply(), body=["a", "é"])
    assert (received[0].command, json.loads(received[0].stdin)) == ("command x", ["a", "é"])
    _, received = await run(CommandTool(specs(text.replace('type = "array"', ""))[0]), ScriptedReply(), body="a\n")
    assert received[0].stdin == b"a\n"


@pytest.fixture
async def execution(
    needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecutionContext]:
    """The local target, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


async def test_a_declared_tool_runs_on_the_target(execution: ExecutionContext, tmp_path: Path) -> None:
    text = """
[[tool]]
name = "count"
description = "Count lines that hold a word."
binary = "grep"
words = ["-c"]
mutating = false
success = [0, 1]
stdin = "text"
[[tool.parameter]]
name = "word"
required = true
flag = "-e"
[[tool.parameter]]
name = "text"
[[tool.parameter]]
name = "file"
type = "array"
positional = true
"""
    (tmp_path / "-r").write_text("--version\nx\n")
    made = toolbox([CommandTool(specs(text)[0])], execution=execution)
    outcome = await made.executor.call(ToolCall("count", {"word": "--version", "file": f"{tmp_path}/-r"}))
    assert (outcome.result.text, outcome.result.data) == ("1\n", 1)
    outcome = await made.executor.call(ToolCall("count", {"word": "$(id) it's", "text": "a\n$(id) it's\n"}))
    assert outcome.result.data == 1
    outcome = await made.executor.call(ToolCall("count", {"word": "none", "text": "a"}))
    assert (outcome.status, outcome.result.data) == (CallStatus.OK, 0)


def test_the_command_tells_of_all_arguments_but_the_standard_input() -> None:
    text = HEAD + 'stdin = "body"\n[[tool.parameter]]\nname = "body"\n[[tool.parameter]]\nname = "n"\nflag = "-n"\n'
    assert CommandTool(specs(text)[0]).covered_arguments() == {"n"}


DOCS = Path(__file__).parents[3] / "docs"


def test_the_documented_declaration_makes_the_documented_command() -> None:
    (spec,) = specs((DOCS / "examples" / "disk_usage.toml").read_text())
    tool = CommandTool(spec)
    documented = re.search(r"With `(\{.*\})` it runs `(.*)`", (DOCS / "toolkit.md").read_text())
    assert documented
    assert tool.command(tool.parse(json.loads(documented[1]))) == documented[2]


def test_the_documented_tool_has_ten_lines() -> None:
    text = (DOCS / "examples" / "free_tool.py").read_text()
    tool = text.partition("[start:tool]\n")[2].partition("    # --8<-- [end")[0]
    assert len([line for line in tool.splitlines() if line.strip()]) <= 10
