"""An agent of pydantic-ai with the tools of a target. Usage: pydantic_ai_agent.py MODEL [TARGET]"""

import sys

import anyio
from pydantic_ai import Agent

import harness


async def main(model: str, target: str) -> None:
    async with harness.connect(target) as ctx, harness.toolset(ctx) as tools:
        agent = Agent(model, instructions="You look after this machine.", toolsets=[tools])
        async with agent:  # closes the model's connections at the end
            run = await agent.run("How full is the disk? One sentence.")
    print(run.output)


anyio.run(main, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "local:")
