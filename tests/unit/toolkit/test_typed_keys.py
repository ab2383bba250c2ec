"""What keys would do, by what runs in the pane; and on a real terminal."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.desk import Desk, desk, open_desk, until
from tests.support.toolbox import toolbox

from harness.context import ExecutionContext
from harness.results import PaneInfo
from harness.toolkit.permissions.shell.typed_keys import (
    Key,
    KeysClassification,
    has_empty_prompt,
    judge_keys,
    judge_typing,
    parse_keys,
)
from harness.toolkit.values import Subject, ToolCall

__all__ = ["desk", "open_desk"]

PROMPT = "[harness 1: 0] deploy@web1:~$ "


def typing(
    text: str, *, program: str = "bash", screen: str = PROMPT, busy: str = "", width: int = 80
) -> KeysClassification:
    pane = PaneInfo("main", "%0", "harness", default=True, width=width, foreground=program, busy=busy)
    return judge_typing(Subject("keys", text, pane="main"), pane, screen)


def command(judged: KeysClassification) -> str | None:
    return None if judged.command is None else judged.command.text


# -- at a shell's prompt


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("ls -l<Enter>", "ls -l"),
        ("sort <lt>in<Enter>", "sort <in"),
        ("l<s><Space><-><l><Enter>", "ls -l"),
        ("ls<C-m>", "ls"),
        ("ls<C-j>", "ls"),
        ("ls<KPEnter>", "ls"),
        ("ls\n", "ls"),
        ("ls\r\n", "ls"),
        ("echo a>b<Enter>", "echo a>b"),
        ("echo jk !! \\<Enter>", "echo jk !! \\"),
    ],
)
def test_one_whole_line_at_an_empty_prompt_is_a_command(keys: str, expected: str) -> None:
    judged = typing(keys)
    assert (judged.rule, judged.reason) == ("command", "")
    assert judged.command is not None
    assert (judged.command.kind, judged.command.text, judged.command.pane) == ("command", expected, "%0")


ALL_OTHER_KEYS_FOR = [
    "ls -l",  # what Enter will run is not known when it comes
    "<Enter>",
    " <Enter>",
    "ls<Enter><Enter>",
    "ls<Enter>rm x<Enter>",
    "ls\n<Enter>",
    "ls\nrm x\n",
    "uniq a \\\ncat<Enter>",
    "ls\rrm x<Enter>",
    "<C-u>ls<Enter>",
    "rm x<C-c>ls<Enter>",
    "ls<BSpace><Enter>",
    "ls<Home><Enter>",
    "<Up><Enter>",
    "l\ts<Enter>",
    "ls\x7f<Enter>",
    "ls\x16\x01<Enter>",
    "ls\x1bdd<Enter>",
    "ls\x00<Enter>",
    "ls\x85<Enter>",
    "ls\u2028<Enter>",
    "ls\u200b<Enter>",
    "<Tab><Enter>",
    "ls<M-Enter>",
    "ls<C-M-m>",
    "ls<S-Enter>",
    "ls<C-o>",
]


def test_all_other_keys_for_a_shell_ask() -> None:
    for keys in ALL_OTHER_KEYS_FOR:
        judged = typing(keys)
        assert (judged.rule, judged.command) == ("unknown", None)
        assert judged.reason


@pytest.mark.parametrize("typed", ["sort x", "x", "rm x; echo a$ "])
@pytest.mark.parametrize("keys", ["<Enter>", "ls<Enter>", "; ls\n"])
def test_where_something_is_typed_already_all_keys_ask_and_the_line_is_shown(typed: str, keys: str) -> None:
    judged = typing(keys, screen=f"{PROMPT}{typed}")
    assert (judged.rule, judged.command, judged.line) == ("unknown", None, f"{PROMPT}{typed}")


KEYS_THAT_EDIT_THE = [
    *("Up", "Down", "Left", "Right", "Home", "End", "PageUp", "PageDown", "C-l", "C-u", "C-e", "C-a", "BSpace"),
    *("Tab", "C-r", "C-d", "C-z", "M-.", "Escape", "F1", "C-v", "C-o", "C-x", "C-y", "C-_", "C-[", "M-b"),
]


def test_keys_that_edit_the_line_of_a_shell_ask() -> None:
    for program in ["bash", "-zsh", "fish", "dash"]:
        for key in KEYS_THAT_EDIT_THE:
            assert typing(f"<{key}>", program=program).rule == "unknown"


@pytest.mark.parametrize(
    "screen", ["> ", "dquote> ", "heredoc>", "Continue? [y/n] ", "", "λ rm x; echo $ ", "some output", "-- More --"]
)
def test_a_prompt_that_is_not_known_asks(screen: str) -> None:
    judged = typing("ls<Enter>", screen=screen)
    assert judged.rule == "unknown"
    assert "prompt" in judged.reason


@pytest.mark.parametrize(
    "prompt",
    ["$ ", "# ", "bash-5.2# ", "web1% ", "deploy@web1:~/a/b$ ", "[root@web1 etc]# ", "(venv) me@h:~$ ", "me@h ~> ",
     "[harness 12: 130] $ ", "[harness 3: 0] web1% ", "[I] [harness 3: 0] me@h ~> ", "me@h ~ [2]# ",
     "me@h ~/a [0|1]> "],
)  # fmt: skip
def test_usual_prompts_are_known(prompt: str) -> None:
    assert has_empty_prompt(f"output\n{prompt}")
    assert has_empty_prompt(prompt.rstrip())
    assert not has_empty_prompt(f"{prompt}ls -l")


def test_the_end_of_a_line_that_the_shell_broke_is_no_prompt() -> None:
    head = "$ sed -n 1p x ".ljust(40, "y")
    broken = f"{head}\n% "
    assert not has_empty_prompt(broken, 40)
    assert not has_empty_prompt(f"{head}\n{'y' * 40}\n% ", 40)
    assert has_empty_prompt("$ true\n$ ", 40)
    assert typing("sort -i<Enter>", program="zsh", screen=broken, width=40).rule == "unknown"


# -- elsewhere


@pytest.mark.parametrize(
    ("program", "screen"),
    [
        ("sudo", "[sudo] password for deploy: "),
        ("ssh", "deploy@web2's password:"),
        ("ssh", "Enter passphrase for key '/home/x/.ssh/id_ed25519':"),
        ("su", "Password:"),
        ("passwd", "New password:"),
        ("mysql", "Enter password: "),
        ("cryptsetup", "Enter key for /dev/sda:"),
        ("sudo", "Verification code:"),
    ],
)
def test_what_is_typed_into_a_question_for_a_secret_has_its_own_rule(program: str, screen: str) -> None:
    judged = typing("hunter2<Enter>", program=program, screen=screen)
    assert (judged.rule, judged.program, judged.command) == ("password", program, None)
    assert "hunter2" not in judged.reason


def test_a_command_that_asks_for_a_secret_in_the_shell_itself_is_seen() -> None:
    assert typing("hunter2<Enter>", screen="Password: ", busy="job 3").rule == "password"


@pytest.mark.parametrize("program", ["vim", "python3", "mysql", "top", "some-menu", "ssh", "nano", ""])
def test_a_program_that_is_not_a_shell_asks_and_is_named(program: str) -> None:
    judged = typing("y<Enter>", program=program, screen="?x")
    assert judged.rule == "program"
    assert (program or "unknown program") in judged.reason


@pytest.mark.parametrize("program", ["less", "vim", "ftp", "gdb", "man"])
def test_the_way_out_to_a_shell_is_said(program: str) -> None:
    judged = typing("!rm x<Enter>", program=program, screen=":")
    assert judged.rule == "program"
    assert "!" in judged.reason


@pytest.mark.parametrize("keys", ["q", "<Space>", "<PageDown><PageDown>", "jjG", "<C-c>", "ggq"])
def test_paging_does_no_harm(keys: str) -> None:
    assert typing(keys, program="less", screen=":").rule == "harmless"


@pytest.mark.parametrize(
    "keys", ["qrm x<Enter>", "qq", "<Home>", "<Left>", "v", "s", "|", ":e x", "/x<Enter>", "q<Enter>"]
)
def test_what_comes_after_a_pager_or_leaves_it_otherwise_asks(keys: str) -> None:
    assert typing(keys, program="less", screen=":").rule == "program"


@pytest.mark.parametrize("program", ["bash", "vim", "sudo", "python3"])
def test_an_interrupt_does_no_harm(program: str) -> None:
    assert typing("<C-c>", program=program, screen="password:").rule == "harmless"
    assert typing("<^c><C-c>", program=program).rule == "harmless"


def test_a_key_that_only_moves_in_some_programs_may_be_the_any_key_of_another() -> None:
    for key in ["Up", "Right", "Home", "PageDown", "C-l"]:
        for program in ["python3", "whiptail", "fzf", "psql", "ssh", ""]:
            assert typing(f"<{key}>", program=program, screen="Press any key to erase it").rule == "program"


def test_a_job_in_the_shell_reads_what_is_typed() -> None:
    judged = typing("y<Enter>", busy="job 7")
    assert (judged.rule, "job 7" in judged.reason) == ("program", True)


@pytest.mark.parametrize("keys", ["a<b", "<nonsense", "echo <", "ls\u200b<Enter>", "a\x00"])
def test_keys_that_cannot_be_read_ask(keys: str) -> None:
    assert typing(keys).rule == "unknown"


@given(st.text(alphabet="abc<>-^CMS \nlt", max_size=30))
def test_any_text_of_keys_is_read(text: str) -> None:
    keys = parse_keys(text)
    assert keys is None or all(isinstance(item, str | Key) for item in keys)
    assert typing(text).rule in ("command", "harmless", "unknown")


@given(st.text(alphabet="abc<>lt;-$ ", max_size=30))
def test_a_typed_bracket_survives(text: str) -> None:
    assert "".join(item for item in parse_keys(text.replace("<", "<lt>")) or () if isinstance(item, str)) == text


# -- on a real terminal


async def keys_in(execution: ExecutionContext, text: str, pane: str | None = None) -> KeysClassification:
    box = toolbox((), execution=execution)
    ctx = box.executor._context(ToolCall("send_keys"))
    with anyio.fail_after(20):
        return await judge_keys(Subject("keys", text, pane=pane), ctx)


async def shows(desk: Desk, text: str) -> None:
    """Wait until it is on the pane's screen."""
    await until(lambda: text in "\n".join(desk.tmux.cmd("capture-pane", "-p", "-t", "=harness:main").stdout))


async def test_without_a_terminal_there_is_no_pane() -> None:
    judged = await keys_in(toolbox(()).executor.execution, "ls<Enter>")
    assert (judged.rule, "without a terminal" in judged.reason) == ("unknown", True)


async def test_at_the_prompt_of_a_real_pane_keys_are_commands(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    judged = await keys_in(desk.ctx, "ls -l<Enter>")
    assert (judged.reason, command(judged)) == ("", "ls -l")
    assert (await keys_in(desk.ctx, "ls<Enter>", pane="nowhere")).rule == "unknown"


async def test_half_a_line_in_a_real_pane_counts(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    await desk.ctx.send_keys(literal_text="rm -rf half")
    await shows(desk, "rm -rf half")
    judged = await keys_in(desk.ctx, "; ls<Enter>")
    assert judged.rule == "unknown"
    assert judged.line.endswith("rm -rf half")
    await desk.ctx.send_keys("C-c")


async def test_a_real_question_for_a_secret_is_one(desk: Desk) -> None:
    job = await desk.ctx.run_shell("printf 'Password: '; stty -echo; read -r secret; stty echo", wait=0.05)
    await shows(desk, "Password:")
    assert (await keys_in(desk.ctx, "hunter2<Enter>")).rule == "password"
    await desk.ctx.send_keys(enter=True)
    await desk.ctx.wait(job.job_id or "", timeout=10)


async def test_a_real_program_is_named(desk: Desk) -> None:
    job = await desk.ctx.run_shell("cat", wait=0.2)
    judged = await keys_in(desk.ctx, "text<Enter>")
    assert judged.rule == "program"
    assert "cat" in judged.reason or "job" in judged.reason
    await desk.ctx.send_keys("C-c")
    await desk.ctx.wait(job.job_id or "", timeout=10)
