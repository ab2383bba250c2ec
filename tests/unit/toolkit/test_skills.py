"""Skills: what a folder must hold, whose folders count, and that nothing leads out of them or eats the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.toolkit.session.skills import (
    FrontMatter,
    SkillError,
    SkillFile,
    SkillLibrary,
    SkillRoot,
    digest_of,
    skill_roots,
    split_front,
)
from harness_tools.interaction.skills import Skill

TEXT = "---\nname: deploy\ndescription: How we deploy\n---\n\nFirst, look.\n"


def skill(root: Path, name: str = "deploy", text: str | None = None, **files: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    named = text if text is not None else TEXT.replace("deploy", name, 1)
    for path, content in {"SKILL.md": named, **files}.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(content)
        (folder / path).chmod(0o644)
    return folder


def library(*roots: Path) -> SkillLibrary:
    origins: tuple[Literal["user", "project"], ...] = ("user", "project")
    return SkillLibrary(lambda: [SkillRoot(root, origin) for root, origin in zip(roots, origins, strict=False)])


# -- the front matter


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        (TEXT, FrontMatter("deploy", "How we deploy"), "First, look."),
        ("---\r\nname: a\r\ndescription: b\r\n---\r\nc\r\nd", FrontMatter("a", "b"), "c\nd"),
        ("\ufeff---\nname: a\ndescription: b\n---", FrontMatter("a", "b"), ""),
        ('---\nname: "a"\ndescription: >\n  long\n  text: here\n---\n', FrontMatter("a", "long text: here"), ""),
        (
            "---\nname: a\ndescription: \U0001f469\u200d\U0001f4bb é\n---\n",
            FrontMatter("a", "\U0001f469\u200d\U0001f4bb é"),
            "",
        ),
        ("---\nname: a\ndescription: b\nmetadata:\n  x: [1, {y: z}]\n---\n---\n", FrontMatter("a", "b"), "---"),
    ],
)
def test_what_people_write_is_read(text: str, front: FrontMatter, body: str) -> None:
    assert split_front(text.encode()) == (front, body)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not start with a front matter"),
        ('---\nname: a\ndescription: "a \\uD800 b"\n---\n', "contains the invalid character"),
        ('---\nname: a\ndescription: "\\e[2J"\n---\n', "contains the invalid character"),
        ('---\nname: a\ndescription: "\\u202Etxt.exe"\n---\n', "contains the invalid character"),
        ("name: a\n", "does not start with a front matter"),
        ("---\nname: a\ndescription: b\n", "does not start with a front matter"),
        ("---\n---\n", "is not a mapping"),
        ("---\n- a\n---\n", "is not a mapping"),
        ("---\nname: a\n---\n", "requires description as text"),
        ("---\nname: no\ndescription: b\n---\n", "requires name as text; quote"),
        ("---\nname: a\ndescription: ''\n---\n", "requires description"),
        (f"---\nname: a\ndescription: {'x' * 1_025}\n---\n", "longer than 1024 characters"),
        ("---\nname: [\n---\n", "is not valid YAML"),
        ("---\nname: !!python/object/apply:os.system [id]\n---\n", "is not valid YAML"),
        ("---\nname: 2001-99-99\n---\n", "is not valid YAML"),
        ("---\na: &x [1]\nb: *x\n---\n", "an alias"),
        (f"---\na: {'[' * 200}{']' * 200}\n---\n", "nested deeper"),
        (f"---\na: {'x' * 17_000}\n---\n", "longer than 16384 characters"),
        ("---\nname: a\0\n---\n", "a NUL"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(SkillError, match=problem):
        split_front(text.encode())


@given(st.binary(max_size=200))
def test_anything_else_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(SkillError):
        split_front(b"---\n" + data)


# -- the folders


def test_skills_are_listed_by_name_and_one_that_is_broken_hides_no_other(tmp_path: Path) -> None:
    user, project = tmp_path / "user", tmp_path / "project"
    skill(user, "deploy")
    skill(user, "backup")
    skill(user, "broken", "no front matter")
    skill(user, "other", TEXT)
    skill(user, "Upper")
    (user / "file").write_text("x")
    (user / "empty").mkdir()
    skill(project, "deploy")
    skill(project, "restore")
    found = library(user, project).list()
    assert [(one.name, one.origin) for one in found.skills] == [
        ("backup", "user"),
        ("deploy", "user"),
        ("restore", "project"),
    ]
    problems = "\n".join(found.problems)
    for name, reason in {
        "user/broken": "does not start with a front matter",
        "user/other": "has the name 'deploy'",
        "user/Upper": "lower-case letters",
        "user/empty": "SKILL.md cannot be read: No such file",
        "project/deploy": "a skill of that name is already in",
    }.items():
        assert f"{name}: " in problems
        assert reason in problems
    assert len(found.problems) == 5


def test_a_directory_that_is_not_there_has_no_skills(tmp_path: Path) -> None:
    found = library(tmp_path / "none").list()
    assert (found.skills, found.problems) == ((), ())


def test_what_is_asked_for_by_a_wrong_name_is_told_what_there_is(tmp_path: Path) -> None:
    skill(tmp_path)
    skill(tmp_path, "broken", "x")
    for name, problem in {
        "deplot": "did you mean 'deploy'",
        "zzz": "there are: deploy",
        "broken": "does not start",
        "../deploy": "did you mean",
        "": "there are",
    }.items():
        with pytest.raises(SkillError, match=problem):
            library(tmp_path).load(name)


def test_a_skill_has_its_text_and_the_files_beside_it(tmp_path: Path) -> None:
    folder = skill(tmp_path, **{"scripts/run.sh": "#!/bin/sh\n", "notes.md": "n"})
    (folder / "scripts/run.sh").chmod(0o755)
    found = library(tmp_path).load("deploy")
    assert found.body == "First, look."
    assert found.files == (SkillFile("notes.md", 1, False), SkillFile("scripts/run.sh", 10, True))
    assert library(tmp_path).read(found, "scripts/run.sh") == b"#!/bin/sh\n"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "scripts", "note.md", "SKILL.md", "a\0b", ""])
def test_no_file_outside_the_folder_is_read(tmp_path: Path, path: str) -> None:
    root = tmp_path / "skills"
    folder = skill(root, **{"notes.md": "n", "scripts/x": "x"})
    (root / "secret").write_text("secret")
    (folder / "link").symlink_to(root / "secret")
    (folder / "way").symlink_to(root)
    os.mkfifo(folder / "pipe")
    found = library(root).load("deploy")
    assert [file.path for file in found.files] == ["notes.md", "scripts/x"]
    assert found.left_out == ("link", "pipe", "way")
    with pytest.raises(SkillError, match="has no file"):
        library(root).read(found, path)


def test_a_file_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = skill(tmp_path, **{"notes.md": "n"})
    found = library(tmp_path).load("deploy")
    (folder / "notes.md").unlink()
    (folder / "notes.md").symlink_to("/etc/hostname")
    with pytest.raises(SkillError, match=r"notes\.md cannot be read"):
        library(tmp_path).read(found, "notes.md")


@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_what_others_can_write_is_not_followed(tmp_path: Path, mode: int) -> None:
    folder = skill(tmp_path, **{"notes.md": "n"})
    (folder / "notes.md").chmod(mode)
    found = library(tmp_path).load("deploy")
    with pytest.raises(SkillError, match="is writable by others"):
        library(tmp_path).read(found, "notes.md")
    (folder / "SKILL.md").chmod(mode)
    assert library(tmp_path).list().skills == ()


def test_a_link_to_a_folder_or_to_its_text_is_no_skill(tmp_path: Path) -> None:
    root = tmp_path / "skills"
    folder = skill(tmp_path / "elsewhere")
    root.mkdir()
    (root / "deploy").symlink_to(folder)
    skill(root, "linked")
    (root / "linked/SKILL.md").unlink()
    (root / "linked/SKILL.md").symlink_to(folder / "SKILL.md")
    found = library(root).list()
    assert found.skills == ()
    assert f"{root}/deploy: symbolic links are not followed" in found.problems[0]
    assert "SKILL.md cannot be read" in found.problems[1]
    with pytest.raises(SkillError, match="symbolic links are not followed"):
        library(root).load("deploy")
    with pytest.raises(SkillError, match="unknown skill 'other'; there are none"):
        library(root).load("other")


def test_what_is_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = skill(tmp_path, **{f"f{number}": "xx" for number in range(3)})
    monkeypatch.setattr("harness.toolkit.session.skills.FILES_LIMIT", 2)
    with pytest.raises(SkillError, match="more than 2 files"):
        library(tmp_path).load("deploy")
    monkeypatch.setattr("harness.toolkit.session.skills.FILES_LIMIT", 10)
    monkeypatch.setattr("harness.toolkit.session.skills.SIZE_LIMIT", 5)
    with pytest.raises(SkillError, match="larger than 5 bytes together"):
        library(tmp_path).load("deploy")
    (folder / "SKILL.md").write_bytes(TEXT.encode() + b"x" * (40 << 10))
    with pytest.raises(SkillError, match="larger than 40960 bytes"):
        library(tmp_path).load("deploy")
    deep = folder
    for _ in range(12):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (folder / "SKILL.md").write_text(TEXT)
    monkeypatch.setattr("harness.toolkit.session.skills.SIZE_LIMIT", 100)
    assert library(tmp_path).load("deploy").left_out == ("/".join("d" * 9),)


def test_the_same_files_have_the_same_name_and_others_another() -> None:
    a, b = SkillFile("a", 1, False), SkillFile("a", 1, True)
    assert digest_of([(a, b"x")]) == digest_of([(a, b"x")])
    assert len({digest_of([(a, b"x")]), digest_of([(b, b"x")]), digest_of([(a, b"y")]), digest_of([])}) == 4


# -- whose folders


def test_the_project_counts_where_its_directory_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, project = tmp_path / "config" / "harness", tmp_path / "project"
    config.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    skill(project / ".harness" / "skills", "restore")
    monkeypatch.chdir(project)
    assert [root.origin for root in skill_roots()] == ["user"]
    (config / "config.toml").write_text(f'trusted_dirs = ["{project}"]\n')
    assert [root.origin for root in skill_roots()] == ["user", "project"]
    skill(config / "skills", "deploy")
    assert [one.name for one in SkillLibrary().list().skills] == ["deploy", "restore"]
    (project / ".harness").rename(tmp_path / "moved")
    (project / ".harness").symlink_to(tmp_path / "moved")
    assert [root.origin for root in skill_roots()] == ["user"]


def test_a_current_directory_that_is_gone_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = SkillLibrary().list()
    assert found.skills == ()
    assert "the skills are unknown: " in found.problems[0]
    assert Skill(SkillLibrary()).name == "skill"


def test_settings_that_cannot_be_read_trust_nothing_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "harness"
    config.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (config / "config.toml").write_text("trusted_dirs = [")
    (tmp_path / ".harness" / "skills").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    found = SkillLibrary().list()
    assert found.skills == ()
    assert "the skills are unknown: " in found.problems[0]
