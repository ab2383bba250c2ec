"""The steps of a valid call, the services that executors share, and the meaning of a tool's exceptions."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import anyio

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
from ..login import WaitingSudo, use_sudo_approver
from .arguments import decode
from .contract import (
    CallNotes,
    Intent,
    Middleware,
    Next,
    OutputLimit,
    PermissionRequest,
    Services,
    Tool,
    ToolContext,
    Traits,
)
from .events import InternalFailure
from .interfaces import CallEntry, Verdict
from .redaction.redactor import MARK, redact_head, redact_object
from .results import BLOCK_LIMIT, cut_result
from .values import CallOutcome, CallStatus, JsonObject, Subject, ToolCall, ToolResult

__all__ = [
    "PathLocks",
    "Pipeline",
    "Prepared",
    "cancelled",
    "cut_short",
    "defect_error",
    "failure_of",
    "lock_keys",
    "not_started",
    "panes_typed_into",
    "redact_typed_input",
    "redacted",
    "refused",
    "status_of",
    "timed_out",
    "without_private",
]


# -- What an exception of a tool means to the model, and which status it has in the audit log.


ADAPT = (FileError, TerminalError, JobNotFound, UnsupportedOperation)
"""The target answered: the model can try something else."""
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
    """Return the result that reports an exception to the model, and an error for the operator if the tool failed."""
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


def defect_error(error: Exception, what: str, problem: str, *, code: ToolErrorCode = "execution_failed") -> ToolError:
    """Return the error for a defect in code around a tool.

    Args:
        error: the exception.
        what: the code's name: ``the policy``, ``the middleware Budget``.
        problem: the message.
        code: the error's code.
    """
    return ToolError(f"{problem}: {type(error).__name__}: {error}", code=code, hint=f"this is a defect of {what}")


def redacted(error: ToolError | None, redact: Callable[[str], str]) -> ToolError | None:
    """Return the error with a redacted message; its cause is kept for a developer's traceback."""
    if error is None:
        return None
    safe = ToolError(redact(error.message), code=error.code, target=error.target, hint=redact(error.hint))
    safe.__cause__ = error.__cause__
    return safe


def _code(error: HarnessError) -> str:
    """Return the error's code: ``FileNotFound`` → ``file_not_found``, ``IsADirectory`` → ``is_a_directory``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(error).__name__).lower()


def _with_partial(text: str, partial: str) -> str:
    return f"{text}\n{partial}" if partial else text


def status_of(result: ToolResult, error: ToolError | None = None) -> CallStatus:
    """Return the status of a call with this result."""
    if not result.is_error:
        return CallStatus.OK
    if error is not None and isinstance(error.__cause__, ConnectError):
        return CallStatus.ERROR  # no request was sent
    return BY_CODE.get(result.error_code, CallStatus.ERROR)


def timed_out(seconds: float, partial: str) -> ToolResult:
    """Return the result of a call that timed out."""
    return ToolResult.failure("timeout", _with_partial(f"ended after {seconds:g} s; {MAYBE}", partial))


def cancelled(partial: str) -> ToolResult:
    """Return the result of a call that was cancelled while it ran."""
    return ToolResult.failure("cancelled", _with_partial(f"cancelled; {MAYBE}", partial))


def not_started() -> ToolResult:
    """Return the result of a call that was cancelled before it ran, such as during the approval request."""
    return ToolResult.failure("cancelled", "cancelled before it started: nothing was run")


def refused(reason: str, by: str) -> ToolResult:
    """Return the result of a call that was not allowed."""
    return ToolResult.failure("denied", f"not allowed: {reason}", metadata={"decided_by": by})


# -- One writer per file at a time, among the calls of this process.


def lock_keys(backend: str, paths: Iterable[str], cwd: str) -> list[str]:
    """Return the lock keys of paths in the common locking order. Pure; the target resolves symbolic links."""
    return sorted({f"{backend}\0{posixpath.normpath(posixpath.join(cwd, path))}" for path in paths})


@dataclass(slots=True)
class _PathLock:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


class PathLocks:
    """Locks by key that exist only while a call holds or waits for them."""

    def __init__(self) -> None:
        self._held: dict[str, _PathLock] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all keys."""
        async with AsyncExitStack() as stack:
            for key in keys:
                await stack.enter_async_context(self._one(key))
            yield

    @asynccontextmanager
    async def _one(self, key: str) -> AsyncIterator[None]:
        held = self._held.setdefault(key, _PathLock())
        held.users += 1
        try:
            async with held.lock:
                yield
        finally:
            held.users -= 1
            if not held.users:
                del self._held[key]


# -- Removing typed input and program input from arguments: it may be a password of no recognizable form.


def panes_typed_into(subjects: Iterable[Subject]) -> frozenset[str] | None:
    """Return the panes that receive a call's typed input; None if the call types nothing. Pure."""
    typed = [subject for subject in subjects if subject.kind == "keys"]
    return frozenset(subject.pane for subject in typed if subject.pane) if typed else None


def redact_typed_input(arguments: JsonObject, panes: frozenset[str] | None) -> JsonObject:
    """Return the arguments with their texts redacted, except panes and what the caller states about the call. Pure.

    Args:
        arguments: the call's arguments.
        panes: from :func:`panes_typed_into`; None leaves the arguments unchanged.
    """
    if panes is None:
        return arguments
    typed = {name: value for name, value in arguments.items() if name not in Intent.model_fields}
    return {**arguments, **redact_object(typed, lambda text: text if text in panes else MARK)}


def without_private(arguments: JsonObject, names: frozenset[str]) -> JsonObject:
    """Return the arguments with those of :meth:`Tool.private_arguments` redacted. Pure."""
    if not names:
        return arguments
    return {name: MARK if value and name in names else value for name, value in arguments.items()}


# -- The steps of a valid call, in order. :mod:`.executor` documents the call path.


Kind = TypeVar("Kind")
CHANGES = 3
"""How often an approver may change a call before it is refused."""
END_LIMIT = 10.0
"""Seconds that recording a call's end may take."""
CANCELLED_BEFORE_START = "cancelled during or before the approval request"
NOTICE = 1_000
"""Maximum characters of the truncation notice."""
SUMMARY = 2_000
"""Characters of a result that the audit log stores."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call with valid arguments."""

    call: ToolCall
    tool: Tool[Any]
    args: Any

    @property
    def traits(self) -> Traits:
        """The traits of this call."""
        return self.tool.traits_of(self.args)

    @property
    def typed_into(self) -> frozenset[str] | None:
        """The panes that receive this call's typed input; None if it types nothing."""
        return panes_typed_into(self.tool.subjects(self.args))

    @property
    def private(self) -> frozenset[str]:
        """The arguments of this call that may contain a password."""
        return self.tool.private_arguments(self.args)

    def changed(self, call: ToolCall) -> Prepared:
        """Return the call with other arguments, validated again.

        Raises:
            ToolError: ``invalid_args``.
        """
        if call.arguments is self.call.arguments:
            return self
        values = decode(call.arguments, self.tool.name)
        same = replace(self.call, arguments=values)  # name and ids cannot be changed
        return Prepared(same, self.tool, self.tool.parse(values))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The call path of one call."""

    services: Services
    locks: PathLocks
    ctx: ToolContext

    async def through(self, prepared: Prepared) -> CallOutcome:
        """Run a call through the middleware and the remaining steps."""
        passed: list[ToolResult | None] = []

        async def rest(call: ToolCall) -> CallOutcome:
            passed.append(None)
            outcome = await self._hooked(prepared.changed(call))
            passed[-1] = outcome.result
            return outcome

        step: Next = rest
        for middleware in reversed(self.services.middleware):
            step = partial(_around, middleware, self.ctx, step)
        outcome = await step(prepared.call)
        if outcome.status is CallStatus.DENIED and not passed:
            verdict = _unjudged(prepared, outcome.result.text, "middleware")
            await self.services.ledger.refused(self._entry(prepared, verdict))
        inner = passed[-1] if passed else None
        return outcome if inner is None else replace(outcome, result=self._consistent(inner, outcome.result))

    def _consistent(self, before: ToolResult, after: ToolResult) -> ToolResult:
        """Return the changed result without its data if only the text was changed: a profile renders the data."""
        said_anew = after.content != before.content and after.data is before.data
        return replace(after, data=None) if said_anew and self.ctx.notes.faced is not None else after

    async def _hooked(self, prepared: Prepared, changes: int = 0) -> CallOutcome:
        for hook in self.services.hooks:
            try:
                answer = _of_kind(await hook.before(prepared.call, self.ctx), ToolCall, str)
            except Exception as error:  # a failed hook has not agreed
                answer = f"a hook failed: {type(error).__name__}: {error}"
            if isinstance(answer, str):
                return await self._refuse(prepared, _unjudged(prepared, answer, "hook"))
            prepared = prepared.changed(answer)
        return await self._judged(prepared, changes)

    async def _judged(self, prepared: Prepared, changes: int) -> CallOutcome:
        verdict = await self._decided(prepared)
        if not verdict.allowed:
            return await self._refuse(prepared, verdict)
        if verdict.call is None:
            return await self._remembered(prepared, verdict)
        prepared = prepared.changed(verdict.call)
        if changes + 1 < CHANGES:
            return await self._hooked(prepared, changes + 1)  # the hooks saw a different call
        reason = f"it was changed {CHANGES} times"
        return await self._refuse(prepared, Verdict(False, reason, "policy", secret=verdict.secret))

    async def _decided(self, prepared: Prepared) -> Verdict:
        try:
            return await self._verdict(self._request(prepared), prepared.tool.name)
        except anyio.get_cancelled_exc_class():
            entry = self._entry(prepared, _unjudged(prepared, CANCELLED_BEFORE_START, "nobody"))
            with anyio.CancelScope(shield=True), anyio.move_on_after(END_LIMIT):
                await self.services.ledger.refused(replace(entry, status=CallStatus.CANCELLED))
            raise

    async def _verdict(self, request: PermissionRequest, tool: str) -> Verdict:
        try:
            return _of_kind(await self.services.policy.decide(request, self.ctx), Verdict)
        except HarnessError:
            raise
        except Exception as error:
            problem = f"the decision whether {tool} may run failed"
            raise defect_error(error, "the policy", problem, code="permission_failure") from error

    async def _further(self, prepared: Prepared, subjects: tuple[Subject, ...]) -> Verdict:
        """Decide about what a running call accesses; the call can no longer be changed."""
        verdict = await self._verdict(replace(self._request(prepared), subjects=subjects), prepared.tool.name)
        changed = verdict.allowed and verdict.call is not None
        return (
            replace(verdict, allowed=False, reason="the call is already running, so it cannot be changed")
            if changed
            else verdict
        )

    async def _sudo_denial(self, waiting: WaitingSudo) -> str:
        """Ask whether the operator's password may be typed into a ``sudo`` that waits in a pane during this call."""
        subject = Subject("sudo", shlex.join(waiting.argv), pane=waiting.pane, user=waiting.user)
        verdict = await self.ctx.permitted((subject,))
        return "" if verdict.allowed else verdict.reason or "denied"

    def _request(self, prepared: Prepared) -> PermissionRequest:
        return PermissionRequest(
            call=prepared.call,
            tool=prepared.tool,
            subjects=prepared.tool.subjects(prepared.args),
            mutating=prepared.traits.mutating,
            requires_approval=prepared.tool.requires_approval(prepared.args),
            backend=self.ctx.execution.identity,
            preview=prepared.tool.preview(prepared.args),
            place=prepared.tool.execution_place(prepared.args),
        )

    async def _refuse(self, prepared: Prepared, verdict: Verdict) -> CallOutcome:
        await self.services.ledger.refused(self._entry(prepared, verdict))
        result = self.services.redactor.result(refused(verdict.reason, verdict.by))
        return CallOutcome(prepared.call, result, CallStatus.DENIED)

    def _entry(self, prepared: Prepared, verdict: Verdict) -> CallEntry:
        redact = self.services.redactor.json
        assert not isinstance(prepared.call.arguments, str)
        panes = (prepared.typed_into or frozenset()) if verdict.secret else None
        known = redact(prepared.call.arguments)
        return CallEntry(
            call=replace(prepared.call, arguments=without_private(redact_typed_input(known, panes), prepared.private)),
            session_id=self.ctx.session_id,
            backend=self.ctx.execution.identity,
            mutating=prepared.traits.mutating,
            started=self.ctx.clock(),
            verdict=replace(verdict, reason=self.services.redactor.text(verdict.reason)),
            details=redact(_details(prepared.call.arguments)),
        )

    async def _remembered(self, prepared: Prepared, verdict: Verdict) -> CallOutcome:
        results = self.services.results if prepared.traits.cacheable else None
        if results is not None:
            known = await results.get(prepared.call, self.ctx)
            if known is not None:
                return CallOutcome(prepared.call, known, CallStatus.OK, cached=True)
        outcome = await self._recorded(prepared, verdict)
        if results is not None and outcome.status is CallStatus.OK:
            await results.put(prepared.call, outcome.result, self.ctx)
        return outcome

    async def _recorded(self, prepared: Prepared, verdict: Verdict) -> CallOutcome:
        await self.services.ledger.begin(self._entry(prepared, verdict))
        mutating = prepared.traits.mutating
        self.ctx.notes.judge = partial(self._further, prepared)
        if mutating:
            self.ctx.notes.on_job = partial(self.services.ledger.started, self.ctx.call_id)
        try:
            with use_sudo_approver(self._sudo_denial):
                result, error = await self._locked(prepared)
        except BaseException:
            await self._end(CallStatus.CANCELLED, cut_short(self.ctx.notes))
            raise
        finally:
            if mutating and self.services.results is not None:
                self.services.results.changed(self.ctx.execution.identity)
        status = status_of(result, error)
        await self._end(status, result)
        return await self._finished(prepared, CallOutcome(prepared.call, result, status, error=error))

    async def _end(self, status: CallStatus, result: ToolResult) -> None:
        summary = redact_head(self.services.redactor.text, result.text, SUMMARY)
        with anyio.CancelScope(shield=True), anyio.move_on_after(END_LIMIT):
            await self.services.ledger.end(self.ctx.call_id, status, summary, self.ctx.notes.job_id)

    async def _locked(self, prepared: Prepared) -> tuple[ToolResult, ToolError | None]:
        cwd = self.ctx.cwd or self.ctx.execution.capabilities.home
        keys = lock_keys(self.ctx.execution.identity, prepared.tool.paths(prepared.args), cwd)
        async with self.locks.hold(keys):
            return await self._run(prepared)

    async def _run(self, prepared: Prepared) -> tuple[ToolResult, ToolError | None]:
        limit = prepared.traits.timeout
        try:
            self.ctx.notes.begun = True
            with anyio.move_on_after(limit) as scope:
                return _of_kind(await prepared.tool.run(prepared.args, self.ctx), ToolResult), None
        except Exception as error:  # a result for the model, and an error for the operator
            return failure_of(error, prepared.tool.name, self.ctx.notes.partial)
        finally:
            self.ctx.finish_progress()
        assert scope.cancelled_caught
        return timed_out(limit or 0, self.ctx.notes.partial), None

    async def _finished(self, prepared: Prepared, outcome: CallOutcome) -> CallOutcome:
        result = outcome.result
        for hook in self.services.hooks:
            try:
                result = self._consistent(
                    result, _of_kind(await hook.after(prepared.call, result, self.ctx), ToolResult)
                )
            except Exception as error:  # the call has run: its result matters more than the hook
                message = self.services.redactor.text(f"a hook failed: {error}")
                self.ctx.publish(InternalFailure(message=message, call_id=self.ctx.call_id))
        result = self.services.redactor.result(result)
        result = await cut_result(result, self._limit(prepared), self.services.outputs, self.ctx.call_id)
        return replace(outcome, result=result, error=redacted(outcome.error, self.services.redactor.text))

    def _limit(self, prepared: Prepared) -> OutputLimit:
        """Return how much of the result is kept; a profile truncates its own rendering."""
        limit = prepared.traits.limit
        return limit if self.ctx.notes.faced is None else replace(limit, characters=BLOCK_LIMIT - NOTICE)


def cut_short(notes: CallNotes) -> ToolResult:
    """Return the result of a cancelled call."""
    return cancelled(notes.partial) if notes.begun else not_started()


async def _around(middleware: Middleware, ctx: ToolContext, step: Next, call: ToolCall) -> CallOutcome:
    """Run one middleware; its own exceptions are distinguished from those of the inner steps."""
    inner: list[Exception] = []
    ran = False

    async def following(call: ToolCall) -> CallOutcome:
        nonlocal ran
        ran = True
        try:
            return await step(call)
        except Exception as error:
            inner.append(error)
            raise

    try:
        return _of_kind(await middleware(call, ctx, following), CallOutcome)
    except HarnessError:
        raise
    except Exception as error:
        if any(error is one for one in inner):
            raise
        what = f"the middleware {getattr(middleware, '__name__', type(middleware).__name__)}"
        problem = f"{what} failed after the call ({MAYBE})" if ran else f"{what} failed, and the call did not run"
        raise defect_error(error, what, problem) from error


def _of_kind(value: Kind, *kinds: type[object]) -> Kind:
    """Return the value from external code if it has one of these types."""
    if not isinstance(value, kinds):
        raise TypeError(f"it returned {type(value).__name__}, not {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def _unjudged(prepared: Prepared, reason: str, by: str) -> Verdict:
    """Return a refusal without the policy; typed input counts as a secret, because it may be one."""
    return Verdict(False, reason, by, secret=prepared.typed_into is not None)


def _details(arguments: JsonObject) -> JsonObject:
    """Return what the caller states about the call."""
    return {name: arguments[name] for name in Intent.model_fields if arguments.get(name) is not None}
