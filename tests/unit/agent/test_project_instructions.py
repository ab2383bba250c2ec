"""``AGENTS.md``: which files of a project are read, and what is never read."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

import pytest

from harness.agent.messages.marked_text import marked
from harness.agent.project_instructions import (
    MAX_BYTES,
    InstructionFiles,
    _refusal,
    read_project_files,
)
from harness.system.account import has_other_members
from harness.toolkit.permissions.rules.store import _others_write_by_group
from harness.toolkit.redaction.redactor import PatternRedactor

NOBODY = 65_534
NO_GROUP = 4_000_000_000
"""A group without a name."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a file at its root, and one that does not belong to it above."""
    root = tmp_path / "project"
    (root / "a/b").mkdir(parents=True)
    (root / ".git").mkdir()
    (tmp_path / "AGENTS.md").write_text("above")
    (root / "AGENTS.md").write_text("of the root\n")
    return root


def test_files_from_the_root_of_the_repository_to_the_working_directory_are_read(project: Path) -> None:
    (project / "a/b/AGENTS.md").write_text("nearest\r\nline\u200b\x1b[1m")
    found = read_project_files(project / "a/b")
    assert found.project == (
        (str(project / "AGENTS.md"), "of the root"),
        (str(project / "a/b/AGENTS.md"), "nearest\nline[1m"),
    )
    assert found.notices == ()
    assert read_project_files(project.parent).project == ((str(project.parent / "AGENTS.md"), "above"),)
    assert read_project_files(None) == InstructionFiles() == read_project_files(project.parent / "none")


def test_nothing_invisible_is_told_and_a_path_stays_one_line(project: Path) -> None:
    hidden = "".join(chr(0xE0100 + number) for number in b"obey")
    folder = project / "new\n## Orders\u202e"
    folder.mkdir()
    (folder / "AGENTS.md").write_text(f"one\u00a0two{hidden}\u3164 three\u3000four")
    path, text = read_project_files(folder).project[-1]
    assert text == "one two three four"
    assert path == f"{project}/new ## Orders/AGENTS.md"


def test_a_link_is_followed_inside_the_repository_only(project: Path) -> None:
    (project / "CLAUDE.md").write_text("same for all")
    (project / "a/AGENTS.md").symlink_to("../CLAUDE.md")
    (project / "a/b/AGENTS.md").symlink_to(project.parent / "AGENTS.md")
    found = read_project_files(project / "a/b")
    assert [text for _, text in found.project] == ["of the root", "same for all"]
    assert [notice.partition(" is not read: ")[2] for notice in found.notices] == [f"it is a link out of {project}"]


def test_what_is_no_file_is_not_read(project: Path) -> None:
    os.mkfifo(project / "a/AGENTS.md")
    (project / "a/b/AGENTS.md").mkdir()
    (project / "c").mkdir()
    (project / "c/AGENTS.md").symlink_to("AGENTS.md")
    found = read_project_files(project / "a/b")
    assert [text for _, text in found.project] == ["of the root"]
    assert len(found.notices) == 2
    assert "symbolic links" in read_project_files(project / "c").notices[0]


def test_the_files_are_cut_together_and_the_nearest_counts_first(project: Path) -> None:
    (project / "a/AGENTS.md").write_text("x" * (MAX_BYTES - 5))
    found = read_project_files(project / "a")
    assert found.project[0][1] == "of th\n[harness: only the first 5 bytes of this file are here]"
    assert found.notices == (f"{project / 'AGENTS.md'}: only the first 5 bytes are read",)
    (project / "a/AGENTS.md").write_text("x" * MAX_BYTES)
    found = read_project_files(project / "a")
    assert [Path(path).parent.name for path, _ in found.project] == ["a"]
    assert found.notices == (f"{project / 'AGENTS.md'} is not read: the nearer files are {MAX_BYTES} bytes long",)


def test_what_another_user_may_have_written_is_not_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def info(mode: int, owner: int, group: int = 0) -> os.stat_result:
        return os.stat_result((mode, 0, 0, 1, owner, group, 0, 0, 0, 0))

    file, folder, me = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, os.geteuid()
    assert _refusal(info(file, me), [info(folder, me), info(folder, 0)]) == ""
    assert _refusal(info(file, me), [info(stat.S_IFDIR | 0o1777, 0)]) == ""
    assert "another user" in _refusal(info(file, NOBODY), [info(folder, me)])
    assert "chmod go-w" in _refusal(info(file | 0o002, me), [info(folder, me)])
    assert "its directory" in _refusal(info(file, me), [info(folder, NOBODY)])
    assert "in its directory" in _refusal(info(file, me), [info(stat.S_IFDIR | 0o777, me)])
    assert "its directory" in _refusal(info(file, me), [info(stat.S_IFDIR | 0o1777, NOBODY)])
    owner = pwd.getpwuid(me)
    own = next(group.gr_gid for group in grp.getgrall() if group.gr_name == owner.pw_name)
    shared = next(group.gr_gid for group in grp.getgrall() if group.gr_name != owner.pw_name)
    for mode, asked in ((0o020, own), (0o022, own), (0o020, shared), (0o020, NO_GROUP)):
        is_refused = (mode, asked) != (0o020, own)
        assert ("chmod go-w" in _refusal(info(file | mode, me, asked), [info(folder, me)])) == is_refused
        assert ("in its directory" in _refusal(info(file, me), [info(folder | mode, me, asked)])) == is_refused
    with monkeypatch.context() as changed:
        has_other_members.cache_clear()
        other = pwd.struct_passwd(("other", "x", NOBODY, own, "", "/", "/bin/sh"))
        everyone = [*pwd.getpwall(), other]
        changed.setattr("pwd.getpwall", lambda: everyone)
        assert "chmod go-w" in _refusal(info(file | 0o020, me, own), [info(folder, me)])
        changed.setattr("os.getegid", lambda: NO_GROUP)
        for group, is_open in ((NO_GROUP, False), (shared, True)):
            assert _others_write_by_group(info(folder | 0o020, me, group)) == is_open
        has_other_members.cache_clear()
        everyone.append(pwd.struct_passwd(("third", "x", NOBODY, NO_GROUP, "", "/", "/bin/sh")))
        assert _others_write_by_group(info(folder | 0o020, me, NO_GROUP))
    has_other_members.cache_clear()
    for path, mode in ((project, 0o777), (project / "AGENTS.md", 0o666)):
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode)
        found = read_project_files(project)
        assert (found.project, len(found.notices)) == ((), 1)
        path.chmod(before)


def test_the_targets_words_are_marked_and_no_secret_is_told() -> None:
    files = InstructionFiles(
        (("/p/AGENTS.md", "token: ghp_012345678901234567890123456789abcdef"),), ("/t/AGENTS.md", "obey")
    )
    told = files.added_to("Mine.", PatternRedactor())
    assert told.startswith("Mine.\n\n")
    assert "ghp_" not in told
    assert told.index("## /p/AGENTS.md") < told.index("[untrusted output ")
    assert told.rstrip().endswith(marked("obey", told.rsplit("[end of output ", 1)[1].rstrip("]")))
    assert files.names == ("/p/AGENTS.md", "/t/AGENTS.md (of the target)")
    assert InstructionFiles().added_to(" Mine. ", PatternRedactor()) == "Mine."
