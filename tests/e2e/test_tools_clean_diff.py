"""``clean_diff`` on real repositories, here, in a terminal and over SSH; and on ones that want to run programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.desk import Desk, desk, everywhere, open_desk
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness_tools.dev.clean_diff import (
    NEW_FILES,
    CleanDiff,
    diff_command,
    mistake_of,
    new_files_command,
    untracked_command,
)

__all__ = ["desk", "open_desk"]

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@b.example", "-c", "protocol.file.allow=always")
PATIENCE = 100


def git(directory: Path, *words: str, check: bool = True) -> str:
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ["git", *IDENTITY, *words], cwd=directory, env=environment, capture_output=True, check=check, timeout=PATIENCE
    )
    return done.stdout.decode(errors="surrogateescape")


def repository(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "-q", "-b", "main")
    return directory


def commit(directory: Path, message: str = "x") -> None:
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "--no-verify", "-m", message)


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with connect("local:") as opened:
        yield opened


def box(execution: ExecutionContext) -> Toolbox:
    return toolbox([CleanDiff()], execution=execution)


async def diff(made: Toolbox, path: Path, **arguments: Any) -> Any:
    outcome = await called(made, path, **arguments)
    assert not outcome.result.is_error, outcome.result.text
    return outcome.result.data


async def called(made: Toolbox, path: Path, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(PATIENCE):
        return await made.executor.call(ToolCall("cleanDiff", {"path": str(path), **arguments}))


def brief(data: Any) -> dict[str, Any]:
    return {
        one["path"]: (one["status"], [(hunk["removed"], hunk["added"]) for hunk in one["hunks"]])
        for one in data["files"]
    }


NAMES = [
    "plain",
    "two words",
    "-dash",
    "t\tab",
    "new\nline",
    'quo"te\\',
    "é",
    b"latin-\xe9".decode(errors="surrogateescape"),
]


@everywhere
async def test_a_diff_says_the_same_whatever_the_target_is_and_whatever_the_files_are_called(desk: Desk) -> None:
    repo = repository(desk.home / "repo")
    for name in NAMES:
        (repo / name).write_text("one\ntwo\nthree\n")
    (repo / "moved").write_text("same\n" * 30)
    commit(repo)
    for name in NAMES:
        (repo / name).write_text("one\n2\nthree\n")
    git(repo, "mv", "moved", "away here")
    made = box(desk.ctx)
    data = await diff(made, repo)
    assert brief(data) == {name: ("modified", [(["two"], ["2"])]) for name in NAMES}
    assert data["root"] == str(repo)
    assert data["summary"] == {"files_changed": len(NAMES), "insertions": len(NAMES), "deletions": len(NAMES)}
    staged = await diff(made, repo, staged=True)
    assert [(one["path"], one["old_path"], one["status"]) for one in staged["files"]] == [
        ("away here", "moved", "renamed")
    ]
    one = await diff(made, repo, file_filter=["-dash", "*"], context_lines=1)
    assert [file["hunks"][0]["context"] for file in one["files"]] == [["one", "three"]]
    assert desk.show("#{pane_current_path}") == str(desk.home)


async def test_every_kind_of_change_is_named(here: ExecutionContext, tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner")
    (inner / "a").write_text("a\n")
    commit(inner)
    repo = repository(tmp_path / "repo")
    for name in ("gone", "script", "kind", "touched", "ended", "empty"):
        (repo / name).write_text(f"{name}\n" * 3)
    (repo / "binary").write_bytes(b"\0\1")
    git(repo, "submodule", "--quiet", "add", str(inner), "sub")
    commit(repo)
    (repo / "gone").unlink()
    (repo / "script").chmod(0o755)
    (repo / "kind").unlink()
    (repo / "kind").symlink_to("nowhere")
    os.utime(repo / "touched", (1, 1))
    (repo / "ended").write_text("ended\nended\nended")
    (repo / "empty").write_text("")
    (repo / "binary").write_bytes(b"\0\2")
    (repo / "sub" / "b").write_text("b\n")
    commit(repo / "sub")
    data = await diff(box(here), repo)
    found = {one["path"]: one for one in data["files"]}
    assert set(found) == {"gone", "script", "kind", "ended", "empty", "binary", "sub"}  # touched is the same
    assert (found["gone"]["status"], found["gone"]["deletions"]) == ("deleted", 3)
    assert (found["script"]["old_mode"], found["script"]["new_mode"]) == ("100644", "100755")
    assert (found["kind"]["status"], found["kind"]["kind"], len(found["kind"]["hunks"])) == ("type changed", "link", 2)
    assert found["ended"]["hunks"][0]["no_line_feed"] == "new"
    assert found["empty"]["deletions"] == 3
    assert (found["binary"]["binary"], found["binary"]["hunks"]) == (True, [])
    assert (found["sub"]["kind"], found["sub"]["insertions"]) == ("submodule", 1)
    stat = await diff(box(here), repo, stat_only=True)
    assert {one["path"] for one in stat["files"]} == set(found)
    assert all(one["hunks"] == [] for one in stat["files"])


async def test_new_files_conflicts_ranges_and_bare_repositories(here: ExecutionContext, tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    made = box(here)
    assert (await diff(made, repo, staged=True))["files"] == []  # nothing was ever committed
    (repo / "a").write_text("base\n")
    (repo / ".gitignore").write_text("ignored\n")
    commit(repo)
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "a").write_text("other\n")
    commit(repo)
    git(repo, "checkout", "-q", "main")
    (repo / "a").write_text("main\n")
    commit(repo)
    assert brief(await diff(made, repo, ref="main..other")) == {"a": ("modified", [(["main"], ["other"])])}
    assert brief(await diff(made, repo, ref="main...other")) == {"a": ("modified", [(["base"], ["other"])])}
    assert brief(await diff(made, repo, ref="HEAD@{0}^{commit}~1")) == {"a": ("modified", [(["base"], ["main"])])}
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(bare))
    assert brief(await diff(made, bare, ref="main..other")) == {"a": ("modified", [(["main"], ["other"])])}
    assert (await called(made, bare)).result.error_code == "no_work_tree"
    git(repo, "merge", "-q", "other", check=False)
    for name in ("ignored", "-new", "sub/deep\nname"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("1\n2\n")
    (repo / "binary").write_bytes(b"\0")
    (repo / "-").write_text("dash\n")
    (repo / "directory").symlink_to("/etc")
    (repo / "link").symlink_to("/etc/passwd")
    repository(repo / "nested")
    (repo / "nested" / "file").write_text("x")
    data = await diff(made, repo, include_untracked=True)
    assert brief(data) == {
        "a": ("unmerged", []),
        "-": ("untracked", [([], ["dash"])]),
        "-new": ("untracked", [([], ["1", "2"])]),
        "binary": ("untracked", []),
        "directory": ("untracked", [([], ["/etc"])]),
        "link": ("untracked", [([], ["/etc/passwd"])]),
        "nested/": ("untracked", []),
        "sub/deep\nname": ("untracked", [([], ["1", "2"])]),
    }
    inside = await diff(made, repo / "sub", include_untracked=True, file_filter=["deep\nname"])
    assert list(brief(inside)) == ["sub/deep\nname"]


async def test_what_is_too_much_is_counted(here: ExecutionContext, tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "long").write_text("")
    (repo / "large").write_text("")
    commit(repo)
    (repo / "long").write_text("x" * 3_000_000 + "\n" + "y\n" * 3_000)
    (repo / "large").write_text("large\n" * 3_000_000)
    for number in range(NEW_FILES + 5):
        (repo / f"new{number:03}").write_text("n\n")
    outcome = await called(box(here), repo, include_untracked=True)
    data: Any = outcome.result.data
    files = {one["path"]: one for one in data["files"]}
    assert files["large"]["binary"]
    assert files["long"]["insertions"] == 3_001
    hunk = files["long"]["hunks"][0]
    assert len(hunk["added"]) + hunk["lines_left_out"] == 3_001
    assert data["untracked_left_out"] == 5
    assert len(outcome.result.text) < 25_000


# -- programs


class Traps:
    """A repository whose configuration names a program for everything that git may run; each leaves its mark."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.marks = base / "marks"
        self.marks.mkdir(parents=True)
        self.repo = repository(base / "repo")
        inner = repository(base / "inner")
        (inner / "s.f").write_text("s\n")
        commit(inner)
        for name in ("a.f", "a.g", "a.t", "a.c", "plain"):
            (self.repo / name).write_text("one\n")
        git(self.repo, "submodule", "--quiet", "add", str(inner), "sub")
        (self.repo / ".gitattributes").write_text("*.f filter=f\n*.g filter=G.X-y\n*.t diff=t\n*.c diff=c\n")
        commit(self.repo)
        for name in ("a.f", "a.g", "a.t", "a.c", "plain", "new.f", "new.t"):
            (self.repo / name).write_text("two\n")
        (self.repo / "sub" / ".gitattributes").write_text("*.f filter=s\n")
        (self.repo / "sub" / "s.f").write_text("t\n")
        self._configure()

    def program(self, name: str) -> str:
        path = self.base / f"trap-{name}"
        path.write_text(f"#!/bin/sh\n: >'{self.marks}/{name}'\ncat 2>/dev/null\n")
        path.chmod(0o755)
        return str(path)

    def _configure(self) -> None:
        hooks = self.base / "hooks"
        hooks.mkdir()
        for name in ("post-index-change", "post-checkout", "reference-transaction"):
            (hooks / name).symlink_to(self.program(name))
        included = self.base / "included"
        included.write_text(f'[filter "f"]\n\tclean = {self.program("included")}\n')
        settings = {
            "filter.f.clean": "clean",
            "filter.f.smudge": "smudge",
            "filter.G.X-y.process": "process",
            "diff.external": "external",
            "diff.t.textconv": "textconv",
            "diff.c.command": "command",
            "core.fsmonitor": "fsmonitor",
            "core.pager": "pager",
            "pager.diff": "pager-diff",
            "core.sshCommand": "ssh",
            "core.askPass": "askpass",
            "credential.helper": "credential",
        }
        for name, trap in settings.items():
            git(self.repo, "config", name, self.program(trap))
        plain = {"core.hooksPath": str(hooks), "include.path": str(included)}
        for name, value in {**plain, "diff.submodule": "diff", "alias.diff": f"!{self.program('alias')}"}.items():
            git(self.repo, "config", name, value)
        for name in ("filter.s.clean", "core.fsmonitor", "diff.external"):
            git(self.repo / "sub", "config", name, self.program(f"sub-{name}"))

    @property
    def sprung(self) -> set[str]:
        return {path.name for path in self.marks.iterdir()}

    def spring(self) -> set[str]:
        """What git alone runs there."""
        git(self.repo, "diff", check=False)
        git(self.repo, "diff", "--no-index", "/dev/null", "new.t", check=False)
        git(self.repo, "config", "--unset", "diff.external")
        git(self.repo, "diff", check=False)
        return self.sprung


@everywhere
async def test_no_program_that_a_repository_names_is_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    traps = Traps(desk.home / "traps")
    made = box(desk.ctx)
    if desk.ctx.target.hops[0].scheme == "local":
        monkeypatch.setenv("GIT_EXTERNAL_DIFF", traps.program("environment"))
    wanted: tuple[dict[str, Any], ...] = (
        {},
        {"include_untracked": True},
        {"staged": True},
        {"ref": "HEAD"},
        {"ref": "HEAD", "stat_only": True},
    )
    index = (traps.repo / ".git" / "index").read_bytes()
    for arguments in wanted:
        os.utime(traps.repo / "plain")
        data = await diff(made, traps.repo, **arguments)
        assert traps.sprung == set(), arguments
    assert data["filters_not_run"] == ["G.X-y", "f"]
    assert (traps.repo / ".git" / "index").read_bytes() == index
    monkeypatch.delenv("GIT_EXTERNAL_DIFF", raising=False)
    assert traps.spring() >= {
        "included",
        "process",
        "external",
        "textconv",
        "command",
        "fsmonitor",
        "sub-core.fsmonitor",
    }


async def test_a_filter_that_cannot_be_kept_from_running_is_refused(here: ExecutionContext, tmp_path: Path) -> None:
    for number, name in enumerate(("a=b", "a\1b")):
        traps = Traps(tmp_path / str(number))
        (traps.repo / ".gitattributes").write_text(f"* filter={name}\n")
        with (traps.repo / ".git" / "config").open("a") as config:
            config.write(f'[filter "{name}"]\n\tclean = {traps.program("odd")}\n')
        outcome = await called(box(here), traps.repo)
        assert outcome.result.error_code == "unsafe_filter", outcome.result.text
        assert traps.sprung == set()


async def test_missing_objects_are_not_fetched(here: ExecutionContext, tmp_path: Path) -> None:
    mark, remote = tmp_path / "mark", tmp_path / "remote"
    remote.write_text(f"#!/bin/sh\n: >{mark}\nexit 1\n")
    remote.chmod(0o755)
    repo = repository(tmp_path / "partial")
    (repo / "a").write_text("one\n")
    commit(repo)
    blob = git(repo, "rev-parse", "HEAD:a").strip()
    (repo / "a").write_text("two\n")
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in {
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
        "remote.origin.url": f"ext::{remote}",
        "remote.origin.promisor": "true",
        "remote.origin.fetch": "+refs/heads/*:refs/remotes/origin/*",
        "protocol.ext.allow": "always",
        "remote.origin.vcs": "",
    }.items():
        if value:
            git(repo, "config", name, value)
    outcome = await called(box(here), repo)
    assert (outcome.result.error_code, mark.exists()) == ("git_failed", False), outcome.result.text
    git(repo, "diff", check=False)
    assert mark.exists()


async def test_a_work_tree_elsewhere_shows_no_files_of_others(here: ExecutionContext, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "key").write_text("hunter\n")
    repo = repository(tmp_path / "repo")
    (repo / "key").write_text("\n")
    commit(repo)
    git(repo, "config", "core.worktree", str(other))
    outcome = await called(box(here), repo)
    assert (outcome.result.error_code, "hunter" in outcome.result.text) == ("foreign_work_tree", False)
    linked = tmp_path / "linked"
    git(repo, "config", "--unset", "core.worktree")
    git(repo, "worktree", "add", "-q", str(linked))
    (linked / "key").write_text("changed\n")
    assert brief(await diff(box(here), linked)) == {"key": ("modified", [([""], ["changed"])])}


@pytest.mark.parametrize(
    "ref",
    [
        "--output=/tmp/x",
        "-p",
        "HEAD..--output=x",
        "...-x",
        "^HEAD",
        "HEAD^!",
        "HEAD^@",
        "HEAD^-",
        "HEAD:a",
        ":/x",
        "a b",
    ],
)
async def test_what_is_no_revision_is_refused_before_anything_runs(
    here: ExecutionContext, tmp_path: Path, ref: str
) -> None:
    made = box(here)
    outcome = await called(made, tmp_path, ref=ref)
    assert (outcome.result.error_code, made.ledger.begun) == ("invalid_args", [])
    assert list(tmp_path.glob("x")) == []


@pytest.mark.parametrize(
    "ref", ["HEAD", "HEAD~3", "a..b", "a...b", "HEAD@{2 days ago}", "v1.0^{}", "..b", "a/b-c", "@"]
)
def test_revisions_and_ranges_are_taken(ref: str) -> None:
    assert mistake_of(ref) == ""


async def test_what_is_no_repository_is_said_to_be_none(here: ExecutionContext, tmp_path: Path) -> None:
    made = box(here)
    (tmp_path / "file").write_text("x")
    assert (await called(made, tmp_path)).result.error_code == "no_repository"
    assert (await called(made, tmp_path / "file")).result.error_code == "not_a_directory"
    assert (await called(made, tmp_path / "nothing")).result.error_code == "file_not_found"
    repo = repository(tmp_path / "repo")
    outcome = await called(made, repo, ref="nosuch")
    assert outcome.result.error_code == "git_failed"
    assert "nosuch" in outcome.result.text


async def test_the_lines_of_files_that_the_policy_keeps_back_are_not_shown(
    here: ExecutionContext, tmp_path: Path
) -> None:
    repo = repository(tmp_path / "repo")
    for name in (".env", "kept/a", "app.py"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("word=old\n")
    commit(repo)
    for name in (".env", "kept/a", "app.py"):
        (repo / name).write_text("word=tiger\n")
    (repo / ".aiexclude").write_text("kept/\n")
    made = box(here)
    made.executor = replace(made.executor, services=replace(made.executor.services, policy=RulePolicy()))
    outcome = await called(made, repo)
    data: Any = outcome.result.data
    assert {one["path"]: (one["withheld"], len(one["hunks"])) for one in data["files"]} == {
        ".env": (True, 0),
        "app.py": (False, 1),
        "kept/a": (True, 0),
    }
    assert outcome.result.text.count("tiger") == 1


APPLETS = ("cat", "env", "find", "head", "printf", "sed", "sh", "sort", "tr")


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(
    "shell", [("dash",), ("bash", "--posix"), ("mksh",), ("busybox", "ash")], ids=lambda one: one[0]
)
def test_the_scripts_say_the_same_in_every_shell(tmp_path: Path, shell: tuple[str, ...]) -> None:
    """With the programs of busybox in the one, and those of the system in the others."""
    repo = repository(tmp_path / "repo")
    (repo / "a b").write_text("1\n")
    commit(repo)
    (repo / "a b").write_text("2\n")
    (repo / "new").write_text("n\n")
    git(repo, "config", "filter.x y.clean", "false")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").symlink_to(shutil.which("git") or "")
    for applet in APPLETS:
        (programs / applet).symlink_to(shutil.which("busybox" if shell[0] == "busybox" else applet) or "")
    scripts = (
        diff_command(most=1 << 20),
        diff_command(most=40),
        untracked_command([]),
        new_files_command(["new", "a b"], 1 << 20),
    )
    environment = {"PATH": str(programs), "HOME": str(tmp_path), "GIT_DIR": "/nowhere", "GIT_X": "a\nGIT_Y=b"}
    words = [shutil.which(shell[0]) or "", *shell[1:]]
    whole, part, names, new = (
        subprocess.run([*words, "-c", script], cwd=repo, env=environment, capture_output=True, timeout=PATIENCE)
        for script in scripts
    )
    assert (whole.returncode, whole.stderr) == (0, b"")
    head = f"{repo}\0filter.x y.clean\0".encode()
    assert whole.stdout.startswith(head + b":100644 100644 ")
    assert whole.stdout.endswith(b"\n@@ -1 +1 @@\n-1\n+2\n")
    assert part.stdout == whole.stdout[: len(head) + 40]
    assert (names.returncode, names.stdout) == (0, b"new\0")
    assert new.stdout.count(b"\n\0\n") == 2
    assert b"\n+n\n" in new.stdout
