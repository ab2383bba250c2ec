"""Make ``docs/tools/*.md``: what each tool is told to models as, and what it really answers.

The examples are ``docs/examples/tools/*.toml``, one page each. They run through a whole executor, in a tmux session on
this machine that only this program knows, each in a directory of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs/examples/tools"
PAGES = ROOT / "docs/tools"
HOME = "/home/you"
"""Where the examples seem to run."""
SHOWN_LINES = 40
TIMEOUT = 60.0
INTENT = frozenset({"risk", "mutation", "privesc", "why"})
INTENTS = "Also `risk`, `mutation`, `privesc` and `why`, [for the approver](../toolkit.md#what-it-would-touch)."


@dataclass(frozen=True)
class Example:
    """One call. ``setup`` is shell text that makes its directory; ``first`` are calls that come before it, unseen.

    ``hide`` are regular expressions of what differs from run to run: it is shown as an ellipsis.
    """

    tool: str
    about: str
    arguments: dict[str, Any]
    setup: str = ""
    first: tuple[dict[str, Any], ...] = ()
    hide: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """The examples of one file, and its first words."""

    name: str
    title: str
    about: str
    examples: tuple[Example, ...] = field(default=())


def pages() -> list[Page]:
    """What the example files say."""
    return [_page(path) for path in sorted(EXAMPLES.glob("*.toml"))]


def _page(path: Path) -> Page:
    table = tomllib.loads(path.read_text())
    examples = tuple(
        Example(**{key: tuple(value) if isinstance(value, list) else value for key, value in one.items()})
        for one in table.get("example", [])
    )
    return Page(path.stem, table.get("title", path.stem.replace("-", ": ")), table.get("about", ""), examples)


# -- running them


@contextmanager
def _own_home() -> Iterator[Path]:
    """A home that only this program knows: settings, state, audit and tmux sessions are below it."""
    with TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "you"
        home.mkdir(mode=0o700)
        for name in [name for name in os.environ if name.startswith(("XDG_", "HARNESS_", "TMUX"))]:
            del os.environ[name]
        os.environ |= {"HOME": str(home), "TMUX_TMPDIR": folder, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        os.environ |= {"GIT_AUTHOR_NAME": "you", "GIT_AUTHOR_EMAIL": "you@example.org", "TZ": "UTC"}
        os.environ |= {"GIT_COMMITTER_NAME": "you", "GIT_COMMITTER_EMAIL": "you@example.org"}
        yield home


@asynccontextmanager
async def _executor(home: Path) -> AsyncIterator[Any]:
    """An executor with every tool; what would be asked is approved."""
    import harness
    from harness.testing.agents import ScriptedSpawner
    from harness.toolkit import ToolCall
    from harness.toolkit.assembly import ToolkitSettings, open_toolkit
    from harness.toolkit.catalog import ToolSettings
    from harness.toolkit.delegation import SpawnRequest, SpawnResult
    from harness.toolkit.interfaces import Compaction, Compactor
    from harness.toolkit.permissions.approver import Approver
    from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
    from harness.toolkit.session.questions import Questioner, QuestionReply, QuestionSet, Replies
    from harness.toolkit.web_settings import SearchSettings, WebSettings

    class Yes(Approver):
        async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
            return ApprovalDecision(ApprovalScope.ONCE)

    class Short(Compactor):
        async def compact(self, session_id: str) -> Compaction:
            return Compaction(
                42, 6, "nginx did not start, because port 80 was taken; apache2 was stopped, and it runs."
            )

    class First(Questioner):
        async def ask(self, asked: QuestionSet) -> Replies:
            return tuple(QuestionReply((0,)) for _ in asked.questions)

    async def look(request: SpawnRequest, executor: Any) -> SpawnResult:
        """What a model would do: count the lines of the files in the directory that the prompt names."""
        place = next(word for word in request.prompt.rstrip("?.").split() if word.startswith("/"))
        done = await executor.call(ToolCall("run_shell", {"command": f"wc -l {place}/*.log | sort -n | tail -n 2"}))
        lines, path = done.result.data["stdout"].split()[:2]
        return SpawnResult(f"{path} has the most lines: {lines}.")

    settings = ToolkitSettings(
        tools=ToolSettings(extra_packs=("dev", "web", "agents")),
        web=WebSettings(search=SearchSettings("searxng", "http://127.0.0.1:8766")),
    )
    async with (
        harness.connect("local:", tmux=True, cwd=str(home)) as execution,
        open_toolkit(settings) as toolkit,
        toolkit.executor(
            execution, approver=Yes(), questioner=First(), spawner=ScriptedSpawner(look), compactor=Short()
        ) as executor,
    ):
        yield executor


async def _run(executor: Any, example: Example, home: Path) -> str:
    from harness.toolkit import ToolCall

    place = home / "example"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if example.setup:
        done = await executor.execution.run_shell(f"set -e\n{example.setup}", tty=False, cwd=str(place))
        if done.exit_code:
            raise SystemExit(f"{example.tool}: {example.about}: the setup failed: {done.stdout}{done.stderr}")
    words = {"{here}": str(place)}
    for call in (*example.first, {"tool": example.tool, "arguments": example.arguments}):
        outcome = await executor.call(ToolCall(call["tool"], _placed(call["arguments"], words)))
        data = outcome.result.data if isinstance(outcome.result.data, dict) else {}
        words |= {"{job}": str(data["job_id"])} if data.get("job_id") else {}
        if found := re.search(r"output:[0-9a-f]+", outcome.result.text):
            words["{output}"] = found[0]
    return str(outcome.result.text)


def _placed(value: Any, words: dict[str, str]) -> Any:
    """Arguments with ``{here}`` for the directory of the example, ``{job}`` and ``{output}`` for what came before."""
    if isinstance(value, str):
        for name, text in words.items():
            value = value.replace(name, text)
        return value
    if isinstance(value, dict):
        return {name: _placed(one, words) for name, one in value.items()}
    return [_placed(one, words) for one in value] if isinstance(value, list) else value


# -- writing them down


def _shown(text: str, home: Path, hide: tuple[str, ...]) -> str:
    """A result as the page has it: elsewhere, without what differs from run to run, and not too long."""
    text = text.replace(str(home), HOME)
    for pattern in hide:
        text = re.sub(pattern, "…", text)
    lines = text.rstrip("\n").split("\n")
    more = [f"… ({len(lines) - SHOWN_LINES} more lines)"] if len(lines) > SHOWN_LINES else []
    return "\n".join([*lines[:SHOWN_LINES], *more])


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " · ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    limits = [f"≥ {schema['minimum']}" for _ in "x" if "minimum" in schema]
    limits += [f"≤ {schema['maximum']}" for _ in "x" if "maximum" in schema]
    return " ".join([str(schema.get("type", "anything")), *limits])


def _arguments(tool: Any) -> Iterator[str]:
    fields = dict(_fields(tool.schema, ""))
    own = {name: one for name, one in fields.items() if name not in INTENT}
    if own:
        yield "| argument | type | default | |"
        yield "|---|---|---|---|"
    for name, (one, required) in own.items():
        default = "required" if required else f"`{json.dumps(one.get('default'))}`"
        yield f"| `{name}` | {_type(one)} | {default} | {_cell(one.get('description', ''))} |"
    if len(own) < len(fields):
        yield "" if own else "It takes no arguments of its own."
        yield INTENTS


def _fields(schema: dict[str, Any], above: str) -> Iterator[tuple[str, tuple[dict[str, Any], bool]]]:
    """The arguments, and below a list of objects what is in each of them."""
    for name, one in schema.get("properties", {}).items():
        yield above + name, (one, name in schema.get("required", []))
        inner = one.get("items", {}) if one.get("type") == "array" else {}
        for variant in inner.get("anyOf", [inner]):
            yield from _fields(variant, f"{above}{name}[].")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _facts(tool: Any) -> str:
    traits = tool.traits
    facts = [
        "Changes something." if traits.mutating else "Changes nothing.",
        f"Category `{traits.category}`.",
        f"Packs: {', '.join(traits.packs)}." if traits.packs else "",
        f"Also called {', '.join(f'`{name}`' for name in traits.aliases)}." if traits.aliases else "",
        f"Needs {', '.join(traits.requires)} on the target." if traits.requires else "",
    ]
    return " ".join(filter(None, facts))


def _tool(tool: Any, shown: list[tuple[Example, str]]) -> Iterator[str]:
    yield f"## {tool.name}\n"
    yield f"{tool.description}\n"
    yield f"{_facts(tool)}\n"
    if tool.schema.get("properties"):
        yield from _arguments(tool)
        yield ""
    for example, text in shown:
        yield f"{example.about}\n"
        shown_as = _placed(example.arguments, {"{here}": f"{HOME}/example", "{job}": "7", "{output}": "output:5e1f"})
        yield f"```json\n{json.dumps(shown_as, ensure_ascii=False)}\n```\n"
        yield f"````text\n{text}\n````\n"


async def _render(page: Page, executor: Any, home: Path) -> str:
    lines = [f"# {page.title}\n", "<!-- made by scripts/tool-reference -->\n"]
    lines += [f"{page.about}\n"] if page.about else []
    for name in dict.fromkeys(example.tool for example in page.examples):
        tool = executor.registry.get(name)
        if tool is None:
            raise SystemExit(f"{page.name}: unknown tool {name}")
        shown = []
        for example in [example for example in page.examples if example.tool == name]:
            with anyio.fail_after(TIMEOUT):
                shown.append((example, _shown(await _run(executor, example, home), home, example.hide)))
        lines += _tool(tool, shown)
    return "\n".join(lines).rstrip("\n") + "\n"


async def _make(chosen: list[Page]) -> dict[Path, str]:
    with _own_home() as home:
        async with _executor(home) as executor:
            made = {PAGES / f"{page.name}.md": await _render(page, executor, home) for page in chosen}
        await anyio.run_process(["tmux", "-L", "harness", "kill-server"], check=False)
        return made


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description="Make docs/tools from the tools and their examples.")
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("names", nargs="*", metavar="PAGE", help="only these pages")
    options = parser.parse_args()
    made = anyio.run(_make, [page for page in pages() if not options.names or page.name in options.names])
    stale = [path for path, text in made.items() if not path.exists() or path.read_bytes() != text.encode()]
    if options.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the tools answer now: scripts/tool-reference", file=sys.stderr)
        return 1 if stale else 0
    PAGES.mkdir(exist_ok=True)
    for path in stale:
        path.write_bytes(made[path].encode())
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
