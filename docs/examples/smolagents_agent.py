"""An agent of smolagents with a tool that runs commands on a target. Usage: smolagents_agent.py MODEL [TARGET]"""

import sys

from anyio.from_thread import start_blocking_portal
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

import harness
from harness.toolkit import ToolCall, open_executor

QUESTION = "How full is the disk? One sentence."


def main(model: str, target: str = "local:") -> None:
    with (
        start_blocking_portal() as portal,  # smolagents calls its tools outside of the event loop
        portal.wrap_async_context_manager(harness.connect(target)) as ctx,
        portal.wrap_async_context_manager(open_executor(ctx)) as executor,
    ):

        @tool
        def run_shell(command: str) -> str:
            """Runs a shell command on the target.

            Args:
                command: The command.
            """
            outcome = portal.call(executor.call, ToolCall("run_shell", {"command": command}))
            return outcome.result.text

        agent = ToolCallingAgent(tools=[run_shell], model=OpenAIServerModel(model))
        print(agent.run(QUESTION))


main(*sys.argv[1:])
