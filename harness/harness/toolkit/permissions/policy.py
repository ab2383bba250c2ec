"""The policy of tool calls: rules, approval requests, and the check of results for secrets."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio
from anyio import to_thread

from ...context import ExecutionContext
from ...deprecated_names import renamed_names
from ...errors import ConfigError, FileError, HarnessError, ToolError
from ...fleets.inventories.inventory import Inventory
from ...patterns.wildcards import has_wildcard
from ..contract import Hook, HostRequest, PermissionRequest, Policy
from ..hooks.dispatch import refused_question
from ..interfaces import Verdict
from ..result_cache import DEPENDS
from ..values import JsonObject, ToolCall, ToolResult
from .access_requests import path_forms, read_claims
from .approver import Approver
from .asking import ask, no_approver, question_of
from .decision import Decision, DecisionContext, DecisionStep, decide
from .host_questions import HostQuestion, merge_questions, single_answer
from .paths.hard_denials import HardDenials
from .paths.target_paths import RealPath
from .questions import (
    AccessRequest,
    ApprovalDecision,
    ApprovalRequest,
    ApprovalScope,
    may_be_kept,
    rules_of,
)
from .remembered_answers import SessionGrants, TimedApproval, elapsed
from .rules.host_rules import AppliedRules, HostRules
from .rules.rule import Action, Rule, RuleIndex
from .rules.settings import PROTECTED, PermissionSettings, SecretPaths
from .rules.store import LoadedRules, RuleFile

if TYPE_CHECKING:
    from ..contract import CallNotes, ToolContext, ToolLookup

__all__ = [
    "RulePolicy",
    "SecretGuard",
    "filter_unreadable",
    "filter_unwritable",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, found_among="filter_unreadable", locked_among="filter_unwritable")


# -- A second check of the files read: a link may point to a secret after the decision.


class SecretGuard(Hook):
    """Hook that withholds a result that depends on a secret, by the real paths that the tool reports."""

    def __init__(self, policy: RulePolicy) -> None:
        self._policy = policy

    async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
        """Return the result, or a denial without its content."""
        for path in _files(result):
            try:
                reason = await self._policy.read_denial(path, ctx.execution)
            except Exception as error:  # otherwise the pipeline would return the result
                reason = f"could not check whether {path} may be shown: {type(error).__name__}"
            if reason:
                return ToolResult.failure("denied", f"not shown: {reason}")
        return result


def _files(result: ToolResult) -> Iterator[str]:
    named = result.metadata.get(DEPENDS)
    for entry in named if isinstance(named, list) else ():
        if isinstance(entry, list) and entry and isinstance(entry[0], str):
            yield entry[0]


# -- Filters of many paths, for tools that search a directory.


THREAD_THRESHOLD = 500
"""Number of paths above which they are checked in a thread, to not block the event loop."""
READER = "read_file"
"""A rule that denies a file to this tool denies its content to all tools."""


async def filter_unreadable(
    paths: Collection[str],
    execution: ExecutionContext,
    denials: HardDenials,
    rules: Sequence[RuleIndex],
    top: str,
    holders: Collection[str] | None,
) -> frozenset[str]:
    """Return the real paths that are secrets, denied by a rule, or excluded by an ``.aiexclude``.

    Args:
        paths: real paths.
        execution: the target.
        denials: the hard denials.
        rules: the rules that may deny.
        top: the directory that is searched.
        holders: the directories from ``top`` on with an ``.aiexclude``; None if unknown.

    Raises:
        HarnessError: the connection was lost.
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
    """Return the real paths that are protected, or that a rule denies to this tool."""

    def by_name() -> frozenset[str]:
        home = execution.capabilities.home
        return frozenset(path for path in paths if denials.locked(path, home) or _denied(path, tool, execution, rules))

    return await to_thread.run_sync(by_name) if len(paths) > THREAD_THRESHOLD else by_name()


def _denied(path: str, tool: str, execution: ExecutionContext, rules: Sequence[RuleIndex]) -> bool:
    forms = path_forms(RealPath(path, path, path), tool, execution) if rules else ()
    return any(index.first(forms, (Action.DENY,)) is not None for index in rules)


# -- The policy.


NOT_DECIDED = Verdict(False, "not decided", "policy")
AT_ONCE = 64
"""Maximum hosts that are asked at the same time what a call would access."""
FRESH = 0.25
"""Seconds for which the user's rule file is not checked again."""

_Changed = tuple[JsonObject | str, str]
"""The arguments of a call as an approver changed them, and who approved."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Approved:
    """The claims of an approval request, and the decision that allows them."""

    asks: tuple[AccessRequest, ...]
    verdict: Verdict


@dataclass(slots=True)
class _OnHost:
    """The decision for one host of a call."""

    host: HostRequest
    changed_by: str
    claims: tuple[AccessRequest, ...] = ()
    decision: Decision | None = None
    question: ApprovalRequest | None = None
    verdict: Verdict = NOT_DECIDED
    error: HarnessError | None = None

    @property
    def asks(self) -> bool:
        """Whether the host requires approval."""
        return self.error is None and self.decision is not None and self.decision.action is Action.ASK

    @property
    def obstacle(self) -> str:
        """Why the call does not run on the host; empty if it may."""
        if self.error is not None:
            return self.error.message
        return "" if self.verdict.allowed else self.verdict.reason

    def outcome(self) -> Verdict | HarnessError:
        """Return the redacted verdict, or the error."""
        return self.error or _redacted(self.verdict, self.claims, self.changed_by, self.host.ctx)


async def _each(together: Sequence[_OnHost], work: Callable[[_OnHost], Awaitable[None]]) -> None:
    """Call a function with each host, a limited number at the same time."""
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def limited(one: _OnHost) -> None:
        async with limiter:
            await work(one)

    async with anyio.create_task_group() as tasks:
        for one in together:
            tasks.start_soon(limited, one)


class RulePolicy(Policy):
    """Policy that decides by hard denials, rules, the mode, and the approver; see :mod:`.decision` for the order.

    Args:
        settings: the ``[permissions]`` settings.
        approver: decides approval requests; None denies calls that would ask.
        file: the user's rule file; None stores no rules.
        timed: approvals in advance.
        clock: monotonic seconds.
        inventory: the groups of hosts that rules may name.
    """

    def __init__(
        self,
        settings: PermissionSettings | None = None,
        *,
        approver: Approver | None = None,
        file: RuleFile | None = None,
        timed: TimedApproval | None = None,
        clock: Callable[[], float] = elapsed,
        inventory: Inventory | None = None,
    ) -> None:
        self.settings = settings or PermissionSettings()
        self.approver = approver
        self.timed = timed or TimedApproval(clock)
        self._file = file
        self._clock = clock
        self._denials = HardDenials(self.settings, clock, _own_files(file), _own_places(file))
        self._names: dict[str, str] = {}
        self._inventory = inventory
        self._tools_of_rules = RuleIndex(self.settings.rules).tools
        self._profile = HostRules(self.settings.rules, inventory)
        self._only = self.settings.allowed_tools
        self._stored = LoadedRules()
        self._stored_rules = HostRules(())
        self._looked = float("-inf")
        self._family = SessionGrants()
        self._changed: WeakKeyDictionary[CallNotes, _Changed] = WeakKeyDictionary()
        """By call, until it is decided again or finished."""
        self._approved: WeakKeyDictionary[CallNotes, _Approved] = WeakKeyDictionary()
        """By call, until it is finished."""

    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        """Decide a call, asking the approver if necessary.

        Args:
            request: the call.
            ctx: its context.

        Returns:
            The verdict, redacted.

        Raises:
            ToolError: ``permission_failure``: the target could not report what the call would access.
        """
        changed_by = self._changed_by(request, ctx)
        claims = await self._claims(request, ctx)
        verdict = await self._verdict(claims, request, ctx, changed_by)
        return _redacted(verdict, claims, changed_by, ctx)

    async def decide_hosts(
        self, requests: Sequence[HostRequest], call: ToolCall, ctx: ToolContext
    ) -> list[Verdict | HarnessError]:
        """Decide a call for each of its hosts, with one approval request for all that require approval.

        An approval is kept for each host on its own.
        """
        together = [_OnHost(one, self._changed_by(one.request, one.ctx)) for one in requests]
        await self._look_at(together)
        if any(one.asks for one in together):
            turn = self._family.turn(ctx.session_id)
            waits = turn.locked()
            async with turn:
                if waits:  # as for one target
                    await self._look_at(together)
                await self._ask_for(together, call, ctx)
                if self.approver is not None and any(one.verdict.allowed for one in together):
                    await self.approver.ready()
                await _each(together, self._recheck_on)
        return [one.outcome() for one in together]

    async def explain(self, request: PermissionRequest, ctx: ToolContext) -> Decision:
        """Return the decision about a call and its reason, without asking the approver.

        Raises:
            ToolError: as for :meth:`decide`.
        """
        return await self._decision(await self._claims(request, ctx), request, ctx)

    def hidden(self, path: str, home: str) -> str:
        """Return why a path on the target is a secret, for tools that list or search; empty if it is not."""
        return self._denials.hidden(path, home)

    async def read_denial(self, path: str, execution: ExecutionContext) -> str:
        """Return why reading a file is a hard denial, by its real path on the target; empty if it is not.

        Raises:
            HarnessError: the connection was lost.
        """
        return await self._denials.of_path(RealPath(path, path, path), execution, writes=False)

    async def unreadable_paths(
        self, paths: Collection[str], ctx: ToolContext, *, top: str, holders: Collection[str] | None = None
    ) -> frozenset[str]:
        """Return secrets, paths denied by rules, and excluded paths; see :meth:`Policy.unreadable_paths`.

        Raises:
            HarnessError: the connection was lost.
        """
        forbidding = await self._forbidding(ctx)
        return await filter_unreadable(paths, ctx.execution, self._denials, forbidding, top, holders)

    async def unwritable_paths(self, paths: Collection[str], ctx: ToolContext, *, tool: str) -> frozenset[str]:
        """Return protected files and files that rules deny to this tool; see :meth:`Policy.unwritable_paths`."""
        return await filter_unwritable(paths, tool, ctx.execution, self._denials, await self._forbidding(ctx))

    async def _forbidding(self, ctx: ToolContext) -> tuple[RuleIndex, ...]:
        """Return the rule indexes that contain deny rules."""
        await self._look()
        self._index_tool_names(ctx.registry)
        own, stored = self._on_host(ctx)
        indexes = (self._family.rules(ctx.session_id), stored.rules, stored.undecided, own.rules, own.undecided)
        return tuple(index for index in indexes if any(rule.action is Action.DENY for rule in index.rules))

    def _on_host(self, ctx: ToolContext) -> tuple[AppliedRules, AppliedRules]:
        """Return the rules of the settings and those of the rule file that apply to the host of a call."""
        host, target = ctx.host, ctx.execution.target
        return self._profile.on(host, target), self._stored_rules.on(host, target)

    def session_rules(self, session_id: str) -> tuple[Rule, ...]:
        """Return the rules decided in a session, the latest first."""
        return self._family.own(session_id)

    def end_session(self, session_id: str) -> None:
        """Forget the decisions of a session and of its sub-agents."""
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
            if waits:  # a decision made meanwhile may apply here, and the files may have changed
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
        traits, (own, stored) = request.tool.traits, self._on_host(ctx)
        undecided = own.undecided
        if stored.undecided.rules:
            undecided = RuleIndex((*stored.undecided.rules, *undecided.rules), self._names)
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
                stored=stored.rules,
                profile=own.rules,
                undecided=undecided,
                failure=self._stored.failure,
            ),
        )

    async def _look(self) -> None:
        """Reload the rule file if it changed: other processes write it, too."""
        if self._file is None or self._clock() - self._looked < FRESH:
            return
        stored = await to_thread.run_sync(self._file.load)
        if stored is not self._stored:
            if stored.failure:
                log.warning("cannot use the permission rules, approval is required for every call: %s", stored.failure)
            self._stored, self._stored_rules = stored, HostRules(stored.rules, self._inventory, self._names)
        self._looked = self._clock()

    def _index_tool_names(self, registry: ToolLookup) -> None:
        """Apply rules for an alias or profile name of a tool to the tool; the registered tools may have changed."""
        tools = registry.list()
        names = {alias: tool.name for tool in tools for alias in tool.traits.aliases}
        named = {*self._tools_of_rules, *self._stored_rules.tools, *self.settings.allowed_tools}
        if unknown := {name for name in named - names.keys() - {tool.name for tool in tools} if not has_wildcard(name)}:
            from ..tool_profiles import face_names  # imports every profile

            names |= {name: tool for name, tool in face_names().items() if name in unknown}
        if names == self._names:
            return
        self._names = names
        self._profile = HostRules(self.settings.rules, self._inventory, names)
        self._stored_rules = HostRules(self._stored.rules, self._inventory, names)
        self._only = tuple(names.get(name, name) for name in self.settings.allowed_tools)

    # -- deciding for many hosts

    async def _look_at(self, together: Sequence[_OnHost]) -> None:
        """Decide for each host, without asking."""

        async def look(one: _OnHost) -> None:
            request, ctx = one.host.request, one.host.ctx
            try:
                one.claims = await self._claims(request, ctx)
                one.decision = await self._decision(one.claims, request, ctx)
                one.verdict = _verdict(one.decision)
            except HarnessError as error:
                one.error = error

        await _each(together, look)

    async def _ask_for(self, together: Sequence[_OnHost], call: ToolCall, ctx: ToolContext) -> None:
        """Ask once for all hosts that require approval; without it, the call runs on no host."""
        asking = [one for one in together if one.asks]
        questions = [one for one in asking if not await self._settled(one)]
        settled = [one for one in asking if not any(one is other for other in questions)]
        refused = next((one for one in settled if not one.verdict.allowed), None)
        if questions and refused is None:  # otherwise no answer would let it run
            question = self._question_for(questions, together, call, ctx)
            assert self.approver is not None
            answer = single_answer(await ask(self.approver, question, self.settings.approval_timeout, ctx), call)
            for one in questions:
                assert one.decision is not None
                one.verdict = await self._answered(answer, one.decision, one.host.request, one.host.ctx)
            if answer.call is not None and answer.scope.allows:  # the other hosts must run the same
                for one in together:
                    if one.error is None and one.verdict.allowed and one.verdict.call is None:
                        one.verdict = replace(one.verdict, call=answer.call)
            refused, questions = next((one for one in questions if not one.verdict.allowed), None), []
        if refused is not None:
            for one in together:
                if one.verdict.allowed or any(one is other for other in questions):
                    reason = f"it was not approved for {refused.host.name}: {refused.verdict.reason}"
                    one.verdict = Verdict(False, reason, refused.verdict.by)

    async def _settled(self, one: _OnHost) -> bool:
        """Decide a host that asks without the approver, if that is possible."""
        request, ctx = one.host.request, one.host.ctx
        assert one.decision is not None
        found = Verdict(True, "approved", one.changed_by) if one.changed_by else None
        found = found or self._without_asking(one.decision, request, ctx)
        if found is None:
            one.question = question_of(request, one.decision, ctx)
            refusal = await refused_question(request, one.question.reason, ctx)
            found = Verdict(False, refusal, "hook") if refusal is not None else None
        if found is not None:
            one.verdict = found
        return found is not None

    def _question_for(
        self, asked: Sequence[_OnHost], together: Sequence[_OnHost], call: ToolCall, ctx: ToolContext
    ) -> ApprovalRequest:
        others = [one for one in together if not any(one is other for other in asked)]
        return merge_questions(
            [HostQuestion(one.host.name, one.question) for one in asked if one.question is not None],
            call,
            allowed=[one.host.name for one in others if one.error is None and one.verdict.allowed],
            denied=[(one.host.name, ctx.redactor.text(one.obstacle)) for one in others if one.obstacle],
        )

    async def _recheck_on(self, one: _OnHost) -> None:
        """Check that what was decided for a host is still true after the approval."""
        if one.error is not None:
            return
        try:
            one.verdict = await self._recheck(one.verdict, one.claims, one.host.request, one.host.ctx)
        except HarnessError as error:
            one.error = error

    # -- asking

    async def _recheck(
        self, verdict: Verdict, claims: Sequence[AccessRequest], request: PermissionRequest, ctx: ToolContext
    ) -> Verdict:
        """Check that the approved access is unchanged: a link may have changed while the request was pending."""
        if not verdict.allowed or verdict.call is not None:
            return verdict
        now = await self._claims(request, ctx)
        if [claim.whole for claim in now] != [claim.whole for claim in claims]:
            return Verdict(False, "what it would access has changed while approval was pending; try again", "policy")
        decision = await self._decision(now, request, ctx)
        return _verdict(decision) if decision.action is Action.DENY else verdict

    async def _asked(self, decision: Decision, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        known = self._without_asking(decision, request, ctx)
        if known is not None:
            return known
        question = question_of(request, decision, ctx)
        refusal = await refused_question(request, question.reason, ctx)
        if refusal is not None:
            return Verdict(False, refusal, "hook")
        assert self.approver is not None
        answer = await ask(self.approver, question, self.settings.approval_timeout, ctx)
        return await self._answered(answer, decision, request, ctx)

    def _without_asking(self, decision: Decision, request: PermissionRequest, ctx: ToolContext) -> Verdict | None:
        """Return the verdict of a call that asks, if the approver need not or cannot be asked."""
        in_advance = self._in_advance(decision, request)
        if in_advance is not None:
            return in_advance
        known = self._approved.get(ctx.notes)
        if ctx.notes.begun and known is not None and known.asks == decision.asks:  # a recheck before it acts
            return known.verdict
        if self.approver is None:
            advice = no_approver(may_be_kept(decision.asks), broken=decision.step is DecisionStep.BROKEN)
            return Verdict(False, f"{decision.reason}; {advice}", "no approver")
        return None

    async def _answered(
        self, answer: ApprovalDecision, decision: Decision, request: PermissionRequest, ctx: ToolContext
    ) -> Verdict:
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
            return Verdict(False, "every approval request is denied (/approve none)", "timed approval")
        if self.timed.approves(request.backend) and not any(claim.must_ask for claim in decision.asks):
            return Verdict(True, "approved in advance", "timed approval")
        return None

    def _changed_by(self, request: PermissionRequest, ctx: ToolContext) -> str:
        """Return who changed the call into this one and so approved it; only denials still apply to it."""
        arguments, by = self._changed.pop(ctx.notes, ("", ""))
        return by if request.call.arguments == arguments else ""

    async def _keep(
        self, answer: ApprovalDecision, claims: Sequence[AccessRequest], request: PermissionRequest, ctx: ToolContext
    ) -> None:
        """Store a decision as rules; rules that cannot be written to the file apply to the session."""
        directories = await _directories(claims, ctx) if answer.scope is ApprovalScope.DIRECTORY else ()
        rules = rules_of(answer, claims, tool=request.call.name, identity=request.backend, directories=directories)
        if not rules:
            return
        self._family.add(ctx.session_id, rules)
        if answer.scope is ApprovalScope.ALWAYS:
            await self._write_down(rules, ctx)

    async def _write_down(self, rules: Sequence[Rule], ctx: ToolContext) -> None:
        if any(ctx.redactor.text(rule.argument or "") != rule.argument for rule in rules):
            log.warning("the approval decision applies to this session only: its text contains a secret")
        elif self._file is None:
            log.warning("the approval decision applies to this session only: no rule file is configured")
        else:
            try:
                await to_thread.run_sync(self._file.add, rules)
            except ConfigError as error:
                log.warning("the approval decision applies to this session only: %s", error)
            self._looked = float("-inf")


def _redacted(verdict: Verdict, claims: Sequence[AccessRequest], changed_by: str, ctx: ToolContext) -> Verdict:
    redact, secret = ctx.redactor.text, any(claim.secret for claim in claims)
    reason = f"as {changed_by} changed it: {verdict.reason}" if changed_by else verdict.reason
    return replace(verdict, reason=redact(reason), by=redact(verdict.by), secret=secret)


def _verdict(decision: Decision) -> Verdict:
    return Verdict(decision.action is Action.ALLOW, decision.reason, decision.by)


def _own_files(file: RuleFile | None) -> tuple[str, ...]:
    """Return patterns of the local settings and audit files, which no call may write wherever they are."""
    if file is None:
        return ()
    config, state = _own_places(file)[0], _state()
    names = [str(file.path), f"{config}/config.toml", f"{config}/tools"]
    names += [f"{state}/{name}" for name in ("audit", "mcp", "live", "web", "lent-panes")]
    usual = SecretPaths(PROTECTED)
    every = dict.fromkeys(path for name in names for path in (name, posixpath.realpath(name)))
    own = [path for path in every if not usual.matching(path, "")]
    return (*own, *(f"{path}/**" for path in own if not path.endswith((".json", ".toml"))))


def _own_places(file: RuleFile | None) -> tuple[str, ...]:
    """Return the directories of the settings and of the audit log and its neighbors."""
    if file is None:
        return ()
    names = [str(file.path.parent), _state()]
    return tuple(dict.fromkeys(path for name in names for path in (name, posixpath.realpath(name))))


def _state() -> str:
    from ..audit.directory import audit_directory  # imports the database

    return str(audit_directory().parent)


def _unknown(error: Exception) -> Exception:
    """Return the error for a call whose access the target could not report; the call did not run."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, HarnessError):
        return error
    message = f"could not determine what the call would access, so it was not run: {error.message}"
    return ToolError(message, code="permission_failure", target=error.target, hint=error.hint)


async def _directories(claims: Sequence[AccessRequest], ctx: ToolContext) -> tuple[str, ...]:
    """Return the real directory of each file on the target; for a directory, itself."""
    found = []
    for claim in claims:
        try:
            stat = await ctx.execution.stat(claim.whole.text)
            found.append(stat.path if stat.type == "dir" else posixpath.dirname(stat.path))
        except FileError:
            found.append(posixpath.dirname(claim.whole.text))
    return tuple(name for name in dict.fromkeys(found) if name not in ("", "/"))
