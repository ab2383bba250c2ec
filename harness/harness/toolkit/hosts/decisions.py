"""One decision for all hosts of a call: each waits until all are to be decided, and no host starts before that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

import anyio
from anyio.abc import TaskGroup

from ...errors import HarnessError, ToolError
from ..contract import HostRequest, PermissionRequest, Policy, ToolContext
from ..interfaces import Verdict

__all__ = ["HostPolicy", "JointDecision"]

Decide = Callable[[Sequence[HostRequest]], Awaitable[list[Verdict | HarnessError]]]


class JointDecision:
    """Collects the requests of all hosts, has them decided at once, and hands out the verdicts.

    A host whose call the approver has changed is decided again, with the others of which that is true.

    Args:
        hosts: The names of the hosts; each must ask, or :meth:`leave`.
        decide: Decides the requests of all hosts.
        tasks: Runs the decision.
    """

    def __init__(self, hosts: Collection[str], decide: Decide, tasks: TaskGroup) -> None:
        self._order = tuple(hosts)
        self._missing = set(hosts)
        self._decide = decide
        self._tasks = tasks
        self._waiting: dict[str, HostRequest] = {}
        self._verdicts: dict[str, Verdict | HarnessError] = {}
        self._decided = anyio.Event()

    async def verdict(self, request: HostRequest) -> Verdict:
        """Wait until all hosts are decided, and return the verdict of this one.

        Raises:
            HarnessError: The decision failed.
        """
        decided = self._decided
        self._waiting[request.name] = request
        self._missing.discard(request.name)
        self._start()
        await decided.wait()
        verdict = self._verdicts[request.name]
        if isinstance(verdict, HarnessError):
            raise verdict
        return verdict

    def leave(self, name: str) -> None:
        """Decide without this host: its call has ended, or runs."""
        self._missing.discard(name)
        self._start()

    def _start(self) -> None:
        if self._waiting and not self._missing:
            requests = [self._waiting[name] for name in self._order if name in self._waiting]
            self._waiting = {}
            self._tasks.start_soon(self._run, requests)

    async def _run(self, requests: Sequence[HostRequest]) -> None:
        try:
            verdicts = await self._decide(requests)
        except HarnessError as error:
            verdicts = [error] * len(requests)
        except Exception as error:  # a decision that failed allows nothing
            problem = f"the decision whether it may run failed: {type(error).__name__}: {error}"
            verdicts = [ToolError(problem, code="permission_failure")] * len(requests)
        self._verdicts = dict(zip((one.name for one in requests), verdicts, strict=True))
        self._missing = {name for name, one in self._verdicts.items() if _is_changed(one)}
        self._decided.set()
        self._decided = anyio.Event()


def _is_changed(verdict: Verdict | HarnessError) -> bool:
    return isinstance(verdict, Verdict) and verdict.allowed and verdict.call is not None


class HostPolicy(Policy):
    """The policy as the call path of one host sees it: a decision about the call is made for all hosts.

    Args:
        name: The host's name.
        policy: The policy of the session, which decides what a running call accesses.
        decision: The decision of the call.
    """

    def __init__(self, name: str, policy: Policy, decision: JointDecision) -> None:
        self._name = name
        self._policy = policy
        self._decision = decision

    async def decide(self, request: PermissionRequest, ctx: ToolContext) -> Verdict:
        if ctx.notes.begun:
            return await self._policy.decide(request, ctx)
        return await self._decision.verdict(HostRequest(self._name, request, ctx))
