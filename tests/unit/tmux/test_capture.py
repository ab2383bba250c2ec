"""Finding a job's output in what a pane shows, by the prompt tags alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pane_shells import PANE_SHELLS, open_pane_shell

from harness.command import Capture
from harness.errors import UnsupportedOperation
from harness_backends.tmux.pane.capture import TaggedOutput, capture_command, captured_text, extract_tagged
from harness_backends.tmux.version import TmuxVersion

PLAIN = """[harness 5: 0] $ true
[harness 6: 0] $ ls
a
b
[harness 7: 3] $ pwd
/tmp
[harness 8: 0] $ """
LONG = "\n".join(f"echo {n}" for n in range(20))
LONG_SHOWN = "\n".join([*(f"echo {n}" for n in range(12)), "... (8 more lines)"])


@pytest.mark.parametrize(
    ("screen", "command", "expected"),
    [
        pytest.param(PLAIN, "ls", TaggedOutput("a\nb\n", 3), id="plain"),
        pytest.param("[harness 6: 0] $ true\n[harness 7: 0] $ ", "true", TaggedOutput("", 0), id="no output"),
        pytest.param("", "ls", None, id="empty"),
        pytest.param("[harness 6: 0] $ ls\na\n", "ls", None, id="still running"),
        pytest.param(PLAIN.replace("7", "77"), "ls", None, id="another job's number that begins alike"),
        pytest.param(
            "[harness 6: 0] $ printf a\na[harness 7: 0] $ ", "printf a", TaggedOutput("a", 0), id="no newline"
        ),
        pytest.param(
            "[harness 6: 0] $ printf a\na" + " " * 60 + "[harness 7: 0] $ ",
            "printf a",
            TaggedOutput("a", 0),
            id="no newline, filled up",
        ),
        pytest.param(
            "[harness 6: 0] % printf a\na\N{RETURN SYMBOL}" + " " * 58 + "\n[harness 7: 0] % ",
            "printf a",
            TaggedOutput("a", 0),
            id="fish's mark above its prompt",
        ),
        pytest.param(
            "[harness 6: 0] u@h\n[harness 6: 0] $ ls\na\n[harness 7: 0] u@h\n$ ",
            "ls",
            TaggedOutput("a\n", 0),
            id="two lines",
        ),
        pytest.param(
            "[harness 6: 0] /a> cd /b\n[harness 7: 0] /b> ", "cd /b", TaggedOutput("", 0), id="a prompt that changes"
        ),
        pytest.param(
            f"[harness 6: 0] $ {LONG_SHOWN}\n1\n2\n[harness 7: 0] $ ",
            LONG,
            TaggedOutput("1\n2\n", 0),
            id="a long command",
        ),
        pytest.param(
            "[harness 6: 0] $ echo a  b\nx\n[harness 7: 0] $ ",
            "echo\ta\tb ",
            TaggedOutput("x\n", 0),
            id="tabs and blanks",
        ),
        pytest.param(
            "[harness 6: 0] $ ls\na\n[harness 7: 0] $ date\nSunday\n[harness 7: 1] $ ",
            "ls",
            TaggedOutput("a\n", 0),
            id="an operator's command after it",
        ),
        pytest.param(
            "[harness 4: 0] $ ls\nold\n[harness 5: 0] $ x\n[harness 6: 0] $ ls\nnew\n[harness 7: 0] $ ",
            "ls",
            TaggedOutput("new\n", 0),
            id="the same command before",
        ),
        pytest.param(
            "[harness 6: 0] $ ls\nnew\n[harness 7: 0] $ ls\nby hand\n[harness 7: 0] $ ",
            "ls",
            TaggedOutput("new\n", 0),
            id="the same command by hand after it",
        ),
        pytest.param(
            "a\nb\n[harness 7: 0] $ ", "ls", TaggedOutput("a\nb\n", 0, exact=False), id="the beginning scrolled away"
        ),
        pytest.param(
            "[harness 6: 0] $ hand-made\na\n[harness 7: 0] $ ", "ls", TaggedOutput("a\n", 0, exact=False), id="no echo"
        ),
        pytest.param(
            "[harness 6: 0] $ cat f\nx\n[harness 7: 9] fake\ny\n[harness 7: 0] $ ",
            "cat f",
            TaggedOutput("x\n[harness 7: 9] fake\ny\n", 0, exact=False),
            id="output with the job's tag and no prompt",
        ),
        pytest.param(
            "[harness 6: 0] $ cat f\n[harness 6: 0] $ cat f\nx\n[harness 7: 0] $ ",
            "cat f",
            TaggedOutput("x\n", 0, exact=False),
            id="output that repeats the prompt",
        ),
        pytest.param(
            "[harness 6: 0] $ cat f\n[harness 3: 1] $ old\n[harness 7: -1] $ ",
            "cat f",
            TaggedOutput("[harness 3: 1] $ old\n", -1, exact=False),
            id="output with an old tag",
        ),
    ],
)
def test_a_job_is_found_between_its_tags(screen: str, command: str, expected: TaggedOutput | None) -> None:
    assert extract_tagged(screen, "7", command, 60) == expected


LINE = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="["), max_size=20)


@given(st.lists(LINE, max_size=8), st.lists(LINE, max_size=4), st.integers(min_value=0, max_value=255), LINE)
def test_any_output_without_a_tag_is_given_exactly(body: list[str], after: list[str], code: int, command: str) -> None:
    command = f"x{command}"
    lines = [f"[harness 6: 0] $ {command}", *body, f"[harness 7: {code}] $ more", *after, "[harness 8: 0] $ "]
    expected = TaggedOutput("".join(f"{line}\n" for line in body), code)
    assert extract_tagged("\n".join(lines), "7", command) == expected


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("shell", ["bash", "zsh", "dash", "fish"])
async def test_a_real_screen_gives_each_job_its_own_output(shell: str) -> None:
    commands = {
        "echo one; echo two": "one\ntwo\n",
        "true": "",
        "echo 'a\n  b'": "a\n  b\n",
        "seq 1 300": None,
        "sh -c 'echo x; exit 4'": "x\n",
    }
    async with open_pane_shell(shell) as pane:
        jobs = {command: await pane.run(command) for command in commands}
        await pane.gives("true", "")  # the prompt after the last of them is there
        screen = await pane.screen()
        for command, expected in commands.items():
            result = jobs[command]
            found = extract_tagged(screen, str(result.job_id), command)
            assert found == TaggedOutput(result.stdout, result.exit_code), (command, screen)
            assert expected in (None, found.text)


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_a_last_line_without_newline_stays_on_the_screen(shell: str) -> None:
    commands = {"printf abc": "abc", "printf 'a\\nb#'": "a\nb#", "echo": "\n"}
    async with open_pane_shell(shell) as pane:
        for number, (command, expected) in enumerate(commands.items(), 1):
            await pane.gives(command, expected)
            assert await pane.ctx.capture_pane(job_id=str(number)) == expected
        await pane.gives("true", "")
        for number, expected in enumerate(commands.values(), 1):
            assert await pane.ctx.capture_pane(job_id=str(number)) == expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Capture(), ("-J",)),
        (Capture(join_wrapped_lines=False), ()),
        (Capture(start="-", end="-"), ("-J", "-S", "-", "-E", "-")),
        (Capture(start=-5, end=0), ("-J", "-S", "-5", "-E", "0")),
        (Capture(preserve_trailing_spaces=True, include_escape_sequences=True), ("-J", "-N", "-e")),
        (Capture(escape_non_printable=True, include_alternate_screen=True), ("-J", "-C", "-a", "-q")),
    ],
)
def test_the_options_of_a_capture_become_those_of_tmux(request_: Capture, expected: tuple[str, ...]) -> None:
    assert capture_command("%3", request_, TmuxVersion(3, 3, "a")) == ("capture-pane", "-p", "-t", "%3", *expected)


def test_trailing_spaces_are_asked_for_as_the_version_knows_it() -> None:
    joined, wrapped = (Capture(preserve_trailing_spaces=True, join_wrapped_lines=join) for join in (True, False))
    assert capture_command("%3", joined, TmuxVersion(3, 0, "a"))[4:] == ("-J",)
    assert capture_command("%3", wrapped, TmuxVersion(3, 1))[4:] == ("-N",)
    with pytest.raises(UnsupportedOperation, match=r"tmux 3\.0a does not keep trailing spaces"):
        capture_command("%3", wrapped, TmuxVersion(3, 0, "a"))


@pytest.mark.parametrize(
    ("version", "keep", "expected"),
    [
        (TmuxVersion(2, 6), False, "a\n b\n\n"),
        (TmuxVersion(3, 2, "a"), False, "a\n b\n\n"),
        (TmuxVersion(3, 2, "a"), True, "a  \n b   \n\n"),
        (TmuxVersion(3, 3), False, "a  \n b   \n\n"),
    ],
)
def test_blanks_that_tmux_added_are_taken_away(version: TmuxVersion, keep: bool, expected: str) -> None:
    assert captured_text("a  \n b   \n\n", Capture(preserve_trailing_spaces=keep), version) == expected
