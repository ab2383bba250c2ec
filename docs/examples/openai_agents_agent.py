"""An agent of the OpenAI Agents SDK, with tools over MCP. Usage: openai_agents_agent.py MODEL [TARGET]"""

import asyncio
import sys

from agents import Agent, Runner
from agents.mcp import MCPServerStdio

QUESTION = "How full is the disk? One sentence."


async def main(model: str, target: str = "local:") -> None:
    command = {"command": "harness", "args": ["mcp", "--target", target]}
    async with MCPServerStdio(command, client_session_timeout_seconds=60) as server:  # a call returns within 45 s
        agent = Agent("operator", instructions="You look after this machine.", model=model, mcp_servers=[server])
        result = await Runner.run(agent, QUESTION)
    print(result.final_output)


asyncio.run(main(*sys.argv[1:]))
