"""One turn of a model, without its client library. Usage: model_turn.py [TARGET]"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import anyio

import harness
from harness.toolkit import open_executor, provider


def ask(request: Mapping[str, Any]) -> dict[str, Any]:
    """Stands for a POST of the request to the API: the model reads a file that is not there."""
    assert any(tool["name"] == "read_file" for tool in request["tools"])
    call = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "/nowhere"}}
    return {"id": "msg_1", "role": "assistant", "stop_reason": "tool_use", "content": [call]}


async def main(target: str) -> None:
    async with harness.connect(target) as execution, open_executor(execution) as executor:
        # --8<-- [start:turn]
        api = provider("anthropic")
        tools = executor.registry.list()
        messages: list[Any] = [{"role": "user", "content": "What is in /nowhere?"}]

        response = ask({"model": "...", "max_tokens": 1000, "messages": messages, **api.request(tools)})
        messages.append({"role": response["role"], "content": response["content"]})

        turn = api.calls(response, tools)
        outcomes = await executor.batch(turn.calls)
        messages += api.results([*outcomes, *turn.withheld], tools)
        # --8<-- [end:turn]
        print(json.dumps(messages[-1], indent=1))


anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "local:")
