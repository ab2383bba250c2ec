"""The policy: what rules decide, who is asked when they do not, and what results may not show."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from anyio import to_thread

from ...context import ExecutionContext
from ...deprecated_names import renamed_names
from ...errors import ConfigError, FileError, HarnessError, ToolError
from ..hooks.dispatch import refused_question
from ..interfaces import Hook, PermissionRequest, Policy, Verdict
from ..result_cache import DEPENDS
from ..values import JsonObject, ToolCall, ToolResult
from .access_requests import path_forms, read_claims
from .approver import Approver
from .asking import ask, no_approver, question_of
from .decision import Decision, DecisionContext, DecisionStep, decide
from .globs import has_wildcard
from .paths.hard_denials import HardDenials
from .paths.target_paths import RealPath
from .questions import AccessRequest, ApprovalDecision, ApprovalScope, may_be_kept, rules_of
from .remembered_answers import SessionGrants, TimedApproval, elapsed
from .rules.rule import Action, Rule, RuleIndex
from .rules.settings import PROTECTED, PermissionSettings, SecretPaths
from .rules.store import LoadedRules, RuleFile

if TYPE_CHECKING:
    from ..contract import CallNotes, ToolContext
    from ..registry import Registry

__all__ = [
    "RulePolicy",
    "SecretGuard",
    "filter_unreadable",
    "filter_unwritable",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, found_among="filter_unreadable", locked_among="filter_unwritable")


# -- A second look at what was read: a link may have come to lead to a secret after the decision.


class SecretGuard(Hook):
    """Keeps back a result that was made of a secret, by the real paths that the tool says it is made of."""

    def __init__(self, policy: RulePolicy) -> None:
        self._policy = policy

    async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
        """The result, or a refusal that holds nothing of it."""
        for path in _files(result):
            try:
                reason = await self._policy.read_denial(path, ctx.execution)
            except Exception as error:  # the pipeline would go on with the result
                reason = f"whether {path} may be shown could not be found out: {type(error).__name__}"
            if reason:
                return ToolResult.failure("denied", f"not shown: {reason}")
        return result


def _files(result: ToolResult) -> Iterator[str]:
    named = result.metadata.get(DEPENDS)
    for entry in named if isinstance(named, list) else ():
        if isinstance(entry, list) and entry and isinstance(entry[0], str):
            yield entry[0]


# -- What of many files no tool may show: for tools that search a directory.


THREAD_THRESHOLD = 500
"""Paths beyond which they are judged in a thread, so that others are not held up."""
READER = "read_file"
"""A rule that denies this tool a file denies what is in it to the others."""


async def filter_unreadable(
    paths: Collection[str],
    execution: ExecutionContext,
    denials: HardDenials,
    rules: Sequence[RuleIndex],
    top: str,
    holders: Collection[str] | None,
) -> frozenset[str]:
    """Those of some real paths that are secrets, that a rule denies, or that an ``.aiexclude`` keeps back.

    Raises:
        HarnessError: the link was lost.
    """

    def by_name() -> set[str]:
        home = execution.capabilities.home
        return {path for path in paths if denials.hidden(path, home) or _denied(path, READER, execution, rules)}

    found = await to_thread.run_sync(by_name) if len(paths) > THREAD_THRESHOLD else by_name()
    rest = [path for path in paths if path not in found]
    return frozenset(found | await denials.excluded(rest, execution, top, holders))


async def filter_unwritable(
    paths: Collection[str], tool: str, execution: ExecutionContext, denials: HardDenials, rules: Sequence[RuleIndex]
) -> frozenset[str]:
    """Those of some real paths that decide what may be done, or that a rule denies this tool."""

    def by_name() -> frozenset[str]:
        home = execution.capabilities.home
        return frozenset(path for path in paths if denials.locked(path, home) or _denied(path, tool, execution, rules))

    return await to_thread.run_sync(by_name) if len(paths) > THREAD_THRESHOLD else by_name()


def _denied(path: str, tool: str, execution: ExecutionContext, rules: Sequence[RuleIndex]) -> bool:
    forms = path_forms(RealPath(path, path, path), tool, execution) if rules else ()
    return any(index.first(forms, (Action.DENY,)) is not None for index in rules)


# -- The policy: what rules decide, and whoever is asked when they do not.


FRESH = 0.25
"""Seconds for which the user's file of rules is not looked at again."""

_Changed = tuple[JsonObject | str, str]
"""The arguments that an approver gave a call, and who he is."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Approved:
    """What the approver was asked about in a call, and the answer, which allows it."""

    asks: tuple[AccessRequest, ...]
    verdict: Verdict


class RulePolicy(Policy):
    """Decides by hard denials, rules, the mode, and the approver. See :mod:`.decision` for the order.

    Args:
        approver: who is asked; None denies what would be asked.
        file: the user's lasting rules; None keeps none.
        timed: what was approved in advance.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        settings: PermissionSettings | None = None,
        *,
        approver: Approver | None = None,
        file: RuleFile | None = None,
        timed: TimedApproval | None = None,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self.settings = settings or PermissionSettings()
        self.approver = approver
        self.timed = timed or TimedApproval(clock)
        self._file = file
        self._clock = clock
        self._denials = HardDenials(self.settings, clock, _own_files(file), _own_places(file))
        self._names: dict[str, str] = {}
        self._profile = RuleIndex(self.settings.rules)
        self._only = self.settings.allowed_tools
        self._stored = LoadedRules()
        self._stored_index = RuleIndex()
        self._looked = float("-inf")
        self._family = SessionGrants()
        self._changed: WeakKeyDictionary[CallNotes, _Changed] = WeakKeyDictionary()
        """By call, until it is decided again, or over."""
        self._approved: WeakKeyDictionary[CallNotes, _Approved] = WeakKeyDictionary()
        """By call, until it is over."""

    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        """Decide; ask when nothing decides.

        Raises:
            ToolError: ``permission_failure``: the target could not say what the call would touch.
        """
        changed_by = self._changed_by(request, ctx)
        claims = await self._claims(request, ctx)
        verdict = await self._verdict(claims, request, ctx, changed_by)
        redact, secret = ctx.redactor.text, any(claim.secret for claim in claims)
        reason = f"as {changed_by} changed it: {verdict.reason}" if changed_by else verdict.reason
        return replace(verdict, reason=redact(reason), by=redact(verdict.by), secret=secret)

    async def explain(self, request: PermissionRequest, ctx: ToolContext) -> Decision:
        """What would be decided, and why. Nobody is asked.

        Raises:
            ToolError: as for :meth:`decide`.
        """
        return await self._decision(await self._claims(request, ctx), request, ctx)

    def hidden(self, path: str, home: str) -> str:
        """Why a path on the target is a secret, for tools that list or search; empty when it is none."""
        return self._denials.hidden(path, home)

    async def read_denial(self, path: str, execution: ExecutionContext) -> str:
        """Why nothing may read a file, by its real path on the target; empty when something may.

        Raises:
            HarnessError: the link was lost.
        """
        return await self._denials.of_path(RealPath(path, path, path), execution, writes=False)

    async def unreadable_paths(
        self, paths: Collection[str], ctx: ToolContext, *, top: str, holders: Collection[str] | None = None
    ) -> frozenset[str]:
        """Secrets, what rules deny to be read, and what ``.aiexclude`` keeps back; see :meth:`Policy.unreadable_paths`.

        Raises:
            HarnessError: the link was lost.
        """
        forbidding = await self._forbidding(ctx)
        return await filter_unreadable(paths, ctx.execution, self._denials, forbidding, top, holders)

    async def unwritable_paths(self, paths: Collection[str], ctx: ToolContext, *, tool: str) -> frozenset[str]:
        """Files that give rights, and what rules deny this tool; see :meth:`Policy.unwritable_paths`."""
        return await filter_unwritable(paths, tool, ctx.execution, self._denials, await self._forbidding(ctx))

    async def _forbidding(self, ctx: ToolContext) -> tuple[RuleIndex, ...]:
        """The rules of which some deny."""
        await self._look()
        self._index_tool_names(ctx.registry)
        indexes = (self._family.rules(ctx.session_id), self._stored_index, self._profile)
        return tuple(index for index in indexes if any(rule.action is Action.DENY for rule in index.rules))

    def session_rules(self, session_id: str) -> tuple[Rule, ...]:
        """What was answered in a session, the latest first."""
        return self._family.own(session_id)

    def end_session(self, session_id: str) -> None:
        """Forget what was answered in a session, and in those of its sub-agents."""
        self._family.end(session_id)

    # -- deciding

    async def _verdict(
        self, claims: Sequence[AccessRequest], request: PermissionRequest, ctx: ToolContext, changed_by: str
    ) -> Verdict:
        decision = await self._decision(claims, request, ctx)
        if decision.action is not Action.ASK:
            return _verdict(decision)
        turn = self._family.turn(ctx.session_id)
        waits = turn.locked()
        async with turn:
            if waits:  # what was answered meanwhile may answer this, too; and what it touches may be something else
                claims = await self._claims(request, ctx)
                decision = await self._decision(claims, request, ctx)
            if decision.action is not Action.ASK:
                verdict = _verdict(decision)
            elif changed_by:
                verdict = Verdict(True, "approved", changed_by)
            else:
                verdict = await self._asked(decision, request, ctx)
            if verdict.allowed and self.approver is not None:
                await self.approver.ready()
            return await self._recheck(verdict, claims, request, ctx)

    async def _claims(self, request: PermissionRequest, ctx: ToolContext) -> tuple[AccessRequest, ...]:
        try:
            return await read_claims(request, ctx, self.settings, self._denials)
        except (HarnessError, ExceptionGroup) as error:
            raise _unknown(error) from error

    async def _decision(
        self, claims: Sequence[AccessRequest], request: PermissionRequest, ctx: ToolContext
    ) -> Decision:
        await self._look()
        self._index_tool_names(ctx.registry)
        traits = request.tool.traits
        return decide(
            claims,
            DecisionContext(
                mode=self.settings.mode,
                category=traits.category,
                tool=request.call.name,
                mutating=request.mutating,
                requires_approval=request.requires_approval,
                only=self._only,
                session=self._family.rules(ctx.session_id),
                stored=self._stored_index,
                profile=self._profile,
                failure=self._stored.failure,
            ),
        )

    async def _look(self) -> None:
        """Know what the file says now: other processes write it, too."""
        if self._file is None or self._clock() - self._looked < FRESH:
            return
        stored = await to_thread.run_sync(self._file.load)
        if stored is not self._stored:
            if stored.failure:
                log.warning("the permission rules cannot be used, so everything asks: %s", stored.failure)
            self._stored, self._stored_index = stored, RuleIndex(stored.rules, self._names)
        self._looked = self._clock()

    def _index_tool_names(self, registry: Registry) -> None:
        """Take rules for another name of a tool, also of a profile, as rules for it; the tools may have changed."""
        tools = registry.list()
        names = {alias: tool.name for tool in tools for alias in tool.traits.aliases}
        named = {*self._profile.tools, *self._stored_index.tools, *self.settings.allowed_tools}
        if unknown := {name for name in named - names.keys() - {tool.name for tool in tools} if not has_wildcard(name)}:
            from ..tool_profiles import face_names  # it imports every profile

            names |= {name: tool for name, tool in face_names().items() if name in unknown}
        if names == self._names:
            return
        self._names = names
        self._profile = RuleIndex(self.settings.rules, names)
        self._stored_index = RuleIndex(self._stored.rules, names)
        self._only = tuple(names.get(name, name) for name in self.settings.allowed_tools)

    # -- asking

    async def _recheck(
        self, verdict: Verdict, claims: Sequence[AccessRequest], request: PermissionRequest, ctx: ToolContext
    ) -> Verdict:
        """An answer takes time, in which a link may come to lead elsewhere: it holds for what was asked about."""
        if not verdict.allowed or verdict.call is not None:
            return verdict
        now = await self._claims(request, ctx)
        if [claim.whole for claim in now] != [claim.whole for claim in claims]:
            return Verdict(False, "what it would touch has changed while it was asked about; try again", "policy")
        decision = await self._decision(now, request, ctx)
        return _verdict(decision) if decision.action is Action.DENY else verdict

    async def _asked(self, decision: Decision, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        in_advance = self._in_advance(decision, request)
        if in_advance is not None:
            return in_advance
        known = self._approved.get(ctx.notes)
        if ctx.notes.begun and known is not None and known.asks == decision.asks:  # it looks again before it acts
            return known.verdict
        if self.approver is None:
            advice = no_approver(may_be_kept(decision.asks), broken=decision.step is DecisionStep.BROKEN)
            return Verdict(False, f"{decision.reason}; {advice}", "no approver")
        question = question_of(request, decision, ctx)
        refusal = await refused_question(request, question.reason, ctx)
        if refusal is not None:
            return Verdict(False, refusal, "hook")
        answer = await ask(self.approver, question, self.settings.approval_timeout, ctx)
        if answer.call is not None and answer.scope.allows:
            self._changed[ctx.notes] = (answer.call.arguments, answer.by)
            return Verdict(True, "changed by the approver", answer.by, answer.call)
        await self._keep(answer, decision.asks, request, ctx)
        reason = answer.reason or ("approved" if answer.scope.allows else "refused by the approver")
        verdict = Verdict(answer.scope.allows, reason, f"{answer.by} ({answer.scope})")
        if verdict.allowed:
            self._approved[ctx.notes] = _Approved(decision.asks, verdict)
        return verdict

    def _in_advance(self, decision: Decision, request: PermissionRequest) -> Verdict | None:
        if self.timed.state == "none":
            return Verdict(False, "everything that would be asked is denied (/approve none)", "timed approval")
        if self.timed.approves(request.backend) and not any(claim.must_ask for claim in decision.asks):
            return Verdict(True, "approved in advance", "timed approval")
        return None

    def _changed_by(self, request: PermissionRequest, ctx: ToolContext) -> str:
        """Who has changed the call into this one and so approved it: it is decided again for what denies it."""
        arguments, by = self._changed.pop(ctx.notes, ("", ""))
        return by if request.call.arguments == arguments else ""

    async def _keep(
        self, answer: ApprovalDecision, claims: Sequence[AccessRequest], request: PermissionRequest, ctx: ToolContext
    ) -> None:
        """Remember an answer; what cannot be written down holds for the session."""
        directories = await _directories(claims, ctx) if answer.scope is ApprovalScope.DIRECTORY else ()
        rules = rules_of(answer, claims, tool=request.call.name, identity=request.backend, directories=directories)
        if not rules:
            return
        self._family.add(ctx.session_id, rules)
        if answer.scope is ApprovalScope.ALWAYS:
            await self._write_down(rules, ctx)

    async def _write_down(self, rules: Sequence[Rule], ctx: ToolContext) -> None:
        if any(ctx.redactor.text(rule.argument or "") != rule.argument for rule in rules):
            log.warning("the answer holds for this session only: the text holds a secret, which no file should keep")
        elif self._file is None:
            log.warning("the answer holds for this session only: there is no file to keep it in")
        else:
            try:
                await to_thread.run_sync(self._file.add, rules)
            except ConfigError as error:
                log.warning("the answer holds for this session only: %s", error)
            self._looked = float("-inf")


def _verdict(decision: Decision) -> Verdict:
    return Verdict(decision.action is Action.ALLOW, decision.reason, decision.by)


def _own_files(file: RuleFile | None) -> tuple[str, ...]:
    """The files of this machine, as patterns, that no call may write wherever the settings and the audit are."""
    if file is None:
        return ()
    config, state = _own_places(file)[0], _state()
    names = [str(file.path), f"{config}/config.toml", f"{config}/tools", f"{state}/audit", f"{state}/mcp"]
    usual = SecretPaths(PROTECTED)
    every = dict.fromkeys(path for name in names for path in (name, posixpath.realpath(name)))
    own = [path for path in every if not usual.matching(path, "")]
    return (*own, *(f"{path}/**" for path in own if not path.endswith((".json", ".toml"))))


def _own_places(file: RuleFile | None) -> tuple[str, ...]:
    """The directories of the settings, and of what is kept beside the audit."""
    if file is None:
        return ()
    names = [str(file.path.parent), _state()]
    return tuple(dict.fromkeys(path for name in names for path in (name, posixpath.realpath(name))))


def _state() -> str:
    from ..audit.directory import audit_directory  # the database comes with it

    return str(audit_directory().parent)


def _unknown(error: Exception) -> Exception:
    """The target did not say what the call would touch: nothing was run."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, HarnessError):
        return error
    message = f"what the call would touch could not be found out, so it was not run: {error.message}"
    return ToolError(message, code="permission_failure", target=error.target, hint=error.hint)


async def _directories(claims: Sequence[AccessRequest], ctx: ToolContext) -> tuple[str, ...]:
    """The directory of each file, as the target has it now; a directory is its own."""
    found = []
    for claim in claims:
        try:
            stat = await ctx.execution.stat(claim.whole.text)
            found.append(stat.path if stat.type == "dir" else posixpath.dirname(stat.path))
        except FileError:
            found.append(posixpath.dirname(claim.whole.text))
    return tuple(name for name in dict.fromkeys(found) if name not in ("", "/"))
