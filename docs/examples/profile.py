"""A profile with one face, and a call of it: ``python profile.py``."""

import anyio

# --8<-- [start:profile]
from pydantic import Field

from harness.toolkit import Arguments, RenderedResult, ToolAdapter, ToolProfile, ToolResult


class Open(Arguments):
    fileName: str = Field(description="Which file")
    firstLine: int = Field(1, ge=1, description="Where to begin")


def shown(args: Open, result: ToolResult) -> RenderedResult | None:
    return None if result.is_error else RenderedResult(f"{args.fileName}:\n{result.text}")


OPEN = ToolAdapter(
    tool="read_file",
    name="open",
    description="Open a file.",
    arguments=Open,
    fields={"fileName": "path", "firstLine": "offset"},  # theirs: ours
    more=lambda args: {"line_numbers": True},
    render=shown,  # None: as the profile says errors, or as it is
)


def profile() -> ToolProfile:
    return ToolProfile("acme", (OPEN,), failed=lambda text: f"ERROR {text}")


# --8<-- [end:profile]


async def main() -> None:
    """Show a file as the profile shows it."""
    import harness
    from harness.toolkit import ToolCall, open_toolkit

    async with harness.connect("local:") as execution, open_toolkit() as toolkit:
        registry = await profile().over(toolkit.known).available(execution)
        async with toolkit.executor(execution, registry=registry) as executor:
            done = await executor.call(ToolCall("open", {"fileName": "/etc/hostname"}))
            print(done.result.text)
            done = await executor.call(ToolCall("open", {"fileName": "/etc/no-such-file"}))
            print(done.result.text)


if __name__ == "__main__":
    anyio.run(main)
