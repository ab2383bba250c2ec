"""The map of imports: what each import leads to, the two streams of the target, and the tool on a tree of files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toolbox import Toolbox, Trace, Words, toolbox

from harness import ExecutionContext, connect
from harness.results import Status
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit import CallOutcome, CallStatus, Executor, OutputLimit, Registry, Services, ToolCall
from harness.toolkit.result_cache import ResultCache
from harness.toolkit.session.file_versions import ReadTracker
from harness.toolkit.values import Subject
from harness_tools.dev import imports, tools
from harness_tools.dev.import_kinds import Resolved
from harness_tools.dev.imports import Listing, Report, Scanned, parse_listing, parse_stream, result_of, stream_script
from harness_tools.dev.languages.model import FileImports, Import


def box(execution: ExecutionContext | None = None, backend: MemoryBackend | None = None) -> Toolbox:
    """The tools with a real cache."""
    made = toolbox(tools(), execution=execution, backend=backend)
    old = made.executor
    services = Services(made.policy, made.ledger, Words(Trace()), made.outputs, ResultCache())
    reads = ReadTracker().of("s", old.execution)
    made.executor = Executor(old.execution, old.registry, services, old.events, reads, "s")
    return made


async def call(made: Toolbox, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(110):
        return await made.executor.call(ToolCall("imports", arguments))


def plant(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """This machine without a terminal, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


# -- the two streams

NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)


@given(st.sets(NAMES, max_size=8), st.sets(NAMES, max_size=3))
def test_a_listing_has_every_name(files: set[str], skipped: set[str]) -> None:
    data = b"".join(f"F./{name}\0".encode() for name in files) + b"".join(f"S./d/{name}\0".encode() for name in skipped)
    found = parse_listing(data, "")
    assert found == Listing(tuple(sorted(files)), tuple(sorted(f"d/{name}" for name in skipped)))


def test_a_listing_that_was_cut_says_so() -> None:
    assert parse_listing(b"F./a\0F./b", "find: ./x: Permission denied\n\n") == Listing(
        ("a",), (), ("find: ./x: Permission denied",), complete=False
    )


@given(st.dictionaries(NAMES, st.binary(max_size=50), max_size=6), st.sets(NAMES, max_size=2), st.integers(0, 400))
def test_a_stream_gives_each_file_its_own_content(contents: dict[str, bytes], lost: set[str], cut: int) -> None:
    mark = "0123456789abcdef01234567"
    lost -= contents.keys()
    pieces = [f"{mark}F./{name}\0".encode() + data + f"{mark}+".encode() for name, data in contents.items()]
    pieces += [f"{mark}F./{name}\0".encode() + b"half" + f"{mark}-".encode() for name in lost]
    names = [*contents, *lost]
    whole = parse_stream(b"".join(pieces), mark, names)
    assert (whole.contents, set(whole.unreadable), whole.late) == (contents, lost, ())
    part = parse_stream(b"".join(pieces)[:cut], mark, names)
    assert all(contents[name] == data for name, data in part.contents.items())
    assert {*part.contents, *part.unreadable, *part.late} == set(names)


@given(st.binary(max_size=200))
def test_any_answer_of_the_target_is_taken(data: bytes) -> None:
    parse_listing(data, data.decode("utf-8", "replace"))
    found = parse_stream(b"mark" + data, "mark", ["a"])
    assert set(found.late) <= {"a"}


def test_no_name_of_a_file_is_a_command() -> None:
    script = stream_script(["-rf", "$(reboot)", "a'b", "c\nd"], "m").decode().splitlines()
    assert script[2:] == ["hx_file ./-rf", "hx_file './$(reboot)'", "hx_file './a'\"'\"'b'", "hx_file './c", "d'"]


# -- the report


def scanned(path: str, *imports: tuple[str, str]) -> Scanned:
    items = tuple(Import(name, number) for number, (name, _) in enumerate(imports, 1))
    return Scanned(path, FileImports("python", items), tuple(Resolved(kind) for _, kind in imports))  # type: ignore[arg-type]  # kinds


def test_what_does_not_fit_is_counted() -> None:
    files = tuple(scanned(f"file{n:04}.py", (f"package{n % 50}", "external"), ("os", "stdlib")) for n in range(1_000))
    result = result_of(Report("d", files, (), Listing(()), 3, 2), OutputLimit(6_000, 0), {})
    data: Any = result.data
    assert len(result.text) <= 6_000
    assert len(data["files"]) + data["files_left_out"] == 1_000
    assert f"[{data['files_left_out']} more files omitted: the result would be too long" in result.text
    assert "[3 more files were not scanned" in result.text
    assert "[2 files denied by the policy]" in result.text
    assert len(data["packages"]) + data["packages_left_out"] == 51
    assert data["packages"]["package0"]["count"] == 20
    json.dumps(data)


def test_a_name_that_means_two_things_is_there_twice() -> None:
    files = (scanned("a.py", ("x", "local")), scanned("b.py", ("x", "external")))
    data: Any = result_of(Report("d", files, (), Listing(())), OutputLimit(6_000, 0), {}).data
    assert {name: item["files"] for name, item in data["packages"].items()} == {"x": ["b.py"], "x (local)": ["a.py"]}


# -- the tool


def subjects(**arguments: Any) -> list[str]:
    tool = Registry(tools()).lookup("imports")
    found = tool.subjects(tool.parse(arguments))
    assert {subject.kind for subject in found} == {"read"}
    return [subject.text for subject in found]


def test_the_policy_sees_every_path_that_is_named() -> None:
    assert subjects(dir="/a/b") == ["/a/b", "/a/go.mod", "/go.mod"]
    assert subjects(directory="~/a/") == ["~/a/", "~/go.mod"]
    assert subjects(path="a/b", ext="go") == ["a/b", "a/go.mod", "go.mod"]
    assert subjects(dir=".") == subjects(dir=".", ext=".py") == ["."]
    assert subjects(dir="/") == ["/"]
    assert subjects(dir="a/../b") == ["a/../b"]
    assert subjects(dir="/a/b", ext="*.py") == ["/a/b"]
    assert len(subjects(dir="/a" * 1_000)) == imports.MAX_PARENTS + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "dir: required"),
        ({"dir": "a\0b"}, "NUL"),
        ({"dir": "a", "ext": ".xyz"}, "ext: .*known: .py, "),
        ({"dir": "a", "ext": "*) -exec rm"}, "ext: "),
        ({"dir": "a", "recursive": "maybe"}, "recursive: "),
        ({"dir": "a", "recurse": True}, "did you mean 'recursive'"),
    ],
)
async def test_mistakes_are_told_as_mistakes_of_the_arguments(arguments: dict[str, Any], message: str) -> None:
    made = box()
    outcome = await call(made, **arguments)
    assert outcome.result.error_code == "invalid_args"
    assert re.search(message, outcome.result.text), outcome.result.text
    assert made.backend.received == []


@pytest.mark.usefixtures("needs_process")
async def test_a_tree_of_many_languages_is_mapped(here: ExecutionContext, tmp_path: Path) -> None:
    root = tmp_path / 'a tree\'s "root"'
    plant(
        root,
        {
            "go.mod": "module shop.example/app\n",
            "main.go": 'package main\nimport (\n "fmt"\n "shop.example/app/store"\n)\n',
            "store/store.go": "package store\n",
            "py/__init__.py": "",
            "py/a.py": "import os\nfrom .b import x\nimport yaml\n",
            "py/b.py": "import yaml\n",
            "web/app.ts": "import './lib/x';\n",
            "web/lib/x.ts": "",
            "node_modules/left/index.js": "require('pad')\n",
            "py/__pycache__/a.py": "import nothing\n",
            ".hidden/secret.py": "import nothing\n",
            "Cargo.toml": '[package]\nname = "my-crate"\n',
            "src/lib.rs": "use my_crate::x;\n",
            "two\nlines.py": "import one\n",
            "-dash 'quote' $(x).py": "import two\n",
            "broken.py": "def (:\nimport three\n",
            "binary.py": b"\x7fELF\0\0",
            "long.py": b"import first\n" + b"x = 1\n" * 60_000 + b"import last\n",
            "notes.txt": "import nothing\n",
        },
    )
    (root / "link.py").symlink_to(root / "py" / "a.py")
    os.mkfifo(root / "pipe.py")
    (root / os.fsdecode(b"latin\xe9.py")).write_text("import four\n")
    outcome = await call(box(here), dir=str(root), recursive=True)
    assert outcome.status is CallStatus.OK, outcome
    data: Any = outcome.result.data
    found = {
        item["file"]: [(one["module"], one["type"], *one["files"]) for one in item["imports"]] for item in data["files"]
    }
    assert found == {
        "-dash 'quote' $(x).py": [("two", "external")],
        "broken.py": [("three", "external")],
        "latin\udce9.py": [("four", "external")],
        "long.py": [("first", "external")],
        "main.go": [("fmt", "stdlib"), ("shop.example/app/store", "local", "store")],
        "py/__init__.py": [],
        "py/a.py": [("os", "stdlib"), (".b", "relative", "py/b.py"), ("yaml", "external")],
        "py/b.py": [("yaml", "external")],
        "src/lib.rs": [("my_crate::x", "local")],
        "store/store.go": [],
        "two\nlines.py": [("one", "external")],
        "web/app.ts": [("./lib/x", "relative", "web/lib/x.ts")],
        "web/lib/x.ts": [],
    }
    assert data["packages"]["yaml"] == {"type": "external", "count": 2, "files": ["py/a.py", "py/b.py"]}
    assert data["skipped"] == [".hidden", "node_modules", "py/__pycache__"]
    assert {item["file"]: (item["error"], item["partly"]) for item in data["errors"]} == {
        "binary.py": ("it is not text", False),
        "broken.py": ("line 1 is not valid python", True),
        "long.py": ("only its first 262144 bytes were parsed", True),
    }
    assert "  local: shop.example/app/store:4 -> store" in outcome.result.text
    assert "[skipped (3): .hidden/; node_modules/; py/__pycache__/]" in outcome.result.text


@pytest.mark.usefixtures("needs_process")
async def test_without_recursion_only_the_directory_itself_is_read(here: ExecutionContext, tmp_path: Path) -> None:
    plant(tmp_path / "a", {"x.py": "import os\n", "y.go": "package y\n", "b/z.py": "import sys\n"})
    made = box(here)
    data: Any = (await call(made, dir=str(tmp_path / "a"))).result.data
    assert [item["file"] for item in data["files"]] == ["x.py", "y.go"]
    data = (await call(made, dir=str(tmp_path / "a"), ext="go")).result.data
    assert [item["file"] for item in data["files"]] == ["y.go"]


@pytest.mark.usefixtures("needs_process")
async def test_a_module_above_the_directory_says_what_is_local(here: ExecutionContext, tmp_path: Path) -> None:
    files = {
        "go.mod": "module m.example\n",
        "in/side/a.go": 'package a\nimport "m.example/x"\nimport "m.example/in/side/b"\n',
    }
    plant(tmp_path / "repo", {**files, "in/side/b/b.go": "package b\n"})
    data: Any = (await call(box(here), dir=f"{tmp_path}/repo/in/side", recursive=True)).result.data
    assert [(one["type"], one["files"]) for one in data["files"][0]["imports"]] == [("local", []), ("local", ["b"])]


@pytest.mark.usefixtures("needs_process")
async def test_a_map_of_few_files_is_remembered_until_one_of_them_changes(
    here: ExecutionContext, tmp_path: Path
) -> None:
    plant(tmp_path / "a", {"x.py": "import os\n", "y.py": "import sys\n"})
    made = box(here)
    first, again = [await call(made, dir=f"{tmp_path}/a") for _ in range(2)]
    plant(tmp_path / "a", {"y.py": "import re\n"})
    changed, once_more = [await call(made, dir=f"{tmp_path}/a") for _ in range(2)]
    plant(tmp_path / "a", {"z.py": "import io\n"})
    added = await call(made, dir=f"{tmp_path}/a")
    assert [outcome.cached for outcome in (first, again, changed, once_more, added)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert "io:1" in added.result.text
    plant(tmp_path / "a", {f"n{n}.py": "" for n in range(9)})
    assert [(await call(made, dir=f"{tmp_path}/a")).cached for _ in range(2)] == [False, False]


@pytest.mark.usefixtures("needs_process")
async def test_what_is_no_directory_with_sources_is_told(here: ExecutionContext, tmp_path: Path) -> None:
    made = box(here)
    plant(tmp_path, {"a.py": "", "empty/x.txt": ""})
    assert (await call(made, dir=f"{tmp_path}/gone")).result.error_code == "file_not_found"
    outcome = await call(made, dir=f"{tmp_path}/a.py")
    assert outcome.result.error_code == "not_a_directory"
    assert "sig shows one file" in outcome.result.text
    outcome = await call(made, dir=f"{tmp_path}/empty")
    assert outcome.status is CallStatus.OK
    assert outcome.result.text == f"{tmp_path}/empty: no source files in a supported language"
    data: Any = outcome.result.data
    assert (data["total_files"], data["files"], data["packages"]) == (0, [], {})


@pytest.mark.usefixtures("needs_process")
async def test_more_files_than_are_looked_at_are_counted(
    here: ExecutionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path / "a", {f"f{n:02}.py": "import os\n" for n in range(12)})
    monkeypatch.setattr(imports, "MAX_FILES", 8)
    monkeypatch.setattr(imports, "TOTAL_LIMIT", 300)
    data: Any = (await call(box(here), dir=f"{tmp_path}/a")).result.data
    read = [item["file"] for item in data["files"]]
    late = [item["file"] for item in data["errors"]]
    assert 0 < len(read) < 8
    assert sorted(read + late) == [f"f{n:02}.py" for n in range(8)]
    assert data["files_not_looked_at"] == 4
    monkeypatch.setattr(imports, "LISTING_LIMIT", 50)
    outcome = await call(box(here), dir=f"{tmp_path}/a")
    assert "[there are more files than could be listed; choose a smaller directory]" in outcome.result.text


async def test_a_directory_that_cannot_be_listed_is_an_error() -> None:
    backend = MemoryBackend(lambda command: ScriptedReply(b"", b"sh: find: not found\n"))
    await backend.files.mkdir("/srv")
    outcome = await call(box(backend=backend), dir="/srv")
    assert outcome.result.error_code == "not_listed"
    assert outcome.result.text == "/srv could not be listed: sh: find: not found"


async def test_a_target_that_answers_nonsense_gives_an_error() -> None:
    backend = MemoryBackend(lambda command: ScriptedReply(b"\xff\0F./a.py\0junk", b"oh\n", 3))
    await backend.files.mkdir("/srv")
    outcome = await call(box(backend=backend), dir="/srv")
    assert outcome.result.text.startswith("/srv: no source files")
    assert "[not scanned (1): a.py: it cannot be read]" in outcome.result.text
    assert "[not listed (1): oh]" in outcome.result.text


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.TIMED_OUT, "too_slow"), (Status.UNKNOWN, "execution_failed"), (Status.RUNNING, "execution_failed")],
)
async def test_a_listing_without_an_end_is_told(status: Status, code: str) -> None:
    backend = MemoryBackend(lambda command: ScriptedReply(b"F./a.py\0", status=status))
    await backend.files.mkdir("/srv")
    outcome = await call(box(backend=backend), dir="/srv")
    assert (outcome.status, outcome.result.error_code) == (CallStatus.ERROR, code)
    assert "listing the sources" in outcome.result.text


def test_what_it_says_of_itself() -> None:
    tool = Registry(tools()).lookup("imports")
    assert (tool.traits.mutating, tool.traits.parallelizable, tool.traits.cacheable) == (False, True, True)
    assert tool.subjects(tool.parse({"dir": "."})) == (Subject("read", "."),)
