"""A turn of an agent from a program: what the prompt does, without a prompt."""

import anyio

import harness
from harness.agent import AnswerDelta, load_models, open_agent
from harness.toolkit import load_toolkit_settings, open_toolkit


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
