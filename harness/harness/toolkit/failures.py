"""What an exception of a tool means to the model, and how the ledger counts it."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import (
    ConfigError,
    ConnectError,
    ConnectionLost,
    FileError,
    HarnessError,
    JobNotFound,
    TerminalError,
    ToolError,
    ToolErrorCode,
    UnsupportedOperation,
)
from .values import CallStatus, ToolResult

__all__ = ["cancelled", "failure_of", "not_begun", "not_the_tool", "redacted", "refused", "status_of", "timed_out"]

ADAPT = (FileError, TerminalError, JobNotFound, UnsupportedOperation)
"""The target answered: the model can do something else."""
BY_CODE = {
    "unknown": CallStatus.UNKNOWN,
    "backend_lost": CallStatus.UNKNOWN,
    "timeout": CallStatus.TIMEOUT,
    "timed_out": CallStatus.TIMEOUT,
    "cancelled": CallStatus.CANCELLED,
    "interrupted": CallStatus.CANCELLED,
    "denied": CallStatus.DENIED,
}
MAYBE = "it may have changed something; look before you repeat it"


def failure_of(error: BaseException, tool: str, partial: str = "") -> tuple[ToolResult, ToolError | None]:
    """The result that tells the model of an exception, and the error for the operator when the tool could not run."""
    if isinstance(error, ADAPT):
        return ToolResult.failure(_code(error), _with_partial(str(error), partial)), None
    failure = error if isinstance(error, ToolError) else _wrapped(error, tool)
    return ToolResult.failure(failure.code, _with_partial(str(failure), partial)), failure


def _wrapped(error: BaseException, tool: str) -> ToolError:
    if isinstance(error, ConnectionLost):
        failure = ToolError(f"{error.message}; {MAYBE}", code="backend_lost", target=error.target, hint=error.hint)
    elif isinstance(error, ConnectError | ConfigError):
        failure = ToolError(error.message, code="backend_lost", target=error.target, hint=error.hint)
    elif isinstance(error, HarnessError):
        failure = ToolError(error.message, target=error.target, hint=error.hint)
    else:
        failure = ToolError(f"{tool} failed: {type(error).__name__}: {error}", hint="this is a defect of the tool")
    failure.__cause__ = error
    return failure


def not_the_tool(error: Exception, what: str, problem: str, *, code: ToolErrorCode = "execution_failed") -> ToolError:
    """The error for a failure of the code around a tool: ``what`` is ``the policy``, ``the middleware Budget``."""
    return ToolError(f"{problem}: {type(error).__name__}: {error}", code=code, hint=f"this is a defect of {what}")


def redacted(error: ToolError | None, redact: Callable[[str], str]) -> ToolError | None:
    """The same error with a message that may be shown; its cause stays, for a developer's traceback."""
    if error is None:
        return None
    safe = ToolError(redact(error.message), code=error.code, target=error.target, hint=redact(error.hint))
    safe.__cause__ = error.__cause__
    return safe


def _code(error: HarnessError) -> str:
    """``FileNotFound`` → ``file_not_found``, ``IsADirectory`` → ``is_a_directory``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(error).__name__).lower()


def _with_partial(text: str, partial: str) -> str:
    return f"{text}\n{partial}" if partial else text


def status_of(result: ToolResult, error: ToolError | None = None) -> CallStatus:
    """How a result counts."""
    if not result.is_error:
        return CallStatus.OK
    if error is not None and isinstance(error.__cause__, ConnectError):
        return CallStatus.ERROR  # nothing was sent
    return BY_CODE.get(result.error_code, CallStatus.ERROR)


def timed_out(seconds: float, partial: str) -> ToolResult:
    """A call was ended because its time was over."""
    return ToolResult.failure("timeout", _with_partial(f"ended after {seconds:g} s; {MAYBE}", partial))


def cancelled(partial: str) -> ToolResult:
    """A call was cancelled."""
    return ToolResult.failure("cancelled", _with_partial(f"cancelled; {MAYBE}", partial))


def not_begun() -> ToolResult:
    """A call was cancelled before it ran: at the question, say, or while it waited for another."""
    return ToolResult.failure("cancelled", "cancelled before it began: nothing of it was run")


def refused(reason: str, by: str) -> ToolResult:
    """Nothing ran: it was not allowed."""
    return ToolResult.failure("denied", f"not allowed: {reason}", metadata={"decided_by": by})
