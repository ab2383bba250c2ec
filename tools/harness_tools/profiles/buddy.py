"""The tool profile ``buddy``: eight tools with the names and arguments of Buddy.

Intended differences: a command that is not waited for keeps running as a job also without tmux; one at its timeout
keeps running or is ended as the target's settings say, and its output so far is shown.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.toolkit import Arguments, JsonObject, OutputLimit, ToolResult
from harness.toolkit.tool_profiles import RenderedResult, ToolAdapter, ToolProfile

from .forms import CommandResult, denied_by_user, facts, file_text, head, ran, tail, text_of

__all__ = ["profile"]

STREAM = 4_000
"""Maximum characters of each stream of a command."""
BODY = 8_000
"""Maximum characters of a file, a page or a screen."""
MORE = "...[truncated]"
SEARCH_RESULTS = 8
WIDE = OutputLimit(16_000, 0)
"""For results that are already truncated."""
CLOSING = "\n</"


def _failed(text: str) -> str:
    return f"Tool error: {text}"


# -- commands


class _Shell(Arguments):
    command: str = Field(description="The shell command to run")
    wait: bool | int | str = Field(
        True,
        description="true (default): until it ends; false: start it in the terminal and return; a text such as "
        '"30s", "10m", "1h" or a number of seconds: that long at most',
    )


def _shell_result(args: _Shell, result: ToolResult) -> RenderedResult | None:
    done = ran(result)
    if done is None:
        return denied_by_user(result, "Command execution denied by user.")
    if done.ended:
        return RenderedResult(_output(f"exit code: {done.exit_code}", done))
    if done.status == "running" and args.wait in (False, "false"):
        return RenderedResult(_dispatched(done))
    first = result.text.partition("\n")[0]
    return RenderedResult(_failed(_output(first, done)), is_error=True)


def _dispatched(done: CommandResult) -> str:
    if not done.pane:
        return f"command dispatched as job {done.job_id}"
    return f'command dispatched to tmux pane {done.pane}; capture-pane with target "{done.pane}" shows it'


def _output(first: str, done: CommandResult) -> str:
    out, err = (text.removesuffix("\n") for text in (done.stdout, done.stderr))
    return f"{first}\nstdout:\n{out}\nstderr:\n{err}" + "".join(f"\nnotice: {notice}" for notice in done.notices)


RUN_SHELL = ToolAdapter(
    tool="run_shell",
    name="run_shell",
    description="Run a shell command on the target and return its exit code, stdout and stderr.",
    arguments=_Shell,
    fields={"command": "command", "wait": "wait"},
    render=_shell_result,
    limit=WIDE,
    stream=(STREAM, 0),
    gap="...[truncated: {}]",
)


# -- files


class _Read(Arguments):
    path: str = Field(description="Path of the file")
    offset: int = Field(0, ge=0, description="Byte to start at, to continue in a long file")


def _part(args: _Read) -> JsonObject:
    """Return a byte limit equal to the character limit, so that everything that counts as read is shown."""
    return {"byte_offset": args.offset, "byte_limit": BODY}


def _file(args: _Read, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    (text, note), found = file_text(result), facts(result)
    return RenderedResult(text if found.get("to_byte") == found.get("size") else f"{text}{MORE}\n{note}")


READ_FILE = ToolAdapter(
    tool="read_file",
    name="read_file",
    description=f"Read a text file of the target. At most {BODY} bytes are returned; offset continues.",
    arguments=_Read,
    fields={"path": "path"},
    more=_part,
    told={"offset": "byte_offset"},
    render=_file,
)


class _Write(Arguments):
    path: str = Field(description="Path of the file")
    content: str = Field(description="New content")


def _written(args: _Write, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    return RenderedResult(f"Wrote {facts(result)['bytes_written']} bytes to {args.path}")


WRITE_FILE = ToolAdapter(
    tool="write_file",
    name="write_file",
    description="Write a file on the target: a new one, or one that was read before.",
    arguments=_Write,
    fields={"path": "path", "content": "content"},
    render=_written,
)


# -- the web


class _Fetch(Arguments):
    url: str = Field(description="The URL to fetch")


def _page(args: _Fetch, result: ToolResult) -> RenderedResult | None:
    """Return the page, keeping the closing tag of untrusted content."""
    if result.is_error:
        return None
    text, mark, source = result.text.rpartition(CLOSING)
    return RenderedResult(head(text, BODY, MORE) + mark + source if mark else head(source, BODY, MORE))


FETCH_URL = ToolAdapter(
    tool="fetch_url",
    name="fetch_url",
    description=f"Perform an HTTP GET and return the body, {BODY} characters at most.",
    arguments=_Fetch,
    fields={"url": "url"},
    render=_page,
)


class _Search(Arguments):
    query: str = Field(description="What to search for")


WEB_SEARCH = ToolAdapter(
    tool="web_search",
    name="web_search",
    description=f"Search the web. Up to {SEARCH_RESULTS} results, each with title, URL and snippet.",
    arguments=_Search,
    fields={"query": "query"},
    more=lambda args: {"limit": SEARCH_RESULTS},
)


# -- the terminal


class _Capture(Arguments):
    target: str | None = Field(None, description="Pane to capture; the default is the active one")
    start: str | int | None = Field(None, description='First line; "-" is the beginning of the history')
    end: str | int | None = Field(None, description='Last line; "-" is the end of the visible area')
    join_wrapped_lines: bool = Field(True, description="Join lines that were wrapped")
    preserve_trailing_spaces: bool = Field(False, description="Keep spaces at the ends of lines")
    include_escape_sequences: bool = Field(False, description="Keep ANSI escape sequences")
    escape_non_printable: bool = Field(False, description="Write non-printable characters in octal")
    include_alternate_screen: bool = Field(False, description="Capture the alternate screen")
    delay: str | None = Field(None, description='Wait before capturing, such as "2s"')
    delay_ms: int | None = Field(None, description="The same in milliseconds")


def _screen(args: _Capture, result: ToolResult) -> RenderedResult | None:
    if result.is_error:
        return None
    screen, notice = (text_of(facts(result), name) for name in ("screen", "notice"))
    shown = result.text
    if len(screen) > BODY:  # the text of a long result is already truncated
        shown = f"{screen.rstrip()}\n{notice}" if notice else screen
    return RenderedResult(tail(shown, BODY, "[truncated {} chars from start]\n"))


CAPTURE_PANE = ToolAdapter(
    tool="capture_pane",
    name="capture-pane",
    description="Capture the screen of a tmux pane, now or after a delay, to check a running command.",
    arguments=_Capture,
    fields={"target": "pane"} | {name: name for name in _Capture.model_fields if name != "target"},
    render=_screen,
    limit=WIDE,
)


class _Keys(Arguments):
    target: str | None = Field(None, description="Pane to type into; the default is the active one")
    keys: list[str] | None = Field(None, description='tmux key names, such as "C-c", "Enter", "Up"')
    literal_text: str | None = Field(None, description="Text that is typed literally, before the keys")
    enter: bool = Field(False, description="Press Enter after everything else")
    delay: str | None = Field(None, description='Wait before sending, such as "2s"')
    delay_ms: int | None = Field(None, description="The same in milliseconds")


SEND_KEYS = ToolAdapter(
    tool="send_keys",
    name="send-keys",
    description="Type into a tmux pane: literal text first, then named keys, then Enter.",
    arguments=_Keys,
    fields={"target": "pane"} | {name: name for name in _Keys.model_fields if name != "target"},
    render=lambda args, result: (
        None if result.is_error else RenderedResult("Keys sent; capture-pane shows the result.")
    ),
)


# -- the time


class _Time(Arguments):
    format: Literal["epoch", "epoch_ms", "epoch_ns", "iso", "rfc2822", "date", "time"] = Field(
        "epoch", description="Output format"
    )


TIME = ToolAdapter(
    tool="time",
    name="time",
    description="Return the current time of harness's machine, not of the target.",
    arguments=_Time,
    fields={"format": "format"},
)


def profile() -> ToolProfile:
    """Return the profile."""
    faces = (RUN_SHELL, READ_FILE, WRITE_FILE, FETCH_URL, WEB_SEARCH, CAPTURE_PANE, SEND_KEYS, TIME)
    return ToolProfile("buddy", faces, _failed)
