"""An agent of LangGraph with the tools of a target, over MCP. Usage: langgraph_agent.py MODEL [TARGET]"""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

QUESTION = "How full is the disk? One sentence."


async def main(model: str, target: str = "local:") -> None:
    server = {"transport": "stdio", "command": "harness", "args": ["mcp", "--target", target]}
    client = MultiServerMCPClient({"harness": server})
    async with client.session("harness") as session:  # one session for all calls
        agent = create_agent(model, await load_mcp_tools(session))
        state = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]})
    print(state["messages"][-1].content)


asyncio.run(main(*sys.argv[1:]))
