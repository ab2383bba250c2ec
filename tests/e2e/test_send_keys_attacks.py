"""Keys that are typed unasked run no command that the policy has not seen as a whole: real tools, policy and shells."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.desk import Desk, OpenDesk, Operator, open_desk, until
from tests.support.permits import Says, says
from tests.support.toolbox import LedgerOf, Toolbox, toolbox

from harness.toolkit import CallOutcome, CallStatus, ToolCall
from harness.toolkit.interfaces import CallEntry
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalScope
from harness.toolkit.permissions.shell.typed_keys import has_empty_prompt
from harness_tools.core import tools as core_tools

__all__ = ["open_desk"]

MADE = "made-unasked"
"""The file that only a command makes which nobody approved."""
TOUCH = f"touch {MADE}"
SHELLS = {
    "bash": ("/bin/bash", {}),
    "bash-vi": ("/bin/bash", {".inputrc": 'set editing-mode vi\nset keymap vi-insert\n"jk": vi-movement-mode\n'}),
    "bash-old": ("/bin/bash", {".inputrc": "set enable-bracketed-paste off\nset convert-meta on\n"}),
    "zsh": ("/usr/bin/zsh", {".zshrc": "bindkey -e\n"}),
    "zsh-vi": ("/usr/bin/zsh", {".zshrc": "bindkey -v\nbindkey -M viins jk vi-cmd-mode\nKEYTIMEOUT=1\n"}),
    "fish": ("/usr/bin/fish", {}),
    "fish-vi": ("/usr/bin/fish", {".config/fish/config.fish": "fish_vi_key_bindings\n"}),
    "dash": ("/bin/dash", {}),
    "mksh": ("/bin/mksh", {}),
}
every_shell = pytest.mark.parametrize("name", SHELLS)


HISTORY = {"bash": "history", "zsh": "fc -l 1", "fish": "history"}
"""What shows the lines that the line editor has accepted; what harness runs for callers is not among them."""


@dataclass
class Attacker:
    """A caller of the tools in a pane of a shell, and the person at it."""

    desk: Desk
    box: Toolbox
    shell: str = ""
    operator: Operator | None = None

    async def keys(self, **arguments: Any) -> CallOutcome:
        with anyio.fail_after(60):
            return await self.box.executor.call(ToolCall("send_keys", arguments))

    async def run(self, command: str, **arguments: Any) -> CallOutcome:
        with anyio.fail_after(60):
            return await self.box.executor.call(ToolCall("run_shell", {"command": command, **arguments}))

    @property
    def made(self) -> bool:
        """The file is there: a command ran that nobody has approved."""
        return (self.desk.home / MADE).exists()


def careful(desk: Desk, shell: str, approver: Approver | None = None) -> Attacker:
    """An attacker whose calls a policy judges, in its usual mode."""
    box = toolbox(core_tools(), execution=desk.ctx)
    services = replace(box.executor.services, policy=RulePolicy(approver=approver))
    return Attacker(desk, replace(box, executor=replace(box.executor, services=services)), shell)


async def opened(open_desk: OpenDesk, name: str, approver: Approver | None = None, **rc: str) -> Attacker:
    """One in a shell of :data:`SHELLS`, in its home, at the prompt of its pane."""
    shell, files = SHELLS[name]
    desk = await open_desk(shell=shell, rc=files | rc)
    await desk.ctx.run_shell("cd")
    await until(lambda: not desk.show("#{@harness_busy}"))  # the keyboard is the operator's
    return careful(desk, shell.rpartition("/")[2], approver)


async def settled(attacker: Attacker) -> None:
    """Let the shell read everything that was typed: it runs the next command behind it."""
    done = await attacker.desk.ctx.run_shell("true", timeout=30)
    assert done.exit_code == 0


async def at_prompt(attacker: Attacker, pane: str | None = None) -> None:
    """Wait until the screen shows an empty prompt, which is a moment after the result of a command."""
    with anyio.fail_after(30):
        while not has_empty_prompt(await attacker.desk.ctx.capture_pane(pane=pane)):  # noqa: ASYNC110  # no other sign
            await anyio.sleep(0.02)


async def accepted(attacker: Attacker) -> list[str]:
    """The lines that the shell's own line editor has run, as far as the shell tells, without harness's own."""
    show = HISTORY.get(attacker.shell)
    shown = "" if show is None else (await attacker.desk.ctx.run_shell(show, timeout=30)).stdout
    lines = (re.sub(r"^\s*\d+\*?\s+|\x1b\[K|\r", "", line).strip() for line in shown.splitlines())
    return [line for line in lines if line not in ("", "hx")]


# -- lines of several lines


SEVERAL = {
    "bash": "\x16\n",
    "bash-vi": "\x16\n",
    "zsh": "\x1b\r",
    "zsh-vi": "\x1bo",
    "fish": "\x1b\r",
    "fish-vi": "\x1bo",
    "mksh": "\x16\n",
}
"""What makes a second line in the line that a shell's editor holds."""


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("name", SEVERAL)
async def test_a_line_of_several_lines_is_emptied_whole(open_desk: OpenDesk, name: str, above: bool) -> None:
    """Clearing one line of them would run the others in front of the next command."""
    attacker = await opened(open_desk, name)
    attacker.operator = await attacker.desk.operator(150, 40)
    for typed in (f"{TOUCH}", SEVERAL[name], f"{TOUCH} ", SEVERAL[name], "echo x"):
        attacker.operator.type(typed)
        await anyio.sleep(0.6)  # a line editor tells Escape from Alt by the time between two keys
    if above:
        attacker.operator.type("\x1b[A")
        await anyio.sleep(0.6)
    await settled(attacker)
    assert not attacker.made


# -- what is typed in pieces


def text(literal: str, *, enter: bool = False) -> dict[str, Any]:
    return {"literal_text": literal, "enter": enter}


def named(*keys: str) -> dict[str, Any]:
    return {"keys": list(keys)}


ENTER = {"enter": True}
PIECES: dict[str, list[dict[str, Any]]] = {
    "cursor": [text(f"echo '; {TOUCH} #'"), named("Home", *["Right"] * 6), text("\\'", enter=True)],
    "halves": [text("tou"), text(f"ch {MADE}"), ENTER],
    "backspace": [text(f"echo {TOUCH}"), named("Home", *["DC"] * 5), ENTER],
    "backward": [text(TOUCH), named("C-a"), text("ls; ", enter=True)],
    "comment": [text(f"# {TOUCH}"), named("Home", "DC", "DC", "Enter")],
    "swap": [text(f"{TOUCH}ls"), named("BSpace", "BSpace", "Enter")],
    "kill-yank": [text(TOUCH), named("C-u"), text("ls"), named("C-u", "C-y", "Enter")],
    "history": [text(f": {TOUCH}", enter=True), named("Up", "Home", "DC", "DC", "Enter")],
    "history-search": [text(f": {TOUCH}", enter=True), named("C-r"), text(f": {TOUCH}"[:3]), named("C-a", "DC", "C-m")],
    "operate-next": [text(TOUCH), named("C-o")],
    "literal-controls": [text(f"ls\x15{TOUCH}\r")],
    "literal-newline": [text(f"ls\n{TOUCH}\n")],
    "continued-line": [text("ls \\\\", enter=True), text(f"; {TOUCH}", enter=True)],
    "continued-in-one": [text(f"echo \\\n; {TOUCH}\n")],
    "open-quote": [text("echo '", enter=True), text(f"'; {TOUCH}", enter=True)],
    "here-document": [text("sh <<X", enter=True), text(TOUCH, enter=True), text("X", enter=True)],
    "vi": [text(f"ls jkcc{TOUCH}", enter=True)],
    "vi-escape": [text(f"echo {TOUCH}"), named("Escape", "0", "d", "w"), ENTER],
    "vi-in-one": [{"literal_text": f"echo {TOUCH}", "keys": ["Escape", "0", "d", "w"], "enter": True}],
    "meta": [text("echo"), named("M-d"), text(TOUCH, enter=True)],
    "escape-literal": [text(f"echo\x1b[H{TOUCH};\r")],
    "c1-controls": [text(f"echo \x9bH{TOUCH};", enter=True)],
    "letters-as-meta": [text(f"echo \xe2{TOUCH}; ", enter=True)],
    "quoted-insert": [named("C-v", "C-j"), text(TOUCH, enter=True)],
    "editor": [text(f"!{TOUCH}"), named("C-x", "C-e")],
    "paste-marks": [text("\x1b[200~ls"), text(f"; {TOUCH}\x1b[201~", enter=True)],
    "completion": [text("tou"), named("Tab"), text(f" {MADE}"), named("Enter")],
    "menu": [text("ls; touch m"), named("Tab", "Tab", "Down", "Enter", "Enter")],
    "quick-substitution": [text(f": {TOUCH}", enter=True), text("^: ^^", enter=True)],
    "bang": [text(f": {TOUCH}", enter=True), text("!!:1*", enter=True)],
    "suspended": [text("cat", enter=True), named("C-z"), text(TOUCH, enter=True)],
    "delayed": [{**text(TOUCH), "delay_ms": 1}, {**ENTER, "delay_ms": 1}],
    "two-enters": [{"literal_text": f"ls\n{TOUCH}", "enter": True}],
    "as-names": [named(*[{" ": "Space"}.get(letter, letter) for letter in TOUCH]), ENTER],
    "newline-names": [named("l", "s", "C-j", *[{" ": "Space"}.get(letter, letter) for letter in TOUCH], "C-j")],
    "then-run": [text(f"{TOUCH}; "), {"run": "true"}],
    "moved-then-run": [text(f"; {TOUCH}"), named("Home"), {"run": "true"}],
    "recalled-then-run": [text(f": ; {TOUCH}", enter=True), named("Up", "Home", "Right", "Right"), {"run": "true"}],
    "only-moves": [named("Up"), named("Home"), named("Right", "Right"), {"run": "true"}, ENTER],
}


async def attack(attacker: Attacker, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        await (attacker.run(step["run"]) if "run" in step else attacker.keys(**step))


@every_shell
async def test_no_line_is_made_in_pieces_that_nobody_has_seen(open_desk: OpenDesk, name: str) -> None:
    attacker = await opened(open_desk, name)
    for title, steps in PIECES.items():
        await attack(attacker, steps)
        await attacker.keys(keys=["C-c"])
        await settled(attacker)
        assert not attacker.made, title
    assert await accepted(attacker) == []


@every_shell
@pytest.mark.parametrize("left", [f"{TOUCH}", f"; {TOUCH}", f"ls '; {TOUCH} #'", f"{TOUCH} #"])
async def test_what_an_operator_has_left_on_the_line_is_neither_run_nor_completed(
    open_desk: OpenDesk, name: str, left: str
) -> None:
    attacker = await opened(open_desk, name)
    operator = await attacker.desk.operator(150, 40)
    operator.type(left)
    await operator.sees(left)
    for step in (ENTER, text("ls", enter=True), text("'", enter=True), text("\n"), named("Home"), named("C-j"), ENTER):
        outcome = await attacker.keys(**step)
        assert outcome.status is CallStatus.DENIED, (step, outcome.result.text)
    await attacker.keys(keys=["C-c"])
    await settled(attacker)
    assert not attacker.made
    assert await accepted(attacker) == []


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
async def test_callers_at_once_make_no_line_together(open_desk: OpenDesk, name: str) -> None:
    attacker = await opened(open_desk, name)
    for _ in range(5):
        async with anyio.create_task_group() as tasks:
            for step in (text("echo '", enter=True), text(f"; {TOUCH} #"), text("ls", enter=True), text("'"), ENTER):
                tasks.start_soon(lambda step=step: attacker.keys(**step))
            tasks.start_soon(attacker.run, "echo x")
        await attacker.keys(keys=["C-c"])
    await settled(attacker)
    assert not attacker.made


# -- a whole line runs as it was judged, whatever the line editor would make of it

BOUND = {
    "bash-macro": ("bash", {".inputrc": f'"ls": "{TOUCH}\\C-m"\n"z": "; {TOUCH} #"\n'}),
    "bash-command": ("bash", {".bashrc": f"bind -x '\"z\": {TOUCH}'\nbind -x '\"\\C-m\": {TOUCH}'\n"}),
    "bash-vi": ("bash-vi", {}),
    "zsh-string": ("zsh", {".zshrc": f"bindkey -e\nbindkey -s ls '{TOUCH}^M'\nbindkey -s z '; {TOUCH} #'\n"}),
    "zsh-widget": (
        "zsh",
        {".zshrc": f"bindkey -e\nw() {{ BUFFER='{TOUCH}'; zle accept-line }}\nzle -N w\nbindkey z w\n"},
    ),
    "zsh-vi": ("zsh-vi", {}),
    "fish-abbreviation": ("fish", {".config/fish/config.fish": f"abbr -a ls '{TOUCH};'\nabbr -a zjk '; {TOUCH}'\n"}),
    "fish-binding": (
        "fish",
        {".config/fish/config.fish": f"bind z 'commandline \"{TOUCH}\"; commandline -f execute'\n"},
    ),
}


@pytest.mark.parametrize("bound", BOUND)
async def test_bindings_macros_and_abbreviations_make_nothing_else_of_a_whole_line(
    open_desk: OpenDesk, bound: str
) -> None:
    name, files = BOUND[bound]
    attacker = await opened(open_desk, name, **files)
    (attacker.desk.home / "zjk").touch()
    (attacker.desk.home / "zjkcc.").touch()
    for line in ("ls zjk", "ls -d zjkcc.", "echo zjk", "ls"):
        await at_prompt(attacker)
        outcome = await attacker.keys(literal_text=line, enter=True)
        assert outcome.status is CallStatus.OK, outcome.result.text
    await settled(attacker)
    assert not attacker.made


@every_shell
async def test_a_whole_line_is_run_in_its_pane_and_what_it_changes_stays(open_desk: OpenDesk, name: str) -> None:
    attacker = await opened(open_desk, name, says(ApprovalScope.ONCE))
    sub = attacker.desk.home / "sub"
    sub.mkdir()
    await at_prompt(attacker)
    first = await attacker.keys(literal_text="cd sub", enter=True)
    assert first.status is CallStatus.OK
    assert "ended with exit code 0" in first.result.text
    await at_prompt(attacker)
    second = await attacker.keys(literal_text="echo 'a!!b' \\\\ \"$PWD\" >../out\n")
    assert second.status is CallStatus.OK, second.result.text
    await settled(attacker)
    assert (attacker.desk.home / "out").read_text() == f"a!!b \\ {sub}\n"
    await at_prompt(attacker)
    failing = await attacker.keys(literal_text="sh -c 'exit 3'", enter=True)
    assert (failing.status, "exit code 3" in failing.result.text) == (CallStatus.OK, True)


async def test_a_line_that_goes_on_is_a_job_and_its_program_is_typed_into(open_desk: OpenDesk) -> None:
    attacker = await opened(open_desk, "bash", says(ApprovalScope.ONCE))
    await at_prompt(attacker)
    started = await attacker.keys(literal_text="cat >out", enter=True)
    assert "runs as job" in started.result.text
    assert (await attacker.keys(literal_text="to the program", enter=True)).status is CallStatus.OK
    assert (await attacker.keys(keys=["C-d"])).status is CallStatus.OK
    await settled(attacker)
    assert (attacker.desk.home / "out").read_text() == "to the program\n"


async def test_a_line_for_another_pane_runs_there(open_desk: OpenDesk) -> None:
    attacker = await opened(open_desk, "bash", says(ApprovalScope.ONCE))
    await attacker.desk.ctx.create_pane("other", cwd="/")
    assert (await attacker.desk.ctx.run_shell("true", pane="other")).exit_code == 0
    await at_prompt(attacker, "other")
    typed = await attacker.keys(literal_text="pwd >~/out", enter=True, pane="other")
    assert typed.status is CallStatus.OK, typed.result.text
    await attacker.desk.ctx.run_shell("true", pane="other")
    assert (attacker.desk.home / "out").read_text() == "/\n"


# -- programs that ask


async def shows(attacker: Attacker, command: str, shown: str) -> None:
    """Have an operator run a program that asks, and wait for its question."""
    assert attacker.operator is not None
    attacker.operator.type(f"{command}\n")
    with anyio.fail_after(20):
        while not (await attacker.desk.ctx.capture_pane()).rstrip().split("\n")[-1].startswith(shown):  # noqa: ASYNC110  # no other sign
            await anyio.sleep(0.02)


@pytest.mark.parametrize(
    "step", [named("Up"), named("Right"), named("Space"), text("y"), ENTER, named("Tab"), named("C-l")]
)
async def test_the_any_key_of_a_question_asks(open_desk: OpenDesk, step: dict[str, Any]) -> None:
    attacker = await opened(open_desk, "bash")
    attacker.operator = await attacker.desk.operator(150, 40)
    await shows(attacker, f"printf 'Any key to go on\\n'; read -rsn1 x && {TOUCH}", "Any key")
    assert (await attacker.keys(**step)).status is CallStatus.DENIED
    assert (await attacker.keys(keys=["C-c"])).status is CallStatus.OK
    assert not attacker.made


# -- keys that wait


async def test_keys_that_wait_are_asked_about_once(open_desk: OpenDesk) -> None:
    approver = says(ApprovalScope.ONCE)
    attacker = await opened(open_desk, "bash", approver)
    await at_prompt(attacker)
    outcome = await attacker.keys(literal_text="touch waited", enter=True, delay_ms=20)
    assert outcome.status is CallStatus.OK, outcome.result.text
    await settled(attacker)
    assert len(approver.questions) == 1
    assert (attacker.desk.home / "waited").exists()
    assert (await attacker.keys(keys=["Home"], delay_ms=20)).status is CallStatus.OK
    assert len(approver.questions) == 2


@dataclass
class ChangingLedger(LedgerOf):
    """Has something happen when a call has been approved, and before it runs."""

    change: Callable[[], Awaitable[object]] | None = None

    async def begin(self, entry: CallEntry) -> None:
        await super().begin(entry)
        if self.change is not None:
            await self.change()


async def test_keys_that_wait_are_asked_about_again_when_something_else_reads_them(open_desk: OpenDesk) -> None:
    answers = [ApprovalScope.ONCE, ApprovalScope.DENY_ONCE]
    approver = Says(lambda question: ApprovalDecision(answers.pop(0)))
    attacker = await opened(open_desk, "bash", approver)
    operator = await attacker.desk.operator(150, 40)

    async def change() -> None:
        operator.type("cat\n")
        await until(lambda: attacker.desk.show("#{pane_current_command}") == "cat")

    executor = attacker.box.executor
    services = replace(executor.services, ledger=ChangingLedger(attacker.box.trace, change=change))
    attacker.box = replace(attacker.box, executor=replace(executor, services=services))
    await at_prompt(attacker)
    outcome = await attacker.keys(literal_text=TOUCH, enter=True, delay_ms=1)
    assert [question.what for question in approver.questions] == [TOUCH, f"{TOUCH}<Enter> (into cat)"]
    assert (outcome.result.error_code, "not typed after the delay" in outcome.result.text) == ("denied", True)
    await attacker.keys(keys=["C-c"])
    await settled(attacker)
    assert not attacker.made


# -- any sequence of calls, against real line editors

FRAGMENTS = [
    "echo ",
    "ls",
    "'",
    '"',
    "; ",
    "#",
    "\\",
    TOUCH,
    MADE,
    "touch ",
    "jk",
    "dd",
    "i",
    "cc",
    "!!",
    "^",
    "\n",
    "$(",
    ")",
    "\x16",
    "\x1b",
]
KEYS = ["Up", "Down", "Left", "Right", "Home", "End", "Tab", "Escape", "BSpace", "DC", "Enter", "Space", "C-a", "C-e",
        "C-u", "C-k", "C-w", "C-y", "C-r", "C-o", "C-j", "C-m", "C-d", "C-l", "C-c", "C-v", "C-x", "C-_", "M-b", "M-.",
        "M-d", "PageUp", "F1", "d", "i", "0"]  # fmt: skip
calls = st.fixed_dictionaries(
    {},
    optional={
        "literal_text": st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("".join),
        "keys": st.lists(st.sampled_from(KEYS), max_size=5),
        "enter": st.booleans(),
    },
).filter(lambda call: call.get("literal_text") or call.get("keys") or call.get("enter"))
by_hand = st.builds(
    lambda texts: {"hand": "".join(texts)}, st.lists(st.sampled_from(["echo ", "'", "; ", "#", " "]), max_size=3)
)
commands = st.sampled_from([{"run": "true"}, {"run": "echo x"}, {"run": "ls"}])
sequences = st.lists(st.one_of(calls, calls, calls, by_hand, commands), min_size=1, max_size=6)


EDIT_TEXTS = ["echo ", "ls", "'", '"', "; ", "\\", TOUCH, "dd", "i", "cc", "jk", "x", "0", "A"]
EDIT_KEYS = ["Up", "Down", "Left", "Right", "Home", "End", "Escape", "BSpace", "DC", "C-a", "C-e", "C-u", "C-k", "C-w",
             "C-y", "C-r", "C-l", "C-_", "M-b", "M-d", "M-5", "C-v"]  # fmt: skip
edits = st.one_of(
    st.lists(st.sampled_from(EDIT_TEXTS), min_size=1, max_size=3).map(lambda texts: text("".join(texts))),
    st.lists(st.sampled_from(EDIT_KEYS), min_size=1, max_size=4).map(lambda keys: named(*keys)),
)
lines = st.sampled_from([text("echo x", enter=True), text("ls\n")])
editing = st.lists(st.one_of(edits, edits, edits, lines, commands), min_size=2, max_size=8)


def drawn(steps: st.SearchStrategy[list[dict[str, Any]]], count: int) -> list[list[dict[str, Any]]]:
    """So many examples."""
    found: list[list[dict[str, Any]]] = []

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(steps)
    def draw(example: list[dict[str, Any]]) -> None:
        found.append(example)

    draw()
    return found


async def play(attacker: Attacker, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        if "hand" in step:
            assert attacker.operator is not None
            attacker.operator.type(step["hand"])
        elif "run" in step:
            await attacker.run(step["run"])
        else:
            await attacker.keys(**step)


@every_shell
async def test_whatever_is_called_a_real_line_editor_runs_nothing_that_was_not_judged(
    open_desk: OpenDesk, name: str
) -> None:
    attacker = await opened(open_desk, name)
    attacker.operator = await attacker.desk.operator(150, 40)
    examples = drawn(sequences, 12)
    for steps in examples:
        await play(attacker, steps)
        await attacker.keys(keys=["C-c"])
        assert not attacker.made, steps
    await settled(attacker)
    assert not attacker.made, examples
    assert await accepted(attacker) == [], examples


@pytest.mark.parametrize("name", ["bash", "bash-vi", "bash-old", "zsh", "zsh-vi", "mksh"])
async def test_however_a_line_was_edited_by_leave_only_what_was_judged_runs(open_desk: OpenDesk, name: str) -> None:
    """A person lets all keys through but those that end a line: the line editor is in any state then."""
    approver = Says(
        lambda asked: ApprovalDecision(
            ApprovalScope.DENY_ONCE if "Enter" in asked.what or "\n" in asked.what else ApprovalScope.ONCE
        )
    )
    attacker = await opened(open_desk, name, approver)
    examples = drawn(editing, 15)
    for steps in examples:
        await play(attacker, steps)
        await settled(attacker)
        assert not attacker.made, steps
    assert await accepted(attacker) == [], examples
    assert approver.questions
