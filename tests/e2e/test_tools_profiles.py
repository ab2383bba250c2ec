"""The profiles on every backend, by the examples of the documents that they come from."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from tests.support.berths import BERTHS, Berths
from tests.support.engines import Engines
from tests.support.places import Place, a_place, open_context
from tests.support.profile_steps import Step, differences, open_unasking, step

from harness import ExecutionContext
from harness.toolkit.assembly import Toolkit

BACKENDS = [
    *("local", "local+tmux", "ssh-openssh", "ssh-openssh+tmux"),
    pytest.param("docker-busybox+tmux", marks=pytest.mark.containers),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


@pytest.fixture(scope="module")
def berths(engines: Engines) -> Iterator[Berths]:
    found = Berths(engines)
    with found.stack:
        yield found


@pytest.fixture
async def ctx(
    request: pytest.FixtureRequest, place: Place, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if backend.partition("+")[0] not in BERTHS:
        async with open_context(place, backend) as opened:
            yield opened
        return
    berths: Berths = request.getfixturevalue("berths")
    async with berths.context(backend) as opened:
        yield opened


NOTE = r"\[.*\]"

BUDDY = [
    step("run_shell", "exit code: 0\nstdout:\n512M\t/var\nstderr:\n", command="printf '512M\\t/var\\n'", wait=True),
    step("run_shell", "exit code: 3\nstdout:\nout\nstderr:\n", command="echo out; (exit 3)"),
    step("run_shell", r"^exit code: 0\nstdout:\nx{4000}\.\.\.\[truncated\]\nstderr:\n$", like=True,
         command="printf '%05000d' 0 | tr 0 x"),
    step("run_shell", "exit code: 0\nstdout:\nlate\nstderr:\n", command="echo late", wait="30s"),
    step("run_shell", "exit code: 0\nstdout:\nlate\nstderr:\n", command="echo late", wait=500),
    Step("run_shell", {"command": "echo err >&2"}, "exit code: 0\nstdout:\n\nstderr:\nerr", terminal=False),
    Step("run_shell", {"command": "echo err >&2"}, "exit code: 0\nstdout:\nerr\nstderr:\n", terminal=True),
    step("write_file", "Wrote 12 bytes to {dir}/output.txt", path="{dir}/output.txt", content="hello world\n"),
    step("read_file", "hello world\n", path="{dir}/output.txt"),
    step("write_file", "Wrote 8999 bytes to {dir}/long", path="{dir}/long", content="y" * 8_999),
    step("read_file", "y" * 8_000 + "...[truncated]", path="{dir}/long"),
    step("read_file", "^Tool error: .*no-such-file", like=True, error=True, path="{dir}/no-such-file"),
    step("read_file", "^Tool error: read_file: .*pth: no such argument; did you mean 'path'", like=True, error=True,
         pth="x"),
    step("time", r"^\d{10}$", like=True),
    step("time", r"^\d{13}$", like=True, format="epoch_ms"),
    step("time", r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", like=True, format="iso"),
    step("time", r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000$", like=True, format="rfc2822"),
    Step("capture-pane", {}, "there is no tool 'capture-pane'", like=True, error=True, terminal=False),
    Step("capture-pane", {"start": "-", "end": "-", "join_wrapped_lines": True}, "late", like=True, terminal=True),
]  # fmt: skip

GOFASTR = [
    step("Bash", "one\ntwo", cmd="echo one; echo two"),
    step("Bash", "out\nerr\n[exit code 3]", error=True, cmd="echo out; echo err >&2; exit 3"),
    step("Bash", "{dir}/sub yes", cmd='mkdir -p sub; cd sub; echo "$PWD $GREETING"', env={"GREETING": "yes"}),
    step("Bash", "{dir}/sub", cmd="pwd", cwd="{dir}/sub", timeout_ms=9_999_999),
    step("Bash", r"^begun\n\[ended at its time limit.*\]$", like=True, error=True, timeout_ms=1_500,
         cmd="echo begun; sleep 1000"),
    step("Write", "wrote 8 bytes to {dir}/f.txt", path="{dir}/f.txt", content="a\nb\nc\nd\n", mode=0o600),
    step("Read", "a\nb\nc\nd\n", path="{dir}/f.txt"),
    step("Read", "b\nc\nd\n", path="{dir}/f.txt", offset=2),
    step("Read", r"^b\n\[bytes 2 to 4 of 8; go on with offset=4\]$", like=True, path="f.txt", offset=2, limit=1),
    step("Bash", "-rw-------", cmd="ls -l f.txt | cut -c1-10"),
    step("Write", "wrote 2 bytes to f.txt", path="f.txt", content="e\n"),
    step("Bash", "", cmd="echo x > unread"),
    step("Write", "have not read it", like=True, error=True, path="unread", content="y"),
    step("Read", "no such argument; did you mean 'path'", like=True, error=True, pathh="x"),
    step("TaskList", "Testing", like=True,
         tasks=[{"content": "Test", "status": "in_progress", "activeForm": "Testing"}]),
    step("TaskList", "tasks.0.status", like=True, error=True, tasks=[{"content": "Test", "status": "cancelled"}]),
]  # fmt: skip

HEX = [
    step("bash", "STDOUT:\nHello from Bash tool!", command="echo 'Hello from Bash tool!'"),
    step("bash", "STDOUT:\nDone sleeping", command="sleep 1; echo 'Done sleeping'", timeout=60),
    step("bash", "STDOUT:\n/tmp", command="pwd", working_dir="/tmp"),
    step("bash", "(no output)", command="true"),
    step("bash", "STDOUT:\nout\n\nSTDERR:\nerr", command="echo out; echo err >&2"),
    step("bash", "Error: command exited with code 1\nSTDOUT:\nout", error=True, command="echo out; exit 1"),
    step("bash", r"^Error: ended at its time limit.*\nSTDOUT:\nbegun$", like=True, error=True, timeout=1.5,
         command="echo begun; sleep 1000"),
    step("write_file", "Wrote 13 bytes to {dir}/h.txt", path="{dir}/h.txt", content="Hello, World!"),
    step("read_file", "Hello, World!", path="{dir}/h.txt"),
    step("write_file", "Wrote 10 bytes to digits", path="digits", content="0123456789"),
    step("read_file", "01234", path="digits", limit=5.0),
    step("read_file", "56789", path="digits", offset=5.0),
    step("read_file", "345", path="digits", offset=3, limit=3),
    step("read_file", "0123456789", path="digits", offset=-3),
    step("read_file", "(no output)", path="digits", limit=0),
    step("write_file", "^Error: file already exists: digits; use mode 'overwrite'$", like=True, error=True,
         path="digits", content="x"),
    step("write_file", "Wrote 1 bytes to digits", path="digits", content="x", mode="overwrite"),
    step("write_file", "Wrote 1 bytes to digits", path="digits", content="y", mode="append"),
    step("read_file", "xy", path="digits"),
    step("read_file", "^Error: .*missing", like=True, error=True, path="missing"),
    step("todo_write", "✅ Write\n⏳ Testing\n☐ Ship", todos=[
        {"content": "Write", "activeForm": "Writing", "status": "completed"},
        {"content": "Test", "activeForm": "Testing", "status": "in_progress"},
        {"content": "Ship", "activeForm": "Shipping", "status": "pending"},
    ]),
    step("todo_write", "^Error: todo_write: todos: ", like=True, error=True, todos=[]),
]  # fmt: skip

HYGGE = [
    step("bash", "out\nerr", command="echo out; echo err >&2", description="say something"),
    step("bash", "out\ncommand exited with code 2", error=True, command="echo out; exit 2"),
    step("bash", "timeout_ms: input should be less than or equal to 600000", like=True, error=True, command="true",
         timeout_ms=600_001),
    step("write", "a", like=True, path="{dir}/g.txt", content="one\ntwo\nthree\n"),
    step("read", "1: one\n2: two\n3: three", path="g.txt"),
    step("read", r"^2: two\n\[lines 2 to 2 of 3 lines; go on with offset=3\]$", like=True, path="g.txt", offset=2,
         limit=1),
    step("read", "there is no line 9", like=True, path="g.txt", offset=9),
    step("read", "no such argument; did you mean 'path'", like=True, error=True, file="x", pth="y"),
    step("todo", "Test", like=True, items=[{"content": "Test", "status": "cancelled", "priority": "high"}]),
    step("todo", "", like=True, items=[]),
    step("question", "no user to ask", like=True, error=True, question="Which?", options=["a", "b"]),
    step("question", "options", like=True, error=True, question="Which?", options=["a"]),
    step("remember", r"(m\d+)", like=True, content="The build takes two minutes."),
    step("forget", "two minutes", like=True, memory_id="{1}"),
    step("forget", "no memory", like=True, error=True, memory_id="{1}"),
]  # fmt: skip

STEPS = {"buddy": BUDDY, "gofastr": GOFASTR, "hex": HEX, "hygge": HYGGE}


# With a terminal: start a program, look until it asks, answer, and look at what came of it.
ASKING = "cd {dir}; clear; printf 'your name: '; read name; echo \"$name\" >name"
DISPATCH = [
    Step("run_shell", {"command": ASKING, "wait": False}, r"^command dispatched to tmux pane (\S+);", like=True)
]
LOOK = [step("capture-pane", "your name: ?$", like=True, delay="100ms", target="bg-1")]
ANSWER = [step("send-keys", "^Keys sent", like=True, literal_text="Ada", enter=True, delay_ms=10, target="bg-1")]
AFTERWARDS = [
    step("run_shell", "exit code: 0\nstdout:\nAda\nstderr:\n", command="cat name"),
    step("send-keys", "^Tool error: send-keys: .*nothing to type", like=True, error=True),
    step("capture-pane", "^Tool error: capture-pane: start", like=True, error=True, start="top"),
]


async def answer_what_asks(toolkit: Toolkit, ctx: ExecutionContext) -> list[str]:
    directory = await make_directory(ctx)
    wrong = await differences(toolkit, ctx, "buddy", DISPATCH, directory)
    job = max(await ctx.jobs(), key=lambda job: int(job.job_id)).job_id
    with anyio.fail_after(60):
        while await differences(toolkit, ctx, "buddy", LOOK, directory):
            pass
        wrong += await differences(toolkit, ctx, "buddy", ANSWER, directory)
        await ctx.wait(job)
    return wrong + await differences(toolkit, ctx, "buddy", AFTERWARDS, directory)


async def make_directory(ctx: ExecutionContext) -> str:
    name = f"p-{secrets.token_hex(4)}"
    found = (await ctx.run_shell(f"mkdir -p ~/{name} && cd ~/{name} && pwd", tty=False)).stdout
    assert re.fullmatch(r"/\S+\n", found), found
    return found.strip()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_each_profile_answers_as_its_document_says(ctx: ExecutionContext, backend: str) -> None:
    wrong: list[str] = []
    async with open_unasking() as toolkit:
        for profile, steps in STEPS.items():
            wrong += await differences(toolkit, ctx, profile, steps, await make_directory(ctx))
        if ctx.has_terminal:
            wrong += await answer_what_asks(toolkit, ctx)
    assert "\n".join(wrong) == ""
