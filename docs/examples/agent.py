"""A turn of an agent from a program: what the prompt does, without a prompt."""

import anyio

import harness
from harness.agent.events import AnswerDelta
from harness.agent.models import load_models
from harness.agent.opening import open_agent
from harness.toolkit.assembly import load_toolkit_settings, open_toolkit


async def main() -> None:
    model = load_models().profile()
    async with (
        harness.connect("local:") as ctx,
        open_toolkit(load_toolkit_settings()) as toolkit,
        open_agent(ctx, toolkit, model) as agent,  # nobody to ask: only what the policy allows runs
    ):
        with agent.events.subscribe() as events:
            result = await agent.turn("How full is the disk? One sentence.")
        print("".join(event.text for event in events.drain() if isinstance(event, AnswerDelta)))
        print(result.status, result.steps, "answers,", result.spent.tokens, "tokens")


anyio.run(main)
