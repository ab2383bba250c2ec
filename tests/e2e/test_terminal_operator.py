"""An operator beside the agent: attached, scrolling, typing, running things; the agent's results stay right."""

from __future__ import annotations

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, Operator, desk, everywhere, open_desk, until

from harness import PaneBusy, Status, connect

__all__ = ["desk", "open_desk"]


@everywhere
async def test_the_agents_pane_keeps_its_size_beside_a_small_client(desk: Desk) -> None:
    operator = await desk.operator(60, 20)
    result = await desk.ctx.run_shell("stty size; echo seen by both")
    assert result.stdout == "40 150\nseen by both\n"
    await operator.sees("seen by both")
    assert desk.show("#{pane_width}x#{pane_height}") == "150x40"


SCROLLED = "#{pane_mode} #{scroll_position} #{selection_present}"


async def _scrolls(desk: Desk, operator: Operator) -> str:
    """The operator reads back in copy mode, with a selection; returns what shows that."""
    await desk.ctx.run_shell("seq 1 500")
    operator.press("C-b", "[")
    await until(lambda: desk.show("#{pane_in_mode}") == "1")
    operator.press("PPage", "PPage")
    await until(lambda: desk.show("#{scroll_position}") not in ("", "0"))
    desk.tmux.cmd("send-keys", "-t", "=harness:main", "-X", "begin-selection")
    operator.press("Up")
    await until(lambda: desk.show("#{selection_present}") == "1")
    return desk.show(SCROLLED)


@everywhere
async def test_a_command_leaves_an_operator_who_scrolls_where_they_are(desk: Desk) -> None:
    operator = await desk.operator()
    seen = await _scrolls(desk, operator)
    assert seen.startswith("copy-mode")
    for number in range(3):
        result = await desk.ctx.run_shell(f"echo under the scroll; (exit {number})", timeout=10)
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, number, "under the scroll\n")
        assert desk.show(SCROLLED) == seen
    operator.press("q")
    await operator.sees("under the scroll")


async def test_keys_leave_an_operator_who_scrolls_where_they_are(desk: Desk) -> None:
    operator = await desk.operator()
    await desk.ctx.run_shell("echo re''peated")
    seen = await _scrolls(desk, operator)
    job = await desk.ctx.run_shell("stty raw -echo; head -c 12 | od -An -c; stty sane", wait=0.3)
    await until(lambda: desk.processes("head -c 12"))
    await desk.ctx.send_keys(("Up", "C-Space", "M-x", "F5"), literal_text="q", enter=True)
    done = await desk.ctx.wait(job.job_id or "", timeout=10)
    assert done.stdout.split() == [*"q", "033", "[", "A", "\\0", "033", "x", "033", "[", "1", "5", "~"]
    assert desk.show(SCROLLED) == seen


@pytest.mark.parametrize("how", ["timeout", "kill", "another harness"])
async def test_a_command_is_interrupted_while_an_operator_scrolls(desk: Desk, how: str) -> None:
    operator = await desk.operator()
    seen = await _scrolls(desk, operator)
    if how == "timeout":
        result = await desk.ctx.run_shell("sleep 300.75", timeout=0.5, on_timeout="kill")
        assert result.status is Status.TIMED_OUT
    else:
        job = await desk.ctx.run_shell("sleep 300.75", wait=0.2)
        await until(lambda: desk.processes("sleep 300.75"))
        async with connect(config=desk.config) as other:
            await (other if how == "another harness" else desk.ctx).kill(job.job_id or "")
        done = await desk.ctx.wait(job.job_id or "", timeout=20)
        assert (done.status, done.exit_code) == (Status.INTERRUPTED, 130)
    assert not desk.processes("sleep 300.75")
    assert desk.show(SCROLLED) == seen


@everywhere
async def test_what_the_agent_types_reaches_none_of_the_operators_other_panes(desk: Desk) -> None:
    operator = await desk.operator(150, 42)
    theirs = desk.home / "theirs"
    beside = desk.tmux.cmd("split-window", "-d", "-t", "=harness:main", "-P", "-F", "#{pane_id}", f"cat >{theirs}")
    desk.tmux.cmd("set-window-option", "-t", "=harness:main", "synchronize-panes", "on")
    await until(theirs.exists)
    assert (await desk.ctx.run_shell("echo alone")).stdout == "alone\n"
    job = await desk.ctx.run_shell("stty -echo; touch asked; read -r password; stty echo; echo ${#password}", wait=0.3)
    await until((desk.home / "asked").exists)
    await desk.ctx.send_keys(literal_text="correct horse", enter=True)
    assert (await desk.ctx.wait(job.job_id or "", timeout=10)).stdout == "13\n"
    await desk.ctx.send_keys(("a", "Left", "C-u", "Enter"))
    job = await desk.ctx.run_shell("sleep 300.5", wait=0.2)
    await until(lambda: desk.processes("sleep 300.5"))
    await desk.ctx.kill(job.job_id or "")
    assert desk.show("#{pane_synchronized}") == "1"  # the operator's own keys still go to all
    desk.tmux.cmd("send-keys", "-t", beside.stdout[0], "the operator", "Enter")
    await until(lambda: theirs.read_text() != "")
    assert theirs.read_text() == "the operator\n"
    await operator.sees("alone")


async def test_an_operator_may_scroll_while_a_command_runs(desk: Desk) -> None:
    operator = await desk.operator()
    await desk.ctx.run_shell("mkfifo gate")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_scroll_then_open, desk, operator.press)
        result = await desk.ctx.run_shell("seq 1 300; cat gate; seq 301 600", timeout=20)
    assert result.stdout == "".join(f"{n}\n" for n in range(1, 601))
    assert (await desk.ctx.run_shell("echo next")).stdout == "next\n"


async def _scroll_then_open(desk: Desk, press: object) -> None:
    assert callable(press)
    await until(lambda: desk.processes("cat gate"))
    press("C-b", "[")
    await until(lambda: desk.show("#{pane_in_mode}") == "1")
    press("PPage")
    await desk.open_gate()


@pytest.mark.parametrize("typed", ["echo half a li", "echo 'an open quote", "cat <<X", "if true; then", "((", "x=$("])
@pytest.mark.parametrize("entered", [False, True])
async def test_a_half_typed_line_is_put_away(desk: Desk, typed: str, entered: bool) -> None:
    operator = await desk.operator(150, 40)
    operator.type(typed)
    await operator.sees(typed)
    if entered:
        operator.press("Enter")
        await until(lambda: desk.show("#{cursor_x}") in ("2", "0") or "half" in typed)
    result = await desk.ctx.run_shell("echo whole; (exit 5)", timeout=15)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 5, "whole\n")


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish", "/bin/mksh"])
async def test_an_open_quote_is_put_away_in_every_shell(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell("true")
    await desk.ctx.send_keys(literal_text="echo 'an open", enter=True)
    result = await desk.ctx.run_shell("echo whole", timeout=15)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 0, "whole\n")


@pytest.mark.parametrize("keys", [("C-r",), ("C-v",), ("M-5",), ("Escape",), ("Tab", "Tab")])
async def test_a_line_editor_in_the_middle_of_something_is_brought_back(desk: Desk, keys: tuple[str, ...]) -> None:
    await desk.ctx.run_shell("echo searched for")
    operator = await desk.operator()
    operator.press(*keys)
    await anyio.sleep(0.2)  # long enough to reach the line editor, which does not tell
    result = await desk.ctx.run_shell("echo back", timeout=15)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 0, "back\n")


BEGUN = [("C-x",), ("x", "C-x"), ("C-x", "C-x", "C-x"), ("Escape",), ("C-]",), ("C-x", "("), ("C-q",)]


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish", "/bin/mksh", "busybox"])
async def test_a_key_sequence_that_a_person_has_begun_opens_no_editor(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell, env=(("EDITOR", "touch opened"), ("VISUAL", "touch opened")))
    if shell.endswith("zsh"):
        await desk.ctx.run_shell(
            "autoload -z edit-command-line; zle -N edit-command-line; bindkey '^X^E' edit-command-line"
        )
    operator = await desk.operator()
    for number, keys in enumerate(BEGUN):
        operator.press(*keys)
        await anyio.sleep(0.2)  # long enough to reach the line editor, which does not tell
        result = await desk.ctx.run_shell(f"echo {number} >>ran; echo ran", timeout=15)
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 0, "ran\n"), (keys, result)
    assert (desk.home / "ran").read_text() == "".join(f"{number}\n" for number in range(len(BEGUN)))
    assert not (desk.home / "opened").exists()


VI = [
    ("/bin/bash", "set -o vi"),
    ("/usr/bin/zsh", "bindkey -v"),
    ("/usr/bin/fish", "fish_vi_key_bindings"),
    ("/bin/mksh", "set -o vi"),
]


@pytest.mark.parametrize(("shell", "setting"), VI)
@pytest.mark.parametrize("keys", [(), ("Escape",), ("Escape", "d")])
async def test_vi_mode_is_no_hindrance(open_desk: OpenDesk, shell: str, setting: str, keys: tuple[str, ...]) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell(setting)
    operator = await desk.operator()
    operator.type("echo abc")
    operator.press(*keys, "x")
    await anyio.sleep(0.6)  # vi mode waits for what may follow Escape, and does not tell
    result = await desk.ctx.run_shell("echo typed right; sh -c 'exit 3'", timeout=15)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 3, "typed right\n")


EDITORS = [
    *VI,
    ("/bin/bash", "set -o emacs"),
    ("/usr/bin/zsh", "bindkey -e"),
    ("/usr/bin/fish", "fish_default_key_bindings"),
    ("/bin/mksh", "set -o emacs"),
    ("/bin/dash", ":"),
    ("busybox", ":"),
]
LEFT = [
    (), ("Home",), ("Left", "Left"), ("Up",), ("Up", "Home"), ("C-r",), ("C-x",), ("M-5",), ("Escape",),
    ("Escape", "0"), ("Escape", "0", "x"), ("Escape", "0", "c"), ("Escape", "0", "d"), ("Escape", "R"), ("Escape", "5"),
    ("Escape", "/"),
]  # fmt: skip
"""Keys after which the cursor is inside the line, or a line editor waits for more, or is in another mode."""


@pytest.mark.parametrize(("shell", "setting"), EDITORS)
@pytest.mark.parametrize("line", ["; touch left", "touch left #"])
async def test_what_an_operator_has_left_on_the_line_never_runs(
    open_desk: OpenDesk, shell: str, setting: str, line: str
) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell(setting)
    for keys in LEFT:
        await desk.ctx.send_keys(literal_text=line)
        for key in keys:
            await anyio.sleep(0.05)  # a key that follows Escape at once would be another one, and no editor tells
            await desk.ctx.send_keys(key)
        await anyio.sleep(0.1)
        result = await desk.ctx.run_shell("echo typed right; sh -c 'exit 3'", timeout=15)
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 3, "typed right\n"), keys
        assert not list(desk.home.glob("left*")), keys


@everywhere
async def test_the_lock_keeps_an_operators_keys_from_a_running_command(desk: Desk) -> None:
    operator = await desk.operator()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_type_into, desk, operator.type, "meddling\n")
        result = await desk.ctx.run_shell('IFS= read -r -t 0.8 y; echo "got:$y"')
    assert result.stdout == "got:\n"
    assert (await desk.ctx.run_shell("echo next")).stdout == "next\n"


async def _type_into(desk: Desk, type_: object, text: str) -> None:
    assert callable(type_)
    await until(lambda: desk.show("#{@harness_busy}") != "")
    type_(text)


async def test_one_key_gives_the_operator_the_keyboard_back(desk: Desk) -> None:
    operator = await desk.operator()
    started = await desk.ctx.run_shell('touch asked; read -r x; echo "got:$x"', wait=0.1)
    assert started.status is Status.RUNNING
    await until((desk.home / "asked").exists)
    operator.press("F12")
    operator.type("by hand\n")
    done = await desk.ctx.wait(started.job_id or "", timeout=10)
    assert done.status is Status.COMPLETED
    assert done.stdout == "by hand\ngot:by hand\n"


async def test_without_the_lock_what_an_operator_typed_is_flagged(open_desk: OpenDesk) -> None:
    desk = await open_desk(keyboard_lock=False)
    operator = await desk.operator()
    await desk.ctx.run_shell("mkfifo gate")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_type_then_open, desk, operator.type)
        result = await desk.ctx.run_shell("cat gate; echo done")
    assert result.status is Status.COMPLETED
    assert "done\n" in result.stdout
    assert any("typed" in notice for notice in result.notices), result


async def _type_then_open(desk: Desk, type_: object) -> None:
    assert callable(type_)
    await until(lambda: desk.processes("cat gate"))
    type_("meddling")
    await until(lambda: "meddling" in "\n".join(desk.tmux.cmd("capture-pane", "-p", "-t", "=harness:main").stdout))
    await desk.open_gate()


@everywhere
async def test_an_operators_command_holds_the_pane_and_is_named(desk: Desk) -> None:
    operator = await desk.operator()
    operator.type("sleep 30.25\n")
    await until(lambda: desk.processes("sleep 30.25") and "operator" in repr(desk.ctx))
    with pytest.raises(PaneBusy, match=r"sleep 30\.25") as caught:
        await desk.ctx.run_shell("echo in the way", timeout=20)
    assert "operator" in str(caught.value)
    operator.press("C-c")
    await until(lambda: not desk.processes("sleep 30.25"))
    result = await desk.ctx.run_shell("echo exact; (exit 9)")
    assert (result.exit_code, result.stdout) == (9, "exact\n")


async def test_a_command_waits_for_an_operators_short_one(desk: Desk) -> None:
    operator = await desk.operator()
    operator.type("sleep 1.25; echo theirs\n")
    await until(lambda: desk.processes("sleep 1.25"))
    result = await desk.ctx.run_shell("echo ours")
    assert (result.status, result.stdout) == (Status.COMPLETED, "ours\n")


async def test_an_operator_who_presses_enter_again_and_again_disturbs_nothing(desk: Desk) -> None:
    operator = await desk.operator()
    for number in range(8):
        operator.press(*["Enter"] * 20)
        result = await desk.ctx.run_shell(f"echo {number}; (exit {number})")
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, number, f"{number}\n")


@everywhere
async def test_what_an_operator_opens_is_left_alone(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    window = desk.tmux.cmd("new-window", "-d", "-t", "=harness:", "-P", "-F", "#{window_id}", "sleep 300").stdout[0]
    split = desk.tmux.cmd("split-window", "-t", "=harness:main", "-P", "-F", "#{pane_id}", "sleep 301").stdout[0]
    desk.tmux.cmd("rename-window", "-t", "=harness:main", "mine-now")
    desk.tmux.cmd("set-option", "-g", "status", "off")
    desk.tmux.cmd("set-option", "-g", "mouse", "on")
    result = await desk.ctx.run_shell("echo still here; (exit 4)")
    assert (result.exit_code, result.stdout) == (4, "still here\n")
    assert [pane.name for pane in await desk.ctx.list_panes()] == ["main"]
    await desk.ctx.run_shell("echo background", wait=False)
    panes = desk.tmux.cmd("list-panes", "-s", "-t", "=harness", "-F", "#{window_id} #{pane_id}").stdout
    assert any(line.startswith(f"{window} ") for line in panes)
    assert any(line.endswith(f" {split}") for line in panes)
    assert desk.tmux.cmd("show-options", "-gv", "mouse").stdout == ["on"]
    assert desk.tmux.cmd("show-options", "-gv", "status").stdout == ["off"]


async def test_a_pane_that_an_operator_killed_is_made_anew_and_said(desk: Desk) -> None:
    await desk.ctx.run_shell("cd /var; A=1")
    desk.tmux.cmd("new-window", "-d", "-t", "=harness:")
    desk.tmux.cmd("kill-window", "-t", "=harness:main")
    result = await desk.ctx.run_shell("echo fresh:$A")
    assert (result.status, result.stdout) == (Status.COMPLETED, "fresh:\n")
    assert any("closed" in notice for notice in result.notices), result.notices


async def test_a_session_that_an_operator_killed_is_made_anew_and_said(desk: Desk) -> None:
    await desk.ctx.run_shell("A=1")
    desk.tmux.cmd("kill-session", "-t", "=harness")
    result = await desk.ctx.run_shell("echo fresh:$A", timeout=20)
    said = result.notices
    if result.status is Status.UNKNOWN:  # it was sent before the news of the end came, which is told with it
        result = await desk.ctx.run_shell("echo fresh:$A", timeout=20)
    assert (result.status, result.stdout) == (Status.COMPLETED, "fresh:\n")
    assert any("this is a new one" in notice for notice in (*said, *result.notices)), (said, result.notices)


async def test_a_program_that_sets_titles_changes_no_name(desk: Desk) -> None:
    result = await desk.ctx.run_shell(r"printf '\033]0;title\007\033]2;other\007\033kname\033\\'; echo after")
    assert result.stdout_bytes == b"\x1b]0;title\x07\x1b]2;other\x07\x1bkname\x1b\\after\n"
    assert desk.show("#{window_name}") == "main"
    assert [pane.name for pane in await desk.ctx.list_panes()] == ["main"]


async def test_a_read_only_operator_cannot_type(desk: Desk) -> None:
    operator = await desk.operator(read_only=True)
    operator.type("echo not allowed\n")
    result = await desk.ctx.run_shell("echo agent")
    await operator.sees("agent")
    assert result.stdout == "agent\n"
    assert "not allowed" not in await desk.ctx.capture_pane()


async def test_leaving_a_context_leaves_the_session_to_the_operator(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    operator = await desk.operator()
    await desk.ctx.run_shell("echo last words")
    await operator.sees("last words")
    before = desk.tmux.cmd("show-options", "-g").stdout
    again = await open_desk(tmux_socket=desk.config.tmux_socket)
    assert (await again.ctx.run_shell("echo more")).stdout == "more\n"
    await operator.sees("more")
    assert desk.tmux.cmd("show-options", "-g").stdout == before


@everywhere
@pytest.mark.parametrize("key", ["t", "w", "="])
async def test_a_clock_or_a_menu_in_the_pane_stays_and_is_no_hindrance(desk: Desk, key: str) -> None:
    operator = await desk.operator(150, 40)
    await desk.ctx.run_shell("true")
    desk.tmux.cmd("set-buffer", "for the list of buffers")
    operator.press("C-b", key)
    await until(lambda: desk.show("#{pane_in_mode}") != "0")
    result = await desk.ctx.run_shell("echo whole; (exit 5)", timeout=15)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 5, "whole\n")
    await desk.ctx.send_keys(literal_text="echo typed", enter=True)
    await until(lambda: "\ntyped" in "\n".join(desk.tmux.cmd("capture-pane", "-p", "-t", "=harness:main").stdout))
    assert desk.show("#{pane_in_mode}") != "0"
