"""Single decisions of the judge that whole commands do not show: pinned one by one."""

from __future__ import annotations

import pytest
from tests.support.permits import desk

from harness.command import Command
from harness.errors import ConnectionLost
from harness.testing.memory import MemoryBackend, ScriptedReply, memory_context
from harness.toolkit.permissions.access_requests import _at_most_exact
from harness.toolkit.permissions.asking import _hidden
from harness.toolkit.permissions.deny_all import DenyAllApprover
from harness.toolkit.permissions.lookalikes import strange_letter
from harness.toolkit.permissions.paths.target_paths import RealPath
from harness.toolkit.permissions.rules.settings import Mode, _narrowed
from harness.toolkit.permissions.shell.classification import classify_command
from harness.toolkit.permissions.shell.commands_in_words import commands_in_options
from harness.toolkit.permissions.shell.container_files import _may_be_directory, reaches_any_file
from harness.toolkit.permissions.shell.git_commands import shown_request
from harness.toolkit.permissions.shell.operand_paths import directory_operands
from harness.toolkit.permissions.shell.read_only.host_programs import _local_image
from harness.toolkit.permissions.shell.read_only.program_check import _may_be_response
from harness.toolkit.permissions.shell.read_only.programs import takes_rights_away
from harness.toolkit.permissions.shell.read_only.special_programs import awk_program_only_prints
from harness.toolkit.permissions.shell.words import Options, Word
from harness.toolkit.permissions.shell.wrappers import lists_null_separated


def words(text: str) -> list[Word]:
    return [Word.of(word) for word in text.split()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("find src -name x -print0", True),
        ("find src -ls", False),
        ("find src -print", False),
        ("find src -exec rm {} + -print0", False),
        ("ls src -print0", False),
    ],
)
def test_find_lists_null_separated_paths_and_does_nothing_else(text: str, expected: bool) -> None:
    assert lists_null_separated(words(text)) is expected


def test_find_below_an_unknown_directory_is_not_known() -> None:
    assert not lists_null_separated([Word.of("find"), Word.unknown("$x"), Word.of("-print0")])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("600 key", True), ("-v 600 key", True), ("-R 600 d", False), ("644 key", False), ("-v", False)],
)
def test_chmod_takes_rights_away(text: str, expected: bool) -> None:
    assert takes_rights_away("chmod", words(text)) is expected


def test_a_whitelist_of_trusted_settings_replaces_the_earlier_one() -> None:
    assert _narrowed(("a",), ("b",), trusted=True) == ("b",)
    assert _narrowed(("a",), ("a", "b"), trusted=False) == ("a",)
    assert _narrowed(("a",), ("b",), trusted=False) == ("",)
    assert _narrowed((), ("b",), trusted=False) == ("b",)
    assert _narrowed(("a",), (), trusted=True) == ("a",)


def test_a_path_that_is_not_known_is_allowed_by_its_exact_text_at_most() -> None:
    assert [_at_most_exact(way) for way in ("none", "exact", "any", "broad")] == ["none", "exact", "exact", "exact"]


@pytest.mark.parametrize("text", ["a§", "a×b", "ª", "º", "а"])  # noqa: RUF001  # the last one is Cyrillic
def test_a_sign_that_is_no_letter_of_western_latin_is_strange(text: str) -> None:
    assert strange_letter(text)


def test_letters_of_western_latin_are_not_strange() -> None:
    assert strange_letter("éßÿž") == ""


def test_the_parts_that_marks_hide_are_found() -> None:
    assert list(_hidden("a X1 b X2", "a [redacted] b [redacted]")) == ["X1", "X2"]
    assert list(_hidden("X1 b X2 c", "[redacted] b [redacted] c")) == ["X1", "X2"]


def test_names_of_sessions_are_no_commands_of_tmux() -> None:
    assert commands_in_options("tmux", words("new -s work")) == []
    assert [word.text for word in commands_in_options("tmux", [Word.of("new"), Word.of("make x")])] == ["make x"]
    assert commands_in_options("tmux", [Word.of("new"), Word.of("-F"), Word.of("a #{b} c")]) == []


def test_what_is_not_known_may_be_a_directory() -> None:
    assert _may_be_directory(RealPath("x", "/x", "/x", is_known=False))
    assert _may_be_directory(RealPath("x", "/x", "/x", is_dir=True))
    assert not _may_be_directory(RealPath("x", "/x", "/x"))


def test_the_reason_names_the_program_that_speaks_to_an_engine() -> None:
    judged = classify_command("curl --unix-socket /var/run/docker.sock http://x/containers/json")
    assert reaches_any_file(judged).startswith("curl uses the socket of a container engine")


def test_operands_stand_on_both_sides_of_two_dashes() -> None:
    found = directory_operands(("cp", "a", "--", "b", "-c"), read_only=False)
    assert found is not None
    assert found.sources == ("a", "b", "-c")


def test_a_command_of_git_by_its_path_is_the_same_command() -> None:
    assert shown_request(("/usr/lib/git-core/git-show", "HEAD:x")) == shown_request(("git", "show", "HEAD:x"))


def test_awk_divides_behind_a_name_and_is_unsure_behind_a_function() -> None:
    assert awk_program_only_prints("{ x = 4; print x / 2 }")
    assert not awk_program_only_prints("{ print length / 2 / 1 }")


def test_a_word_that_may_begin_with_at_may_be_a_response_file() -> None:
    assert _may_be_response(Word.of("@x"))
    assert _may_be_response(Word.unknown("$x"))
    assert not _may_be_response(Word.of("x"))
    assert not _may_be_response(Word("x$y", "x$y", known=False, lead="x"))


def test_an_image_elsewhere_is_not_local() -> None:
    assert _local_image(Options(operands=words("a/b.img"))) == ""
    assert _local_image(Options(operands=words("nbd://h/x")))


async def test_a_look_below_a_directory_over_a_lost_link_asks() -> None:
    def answer(command: Command) -> ScriptedReply:
        if "find " in command.command:
            raise ConnectionLost("the link was lost")
        return ScriptedReply()

    backend = MemoryBackend(answer)
    await memory_context(backend).write_file("/x/a", b"", parents=True)
    assert not await desk(mode=Mode.AUTO, backend=backend).allows("run_shell", "chmod -R a+r /x")


def test_nobody_can_be_asked_in_a_session_without_an_operator() -> None:
    assert (DenyAllApprover().can_ask(), DenyAllApprover().by_sight) == (False, False)
