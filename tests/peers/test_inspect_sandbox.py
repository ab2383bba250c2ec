"""The sandbox of inspect_ai: what inspect_ai's own checks leave open."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from inspect_ai import Task
from inspect_ai._eval.loader import resolve_task_sandbox
from inspect_ai._eval.task.constants import TASK_RUN_DIR_ATTR
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
)
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from tests.peers.sandboxes import GAPS, SANDBOXES, Sandboxes, result_table, settings_text
from tests.support.berths import entered
from tests.support.engines import Container, Engines
from tests.support.sshd import SshServer

from harness import ConfigError, ConnectError, HarnessError, Target, TargetNotFound
from harness.inspect_sandbox import HarnessSandbox, SandboxConfig
from harness.inspect_sandbox.configuration import resolve

BOTH = ("local", "local+tmux")
DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "inspect.md"
EXAMPLE = DOCS / "examples" / "inspect_evaluation.py"


@asynccontextmanager
async def sample(config: SandboxConfig | str, *, interrupted: bool = False) -> AsyncIterator[SandboxEnvironment]:
    """A sandbox of one sample."""
    made = await HarnessSandbox.sample_init("task", config, {})
    try:
        yield made["default"]
    finally:
        await HarnessSandbox.sample_cleanup("task", config, made, interrupted)


@pytest.fixture
def config(request: pytest.FixtureRequest, sandboxes: Sandboxes) -> Iterator[SandboxConfig]:
    with sandboxes.configured(request.param, f"hx-{secrets.token_hex(4)}") as found:
        yield found


async def where(sandbox: SandboxEnvironment) -> str:
    return (await sandbox.exec(["pwd"])).stdout.strip()


# -- samples


@pytest.mark.parametrize("config", [*BOTH, "ssh-openssh+tmux"], indirect=True)
@pytest.mark.parametrize("interrupted", [False, True])
async def test_each_sample_has_a_directory_of_its_own_which_goes_with_it(
    config: SandboxConfig, interrupted: bool
) -> None:
    async with sample(config, interrupted=interrupted) as one, sample(config) as other:
        here, there = await where(one), await where(other)
        assert here != there
        await one.write_file("left/behind", "x")
        listed = await other.exec(["ls", "-A"])
        assert (listed.stdout, listed.stderr) == ("", "")
        assert await other.read_file(f"{here}/left/behind") == "x"
    assert not Path(here).exists()
    assert not Path(there).exists()


@pytest.mark.parametrize("config", BOTH, indirect=True)
async def test_a_directory_that_was_given_is_used_and_left(config: SandboxConfig, tmp_path: Path) -> None:
    async with sample(config.model_copy(update={"cwd": str(tmp_path)})) as sandbox:
        assert await where(sandbox) == str(tmp_path)
        await sandbox.write_file("kept", "x")
    assert (tmp_path / "kept").read_text() == "x"


@pytest.mark.parametrize("sandbox_env", ["local+tmux"], indirect=True)
async def test_a_pane_shows_the_commands_of_its_sample(sandbox_env: SandboxEnvironment) -> None:
    await sandbox_env.exec(["echo", "seen by operators"])
    context = sandbox_env.as_type(HarnessSandbox)._context
    assert "echo 'seen by operators'" in await context.capture_pane(start="-")
    connection = await sandbox_env.connection()
    assert connection.command == shlex.join(context.attach_command)


@pytest.mark.parametrize("config", ["local+tmux"], indirect=True)
async def test_the_pane_goes_with_its_sample(config: SandboxConfig) -> None:
    async with sample(config) as watcher:
        context = watcher.as_type(HarnessSandbox)._context
        before = {pane.name for pane in await context.list_panes()}
        async with sample(config):
            assert len(await context.list_panes()) == len(before) + 1
        assert {pane.name for pane in await context.list_panes()} == before


@pytest.mark.parametrize("config", ["local+tmux"], indirect=True)
async def test_more_samples_than_a_session_has_panes_otherwise(config: SandboxConfig) -> None:
    reached = 0

    async def one() -> None:
        nonlocal reached
        async with sample(config) as sandbox:
            assert (await sandbox.exec(["true"])).success
            reached += 1

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(one)
    assert reached == 8


# -- commands


@pytest.mark.parametrize("sandbox_env", [*BOTH, "ssh-openssh+tmux"], indirect=True)
async def test_commands_of_a_sample_run_at_the_same_time(sandbox_env: SandboxEnvironment) -> None:
    """As a service of inspect_ai, which answers a command while that runs."""
    await sandbox_env.exec(["mkfifo", "question", "answer"])
    asked: list[str] = []

    async def ask() -> None:
        done = await sandbox_env.exec(["sh", "-c", "echo why >question; cat answer"], timeout=60)
        asked.append(done.stdout)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        question = await sandbox_env.exec(["cat", "question"], timeout=60)
        assert question.stdout == "why\n"
        assert (await sandbox_env.exec(["sh", "-c", "echo because >answer"], timeout=60)).success
    assert asked == ["because\n"]


@pytest.mark.parametrize("sandbox_env", ["local+tmux"], indirect=True)
async def test_a_command_runs_beside_a_pane_that_an_operator_holds(sandbox_env: SandboxEnvironment) -> None:
    await sandbox_env.exec(["mkfifo", "held", "free"])
    directory = await where(sandbox_env)
    context = sandbox_env.as_type(HarnessSandbox)._context
    await context.send_keys(literal_text=f"cd {directory}; sh -c 'echo runs >held; cat free'", enter=True)
    assert await anyio.to_thread.run_sync(Path(directory, "held").read_text) == "runs\n"
    assert (await sandbox_env.exec(["echo", "beside"], timeout=60)).stdout == "beside\n"
    assert "echo beside" not in await context.capture_pane(start="-")
    assert (await sandbox_env.exec(["sh", "-c", "echo >free"], timeout=60)).success


@pytest.mark.parametrize("sandbox_env", BOTH, indirect=True)
async def test_arguments_reach_the_program_as_they_are(sandbox_env: SandboxEnvironment) -> None:
    words = ["$HOME", "*", "a b", "", "-n", "'", '"', "\\", "new\nline", "ü"]
    done = await sandbox_env.exec(["printf", "<%s>", *words])
    assert done.stdout == "".join(f"<{word}>" for word in words)
    assert (await sandbox_env.exec(["if", "true"])).returncode == 127


@pytest.mark.parametrize("sandbox_env", BOTH, indirect=True)
async def test_a_command_without_input_reads_none(sandbox_env: SandboxEnvironment) -> None:
    done = await sandbox_env.exec(["cat"], timeout=30)
    assert (done.success, done.stdout, done.stderr) == (True, "", "")


@pytest.mark.parametrize("sandbox_env", BOTH, indirect=True)
async def test_a_program_may_exit_with_the_code_of_one_that_cannot_run(sandbox_env: SandboxEnvironment) -> None:
    assert (await sandbox_env.exec(["sh", "-c", "exit 126"])).returncode == 126
    missing = await sandbox_env.exec(["no-such-program"])
    assert (missing.success, missing.returncode) == (False, 127)
    await sandbox_env.write_file("plain", "echo no\n")
    with pytest.raises(PermissionError) as refused:
        await sandbox_env.exec(["./plain"])
    assert refused.value.filename == "./plain"


@pytest.mark.parametrize("sandbox_env", BOTH, indirect=True)
async def test_a_timeout_tells_what_was_written_before_it(sandbox_env: SandboxEnvironment) -> None:
    with pytest.raises(TimeoutError) as ended:
        await sandbox_env.exec(["sh", "-c", "echo out; echo err >&2; sleep 60"], timeout=2)
    assert ended.value.truncated_output == "out\nerr\n"  # type: ignore[attr-defined]  # as inspect_ai reads it


@pytest.mark.parametrize("sandbox_env", BOTH, indirect=True)
async def test_output_beyond_the_limit_is_an_error_with_what_there_is(sandbox_env: SandboxEnvironment) -> None:
    with override_max_exec_output_size(1000):
        assert len((await sandbox_env.exec(["printf", "%1000s", "x"])).stdout) == 1000
        with pytest.raises(OutputLimitExceededError) as exceeded:
            await sandbox_env.exec(["printf", "%1001s", "x"])
    assert exceeded.value.truncated_output is not None
    assert exceeded.value.truncated_output.endswith("x")


@pytest.mark.parametrize("sandbox_env", BOTH, indirect=True)
async def test_bytes_that_are_not_text_are_replaced(sandbox_env: SandboxEnvironment) -> None:
    assert (await sandbox_env.exec(["printf", r"a\377b"])).stdout == "a\N{REPLACEMENT CHARACTER}b"
    await sandbox_env.write_file("bytes", b"a\xffb")
    with pytest.raises(UnicodeDecodeError):
        await sandbox_env.read_file("bytes")
    await sandbox_env.write_file("lines", "one\r\ntwo\n")
    assert await sandbox_env.read_file("lines") == "one\r\ntwo\n"


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("sandbox_env", [*BOTH, "ssh-openssh"], indirect=True)
async def test_a_user_may_be_given_by_number(sandbox_env: SandboxEnvironment) -> None:
    assert (await sandbox_env.exec(["id", "-u"], user="65534", cwd="/")).stdout == "65534\n"
    assert (await sandbox_env.exec(["id", "-u"], user="0")).stdout == "0\n"
    with pytest.raises(SandboxUserUnsupportedError, match="no user has the number 54321"):
        await sandbox_env.exec(["id", "-u"], user="54321")


@pytest.mark.parametrize("sandbox_env", BOTH, indirect=True)
async def test_errors_of_files_carry_what_a_model_is_shown(sandbox_env: SandboxEnvironment) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        await sandbox_env.read_file("none")
    assert (missing.value.filename, missing.value.strerror) == ("none", os.strerror(2))
    with pytest.raises(FileNotFoundError):
        await sandbox_env.exec(["true"], cwd="none")


# -- targets


@pytest.mark.parametrize(
    "text",
    [
        "local:",
        "ssh://lab1",
        "ssh:lab1",
        "ssh://deploy@lab1:2222",
        "ssh://[::1]:22",
        "docker://app",
        "ssh://deploy@lab1+docker://root@app",
        "ssh://a+ssh://b+podman://c",
    ],
)
@pytest.mark.parametrize("directory", ["/srv/evals", "/srv/a:b/evals", "/"])
def test_a_target_survives_that_inspect_ai_takes_it_for_a_file(text: str, directory: str) -> None:
    task = Task()
    setattr(task, TASK_RUN_DIR_ATTR, directory)
    spec = resolve_task_sandbox(task, ("harness", text))
    assert spec is not None
    assert resolve(spec.config)[1].target == Target.parse(text)
    assert resolve(text)[1].target == Target.parse(text)


async def test_a_target_that_is_wrong_is_refused_before_any_sample(needs_process: None) -> None:
    with pytest.raises(TargetNotFound, match="no target is named 'lab9'"):
        await HarnessSandbox.task_init("task", "lab9")
    with pytest.raises(ConfigError, match="the configuration of a harness sandbox is a SandboxEnvironmentSpec"):
        await HarnessSandbox.sample_init("task", SandboxEnvironmentSpec("local"), {})
    with pytest.raises(ConnectError):
        await HarnessSandbox.task_init("task", "ssh://nobody@127.0.0.1:1")


async def test_a_configuration_comes_back_from_a_log() -> None:
    config = SandboxConfig(target="ssh://lab1", tmux="evals")
    spec = SandboxEnvironmentSpec("harness", config)
    assert SandboxEnvironmentSpec.model_validate(json.loads(spec.model_dump_json())).config == config


async def test_a_server_that_is_gone_is_an_unavailable_sandbox(sshd: SshServer, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(settings_text(sshd.config(connect_timeout=2.0)))
    config = SandboxConfig(target=sshd.target, settings_file=str(settings))
    async with sample(config) as sandbox:
        assert (await sandbox.exec(["true"])).success
        directory = await where(sandbox)
        sshd.stop()
        with pytest.raises((SandboxUnavailableError, HarnessError)):
            await sandbox.exec(["true"])
        with pytest.raises(SandboxUnavailableError):
            await sandbox.exec(["true"])
    Path(directory).rmdir()  # nothing could remove it there


async def test_a_shell_for_the_operator_starts_in_the_directory_of_the_sample(
    needs_process: None, sandboxes: Sandboxes
) -> None:
    async with sandboxes.open("local") as sandbox:
        connection = await sandbox.connection()
        assert connection.type == "harness"
        environment = os.environ | {"SHELL": "/bin/sh"}
        done = subprocess.run(
            ["sh", "-c", connection.command], input="pwd\n", capture_output=True, text=True, env=environment
        )
        assert await where(sandbox) in done.stdout
        with pytest.raises(NotImplementedError):
            await sandbox.connection(user="root")
    with pytest.raises(ConnectionError):
        await sandbox.connection()


async def test_with_an_image_each_sample_has_a_container(engines: Engines, sandboxes: Sandboxes) -> None:
    engine = engines.get("docker")
    config = SandboxConfig(target="docker://eval", image=engine.image("busybox"))
    with entered(Container(engine, "", "")):
        async with sample(config) as one, sample(config) as other:
            await one.write_file("/only-here", "x")
            assert not (await other.exec(["test", "-e", "/only-here"])).success
            assert len(engine.cli("ps", "-q", "--filter", "name=eval-").splitlines()) == 2
        assert engine.cli("ps", "-aq", "--filter", "name=eval-") == ""


TOOLS = "inspect-sandbox-tools"


@pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning")  # of tenacity, by inspect_ai
async def test_the_tools_of_inspect_ai_are_stopped_with_their_sample(engines: Engines, sandboxes: Sandboxes) -> None:
    engine = engines.get("docker")
    with sandboxes.configured("docker", "no-tmux") as config:
        name = Target.parse(str(config.target)).last.host
        async with sample(config) as one, sample(config) as other:
            for sandbox in (one, other):
                done = await SandboxEnvironmentProxy(sandbox).exec_remote(["pwd"], stream=False)
                assert (done.stdout.strip(), done.stderr) == (await where(sandbox), "")
            assert engine.cli("top", name, "-eo", "pid,args").count(f"{TOOLS} server") == 2
        assert TOOLS not in engine.cli("top", name, "-eo", "pid,args")
        assert engine.cli("exec", name, "sh", "-c", "ls -d /tmp/inspect-* || :") == ""


# -- the documentation


def test_the_page_shows_the_result_of_every_sandbox() -> None:
    table = result_table(self_check.__all__)
    assert table in PAGE.read_text(), f"docs/inspect.md needs this table:\n{table}"


def test_every_gap_names_a_check_and_gives_a_reason() -> None:
    wrong = [gap for gap in GAPS if gap.check not in self_check.__all__ or not {*gap.sandboxes} <= {*SANDBOXES}]
    assert wrong == []


# -- an evaluation


RUN_EXAMPLE = """
import runpy, sys
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model
path, target = sys.argv[1:]
repair = runpy.run_path(path)["repair"]
call = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "sed -i s/word/world/ greet.sh; pwd"})
answers = [call, ModelOutput.from_content("mockllm/model", "done")]
for answer in answers:
    answer.usage = ModelUsage()  # or it would count tokens by a table that it downloads
model = get_model("mockllm/model", custom_outputs=answers)
(log,) = eval(repair(target=target), model=model, display="none", log_dir="logs")
print(log.status, log.error and log.error.message)
print(log.results.scores[0].metrics["accuracy"].value)
print(*[m.text.strip() for m in log.samples[0].messages if m.role == "tool"])
"""


def evaluate(folder: Path, config: SandboxConfig, *words: str) -> list[str]:
    """Run a program of inspect_ai; the settings are a configuration's, and its target is also named ``lab``."""
    assert config.settings_file is not None
    settings = folder / "lab.toml"
    tmux = "tmux = true\n" if config.tmux else ""
    named = f"[targets.lab]\nurl = {json.dumps(config.target)}\n"
    settings.write_text(tmux + Path(config.settings_file).read_text() + named)
    shutil.copy(EXAMPLE, folder)
    environment = os.environ | {"HARNESS_CONFIG": str(settings)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("config", ["local", "ssh-openssh+tmux"], indirect=True)
def test_inspect_evaluation(config: SandboxConfig, tmp_path: Path) -> None:
    program = [sys.executable, "-c", RUN_EXAMPLE, EXAMPLE.name, str(config.target)]
    status, accuracy, answer = evaluate(tmp_path, config, *program)
    assert (status, accuracy) == ("success None", "1.0")
    assert answer.startswith("/tmp/inspect-")
    assert not Path(answer).exists()


TASK = """
from pathlib import Path
from inspect_ai import Task, task
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

@solver
def look():
    async def solve(state, generate):
        done = await sandbox().exec(["pwd"])
        Path("seen").write_text(done.stdout)
        return state
    return solve

@task
def looking():
    return Task(solver=look())
"""


@pytest.mark.parametrize("config", ["local"], indirect=True)
def test_the_command_line_of_inspect_ai_takes_a_named_target(config: SandboxConfig, tmp_path: Path) -> None:
    (tmp_path / "looking.py").write_text(TASK)
    program = [sys.executable, "-m", "inspect_ai", "eval", "looking.py", "--model", "mockllm/model"]
    evaluate(tmp_path, config, *program, "--sandbox", "harness:lab", "--display", "plain", "--log-dir", "logs")
    assert (tmp_path / "seen").read_text().startswith("/tmp/inspect-")
