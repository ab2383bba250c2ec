"""The search tools on real targets: the same result whatever searches, nothing withheld is shown, no pane touched."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.contained import MakeWay, make_way
from tests.support.desk import OpenDesk, open_desk
from tests.support.engines import container
from tests.support.searchtree import ENGINES, grow, searching
from tests.support.sshd import MakeUser, SshServer
from tests.support.toolbox import toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, Executor, ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.rules.rule import Action, Rule
from harness.toolkit.permissions.rules.settings import PermissionSettings
from harness.toolkit.result_cache import ResultCache
from harness_tools.dev.replace import RepFor
from harness_tools.search import grep_search, tools

__all__ = ["make_way", "open_desk"]

pytestmark = pytest.mark.usefixtures("needs_process")

Call = tuple[str, dict[str, Any]]


def executor(execution: ExecutionContext, cwd: Path | str, policy: RulePolicy | None = None) -> Executor:
    made = toolbox([*tools(), RepFor()], execution=execution).executor
    services = replace(made.services, results=None, policy=policy or made.services.policy)
    return replace(made, cwd=str(cwd), services=services)


async def call(made: Executor, name: str, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(100):
        return await made.call(ToolCall(name, arguments))


def facts(outcome: CallOutcome) -> str:
    """What must be the same whatever searched."""
    data = dict(outcome.result.data) if isinstance(outcome.result.data, dict) else {}
    data.pop("engine", None)
    return json.dumps([outcome.status.value, outcome.result.error_code, data], indent=0)


PATTERNS = [
    *(
        "needle",
        "^needle$",
        "(?i)n[AE]edle|other",
        "\\bneedle\\b",
        "[^a-z]needle",
        "é",
        "\\d+\\.?",
        "[]x-]",
        "^$",
        "x*",
    ),
    *("(ne|ed){2,3}le?", "\\w+\\s\\w+", "caf.", "\\Bneedle"),
]
COMMON: list[Call] = [
    *(("grep", {"pattern": pattern}) for pattern in PATTERNS),
    ("grep", {"pattern": "needle", "include_hidden": True}),
    ("grep", {"pattern": "needle", "no_default_excludes": True, "include_hidden": True}),
    ("grep", {"pattern": "needle", "output_mode": "count"}),
    ("grep", {"pattern": "needle", "output_mode": "files_with_matches", "max_results": 3}),
    ("grep", {"pattern": "needle", "max_results": 7, "context": 1}),
    ("grep", {"pattern": "needle", "max_results": 1, "after": 3}),
    ("grep", {"pattern": "needle", "include": "deep/**/*.{py,txt}"}),
    ("grep", {"pattern": "needle", "type": "log"}),
    ("grep", {"pattern": "'[]x-'", "fixed": True}),
    ("grep", {"pattern": "größe", "case_insensitive": True}),
    ("grep", {"pattern": "needle", "path": "sub"}),
    ("grep", {"pattern": "nothing like it"}),
    *(
        ("grep", {"pattern": "needle", "path": name})
        for name in ("binary_late", "-dash.txt", "new\nline.txt", "link.txt")
    ),
    *(("grep", {"pattern": "needle", "path": name}) for name in ("a.log", "pipe", "dangling", "nope", "build")),
    ("glob", {"pattern": "**", "sort": "name"}),
    ("glob", {"pattern": "**/*.{py,log}", "max_results": 2, "sort": "name"}),
    ("glob", {"pattern": "**/.*", "sort": "name"}),
    ("glob", {"pattern": "s*/**/[a-c].?", "sort": "name"}),
    ("glob", {"pattern": "**", "no_default_excludes": True, "include_hidden": True, "sort": "name"}),
    ("stump", {"dir": ".", "show_size": True}),
    ("stump", {"dir": ".", "depth": 1, "show_hidden": True, "include_ext": ["py"], "exclude_patterns": ["ot"]}),
    ("ls", {}),
    ("checkfor", {"search": "needle", "context": 1, "exclude": ["strange"]}),
    ("checkfor", {"search": "one\nneedle", "dir": [".", "sub"], "whole_word": True, "ext": "txt"}),
    ("checkfor", {"search": "größe", "case_insensitive": True, "file": ["utf8.txt", "-dash.txt", "nope"]}),
]
NAMES: list[Call] = [
    ("glob", {"pattern": "**/*git*", "include_hidden": True, "sort": "name"}),
    ("glob", {"pattern": "**/{plain.txt,a.h,*.gitx.py,git}", "sort": "name"}),
    ("glob", {"pattern": "{sub,**/er}/*", "sort": "name"}),
    ("glob", {"pattern": "**/*", "no_default_excludes": True, "sort": "name"}),
    ("glob", {"pattern": "*.{txt,log}", "sort": "name"}),
    ("stump", {"dir": ".", "depth": 0}),
]
WITH_PROGRAMS: list[Call] = [
    ("grep", {"pattern": "needle.*\\n\\w+", "multiline": True}),
    ("grep", {"pattern": "def.*?:\\s+return", "multiline": True, "context": 1}),
    ("glob", {"pattern": "**", "max_results": 9}),
    ("ls", {"path": ".", "long": True, "all": True}),
]


@pytest.mark.parametrize("engine", ENGINES[1:])
async def test_results_are_the_same_whatever_searches_there(tmp_path: Path, engine: str) -> None:
    top = tmp_path / "tree"
    top.mkdir()
    grow(top)
    few = COMMON[::3] + NAMES
    calls = few if engine == "here" else COMMON + NAMES + WITH_PROGRAMS  # "here" fetches file by file
    theirs, known = await _told(engine, calls, tmp_path)
    ours, _ = await _told("rg", calls, tmp_path)
    for wanted, found, expected in zip(calls, theirs, ours, strict=True):
        assert found == expected, (engine, wanted)
    assert engine.replace("busybox", "grep") in known
    assert "rg" not in known


async def _told(engine: str, calls: list[Call], directory: Path) -> tuple[list[str], set[str]]:
    """What is said of each call, and what searched."""
    async with searching(engine, directory) as execution:
        made = executor(execution, directory / "tree")
        done = [await call(made, name, **arguments) for name, arguments in calls]
    return [facts(one) for one in done], {
        str(one.result.data.get("engine")) for one in done if isinstance(one.result.data, dict)
    }


async def test_the_results_are_right(tmp_path: Path) -> None:
    top = tmp_path / "tree"
    top.mkdir()
    grow(top)
    async with connect("local:") as execution:
        made = executor(execution, top)
        found = await call(made, "grep", pattern="needle", output_mode="files_with_matches")
        assert isinstance(found.result.data, dict)
        names = [item["path"] for item in found.result.data["results"]]  # type: ignore[index,union-attr]  # as documented
        ignored = {
            "a.log",
            "build/out.txt",
            "tmpdir/x.txt",
            "!odd",
            "sub/skip.txt",
            "sub/gen/a.c",
            "sub/local.txt",
            "trail",
        }
        hidden = {".hidden", ".hid/inner.txt", "inner/.git/HEAD", "sub/deep/local.txt", "inner/only.txt"}
        binary = {"binary_early", "binary_late", "utf16.txt", "link.txt", "node_modules/m.js", "deep/target/t.txt"}
        assert not set(names) & (ignored | hidden | binary)
        assert {"keep.log", "deep/build", "tmpfile", "sub/b.log", "inner/c.log", "sub/gen/a.h", "new\nline.txt"} <= set(
            names
        )
        assert {"-dash.txt", "dist", "\udcff\udcfe.txt", "a:1:b.txt", "giant.txt", "no_end.txt"} <= set(names)
        lines = (await call(made, "grep", pattern="needle", path="new\nline.txt")).result.text
        assert lines == r"$'new\nline.txt':1:needle" + "\n" + r"$'new\nline.txt':2:behind needle"
        few = await call(made, "grep", pattern="needle", max_results=2)
        assert few.result.text.splitlines()[-1].startswith("[")
        assert isinstance(few.result.data, dict)
        assert few.result.data["dropped"] == few.result.data["count"] - 2  # type: ignore[operator]  # numbers
        none = await call(made, "grep", pattern="nothing like it")
        assert (none.result.is_error, none.result.metadata["matches"]) == (False, 0)
        listed = await call(made, "glob", pattern="**/*.js", no_default_excludes=True)
        assert listed.result.text == "node_modules/m.js"
        assert "node_modules (" not in (await call(made, "glob", pattern="**/*.js")).result.text
        assert "node_modules" in (await call(made, "glob", pattern="**/*.js")).result.text
        assert (await call(made, "ls", path="empty.txt")).result.text == "empty.txt"
        (top / "void").mkdir()
        assert (await call(made, "ls", path="void")).result.text == "(empty directory)"
        long = (await call(made, "ls", long=True)).result.text
        assert "link.txt@ -> plain.txt" in long
        await anyio.Path(top / "giant2.txt").write_bytes(b"x" * 3_000_000 + b"rare" + b"y" * 3_000_000)
        giant = (await call(made, "grep", pattern="rare")).result
        assert giant.text.startswith("giant2.txt:1:xxxx")
        assert len(giant.text) < 1_000


async def test_a_result_that_is_cut_still_says_what_is_missing(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number:0200}").write_text("needle " * 60)
    calls: list[Call] = [
        ("glob", {"pattern": "*", "max_results": 190}),
        ("grep", {"pattern": "needle", "max_results": 190}),
        ("stump", {"dir": ".", "max_entries": 190}),
        ("checkfor", {"search": "needle", "max_results": 190}),
    ]
    async with connect("local:") as execution:
        made = executor(execution, tmp_path)
        for name, arguments in calls:
            text = (await call(made, name, **arguments)).result.text
            [missing] = re.findall(r"\[(\d+) (?:more of 200 matches|entries more) are not shown", text)
            shown = sum(f"{number:0200}" in text for number in range(200))
            assert shown + int(missing) == 200, (name, shown, text[-200:])
            assert "left out" not in text, name


@pytest.mark.parametrize("engine", ["grep", "busybox"])
async def test_a_pattern_for_names_of_one_directory_looks_into_no_other(tmp_path: Path, engine: str) -> None:
    top = tmp_path / "tree"
    for name in ("a.txt", "sub/b.txt", "sub/node_modules/c.txt"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("")
    (top / ".gitignore").write_text("d.txt")
    (top / "d.txt").write_text("")
    async with searching(engine, tmp_path) as execution:
        made = executor(execution, top)
        here = await call(made, "glob", pattern="*.txt")
        assert here.result.text == "a.txt\n[1 entry ignored by .gitignore (no_default_excludes shows them)]"
        assert (await call(made, "glob", pattern="*/*.txt")).result.text.startswith(
            "sub/b.txt\n[not searched: node_mod"
        )
        assert (await call(made, "glob", pattern=f"{top}/*.txt")).result.text.startswith(f"{top}/a.txt\n[1 entry")


POORER = """\
#!/bin/sh
for word do case $word in -printf | -print0 | -maxdepth) echo "find: $word: unknown option" >&2; exit 1 ;; esac; done
exec /usr/bin/find "$@"
"""


@pytest.mark.parametrize("missing", ["find", "grep", "xargs", "tr", "sed", "head", "find -maxdepth"])
async def test_what_is_missing_there_is_done_another_way(tmp_path: Path, missing: str) -> None:
    top = tmp_path / "tree"
    top.mkdir()
    grow(top)
    calls = COMMON[::9] + NAMES[:2] + COMMON[-3:]
    async with searching("grep", tmp_path) as execution:
        theirs = [(await call(executor(execution, top), name, **arguments)).result.text for name, arguments in calls]
        program = tmp_path / "grep" / missing.partition(" ")[0]
        program.unlink()
        if " " in missing:
            program.write_text(POORER)
            program.chmod(0o755)
        made = executor(execution, top)
        for expected, (name, arguments) in zip(theirs, calls, strict=True):
            assert (await call(made, name, **arguments)).result.text == expected, (name, arguments)


async def test_files_of_the_kernel_are_searched_where_they_are_asked_for(tmp_path: Path) -> None:
    for engine in ENGINES[:3]:
        async with searching(engine, tmp_path) as execution:
            made = executor(execution, "/")
            first = await call(made, "glob", pattern="*/version")
            assert "proc/version" not in first.result.text.split("\n")
            assert "proc" in first.result.text
            asked = [await call(made, "glob", pattern=pattern) for pattern in ("proc/version", "/proc/version")]
            asked.append(await call(made, "glob", pattern="*/version", no_default_excludes=True))
            assert ["proc/version" in outcome.result.text for outcome in asked] == [True] * 3
            found = await call(made, "grep", pattern="^Linux version", include="proc/version")
            assert found.result.text.startswith("proc/version:1:Linux")


SECRETS = {
    "app/config.py": "token = 'hush'\n",
    "app/.env": "token=hush\n",
    "app/id_rsa": "hush\n",
    "app/server.key": "hush\nonly here\n",
    "app/store.p12": "\0\nonly here\n",
    "app/keep/notes.txt": "hush\n",
    "app/keep/open.txt": "hush\n",
    "app/denied.txt": "hush\n",
}


@pytest.mark.parametrize("engine", ["rg", "grep", "here"])
async def test_nothing_is_shown_of_what_the_policy_keeps_back(tmp_path: Path, engine: str) -> None:
    for name, text in SECRETS.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    (tmp_path / "tree/app/keep/.aiexclude").write_text("notes*\n")
    denied = f"{tmp_path}/tree/app/denied.txt"
    policy = RulePolicy(PermissionSettings(rules=(Rule(Action.DENY, tool="read_file", argument=denied),)))
    async with searching(engine, tmp_path) as execution:
        made = executor(execution, tmp_path / "tree", policy)
        for mode in ("content", "files_with_matches", "count"):
            found = await call(made, "grep", pattern="hush", include_hidden=True, output_mode=mode)
            data = found.result.data
            assert isinstance(data, dict)
            assert (data["count"], data["files"]) == (2, 2), found.result.text
            assert not any(name in found.result.text for name in (".env", "id_rsa", "notes", "server.key", "denied"))
        one = await call(made, "checkfor", search="hush", dir=["app", "app/keep"])
        assert not any(name in one.result.text for name in (".env", "id_rsa", "notes", "server.key", "denied"))
        for path in ("app/id_rsa", "app/keep/notes.txt"):
            assert (await call(made, "grep", pattern="hush", path=path)).status == "denied"
            assert (await call(made, "checkfor", search="hush", file=[path])).status == "denied"
        names = await call(made, "glob", pattern="**", include_hidden=True)
        assert "app/id_rsa" in names.result.text  # a name is no secret
        assert await told_of(made, "only here") == await told_of(made, "nowhere")


async def told_of(made: Executor, text: str) -> list[Any]:
    """What is told of a search: whether a secret holds the text is not to be seen by it."""
    calls: list[Call] = [
        ("grep", {"pattern": text, "include_hidden": True}),
        ("checkfor", {"search": text, "dir": ["app"]}),
        ("repfor", {"search": text, "replace": "x", "dir": ["app"], "dry_run": True}),
    ]
    results = [(await call(made, name, **arguments)).result for name, arguments in calls]
    return [[result.text.replace(text, "..."), result.data] for result in results]


UNALIKE: list[tuple[str, bytes, bytes]] = [
    (".gitignore", b"{a,b}.txt\n*.log\n", b"a.txt b.txt sub./d.txt"),
    (".gitignore", b"sub.\n", b"a.txt b.txt c.log"),
    (".gitignore", b"# caf\xe9\n*.log\n", b"a.txt b.txt sub./d.txt"),
    (".gitignore", b"\xef\xbb\xbf*.log\n", b"a.txt b.txt sub./d.txt"),
    (".gitignore -> c.log", b"*.txt\n", b"a.txt b.txt c.log sub./d.txt"),
    (".rgignore", b"a.txt\n", b"a.txt b.txt c.log sub./d.txt"),
    ("sub./.rgignore", b"*\n", b"a.txt b.txt c.log sub./d.txt"),
    ("../.rgignore", b"*\n", b"a.txt b.txt c.log sub./d.txt"),
    (".gitignore", b"a[!x]txt\n*.log\nsub.[!x]d.txt\n", b"b.txt sub./d.txt"),
    (".gitignore", b"[[:alpha:]].txt\n", b"c.log"),
    (".gitignore", b"a.txt\t\n*.log\n", b"a.txt b.txt sub./d.txt"),
    ("dir\n/.gitignore", b"*", b"a.txt b.txt c.log sub./d.txt"),
    ("../.gitignore -> tree/c.log", b"*.txt\n", b"a.txt b.txt c.log sub./d.txt"),
    ("../.gitignore", b"tree/{a,b}.txt\n*.log\n", b"a.txt b.txt sub./d.txt"),
]
ALIKE: list[tuple[str, bytes, bytes]] = [
    (".gitignore", b"# The files of {a} build.\n# \xc3\xa9t\xc3\xa9\n\xc3\xa9\n*.log\n", b"a.txt b.txt sub./d.txt"),
    ("dist/.gitignore", b"{a,b}", b"a.txt b.txt c.log sub./d.txt"),
    (".hid/.rgignore", b"*", b"a.txt b.txt c.log sub./d.txt"),
]


async def test_ignore_files_that_rg_reads_otherwise_than_git_are_read_as_git_does(tmp_path: Path) -> None:
    async with connect("local:") as execution:
        for number, (name, content, expected) in enumerate([*UNALIKE, *ALIKE]):
            top = tmp_path / str(number) / "tree"
            for directory in ("sub.", "dist", ".hid", *(["dir\n"] if name.startswith("dir\n") else [])):
                (top / directory).mkdir(parents=True)
            (top / "../.git").mkdir()
            link, _, leads = name.partition(" -> ")
            for file in ("a.txt", "b.txt", "c.log", "sub./d.txt"):
                (top / file).write_bytes(b"needle\n" + content * leads.endswith(file))
            if leads:
                (top / link).symlink_to(leads)
            else:
                (top / link).write_bytes(content)
            found = await call(executor(execution, top), "grep", pattern="needle", output_mode="files_with_matches")
            data = found.result.data
            assert isinstance(data, dict)
            names = [item["path"] for item in data["results"]]  # type: ignore[index,union-attr]  # as documented
            assert names == expected.decode().split(), (name, content)
            assert data["engine"] == ("grep" if number < len(UNALIKE) else "rg"), (name, content)


STARTS: list[tuple[str, dict[str, Any], str]] = [
    ("a/b/**", {}, "a/b/c/z.txt a/b/x.txt"),
    ("./a//b/*.txt", {}, "a/b/x.txt"),
    ("{a/b,a/link}/*.txt", {}, "a/b/x.txt"),
    ("a/link/**", {}, ""),
    ("a/out/**", {}, ""),
    ("a/out/**", {"no_default_excludes": True}, "a/out/y.txt"),
    ("a/own/*.txt", {}, "a/own/g.txt"),
    ("a/x&'y/**", {}, "a/x&'y/n.txt"),
    ("a/.h/**", {"include_hidden": True}, "a/.h/h.txt"),
    ("a/dist/**", {}, ""),
    ("a/none/**", {}, ""),
    ("a/b/x.txt/**", {}, ""),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("repository", ["", ".git", "../.git"])
async def test_a_search_begins_at_the_directory_that_its_pattern_begins_with(
    tmp_path: Path, engine: str, repository: str
) -> None:
    top = tmp_path / "above" / "tree"
    names = "b/x.txt b/i.txt b/j.txt b/k.txt b/c/z.txt out/y.txt own/g.txt x&'y/n.txt .h/h.txt dist/d.txt l.txt"
    for name in ["vendor/v.txt", *(f"a/{name}" for name in names.split(" "))]:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("needle\n")
    (top / "a/link").symlink_to("b")
    (top / "a/own/.git").mkdir()
    (top.parent / ".gitignore").write_text("k.txt\n")
    (top / ".gitignore").write_text("a/b/i*\ng.txt\n")
    (top / "a/.gitignore").write_text("/b/j.txt\nout/\n")
    if repository:
        (top / repository).mkdir()
    kept = ["a/b/k.txt"] if repository != "../.git" else []
    async with searching(engine, tmp_path) as execution:
        made = executor(execution, top)
        for pattern, more, expected in STARTS:
            found = await call(made, "glob", pattern=pattern, sort="name", **more)
            data = found.result.data
            assert isinstance(data, dict)
            also = kept if "b/x.txt" in expected else []
            assert data["files"] == sorted([*expected.split(), *also]), pattern
            assert "vendor" not in str(data["skipped"]) or data["engine"] == "walk", pattern
            lines = await call(
                made, "grep", pattern="needle", include=pattern, output_mode="files_with_matches", **more
            )
            data = lines.result.data
            assert isinstance(data, dict)
            paths = [item["path"] for item in data["results"]]  # type: ignore[index,union-attr]  # as documented
            assert paths == sorted([*expected.split(), *also]), pattern
            assert data["complete"]


async def test_where_rg_would_leave_out_too_much_it_is_said_how_to_search_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_search, "MAX_FILES", 1)
    for name in ("a.txt", "b.txt", ".rgignore"):
        (tmp_path / name).write_text("a\nb\n")
    async with connect("local:") as execution:
        made = executor(execution, tmp_path)
        refused = await call(made, "grep", pattern="a\\nb", multiline=True)
        assert (refused.result.error_code, "no_default_excludes" in refused.result.text) == ("too_many_files", True)
        found = await call(made, "grep", pattern="a\\nb", multiline=True, no_default_excludes=True)
        assert found.result.metadata["matches"] == 2


async def test_what_is_left_out_takes_no_room_from_what_is_shown(tmp_path: Path) -> None:
    top = tmp_path / "tree"
    (top / "a").mkdir(parents=True)
    for number in range(30):
        (top / f"a/{number}.log").write_text("needle\n")
    (top / "z.txt").write_text("needle\n")
    (top / ".gitignore").write_text("*.log\n")
    async with searching("grep", tmp_path) as execution:
        found = await call(executor(execution, top), "grep", pattern="needle", max_results=5)
    assert found.result.text == "z.txt:1:needle"


async def test_over_ssh_what_cannot_be_read_is_counted(sshd: SshServer, make_user: MakeUser, tmp_path: Path) -> None:
    user = make_user()
    top = Path(user.home, "tree")
    for name in ("open/a.txt", "closed/b.txt", "c.txt"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("needle\n")
    os.chmod(top / "closed", 0)
    os.chmod(top / "c.txt", 0)
    async with connect(f"ssh://{user.name}@127.0.0.1:{sshd.port}", config=sshd.config()) as execution:
        made = executor(execution, top)
        found = await call(made, "grep", pattern="needle")
        assert found.result.text == "open/a.txt:1:needle\n[2 entries could not be read]"
        globbed = await call(made, "glob", pattern="**/*.txt", sort="name")
        assert globbed.result.text == "c.txt\nopen/a.txt\n[1 entry could not be read]"
        closed = [await call(made, name, **{"path": "closed", **more}) for name, more in LOOKS]
        assert [outcome.result.error_code for outcome in closed] == ["permission_denied"] * 4
        hidden = await call(made, "grep", pattern="needle", path="c.txt")
        assert hidden.result.error_code == "permission_denied"


LOOKS: list[Call] = [("grep", {"pattern": "x"}), ("glob", {"pattern": "*"}), ("ls", {}), ("ls", {"long": True})]


@pytest.mark.parametrize("where", ["local", "ssh"])
async def test_a_search_neither_shows_in_a_pane_nor_waits_for_it(open_desk: OpenDesk, where: str) -> None:
    desk = await open_desk(where)
    (desk.home / "tree").mkdir()
    (desk.home / "tree/a.txt").write_text("needle\n")
    running = await desk.ctx.run_shell("sleep 1000", wait=False)
    made = executor(desk.ctx, desk.home / "tree")
    assert (await call(made, "grep", pattern="needle")).result.text == "a.txt:1:needle"
    assert (await call(made, "glob", pattern="*")).result.text == "a.txt"
    assert (await call(made, "checkfor", search="needle")).result.text == "a.txt:1:needle"
    assert "needle" not in await desk.ctx.capture_pane()
    assert running.job_id is not None
    await desk.ctx.kill(running.job_id)


async def test_a_search_is_given_again_until_something_was_changed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    async with connect("local:") as execution:
        made = executor(execution, tmp_path)
        cached = replace(made, services=replace(made.services, results=ResultCache()))
        assert [(await call(cached, "grep", pattern="needle")).cached for _ in range(2)] == [False, True]


async def test_in_a_container_with_busybox_alone(make_way: MakeWay, tmp_path: Path) -> None:
    way = make_way("docker")
    text = "mkdir -p /t/sub/node_modules; cd /t; echo needle >a.txt; echo needle >sub/b.log; echo '*.log' >.gitignore; "
    text += "echo needle >sub/node_modules/c; printf 'needle\\n\\000' >sub/bin; echo x needle >'new\nline'"
    with container(way.engine, "busybox") as one:
        async with way.connect(one) as execution:
            assert (await execution.run_shell(text)).ok
            made = executor(execution, "/t")
            found = await call(made, "grep", pattern="needle$")
            assert found.result.text == "a.txt:1:needle\n" + r"$'new\nline':1:x needle"
            whole = await call(made, "grep", pattern="needle$", path="/", include="*.txt")
            assert whole.result.text == "/t/a.txt:1:needle"
            assert (await call(made, "glob", pattern="**", sort="name")).result.data["files"] == [  # type: ignore[index,call-overload]  # as documented
                *("a.txt", "new\nline", "sub/bin")
            ]
            assert (await call(made, "checkfor", search="needle")).result.data["count"] == 2  # type: ignore[index,call-overload]  # as above
            assert "sub/" in (await call(made, "ls", long=True)).result.text
