"""Sub-agents without a model, which make scripted calls, for tests of code that starts sub-agents.

>>> spawner = ScriptedSpawner([ToolCall("read_file", {"path": "notes"})])
>>> async with toolkit.executor(execution, spawner=spawner) as executor:
...     await executor.call(ToolCall("task", {"prompt": "read the notes"}))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..toolkit.delegation import AgentType, SpawnRequest, SpawnResult
from ..toolkit.executor import Executor, Spawner
from ..toolkit.values import CallOutcome, ToolCall

__all__ = ["Script", "ScriptedSpawner"]

Script = Callable[[SpawnRequest, Executor], Awaitable[SpawnResult]]
"""A function that does the work of a sub-agent."""


class ScriptedSpawner(Spawner):
    """Spawner of scripted sub-agents; the text of the last result is the agent's answer.

    Args:
        script: The calls of each agent, or a function that does everything.
        types: Additional types of agents.
    """

    def __init__(self, script: Sequence[ToolCall] | Script = (), types: Sequence[AgentType] = ()) -> None:
        self._script = script
        self._types = types
        self.requests: list[SpawnRequest] = []
        self.executors: list[Executor] = []
        self.outcomes: list[CallOutcome] = []

    def types(self) -> Sequence[AgentType]:
        """See :class:`Spawner`."""
        return self._types

    async def spawn(self, request: SpawnRequest, executor: Executor) -> SpawnResult:
        """See :class:`Spawner`."""
        self.requests.append(request)
        self.executors.append(executor)
        if callable(self._script):
            return await self._script(request, executor)
        text = ""
        for call in self._script:
            outcome = await executor.call(call)
            self.outcomes.append(outcome)
            text = outcome.result.text
        return SpawnResult(text)
