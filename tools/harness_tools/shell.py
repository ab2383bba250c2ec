"""``run_shell``: run commands on the target."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, field_validator, model_validator

from harness.command import DEFAULT_TIMEOUT, check_text
from harness.results import ShellResult
from harness.toolkit import Category, MutatingArguments, Subject, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.permissions.paths.target_paths import at_home
from harness.toolkit.results import note_job, progress_of, shell_result_for
from harness.toolkit.session.file_versions import target_path
from harness.toolkit.values import Advice

from .texts import Content, Duration, Line, seconds_of

__all__ = ["MAX_TIMEOUT", "RunShell", "WaitPolicy", "wait_policy"]

DESCRIPTION = """\
Run a shell command on the target and return its exit code, standard output and standard error. \
With a terminal it runs in the pane's own shell, which keeps cd, variables and functions; without one in a fresh sh. \
A command that is still running after the wait continues as a job."""
MAX_TIMEOUT = 600.0
MAX_STDIN_CHARS = 64 << 10
"""Maximum characters of standard input: the operator is shown all of it for approval."""
MAX_ENV_VARIABLES = 100
ENDING = Advice(": kill_shell ends it", tools=("kill_shell",))
_SHELL = re.compile(r"(?<![\w.-])(?:(?:ba|da|z|k|mk|fi|a|r|t?c)?sh|su|sudo|doas|ssh|busybox)(?![\w.-])")
"""A word of a command that may be a program that executes its input."""


def _value(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Value = Annotated[str, BeforeValidator(_value)]


class _Arguments(MutatingArguments):
    command: Line = Field(
        description="shell text; several lines are one command", validation_alias=AliasChoices("command", "cmd")
    )
    wait: bool | float | str = Field(
        True,
        description="true: until it exits, at most two minutes; a number of seconds or a text such as 30s, 10m, 1h: "
        "at most that long; false: start it and return at once",
    )
    timeout: Duration | None = Field(None, description="maximum seconds to wait if wait is true, up to 600")
    on_timeout: Literal["keep", "kill"] | None = Field(
        None,
        description="after the timeout, keep leaves it running as a job, and kill ends it. "
        "The default is keep with a terminal, and kill without one",
    )
    cwd: Line | None = Field(
        None,
        description="directory for this command only",
        validation_alias=AliasChoices("cwd", "working_dir"),
    )
    env: dict[str, Value] = Field({}, description="additional environment variables, for this command only")
    stdin: Content | None = Field(None, max_length=MAX_STDIN_CHARS, description="its standard input")
    description: str | None = Field(None, max_length=1000, description="what it does, in a few words for the user")
    run_in_background: bool = Field(False, description="the same as wait false")
    tty: bool | None = Field(
        None,
        description="false: run in a fresh sh, even with a terminal, with separate standard output and standard error, "
        "byte for byte",
    )
    pane: Line | None = Field(None, description="a pane's name or id, instead of the default one")
    user: Line | None = Field(
        None, description="run it as this user, by sudo; a password is asked of the operator, not of you"
    )

    @model_validator(mode="before")
    @classmethod
    def _in_milliseconds(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "timeout_ms" not in values:
            return values
        given = {name: value for name, value in values.items() if name != "timeout_ms"}
        try:
            seconds = float(values["timeout_ms"]) / 1000
        except (TypeError, ValueError):
            raise ValueError("timeout_ms is a number of milliseconds") from None
        if given.get("timeout") is not None and seconds_of(given["timeout"]) != seconds:
            raise ValueError("timeout and timeout_ms contradict each other")
        return {**given, "timeout": seconds}

    @field_validator("on_timeout", mode="before")
    @classmethod
    def _in_background(cls, value: object) -> object:
        return "keep" if value == "background" else value

    @field_validator("wait")
    @classmethod
    def _clear(cls, wait: float | str) -> float | str:
        if isinstance(wait, bool):
            return wait
        if isinstance(wait, str) and wait.strip().lower() in ("true", "false"):
            return wait.strip().lower() == "true"
        if seconds_of(wait) <= 0:
            raise ValueError("it must be positive, or false")
        return wait

    @field_validator("timeout")
    @classmethod
    def _some_time(cls, timeout: float | str | None) -> float | str | None:
        if timeout is not None and seconds_of(timeout) <= 0:
            raise ValueError("it must be positive")
        return timeout

    @field_validator("env")
    @classmethod
    def _variables(cls, env: dict[str, str]) -> dict[str, str]:
        if len(env) > MAX_ENV_VARIABLES:
            raise ValueError(f"more than {MAX_ENV_VARIABLES} variables")
        for name, value in env.items():
            if not name.isidentifier() or not name.isascii():
                raise ValueError(f"{name[:100]!r} is not the name of an environment variable")
            check_text(value, f"the value of {name}")
        if sum(map(len, env.values())) > MAX_STDIN_CHARS:
            raise ValueError(f"more than {MAX_STDIN_CHARS} characters")
        return env

    @model_validator(mode="after")
    def _one_time(self) -> _Arguments:
        if isinstance(self.wait, bool):
            return self
        if self.timeout is not None and seconds_of(self.timeout) != seconds_of(self.wait):
            raise ValueError("wait and timeout contradict each other: give one of them")
        if self.run_in_background:
            raise ValueError("wait and run_in_background contradict each other: give one of them")
        return self


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """How long to wait for a command (``wait`` and ``on_timeout`` of the target), and the notices about it."""

    wait: bool | float | str
    on_timeout: Literal["keep", "kill"] | None = None
    clamped: bool = False
    notices: tuple[str, ...] = ()


def _asked(args: _Arguments) -> WaitPolicy:
    """Return the policy that the arguments request. Pure."""
    if args.run_in_background or args.wait is False:
        useless = (f"a background command has no timeout{ENDING.text}",) if args.timeout else ()
        return WaitPolicy(False, args.on_timeout, notices=useless)
    if args.wait is not True or args.timeout is None:
        return WaitPolicy(args.wait, args.on_timeout)
    seconds = seconds_of(args.timeout)
    if seconds <= MAX_TIMEOUT:
        return WaitPolicy(seconds, args.on_timeout)
    notice = f"the timeout of {seconds:g} s was reduced to the maximum of {MAX_TIMEOUT:g} s"
    return WaitPolicy(MAX_TIMEOUT, args.on_timeout, True, (notice,))


def wait_policy(wait: float | str, handoff: float | None) -> tuple[float | str, Literal["keep"] | None]:
    """Return how long to wait, and ``keep`` if the command is to keep running after ``handoff`` seconds. Pure.

    None instead of ``keep`` leaves the decision to the target, as without a hand-off.
    """
    if handoff is None or wait is False:
        return wait, None
    seconds = DEFAULT_TIMEOUT if wait is True else seconds_of(wait)
    return (handoff, "keep") if seconds > handoff else (wait, None)


def _handed_over(asked: WaitPolicy, handoff: float | None) -> WaitPolicy:
    wait, policy = wait_policy(asked.wait, handoff)
    if policy is None:
        return asked
    unlimited = f"the wait ended after {handoff:g} s, and the command has no timeout any more{ENDING.text}"
    notices = (unlimited,) if asked.on_timeout == "kill" else ()
    return replace(asked, wait=wait, on_timeout=policy, notices=(*asked.notices, *notices))


class RunShell(Tool[_Arguments]):
    """``run_shell``."""

    def __init__(self) -> None:
        traits = Traits(category=Category.SHELL, mutating=True, aliases=("bash", "shell"), packs=("core",))
        super().__init__("run_shell", DESCRIPTION, _Arguments, traits)

    def subjects(self, args: _Arguments) -> tuple[Subject, ...]:
        command = Subject("command", args.command, args.cwd, args.pane, args.user)
        if args.stdin and args.stdin.strip() and _SHELL.search(args.command):
            return command, replace(command, text=args.stdin)  # what a shell reads is a command
        return (command,)

    def private_arguments(self, args: _Arguments) -> frozenset[str]:
        """Return the standard input, unless it is commands, which the audit log must contain."""
        from harness.toolkit.redaction.commands import reads_secret

        runs_it = _SHELL.search(args.command) and not reads_secret(args.command)
        return frozenset() if runs_it else frozenset({"stdin"})

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        waiting = _handed_over(_asked(args), ctx.handoff)
        done = await ctx.execution.run_shell(
            args.command,
            wait=waiting.wait,
            on_timeout=waiting.on_timeout,
            cwd=_directory(args.cwd, ctx),
            env=args.env,
            stdin=args.stdin,
            tty=args.tty,
            pane=args.pane,
            user=args.user,
            on_output=progress_of(ctx),
            on_stderr=progress_of(ctx, "stderr"),
        )
        note_job(done, ctx)
        return await _told(done, waiting, ctx)


def _directory(cwd: str | None, ctx: ToolContext) -> str | None:
    """Return the working directory; ``~`` is the home that the policy used, whatever ``HOME`` is in the pane."""
    place = target_path(ctx, cwd) if cwd else ctx.cwd
    return at_home(place, ctx.execution.capabilities.home) if place else None


async def _told(done: ShellResult, waiting: WaitPolicy, ctx: ToolContext) -> ToolResult:
    notices = waiting.notices if waiting.clamped or done.exit_code is None else ()
    made = await shell_result_for(replace(done, notices=(*done.notices, *notices)), ctx)
    result = replace(made, advice=(ENDING,) * len(notices))
    if not waiting.clamped or not isinstance(result.data, dict):
        return result
    return replace(result, data={**result.data, "timeout_clamped": MAX_TIMEOUT})
