"""Checks of the terminal: a persistent shell that operators can watch, and the errors of contexts without one."""

from __future__ import annotations

import anyio

from ...context import ExecutionContext
from ...errors import HarnessError, PaneBusy, PaneGone, TerminalError, UnsupportedOperation
from ...results import ShellResult, Status
from ._commands import completed, usable
from ._files import refused
from ._limits import gate, open_gate, run_past_limit
from ._registry import check, scratch, until


@check("Without a terminal, terminal operations are refused with a hint that says what would make them work.", "plain")
async def no_terminal_no_pretending(ctx: ExecutionContext) -> None:
    for operation in (
        ctx.capture_pane(),
        ctx.send_keys("Enter"),
        ctx.list_panes(),
        ctx.create_pane("x"),
        ctx.kill_pane("x"),
        ctx.list_sessions(),
        ctx.create_session("x"),
        ctx.kill_session("x"),
        ctx.run_shell("true", tty=True),
        ctx.run_shell("true", pane="x"),
    ):
        error = await refused(operation, UnsupportedOperation)
        assert isinstance(error, HarnessError)
        assert error.hint, error
    try:
        raise AssertionError(ctx.attach_command)
    except UnsupportedOperation as error:
        assert error.hint, error


@check("Without a terminal, each command has a fresh shell.", "plain")
async def fresh_shells(ctx: ExecutionContext) -> None:
    completed(await ctx.run_shell("cd /; HX_STATE=1; export HX_STATE; umask 0"))
    assert completed(await ctx.run_shell("echo ${HX_STATE-unset}")).stdout == "unset\n"
    assert completed(await ctx.run_shell("umask")).stdout.strip("0\n") != ""


@check(
    "With a terminal, the shell keeps its state as it does for a person: directory, variables, functions.", "terminal"
)
async def state_persists(ctx: ExecutionContext) -> None:
    completed(await ctx.run_shell("cd /usr"))
    assert completed(await ctx.run_shell("pwd")).stdout == "/usr\n"
    completed(await ctx.run_shell("HX_A='a b'; export HX_B=c"))
    assert (
        completed(await ctx.run_shell("echo \"$HX_A\" $HX_B; sh -c 'echo ${HX_A-none} $HX_B'")).stdout
        == "a b c\nnone c\n"
    )
    completed(await ctx.run_shell("hx_f() {\n  echo in $1\n}"))
    assert completed(await ctx.run_shell("hx_f it")).stdout == "in it\n"
    assert completed(await ctx.run_shell("false"), 1).cwd in (None, "/usr")


@check("Commands run on a terminal.", "terminal")
async def commands_have_a_terminal(ctx: ExecutionContext) -> None:
    assert completed(await ctx.run_shell("test -t 0 && test -t 1 && test -t 2 && echo yes")).stdout == "yes\n"
    assert completed(await ctx.run_shell("tty </dev/tty | cut -c 1-5")).stdout == "/dev/\n"


@check(
    "What a shell does to itself does not spoil the next result: set -x, set -u, PS1, stty, clear, reset.", "terminal"
)
async def shell_settings_are_harmless(ctx: ExecutionContext) -> None:
    for command in (
        "set -u",
        "PS1='$ '",
        "PS1=",
        "PROMPT_COMMAND=",
        "stty -echo",
        "clear",
        "printf '\\033c'",
        "unset PS1",
    ):
        completed(await ctx.run_shell(command), None)
        await usable(ctx)
    completed(await ctx.run_shell("set -x"), None)
    assert completed(await ctx.run_shell("printf 'still right'")).stdout.endswith("still right")
    completed(await ctx.run_shell("set +x"), None)
    await usable(ctx)


@check("A shell that ends is reported with its code, and a fresh one takes its place with a notice.", "terminal")
async def ended_shells_are_replaced(ctx: ExecutionContext) -> None:
    for command, code in (("exit 3", 3), ("echo last; exec true", 0), ("set -e; false", 1)):
        result = await ctx.run_shell(command)
        assert (result.status, result.exit_code) == (Status.SHELL_EXITED, code), result
        await usable(ctx)


@check("A shell that is killed is reported, and a fresh one takes its place.", "terminal")
async def killed_shells_are_replaced(ctx: ExecutionContext) -> None:
    result = await ctx.run_shell("echo before; kill -9 $$")
    assert result.status in (Status.SHELL_EXITED, Status.UNKNOWN), result
    assert "before" in result.stdout, result
    await usable(ctx)


@check("The pane shows commands and output as a person would see them.", "terminal")
async def panes_can_be_captured(ctx: ExecutionContext) -> None:
    result = completed(await ctx.run_shell("echo visible-$((40 + 2))"))
    screen = await ctx.capture_pane()
    assert "echo visible-$((40 + 2))" in screen, screen
    assert "\nvisible-42\n" in screen, screen
    assert "\n\n" not in screen.rstrip("\n") or "visible" in screen
    part = await ctx.capture_pane(job_id=result.job_id)
    assert "visible-42" in part, part
    completed(await ctx.run_shell("seq 1 300"))
    assert "visible-42" not in await ctx.capture_pane()
    assert "visible-42" in await ctx.capture_pane(start="-", end="-")


@check("Keys answer a program that reads; the result is exact afterwards.", "terminal")
async def keys_answer_programs(ctx: ExecutionContext) -> None:
    for text in ("hello", "-dash", "semi;", 'it\'s "q" $HOME !', "é漢"):
        asked = await ctx.run_shell("printf 'name? '; read -r line; echo \"got:$line\"", wait=False)
        await _until_shown(ctx, "name?", asked.pane)
        await ctx.send_keys(literal_text=text, enter=True, pane=asked.pane)
        result = completed(await ctx.wait(asked.job_id or "", timeout=20))
        assert result.stdout.endswith(f"got:{text}\n"), result
        completed(await ctx.run_shell("clear", pane=asked.pane), None)


@check("A key such as C-c interrupts what runs in the pane.", "terminal")
async def keys_interrupt(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        result = await run_past_limit(ctx, directory, "sleep 300")
        assert (result.status, result.stdout) == (Status.RUNNING, "one\n"), result
        await ctx.send_keys("C-c")
        done = await ctx.wait(result.job_id or "", timeout=20)
    assert done.status in (Status.INTERRUPTED, Status.COMPLETED), done
    assert done.exit_code in (None, 130), done
    await usable(ctx)


@check(
    "An interactive program is reported as running, answers to keys, and gives an exact result at its end.", "terminal"
)
async def interactive_programs(ctx: ExecutionContext) -> None:
    if not ctx.capabilities.has("python3"):
        return
    running = await ctx.run_shell("python3 -q", timeout=0.5)
    assert running.status is Status.RUNNING, running
    await _until_shown(ctx, ">>>")
    await ctx.send_keys(literal_text="print(6 * 7)", enter=True)
    await _until_shown(ctx, "\n42")
    await ctx.send_keys(literal_text="raise SystemExit(5)", enter=True)
    completed(await ctx.wait(running.job_id or "", timeout=20), 5)
    await usable(ctx)


async def _until_shown(ctx: ExecutionContext, text: str, pane: str | None = None) -> None:
    async def shown() -> bool:
        return text in await ctx.capture_pane(pane=pane)

    await until(shown, f"the screen shows {text!r}")


@check("A pane that a job holds is PaneBusy, which says so; it is free again when the job ends.", "terminal")
async def busy_panes_are_refused(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        job = await ctx.run_shell(gate(directory), timeout=0.5)
        assert job.status is Status.RUNNING, job
        error = await refused(ctx.run_shell("true"), PaneBusy)
        assert str(job.job_id) in str(error) or "job" in str(error), error
        await open_gate(ctx, directory)
        completed(await ctx.wait(job.job_id or "", timeout=20))
    await usable(ctx)


@check("A background command leaves the default pane usable.", "terminal")
async def background_commands_use_other_panes(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        job = await ctx.run_shell(f"{gate(directory)}; echo end", wait=False)
        await usable(ctx)
        await open_gate(ctx, directory)
        assert completed(await ctx.wait(job.job_id or "", timeout=20)).stdout == "end\n"


@check(
    "Panes are created, used, listed and killed; each has a shell of its own; the default one is protected.", "terminal"
)
async def panes_are_managed(ctx: ExecutionContext) -> None:
    default = [pane for pane in await ctx.list_panes() if pane.default]
    assert len(default) == 1, default
    made = await ctx.create_pane("extra", cwd="/usr")
    assert (made.name, made.default) == ("extra", False), made
    assert completed(await ctx.run_shell("pwd", pane="extra")).stdout == "/usr\n"
    completed(await ctx.run_shell("HX_HERE=extra", pane="extra"))
    assert completed(await ctx.run_shell("echo ${HX_HERE-unset}")).stdout == "unset\n"
    assert completed(await ctx.run_shell("echo $HX_HERE", pane="extra")).pane == "extra"
    assert {pane.name for pane in await ctx.list_panes()} >= {"extra", default[0].name}
    await refused(ctx.create_pane("extra"), TerminalError)
    await refused(ctx.kill_pane(default[0].name), TerminalError)
    await ctx.kill_pane("extra")
    assert "extra" not in {pane.name for pane in await ctx.list_panes()}
    await refused(ctx.run_shell("true", pane="extra"), PaneGone)
    await usable(ctx)


@check("Commands in several panes at once do not mix.", "terminal")
async def panes_work_side_by_side(ctx: ExecutionContext) -> None:
    names = ("one", "two")
    for name in names:
        await ctx.create_pane(name)
    results: dict[str, ShellResult] = {}

    async def run(name: str) -> None:
        script = f"for i in $(seq 1 2000); do echo {name}-$i; done"
        results[name] = completed(await ctx.run_shell(script, pane=name))

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(run, name)
    for name in names:
        assert results[name].stdout == "".join(f"{name}-{number}\n" for number in range(1, 2001)), name


@check("The number of panes is limited, and the error says so.", "terminal")
async def panes_are_limited(ctx: ExecutionContext) -> None:
    error: Exception | None = None
    for number in range(30):
        try:
            await ctx.create_pane(f"p{number}")
        except TerminalError as raised:
            error = raised
            break
    assert error is not None, "thirty panes were allowed"
    await usable(ctx)


@check("Sessions are listed, and the one in use is protected.", "terminal")
async def sessions_are_managed(ctx: ExecutionContext) -> None:
    sessions = await ctx.list_sessions()
    assert len(sessions) == 1, sessions
    await refused(ctx.kill_session(sessions[0].name), TerminalError)
    await usable(ctx)


@check("The command for an operator to attach is a list of words, with a read-only variant.", "terminal")
async def operators_can_attach(ctx: ExecutionContext) -> None:
    words = ctx.attach_command
    text = " ".join(words)
    assert words, words
    assert "tmux" in text, text
    assert "attach" in text, text
    assert ctx.attach_command_read_only != words


@check("Commands cannot learn the terminal's secrets from their environment or their shell's options.", "terminal")
async def nonces_are_not_exported(ctx: ExecutionContext) -> None:
    marked = completed(await ctx.run_shell("printf '\\033]133;D;0;%s;1\\007' guess; (exit 8)"), 8)
    assert marked.stdout_bytes == b"\x1b]133;D;0;guess;1\x07", marked
    names = completed(await ctx.run_shell("sh -c 'env | cut -d = -f 1'")).stdout.lower()
    assert "nonce" not in names, names
