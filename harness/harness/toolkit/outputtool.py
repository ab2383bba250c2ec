"""The tool with which a model reads on where the result of a call was cut."""

from __future__ import annotations

from pydantic import Field

from .context import ToolContext
from .contract import Arguments, OutputLimit, Tool, Traits
from .outputs import OutputStore
from .values import ToolResult

__all__ = ["ReadOutput"]

SHOWN = 15_000
MOST_SHOWN = 60_000


class _Arguments(Arguments):
    handle: str = Field(description="as the cut result names it: output:...")
    offset: int = Field(0, description="character to start at; a negative one counts from the end")
    limit: int = Field(SHOWN, ge=1, le=MOST_SHOWN, description="how many characters at most")


class ReadOutput(Tool[_Arguments]):
    """``read_output``. It reads what is kept on this machine, never the target."""

    def __init__(self, store: OutputStore) -> None:
        text = "Read on in a result that was too long to be shown whole. The result names its handle where it was cut."
        traits = Traits(parallelizable=True, packs=("core",), limit=OutputLimit(MOST_SHOWN + 1_000, 0))
        super().__init__("read_output", text, _Arguments, traits)
        self._store = store

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        page = await self._store.page(args.handle, args.offset, args.limit)
        end = page.offset + len(page.text)
        rest = "" if page.next is None else f"; go on with offset={page.next}"
        note = f"[characters {page.offset} to {end} of {page.total}{rest}]"
        return ToolResult.of(
            f"{page.text}\n{note}" if page.text else note, data={"next": page.next, "total": page.total}
        )
