"""The five profiles as they are advertised: names, arguments and defaults of the products that they come from."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ToolError
from harness.toolkit import OutputLimit, Registry, ToolResult
from harness.toolkit.catalog import load_catalogue
from harness.toolkit.contract import NAME
from harness.toolkit.providers import PROVIDERS
from harness.toolkit.providers import provider as provider_of
from harness.toolkit.registry import schema_gaps
from harness.toolkit.results import cut
from harness.toolkit.tool_profiles import AdaptedTool, load_profile
from harness.toolkit.values import Json
from harness_tools.agents import TYPES
from harness_tools.dev.clean_diff_report import Change, Differences, report
from harness_tools.profiles.buddy import CAPTURE_PANE
from harness_tools.profiles.forms import LIMIT, as_json, head, searched, tail

KNOWN = load_catalogue().known
PROFILES = {name: load_profile(name) for name in ("buddy", "gofastr", "hex", "hygge", "terse")}
OFFERED = {name: profile.over(KNOWN) for name, profile in PROFILES.items()}
FACES = [
    (name, tool) for name, registry in OFFERED.items() for tool in registry.list() if isinstance(tool, AdaptedTool)
]
NAMES = {
    "buddy": "run_shell read_file write_file fetch_url web_search capture-pane send-keys time",
    "gofastr": "Read Write Edit Bash Grep Glob Ls WebFetch TaskList Agent ToolSearch",
    "hex": "read_file write_file edit bash bash_output kill_shell grep glob ask_user_question todo_write web_fetch "
    "web_search task Skill",
    "hygge": "read write edit bash grep glob webfetch todo question remember recall forget skill compact subagent",
    "terse": "read write bash checkfor repfor stump sig errs imports conflicts cleanDiff transform split splice "
    "tabcount notab utf8 delete",
}


def schema(profile: str, tool: str) -> dict[str, Any]:
    return dict(OFFERED[profile].lookup(tool).schema)


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_has_exactly_the_tools_of_its_product(name: str) -> None:
    assert [tool.name for tool in OFFERED[name].list()] == sorted(NAMES[name].split())
    assert {face.name for face in PROFILES[name].faces} == set(NAMES[name].split())


@pytest.mark.parametrize("name", NAMES)
def test_every_face_has_a_name_a_text_and_a_whole_schema(name: str) -> None:
    for tool in OFFERED[name].list():
        assert NAME.fullmatch(tool.name)
        assert tool.description.endswith(".")
        assert schema_gaps(tool) == ()
        for argument, described in dict(tool.schema)["properties"].items():  # type: ignore[call-overload]  # any JSON
            assert described.get("description"), f"{tool.name} does not say what {argument} is"
            assert described.get("type") != "array" or "items" in described


@pytest.mark.parametrize("name", NAMES)
def test_every_provider_takes_the_definitions(name: str) -> None:
    tools = OFFERED[name].list()
    for api in PROVIDERS:
        assert json.dumps(provider_of(api).definitions(tools))


def test_what_the_faces_say_of_the_tools_is_what_the_tools_say() -> None:
    for name, tool in FACES:
        own = tool.own.traits
        assert (tool.traits.mutating, tool.traits.category) == (own.mutating, own.category), (name, tool.name)
        assert tool.traits.requires == own.requires


# -- the arguments, by name: the type, the default, what may be left out


def arguments(profile: str, tool: str) -> str:
    """The arguments as one line: ``path* limit:integer=2000``."""
    found = schema(profile, tool)
    required = found.get("required", [])
    parts = []
    for name, described in found["properties"].items():
        kind = described.get("type") or "|".join(item.get("type", "string") for item in described["anyOf"])
        default = (
            f"={json.dumps(described['default'])}" if described.get("default", [] if kind == "array" else {}) else ""
        )
        default = default if "default" in described else ""
        choices = f"({','.join(described['enum'])})" if "enum" in described else ""
        parts.append(f"{name}{'*' if name in required else ''}:{kind}{choices}{default}")
    return " ".join(parts)


ARGUMENTS = {
    ("buddy", "run_shell"): "command*:string wait:boolean|integer|string=true",
    ("buddy", "read_file"): "path*:string offset:integer",
    ("buddy", "write_file"): "path*:string content*:string",
    ("buddy", "fetch_url"): "url*:string",
    ("buddy", "web_search"): "query*:string",
    ("buddy", "capture-pane"): "target:string start:string|integer end:string|integer join_wrapped_lines:boolean=true "
    "preserve_trailing_spaces:boolean include_escape_sequences:boolean escape_non_printable:boolean "
    "include_alternate_screen:boolean delay:string delay_ms:integer",
    ("buddy", "send-keys"): "target:string keys:array literal_text:string enter:boolean delay:string delay_ms:integer",
    ("buddy", "time"): 'format:string(epoch,epoch_ms,epoch_ns,iso,rfc2822,date,time)="epoch"',
    ("gofastr", "Read"): "path*:string offset:integer limit:integer",
    ("gofastr", "Write"): "path*:string content*:string mode:integer",
    ("gofastr", "Edit"): "path*:string old_string*:string new_string*:string replace_all:boolean",
    ("gofastr", "Bash"): "cmd*:string cwd:string timeout_ms:integer=120000 env:object",
    ("gofastr", "Grep"): "pattern*:string path:string glob:string",
    ("gofastr", "Glob"): "pattern*:string root:string",
    ("gofastr", "Ls"): 'path:string="."',
    ("gofastr", "WebFetch"): "url*:string headers:object",
    ("gofastr", "TaskList"): "tasks*:array",
    ("gofastr", "Agent"): "prompt*:string description:string system:string",
    ("gofastr", "ToolSearch"): "query*:string limit:integer=8",
    ("hex", "read_file"): "path*:string offset:integer limit:integer",
    ("hex", "write_file"): 'path*:string content*:string mode:string(create,overwrite,append)="create"',
    ("hex", "edit"): "file_path*:string old_string*:string new_string*:string replace_all:boolean",
    ("hex", "bash"): "command*:string timeout:number=30 working_dir:string run_in_background:boolean",
    ("hex", "bash_output"): "bash_id*:string filter:string",
    ("hex", "kill_shell"): "shell_id*:string",
    ("hex", "grep"): 'pattern*:string path:string="." '
    'output_mode:string(files_with_matches,content,count)="files_with_matches" -i:boolean -A:integer -B:integer '
    "-C:integer glob:string type:string",
    ("hex", "glob"): 'pattern*:string path:string="."',
    ("hex", "ask_user_question"): "questions*:array",
    ("hex", "todo_write"): "todos*:array",
    ("hex", "web_fetch"): "url*:string prompt*:string",
    ("hex", "web_search"): "query*:string limit:integer=10 allowed_domains:array blocked_domains:array",
    ("hex", "task"): "prompt*:string description*:string "
    "subagent_type*:string(general-purpose,Explore,Plan,code-reviewer) model:string resume:string timeout:number=300",
    ("hex", "Skill"): "command*:string",
    ("hygge", "read"): "path*:string offset:integer=1 limit:integer=2000 byte_offset:integer",
    ("hygge", "write"): "path*:string content*:string",
    ("hygge", "edit"): "path*:string oldString*:string newString*:string replaceAll:boolean",
    ("hygge", "bash"): "command*:string timeout_ms:integer=30000 description:string",
    ("hygge", "grep"): "pattern*:string path:string include:string max_results:integer=100",
    ("hygge", "glob"): "pattern*:string path:string max_results:integer=500",
    ("hygge", "webfetch"): "url*:string max_bytes:integer=1048576",
    ("hygge", "todo"): "items*:array",
    ("hygge", "question"): "question*:string options*:array",
    ("hygge", "remember"): 'content*:string scope:string(session,project,global)="session" confirmed_by_user:boolean',
    ("hygge", "forget"): 'memory_id*:string scope:string(session,project,global)="session"',
    ("hygge", "recall"): "scope:string(session,project,global) query:string",
    ("hygge", "skill"): "name*:string",
    ("hygge", "compact"): "",
    ("hygge", "subagent"): "subagent_type*:string(general,explore,plan,reviewer) description*:string prompt*:string",
    ("terse", "read"): "file_path*:string offset:integer limit:integer byte_offset:integer",
    ("terse", "write"): "file_path*:string content*:string",
    ("terse", "bash"): "command*:string timeout:integer",
    ("terse", "checkfor"): "search*:string dir:array file:array ext:string case_insensitive:boolean whole_word:boolean "
    "context:integer exclude:array",
    ("terse", "repfor"): "search*:string replace*:string dir:array file:array ext:string case_insensitive:boolean "
    "whole_word:boolean dry_run:boolean recursive:boolean exclude:array",
    ("terse", "stump"): "dir*:string depth:integer include_ext:array exclude_ext:array exclude_patterns:array "
    "show_size:boolean show_hidden:boolean",
    ("terse", "sig"): "file*:string all:boolean",
    ("terse", "errs"): "input*:string format:string",
    ("terse", "imports"): "dir*:string ext:string recursive:boolean",
    ("terse", "conflicts"): "file*:array context_lines:integer=1",
    ("terse", "cleanDiff"): "path:string ref:string staged:boolean stat_only:boolean context_lines:integer "
    "file_filter:array",
    ("terse", "transform"): "exec:string file:string pipeline*:array",
    ("terse", "split"): "file*:string lines*:array",
    ("terse", "splice"): "source*:string target*:string mode*:string(append,prepend,replace,insert) line:integer",
    ("terse", "tabcount"): "file*:string start_line:integer end_line:integer",
    ("terse", "notab"): "file*:string spaces:integer=4 tabs:boolean",
    ("terse", "utf8"): "file*:string backup:boolean=true",
    ("terse", "delete"): "path*:string",
}


def test_the_table_of_arguments_is_whole() -> None:
    assert {f"{profile} {tool}" for profile, tool in ARGUMENTS} == {f"{name} {tool.name}" for name, tool in FACES}


def test_the_arguments_are_those_of_the_product() -> None:
    for (profile, tool), expected in ARGUMENTS.items():
        assert arguments(profile, tool) == expected


# -- what they come to

TRANSLATED: list[tuple[str, str, dict[str, Json], dict[str, Json]]] = [
    ("gofastr", "Bash", {"cmd": "x", "timeout_ms": 900_000}, {"timeout": 600.0, "on_timeout": "kill", "tty": False}),
    ("gofastr", "Read", {"path": "x"}, {"byte_offset": 0}),
    ("gofastr", "Read", {"path": "x", "limit": 3}, {"path": "x", "byte_offset": 0, "limit": 3}),
    ("gofastr", "Read", {"path": "x", "limit": 2000}, {"byte_offset": 0, "limit": 1999}),
    ("gofastr", "Read", {"path": "x", "limit": 3, "offset": 9}, {"byte_offset": 9, "limit": 3}),
    ("gofastr", "Write", {"path": "x", "content": "", "mode": 420}, {"permissions_if_new": "0644"}),
    ("gofastr", "Glob", {"pattern": "*"}, {"sort": "name", "include_hidden": True, "no_default_excludes": True}),
    ("gofastr", "TaskList", {"tasks": []}, {"todos": []}),
    ("hex", "bash", {"command": "x"}, {"timeout": 30.0}),
    ("hex", "bash", {"command": "x", "timeout": 9_999}, {"timeout": 300}),
    ("hex", "bash", {"command": "x", "run_in_background": True}, {"command": "x", "run_in_background": True}),
    ("hex", "write_file", {"path": "x", "content": ""}, {"mode": "create"}),
    ("hex", "read_file", {"path": "x", "offset": -4, "limit": 10**9}, {"byte_offset": 0, "byte_limit": 60_000}),
    ("hex", "grep", {"pattern": "x", "-A": 1, "-B": 2, "-C": 3}, {"after": 1, "before": 2, "context": 3}),
    ("hex", "grep", {"pattern": "x"}, {"output_mode": "files_with_matches", "case_insensitive": False}),
    ("hex", "kill_shell", {"shell_id": "7"}, {"shell_id": "7"}),
    ("hex", "web_fetch", {"url": "https://a/", "prompt": "p"}, {"url": "https://a/"}),
    ("hygge", "bash", {"command": "x"}, {"timeout": 30.0}),
    ("hygge", "question", {"question": "q", "options": ["a", "b"]}, {}),
    ("hygge", "edit", {"path": "x", "oldString": "a", "newString": "b", "replaceAll": True}, {"replace_all": True}),
    ("terse", "bash", {"command": "x", "timeout": 600}, {"timeout": 120}),
    ("terse", "bash", {"command": "x", "timeout": "5"}, {"timeout": 5}),
    ("terse", "read", {"file_path": "x", "offset": -1, "limit": 0}, {"offset": 1, "limit": 2_000}),
    ("terse", "transform", {"exec": "x", "file": "y", "pipeline": [{"op": "count"}]}, {"exec": "x"}),
    ("buddy", "read_file", {"path": "x", "offset": 9}, {"byte_offset": 9, "byte_limit": 8_000}),
    ("buddy", "web_search", {"query": "x"}, {"limit": 8}),
    ("buddy", "capture-pane", {"target": "%1", "start": "-"}, {"pane": "%1", "start": "-"}),
]


def test_arguments_come_to_ours() -> None:
    for profile, name, said, expected in TRANSLATED:
        tool = OFFERED[profile].lookup(name)
        assert isinstance(tool, AdaptedTool)
        values, _ = tool.translated(tool.parse(said))
        assert {key: values[key] for key in expected} == expected


def test_an_answer_that_a_model_gives_itself_is_no_answer() -> None:
    tool = OFFERED["hex"].lookup("ask_user_question")
    option = [{"label": "a"}, {"label": "b"}]
    asked = {"questions": [{"question": "q", "header": "h", "options": option}], "answers": {"h": "a"}}
    assert isinstance(tool, AdaptedTool)
    values, _ = tool.translated(tool.parse(asked))
    assert "answers" not in json.dumps(values)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_whatever_a_model_writes_is_a_call_or_a_mistake_in_the_words_of_the_profile(data: st.DataObject) -> None:
    _, tool = data.draw(st.sampled_from(FACES))
    names = list(tool.face.arguments.model_fields)
    given_names = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    given_values = {name: data.draw(JSON) for name in given_names}
    mistake: ToolError | None = None
    try:
        args = tool.parse(given_values)
        tool.subjects(args)
        tool.preview(args)
    except ToolError as error:
        mistake = error
    assert mistake is None or (mistake.code, str(mistake).partition(": ")[0]) == ("invalid_args", tool.name)


@given(st.data())
def test_no_result_is_lost_in_a_form(data: st.DataObject) -> None:
    """Whatever data a result has, there is a text; the form that cannot be made leaves ours."""
    name, tool = data.draw(st.sampled_from(FACES))
    values = least(tool)
    result = ToolResult.of("our own text", data=data.draw(JSON))
    shown = tool.shown(tool.parse(values), result)
    assert isinstance(shown.text, str), name
    failure = ToolResult.failure("broken", "why it failed", data=data.draw(JSON))
    assert tool.shown(tool.parse(values), failure).is_error or tool.own.name == "run_shell"


def least(tool: AdaptedTool[Any]) -> dict[str, Json]:
    """Arguments that are taken."""
    texts = {"string": "x1", "array": [], "integer": 1}
    found = dict(tool.schema)
    values = {name: texts[found["properties"][name]["type"]] for name in found.get("required", [])}  # type: ignore[index, call-overload, union-attr]  # any JSON
    fixed: dict[str, Json] = {
        "questions": [{"question": "q", "header": "h", "options": [{"label": "a"}, {"label": "b"}]}],
        "options": ["a", "b"],
        "subagent_type": "Explore",
        "mode": "append",
        "todos": [{"content": "c", "activeForm": "a", "status": "pending"}],
        "url": "https://example.com/",
        "memory_id": "m1",
        "file": ["x"] if found["properties"].get("file", {}).get("type") == "array" else "x",  # type: ignore[union-attr, call-overload]  # any JSON
        "lines": [1],
        "pipeline": [{"op": "count"}],
    }
    source: dict[str, Json] = {"file": "x"} if "pipeline" in values else {}  # of exec and file it needs one
    return {name: fixed.get(name, value) for name, value in values.items()} | source


# -- the parts of the forms


@pytest.mark.parametrize(
    ("profile", "tool", "arguments", "mistake"),
    [
        ("hygge", "question", {"question": "", "options": ["a", "b"]}, "question: question: it is empty"),
        ("hygge", "question", {"question": "q", "options": ["a", "a"]}, "question: options: two options are the same"),
        ("terse", "transform", {"pipeline": [{"op": "count"}]}, "transform: arguments: give exec or file"),
        ("terse", "transform", {"file": "x", "pipeline": [{}]}, "transform: pipeline.0: op is missing"),
    ],
)
def test_mistakes_are_told_of_the_arguments_that_a_profile_has(
    profile: str, tool: str, arguments: dict[str, Any], mistake: str
) -> None:
    faced = OFFERED[profile].lookup(tool)
    assert isinstance(faced, AdaptedTool)
    with pytest.raises(ToolError) as caught:
        faced.translated(faced.parse(arguments))
    assert caught.value.message == mistake


def test_a_model_reads_which_agents_there_are() -> None:
    of_hex = ("general-purpose", "Explore", "Plan", "code-reviewer")
    for profile, tool, names in (
        ("hygge", "subagent", [one.name for one in TYPES]),
        ("hex", "task", of_hex),
    ):
        lines = OFFERED[profile].lookup(tool).description.partition(" Types:\n")[2].splitlines()
        assert lines == [f"- {name}: {one.about}." for name, one in zip(names, TYPES, strict=True)]


def test_mistakes_of_ours_name_the_arguments_of_the_profile() -> None:
    edit = OFFERED["hygge"].lookup("edit")
    assert isinstance(edit, AdaptedTool)
    args = edit.parse({"path": "f", "oldString": "a", "newString": "a"})
    with pytest.raises(ToolError, match="oldString and newString are the same"):
        edit.translated(args)
    failed = ToolResult.failure("ambiguous", "/d/old_string.c contains old_string 2 times: set replace_all. Unchanged")
    assert edit.shown(args, failed).text == "/d/old_string.c contains oldString 2 times: set replaceAll. Unchanged"


def test_a_difference_that_was_not_read_to_its_end_is_no_whole_one() -> None:
    diff = OFFERED["terse"].lookup("cleanDiff")
    assert isinstance(diff, AdaptedTool)
    cut = Change("f", "f", "modified", "100644", "100644", 1, 1, whole=False)
    for complete in (True, False):
        found = report(Differences("/r", [replace(cut, whole=complete)], complete=complete))
        shown = json.loads(diff.shown(diff.parse({}), found).text)
        assert (shown.get("complete"), shown["files"][0].get("complete")) == (
            (None, None) if complete else (False, False)
        )


def test_what_is_cut_keeps_its_head_or_its_tail_and_says_so() -> None:
    assert [head("abcd", 4, "..."), head("abcde", 4, "...")] == ["abcd", "abcd..."]
    assert [tail("abcd", 4, "[{}]"), tail("abcdef", 4, "[{}]")] == ["abcd", "[2]cdef"]


def test_a_search_without_a_match_says_so_and_what_was_not_seen() -> None:
    none = ToolResult.of(
        "[no match for x in .]\n[not searched: .git (no_default_excludes searches them)]", data={"count": 0}
    )
    assert searched(none, "no matches") is not None
    assert getattr(searched(none, "no matches"), "text", "") == "no matches"
    blind = ToolResult.of("[no match for x in .]\n[2 places could not be read]", data={"count": 0})
    assert getattr(searched(blind, "none"), "text", "") == "none\n[2 places could not be read]"
    text = "[a.txt:1:(no_default_excludes searches them)\n[not searched: dist (no_default_excludes searches them)]"
    found = searched(ToolResult.of(f"a\n{text}", data={"count": 1}), "none")
    assert found is not None
    assert found.text == "a\n[a.txt:1:(no_default_excludes searches them)\n[not searched: dist]"


@given(JSON)
def test_json_that_fits_is_as_it_was(value: Json) -> None:
    assert json.loads(as_json(value).text) == value


@pytest.mark.parametrize(
    "value",
    [
        {"content": "\x00\U0001f600" * 60_000, "file": "x"},
        {"directories": [{"dir": "d", "files": [{"file": f"f{n}", "matches": ["é" * 99] * 9} for n in range(99)]}]},
        ["x" * 999] * 999,
        {"deep": [[["y" * 50_000]]], "other": list(range(30_000))},
        {f"k{n}": "z" * 63 for n in range(2_000)},
        {"packages": {f"p{n}": {"type": "external", "files": ["a.py"]} for n in range(3_000)}, "total": 1},
    ],
)
def test_json_that_is_too_long_loses_items_and_stays_json(value: Json) -> None:
    shown = as_json(value)
    found = json.loads(shown.text)
    assert found == shown.data
    assert len(shown.text) <= LIMIT
    assert sum(found["left_out"].values()) > 0


def test_no_face_belongs_to_a_tool_that_is_not_there() -> None:
    without = Registry(tool for tool in KNOWN.list() if tool.name != "grep")
    assert [tool.name for tool in PROFILES["hex"].over(without).list() if tool.name == "grep"] == []
    assert not re.search(r"\bgrep\b", " ".join(tool.name for tool in PROFILES["hex"].over(without).list()))


@pytest.mark.parametrize("notice", ["", "[notice: there is no alternate screen; this is the main screen]"])
def test_the_end_of_a_long_screen_is_counted_in_what_was_on_it(notice: str) -> None:
    screen = "".join(f"{line}\n" for line in range(50_000)) + "$ "
    text = cut(screen, OutputLimit(16_000, 8_000))  # as a model of ours gets it
    result = ToolResult.of(text, data={"screen": screen, "notice": notice})
    found = CAPTURE_PANE.render(CAPTURE_PANE.arguments(), result)
    whole = f"{screen.rstrip()}\n{notice}" if notice else screen
    assert found is not None
    assert found.text == f"[truncated {len(whole) - 8_000} chars from start]\n{whole[-8_000:]}"
