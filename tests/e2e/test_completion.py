"""Completion in real shells at a real terminal, and of names on a target to which harness is connected already."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.support.fish_home import let_fish_start_at_once
from tests.support.program import Program

from harness.operate import target_names

pytestmark = pytest.mark.real_starts

SHELLS = ["bash", "zsh", "fish"]
PROMPT = "ready> "
HOSTILE = ["ev$(touch${IFS}pwned)il", "ev`touch${IFS}pwned`il", "ev;touch${IFS}pwned", "ev~&|<>il", "ev'il"]


class Terminal:
    """An interactive shell at a terminal, with the completion of harness."""

    def __init__(self, shell: str, program: Program) -> None:
        let_fish_start_at_once(program.home)
        start = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--private"]}[shell]
        path = f"{Path(program.path).parent}:{os.environ['PATH']}"
        environ = {**program.environ, "PATH": path, "TERM": "xterm", "COLUMNS": "200"}
        self.child = pexpect.spawn(
            shell,
            [*start, "-i"],
            cwd=str(program.home),
            env=environ,  # type: ignore[arg-type]  # its stubs want os.environ
            timeout=20,
            encoding="utf-8",
            dimensions=(40, 200),
        )
        self.child.delaybeforesend = None
        setup = {
            "bash": f"bind 'set enable-bracketed-paste off'; PS1='{PROMPT}'; eval \"$(harness completion bash)\"",
            "zsh": "unsetopt zle_bracketed_paste prompt_sp; bindkey -e; autoload -U compinit; compinit -u -D;"
            f" PS1='{PROMPT}'; eval \"$(harness completion zsh)\"",
            "fish": f"function fish_prompt; echo -n '{PROMPT}'; end; set fish_greeting;"
            " harness completion fish | source",
        }[shell]
        self.run(setup)

    def run(self, line: str) -> str:
        """Run a line and return what it printed."""
        mark = uuid.uuid4().hex
        self.child.send(f"{line}; echo {mark[:9]}''{mark[9:]}\r")
        self.child.expect_exact(mark)
        output = self.child.before or ""
        self.child.expect_exact(PROMPT)
        return output

    def complete(self, line: str) -> str:
        """Complete a line with Tab, and return it as one shell's words: what a program would get as arguments."""
        mark = uuid.uuid4().hex
        self.child.send(f"{line}\t")
        self._settle()
        self.child.send(f"\x01 printf '<%s>' {mark[:9]}''{mark[9:]} \x05\r")
        self.child.expect(f"<{mark}>(.*?)\r?\n?(?:\x1b[^r]*)*{PROMPT}")
        match = self.child.match
        assert isinstance(match, re.Match)
        return str(re.sub(r"\x1b(\[[^a-zA-Z]*[a-zA-Z]|\].*?\x07|[()>=].?)", "", match[1])).replace("\u23ce", "").strip()

    def _settle(self) -> None:
        """Wait until the shell runs no program for the completion, has redrawn the line and is silent."""
        children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children")
        deadline = time.monotonic() + 30
        quiet = 0
        while quiet < 3 and time.monotonic() < deadline:
            try:
                self.child.read_nonblocking(4096, timeout=0.4)
                quiet = 0
            except pexpect.TIMEOUT:
                quiet = 0 if children.read_text() else quiet + 1


@pytest.fixture(params=SHELLS)
def terminal(request: pytest.FixtureRequest, program: Program) -> Iterator[Terminal]:
    """A shell of a user who knows two hosts."""
    ssh = program.home / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text("Host web1 gateway\n")
    opened = Terminal(request.param, program)
    yield opened
    opened.child.close(force=True)


def test_words_are_completed_at_a_terminal(terminal: Terminal) -> None:
    assert terminal.complete("harness comp") == "<harness><completion>"
    assert terminal.complete("harness --ssh root@gat") == "<harness><--ssh><root@gateway>"
    assert terminal.complete("harness --target ssh://gat") == "<harness><--target><ssh://gateway>"
    assert terminal.complete("harness run --hosts web1,gat") == "<harness><run><--hosts><web1,gateway>"
    assert terminal.complete("harness --engine=dock") == "<harness><--engine=docker>"


def test_files_are_completed_by_the_shell(terminal: Terminal) -> None:
    terminal.run("echo >'my file; touch pwned'")
    assert terminal.complete("harness --config my") == "<harness><--config><my file; touch pwned>"
    assert terminal.run("ls").count("pwned") == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_inert(terminal: Terminal, program: Program, name: str) -> None:
    (program.home / ".ssh/config").write_text(f"Host {name}\n")
    assert terminal.complete("harness --ssh e") == f"<harness><--ssh><{name}>"
    assert not (program.home / "pwned").exists()


def test_a_wildcard_in_a_name_means_no_files(terminal: Terminal, program: Program) -> None:
    (program.home / ".local").mkdir(exist_ok=True)
    (program.home / ".ssh/config").write_text("Host ev[a]x\n")
    (program.home / "evax").touch()
    assert terminal.complete("harness --ssh ev") == "<harness><--ssh><ev[a]x>"


def test_a_failing_program_prints_nothing_at_the_prompt(terminal: Terminal, program: Program, tmp_path: Path) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "harness").write_text("#!/bin/sh\necho BROKEN >&2; exit 3\n")
    (broken / "harness").chmod(0o755)
    fish = "fish" in str(terminal.child.args)
    terminal.run(f"set -x PATH {broken} $PATH" if fish else f"PATH={broken}:$PATH")
    terminal.child.send("harness comp\t")
    terminal._settle()
    terminal.child.send("\x15")
    assert "BROKEN" not in terminal.run("true")


# -- what the program answers


def answers(program: Program, line: str, **variables: str) -> list[str]:
    """The values that fish gets; what stands before the line in tests is inside it here."""
    words = line.split(" ", 1)
    always = " ".join(program.always)
    full = f"harness {always} {words[1]}" if always else line
    plain = Program(program.path, program.home, program.environ)
    done = plain.run(_HARNESS_COMPLETE="fish_complete", COMP_LINE=full, **variables)
    assert (done.returncode, done.stderr) == (0, b"")
    return [line.partition(",")[2].partition("\t")[0] for line in done.stdout.decode().splitlines() if line]


def test_sessions_panes_and_jobs_are_completed_over_a_running_connection(there: Program) -> None:
    there.run("--tmux", "work", "--pane", "build", "run", "--", "true")
    assert answers(there, "harness sessions kill w") == ["work"]
    assert "build" in answers(there, "harness --tmux=work panes kill ")
    listed = [row.split()[0] for row in there.run("jobs").stdout.decode().splitlines()[1:]]
    assert listed
    assert set(listed) <= set(answers(there, "harness jobs show "))


def test_without_a_connection_nothing_is_completed_and_no_login_happens(over_ssh: Program) -> None:
    assert answers(over_ssh, "harness jobs show ") == []
    assert answers(over_ssh, "harness sessions kill ") == []
    assert over_ssh.run("disconnect").stdout == b""


def test_without_a_tmux_server_none_is_started(program: Program, needs_tmux: None) -> None:
    name = f"hx-{uuid.uuid4().hex[:8]}"
    assert answers(program, "harness sessions kill ", HARNESS_TMUX_SOCKET=name) == []
    assert subprocess.run(["tmux", "-L", name, "list-sessions"], capture_output=True).returncode != 0


def test_an_engine_that_would_be_started_by_its_socket_is_not_asked(program: Program, tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(runtime / "docker.sock"))
        listener.listen()
        listener.setblocking(False)
        bin_ = tmp_path / "bin"
        bin_.mkdir()
        (bin_ / "docker").write_text(f"#!/bin/sh\necho asked >>{tmp_path}/asked\n")
        (bin_ / "docker").chmod(0o755)
        path = f"{bin_}:/usr/bin:/bin"
        if shutil.which("pgrep") and subprocess.run(["pgrep", "-x", "dockerd"], capture_output=True).returncode:
            assert answers(program, "harness --container ", PATH=path, XDG_RUNTIME_DIR=str(runtime)) == []
            assert not (tmp_path / "asked").exists()
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_completion_ends_in_time_whatever_blocks_it(program: Program) -> None:
    ssh = program.home / ".ssh"
    ssh.mkdir()
    os.mkfifo(ssh / "config")
    started = time.monotonic()
    assert answers(program, "harness --ssh ") == []
    assert time.monotonic() - started < 6


def test_ctrl_c_leaves_no_program_behind(program: Program, tmp_path: Path) -> None:
    tmux, started = tmp_path / "tmux", tmp_path / "started"
    tmux.write_text(f"#!/bin/sh\nmv {started}.new {started}\nexec sleep 98.76\n")
    tmux.chmod(0o755)
    (tmp_path / "started.new").touch()
    program.environ |= {"_HARNESS_COMPLETE": "bash_complete", "COMP_LINE": "harness panes kill ", "COMP_WORD": ""}
    program.environ["PATH"] = f"{tmp_path}:{program.environ['PATH']}"
    process = program.start()
    deadline = time.monotonic() + 10
    while not started.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # the program is the shell's, which reports nothing
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert "98.76" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def test_ctrl_c_while_a_program_starts_leaves_none_behind(needs_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class InterruptedStart(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", InterruptedStart)
    with pytest.raises(KeyboardInterrupt):
        target_names._run_here(["sleep", "98.75"])
    assert started[0].returncode == -signal.SIGKILL
