"""Types of sub-agents from files: what a file holds, whose files count, and that a wrong one harms nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.toolkit.catalog import load_catalogue
from harness.toolkit.delegation import AgentType, AgentTypeFiles, AgentTypeList, agent_directories
from harness.toolkit.operator_files import OperatorDirectory, Origin
from harness_tools.agents import TYPES, describe_types, known_types, type_named, with_own_names

TEXT = "---\ndescription: reads logs\ntools: read_file, grep\nmodel: fast\n---\n\nReport the first error.\n"
ORIGINS: tuple[Origin, ...] = ("user", "project")


def declare(directory: Path, name: str = "logs", text: str | bytes = TEXT) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.md"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o644)
    return path


def read(*directories: Path) -> AgentTypeList:
    roots = [OperatorDirectory(path, origin) for path, origin in zip(directories, ORIGINS, strict=False)]
    return AgentTypeFiles(lambda: roots).list()


# -- a file


def test_a_file_says_what_a_type_is_for_and_may_say_its_tools_and_its_model(tmp_path: Path) -> None:
    for text, expected in {
        TEXT: ("reads logs", ("read_file", "grep"), "Report the first error.", "fast", 3),
        "---\nname: logs\ndescription: d\n---\n": ("d", None, "", "", 1),
        "---\ndescription: d\n\ntools:\n  - time\n  - bash\n---\nBody\n": ("d", ("time", "bash"), "Body", "", 4),
        "\ufeff---\r\ndescription: >\r\n  two\r\n  lines\r\n---\r\nx": ("two lines", None, "x", "", 1),
    }.items():
        path = declare(tmp_path, text=text)
        (kind,) = read(tmp_path).types
        about, tools, system, model, line = expected
        assert kind == AgentType("logs", about, tools, system, model=model, declared_at=f"{path}:{line}")


WRONG: list[tuple[str | bytes, int, str]] = [
    ("no front matter", 1, "does not start with a front matter"),
    ("---\ntools: time\n---\n", 1, "requires description as text"),
    ("---\n\ndescription: 3\n---\n", 3, "requires description as text"),
    ("---\ndescription: d\ntool: time\n---\n", 3, "unknown key 'tool'; did you mean 'tools'?"),
    ("---\ndescription: d\npermissionMode: plan\n---\n", 3, "unknown key 'permissionMode'; there are: name, "),
    ("---\ndescription: d\ntools: [time, 3]\n---\n", 3, "neither a list of names"),
    ("---\ndescription: d\ntools: {a: b}\n---\n", 3, "neither a list of names"),
    ("---\ndescription: d\ntools:\n---\n", 3, "neither a list of names"),
    ("---\ndescription: d\ntools: []\n---\n", 3, "tools is empty"),
    ("---\ndescription: d\n<<: {tools: []}\n---\n", 1, "tools is empty"),
    ("---\ndescription: d\n<<: {name: x, model: 3}\n---\n", 1, "its name 'x'"),
    ("---\ndescription: d\n? [a]\n: b\n---\n", 3, "is not valid YAML"),
    ("---\ndescription: d\ntools: ' , '\n---\n", 3, "tools is empty"),
    ("---\ndescription: d\nmodel: [a]\n---\n", 3, "requires model as text"),
    (f"---\ndescription: d\nmodel: {'x' * 201}\n---\n", 3, "model is longer"),
    ("---\ndescription: d\nname: other\n---\n", 3, "its name 'other'"),
    ("---\ndescription: d\nname: [\n---\n", 3, "is not valid YAML"),
    ("---\ndescription: &a d\ntools: *a\n---\n", 3, "an alias"),
    ('---\ndescription: "\\e[2J"\n---\n', 2, "contains the invalid character"),
    (f"---\ndescription: {'x' * 1_025}\n---\n", 2, "longer than 1024 characters"),
    (b"---\ndescription: d\n---\n\xff\n", 4, "is not UTF-8"),
    (b"---\ndescription: d\n---\n\n\0\n", 5, "contains a NUL"),
    ("---\ndescription: d\n---\n" + "x" * (41 << 10), 0, "larger than 40960 bytes"),
]


def test_what_is_wrong_is_named_with_file_and_line_and_harms_no_other(tmp_path: Path) -> None:
    declare(tmp_path, "good")
    for text, line, words in WRONG:
        path = declare(tmp_path, "wrong", text)
        found = read(tmp_path)
        assert [kind.name for kind in found.types] == ["good"]
        (problem,) = found.problems
        assert problem.startswith(f"{path}:{line}: " if line else f"{path}: "), (text[:60], problem)
        assert words in problem, (text[:60], problem)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_type_or_a_problem(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    directory = tmp_path_factory.getbasetemp() / "any"
    declare(directory, "any", b"---\n" + data)
    found = read(directory)
    assert len(found.types) + len(found.problems) == 1


def test_names_files_and_links_that_are_none_are_told(tmp_path: Path) -> None:
    elsewhere = declare(tmp_path / "elsewhere")
    directory = tmp_path / "agents"
    for name in ("Upper", "a b", "ok", "log-reader", "log_reader"):
        declare(directory, name)
    declare(directory, "README", "About this folder.")
    (directory / "notes.txt").write_text("x")
    (directory / "linked.md").symlink_to(elsewhere)
    (directory / "folder.md").mkdir()
    os.mkfifo(directory / "pipe.md")
    declare(directory, "open").chmod(0o666)
    found = read(directory)
    assert [kind.name for kind in found.types] == ["log-reader", "ok"]
    reasons = {problem.removeprefix(f"{directory}/").partition(": ")[0]: problem for problem in found.problems}
    for name, words in {
        "Upper.md": "lower-case letters",
        "a b.md": "lower-case letters",
        "log_reader.md:1": "log-reader is already declared in",
        "linked.md": "cannot be read",
        "folder.md": "Is a directory",
        "pipe.md": "not a regular file",
        "open.md": "is writable by others",
    }.items():
        assert words in reasons.pop(name)
    assert reasons == {}


# -- whose files


def test_the_users_files_come_first_and_a_project_counts_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, project = tmp_path / "config" / "harness", tmp_path / "project"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    declare(config / "agents", "logs")
    own = project / ".harness" / "agents"
    declare(own, "logs", TEXT.replace("reads logs", "is another"))
    declare(own, "extra")
    monkeypatch.chdir(project)
    found = AgentTypeFiles().list()
    assert [kind.name for kind in found.types] == ["logs"]
    assert found.problems == (f"{own}: not read, because trusted_dirs in your settings does not cover it",)
    assert any(f"{own}: not read" in problem for problem in load_catalogue().problems)
    (config / "config.toml").write_text(f'trusted_dirs = ["{project}"]\n')
    found = AgentTypeFiles().list()
    assert [(kind.name, kind.about) for kind in found.types] == [("extra", "reads logs"), ("logs", "reads logs")]
    assert [f"{own}/logs.md:1" in problem for problem in found.problems] == [True]
    (project / ".harness").rename(tmp_path / "moved")
    (project / ".harness").symlink_to(tmp_path / "moved")
    assert [one.origin for one in agent_directories()] == ["user"]
    (config / "config.toml").write_text("width = 1 2")
    (project / ".harness").unlink()
    (tmp_path / "moved").rename(project / ".harness")
    found = AgentTypeFiles().list()
    assert (found.types, len(found.problems)) == ((), 1)


# -- with the usual ones


def test_a_file_may_stand_in_for_a_usual_type_under_any_of_its_names() -> None:
    own = AgentType("code-reviewer", "mine", declared_at="x:1")
    types = known_types([own])
    assert [kind.name for kind in types] == ["general", "explore", "plan", "code-reviewer"]
    for name in ("reviewer", "code_reviewer", "Code-Reviewer"):
        assert type_named(name, types) is own
    later = AgentType("Reviewer", "the program's")
    assert type_named("reviewer", known_types([own], [later])) is later


def test_a_description_names_each_type_in_one_line_and_is_not_endless() -> None:
    many = [AgentType(f"t{number}", "x" * 500) for number in range(40)]
    lines = describe_types(known_types(many)).splitlines()
    assert len(lines) == 31
    assert lines[0] == f"- general: {TYPES[0].about}."
    assert max(map(len, lines)) < 180
    assert lines[-1] == "- and 14 more."


def test_tools_may_have_the_names_of_profiles_and_what_is_not_offered_is_left_out() -> None:
    kind = AgentType("x", "y", ("Read", "bash", "sig", "nonsense"), "Be brief.", declared_at="x.md:3")
    found = with_own_names(kind)
    assert found.tools == ("read_file", "bash", "sig", "nonsense")
    assert found.usual == {"read_file", "bash", "sig"}
    assert found.system.endswith("\n\nBe brief.")
    assert with_own_names(TYPES[0]) is TYPES[0]
