"""Users redefine, disable or alias the words that the hooks use: a command runs as it should, or is not told as run."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass

import anyio
import pytest
from tests.support.pane_shells import PANE_SHELLS, PaneShell, open_pane_shell

from harness.errors import HarnessError, PaneGone

pytestmark = pytest.mark.usefixtures("needs_tmux")

WORDS = "alias builtin cd command eval export local print printf read return set setopt source test trap typeset unset"
FUNCTIONS = [f"{word}() {{ return 0; }}" for word in WORDS.split()]
MORE = {
    "bash": [
        "[() { return 1; }",
        ".() { :; }",
        ":() { return 1; }",
        "alias .=true",
        "enable -n .",
        "enable -n eval",
        "enable -n . eval",
        "enable -n builtin",
        "enable -n printf",
        "enable -n read",
        "enable -n trap",
        "readonly PS1=x",
        "readonly PS0=x",
        "readonly PS1 PS2 PROMPT_COMMAND",
        "readonly hxi",
        "alias if=echo case=echo '[[=echo'",
    ],
    "zsh": [
        "[() { return 1; }",
        ".() { :; }",
        ":() { return 1; }",
        "alias .=true",
        "disable .",
        "disable eval",
        "disable builtin",
        "disable -r if",
        "readonly PS1=x",
        "readonly PROMPT",
        "readonly -a precmd_functions",
        "alias -g hxa=x",
    ],
    "dash": ["alias .=true", "readonly PS1", "readonly PS1 PS2", "readonly hxi"],
    "busybox": ["alias .=true", "readonly PS1", "readonly PS1 PS2"],
    "mksh": ["alias .=true", "readonly PS1=x", "readonly PS1"],
    "fish": [f"function {word}; end" for word in ("printf", "source", "cd", "functions", "builtin", "test")],
}
WORKS = {"bash": (".() { :; }", "enable -n .", "cd() { return 0; }", "eval() { return 0; }", "readonly PS1=x")}
HARMLESS = ":"
"""A case that shows that commands run at all in the panes of these cases."""
CASES = {shell: [HARMLESS, *MORE[shell], *(FUNCTIONS if shell != "fish" else [])] for shell in PANE_SHELLS}
PANES_AT_ONCE = 4
LIMIT = 4.0
WORKS_LIMIT = 60.0


@dataclass
class Case:
    """A word that was made to do something else, in a pane of its own."""

    shell: PaneShell
    pane: str
    text: str

    @property
    def works(self) -> bool:
        """Commands run all the same."""
        return self.text in (HARMLESS, *WORKS.get(self.shell.shell, ()))

    async def told(self, command: str, cwd: str | None = None) -> tuple[str, int | None, str]:
        """What is told of a command: the status, the code and the output, or the kind of the error."""
        timeout = WORKS_LIMIT if self.works else LIMIT
        try:
            result = await self.shell.ctx.run_shell(command, timeout=timeout, cwd=cwd, pane=self.pane)
        except HarnessError as error:
            return type(error).__name__, None, ""
        return str(result.status), result.exit_code, result.stdout

    async def check(self) -> None:
        """A command is told as completed only if it ran, once, where it should."""
        path, wrong = self.shell.home / f"{self.pane}-ran", self.shell.home / f"{self.pane}-wrong"
        await self.shell.ctx.create_pane(self.pane)
        await self.told(self.text)
        first = await self.told(f"/bin/echo a | /usr/bin/tee -a {path}; sh -c 'exit 3'")
        there = await self.told("/bin/pwd", cwd="/usr")
        missing = await self.told(f"/usr/bin/touch {wrong}", cwd="/no/such/place")
        ran = path.read_text() if path.exists() else ""
        assert first == ("completed", 3, "a\n") if first[0] == "completed" else ran in ("", "a\n"), first
        assert first[0] != "completed" or ran == "a\n"
        assert there[0] != "completed" or there == ("completed", 0, "/usr\n")
        assert missing[0] != "completed"
        assert not wrong.exists()
        if self.works:
            assert (first[0], there[0], missing[0]) == ("completed", "completed", "FileNotFound")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_a_command_is_completed_only_when_it_ran(shell: str) -> None:
    """Each case has a shell of its own, which it spoils; the terminal is opened once."""
    wrong: list[tuple[str, str]] = []
    async with open_pane_shell(shell) as pane:
        cases = iter([Case(pane, f"case{number}", text) for number, text in enumerate(CASES[shell])])

        async def check() -> None:
            for case in cases:
                try:
                    await case.check()
                    with suppress(PaneGone):
                        await pane.ctx.kill_pane(case.pane)
                except (AssertionError, HarnessError) as error:
                    wrong.append((case.text, str(error)))

        async with anyio.create_task_group() as tasks:
            for _ in range(PANES_AT_ONCE):
                tasks.start_soon(check)
    assert wrong == []


@pytest.mark.parametrize("start_up", ["readonly PS1='corp> '", "PS0=''; readonly PS0", ".() { :; }", "alias case=echo"])
async def test_a_start_up_file_may_do_so_too(start_up: str) -> None:
    async with open_pane_shell("bash", f"{start_up}\n") as pane:
        await pane.gives("echo a; (exit 3)", "a\n", 3)
        await pane.gives("echo b", "b\n")


@pytest.mark.parametrize("shell", [shell for shell in PANE_SHELLS if shell != "fish"])
async def test_line_numbers_are_the_commands_own(shell: str) -> None:
    async with open_pane_shell(shell) as pane:
        if shell != "dash":  # Debian's does not know it
            await pane.gives("echo $LINENO\necho $LINENO", "1\n2\n")
        wrong = await pane.run("echo one\nno-such-command")
        assert "3" not in wrong.stdout.partition(".sh")[2], wrong


TRAPS = {
    "DEBUG": "echo a; echo b",
    "ERR": "false; echo c; false",
    "RETURN": "f() { :; }; f; echo d",
    "EXIT": "echo e",
}


@pytest.mark.parametrize("name", TRAPS)
async def test_traps_see_the_users_commands_alone(name: str) -> None:
    command, sets = TRAPS[name], f"trap 'echo {name}' {name}"
    async with open_pane_shell("bash") as pane:
        await pane.run(sets)
        for _ in range(2):
            wanted = subprocess.run(["bash", "-c", f"{sets}\n{command}\ntrap - EXIT"], capture_output=True, text=True)
            got = await pane.run(command)
            without_last = wanted.stdout.removesuffix("DEBUG\n") if name == "DEBUG" else wanted.stdout
            assert got.stdout == without_last
        await pane.run(f"trap - {name}")
        plain = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        await pane.gives(command, plain.stdout, plain.returncode)


async def test_a_trap_stays_after_a_command_with_a_directory_of_its_own() -> None:
    async with open_pane_shell("bash", "trap 'echo ERR' ERR\n") as pane:
        there = await pane.ctx.run_shell("pwd", cwd="/usr", timeout=10)
        assert (there.stdout, there.exit_code) == ("/usr\n", 0)
        await pane.gives("(exit 4)", "ERR\n", 4)
        await pane.gives("echo $?; trap -p ERR", "4\ntrap -- 'echo ERR' ERR\n")
