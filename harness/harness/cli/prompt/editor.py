"""The editor at the end of the screen: the input line, its completion, and the keyboard focus."""

from __future__ import annotations

import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import anyio
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.history import History
from prompt_toolkit.input import Input as Keys
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import (
    BeforeInput,
    ConditionalProcessor,
    PasswordProcessor,
    Processor,
    Transformation,
    TransformationInput,
)
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.search import stop_search
from prompt_toolkit.styles import BaseStyle, Style
from prompt_toolkit.widgets import SearchToolbar

from ...results import DirEntry
from ...system.background_tasks import BackgroundTasks
from .surface import (
    ExpandRequested,
    Input,
    InputEnded,
    Interrupted,
    Line,
    Span,
    SurfaceQuestion,
    TextEntered,
    Theme,
    choice_lines,
    line,
    one_line,
    painted,
    printable,
)

__all__ = [
    "Editor",
    "InputFocus",
    "InvisibleCharacterProcessor",
    "PathWord",
    "PromptCompleter",
    "Suggestion",
    "fragments",
    "named",
    "path_word",
    "spelled",
]


# -- Completion: slash commands while typing, paths of the target on Tab.


LIMIT = 3.0
"""Timeout in seconds for listing a directory of the target."""
MAX_SUGGESTIONS = 200
"""Maximum number of offered names."""
_WORD = re.compile(r"""(?:\\.|[^\s\\"'<>|;&()=])*$""")
_SPECIAL = re.compile(r"""([\s\\"'`$<>|;&()*?\[\]{}!#~=])""")


class Suggestion(Protocol):
    """A completion of a slash command: a text for the line from its character ``start`` to its end."""

    @property
    def text(self) -> str: ...  # see the class
    @property
    def start(self) -> int: ...  # see the class
    @property
    def about(self) -> str: ...  # see the class


@dataclass(frozen=True, slots=True)
class PathWord:
    """The path before the cursor: its directory, unquoted, and the start of a name."""

    directory: str
    start: str
    shown: str
    """The directory as typed, including quoting."""
    length: int
    """Number of typed characters of the path."""
    quoted: bool
    """Whether it is a word of a shell command."""


def path_word(before: str) -> PathWord | None:
    """Return the path before the cursor, or None if the word is not a path; in a ``!`` line any word may be. Pure."""
    command = before.lstrip().startswith("!")
    match = _WORD.search(before)
    word = match[0] if match else ""
    word = word.lstrip("!") if before.lstrip() == word else word
    if not command:
        word = word.removeprefix("@")
    if not command and "/" not in word and not word.startswith("~"):
        return None
    shown, slash, name = word.rpartition("/")
    shown += slash
    return PathWord(_unquoted(shown) or ".", _unquoted(name), shown, len(word), command)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def named(word: PathWord, entries: Iterable[DirEntry]) -> list[tuple[str, str]]:
    """Return the completions of a path: the text and its display. Pure."""
    hidden = word.start.startswith(".")
    fitting = [one for one in entries if one.name.startswith(word.start) and (hidden or not one.name.startswith("."))]
    visible = sorted((one for one in fitting if one.name.isprintable()), key=lambda one: one.name)
    found = []
    for entry in [
        *visible[: MAX_SUGGESTIONS - 1],
        *visible[MAX_SUGGESTIONS - 1 :][-1:],
    ]:  # with the last one, as Tab types the common prefix of all
        ending = "/" if entry.type == "dir" else ""
        name = _SPECIAL.sub(r"\\\1", entry.name) if word.quoted else entry.name
        found.append((f"{word.shown}{name}{ending}", f"{entry.name}{ending}"))
    return found


@dataclass
class _Lookup:
    entries: Sequence[DirEntry] = ()
    done: anyio.Event = field(default_factory=anyio.Event)


class PromptCompleter(Completer):
    """Completer of slash commands and paths.

    The target is asked in a task of its own, which is not cancelled when the operator types on, as that would break the
    shared channel.

    Args:
        commands: Returns completions for a line that starts with a slash.
        list_dir: Lists a directory of the target.
        tasks: Returns the tasks for asking the target; None if they are not open.
    """

    def __init__(
        self,
        commands: Callable[[str], Iterable[Suggestion]],
        list_dir: Callable[[str], Awaitable[Sequence[DirEntry]]],
        tasks: Callable[[], BackgroundTasks | None],
    ) -> None:
        self._commands = commands
        self._list_dir = list_dir
        self._tasks = tasks
        self._running: dict[str, _Lookup] = {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions of slash commands."""
        line = document.text_before_cursor
        for one in self._commands(line) if line.startswith("/") and "\n" not in document.text else ():
            yield Completion(one.text, one.start - len(line), display_meta=one_line(one.about, 60))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield completions of slash commands, or of paths if Tab was pressed."""
        found = list(self.get_completions(document, complete_event))
        for one in found:
            yield one
        word = path_word(document.text_before_cursor)
        if found or word is None or not complete_event.completion_requested:
            return
        for text, shown in named(word, await self._entries(word.directory)):
            yield Completion(text, -word.length, display=shown)

    async def _entries(self, directory: str) -> Sequence[DirEntry]:
        lookup = self._running.get(directory)
        tasks = self._tasks()
        if tasks is None:
            return ()
        if lookup is None:
            lookup = self._running[directory] = _Lookup()
            tasks.start_soon(self._look, directory, lookup)
        await lookup.done.wait()
        return lookup.entries

    async def _look(self, directory: str, lookup: _Lookup) -> None:
        try:
            with anyio.move_on_after(LIMIT):
                lookup.entries = await self._list_dir(directory)
        except Exception:  # noqa: S110  # no such directory or no connection: there is nothing to offer
            pass
        finally:
            del self._running[directory]
            lookup.done.set()


# -- The keyboard focus: the input line or a new question. Pure except for the clock.


QUIET = 1.0
"""Seconds without a key after which a question may take the keyboard."""
PASTED = 40
"""Number of waiting keys from which input counts as pasted."""


class InputFocus:
    """Guard that keeps a question from taking keys that were meant for the input line.

    A question gets the keys at once if nothing is being typed; otherwise when the operator opens it, or when the line
    is empty and no key was pressed for a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock() - QUIET
        self._pasting = False

    def pressed(self) -> None:
        """Record a key press."""
        self._last = self._clock()

    def quiet_in(self) -> float:
        """Return the seconds until a question may take the keys, if the line is empty."""
        return max(0.0, self._last + QUIET - self._clock())

    def enter_ends_line(self, waiting: int) -> bool:
        """Return whether an Enter is part of pasted text, given the number of ``waiting`` keys."""
        self._pasting = waiting > PASTED or (self._pasting and waiting > 0)
        return self._pasting


# -- Invisible and direction-changing characters in the input line, which the editor shows escaped.


def spelled(text: str) -> tuple[str, list[int]]:
    """Return the displayed text, and the display position of each character and of the end. Pure.

    ASCII is unchanged, as the editor itself shows control characters as ``^[``.
    """
    shown, places = "", []
    for char in text:
        places.append(len(shown))
        shown += char if char.isascii() else printable(char)
    return shown, [*places, len(shown)]


class InvisibleCharacterProcessor(Processor):
    """Processor that displays such characters escaped; it must come before processors that add text."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """See the library."""
        fragments = transformation_input.fragments
        text = fragment_list_to_text(fragments)
        shown, places = spelled(text)
        if shown == text:
            return Transformation(fragments)
        drawn: StyleAndTextTuples = [(style, spelled(part)[0]) for style, part, *_ in fragments]

        def to_display(at: int) -> int:
            return places[min(at, len(places) - 1)]

        def to_source(at: int) -> int:
            return max(number for number, place in enumerate(places) if place <= at)

        return Transformation(drawn, source_to_display=to_display, display_to_source=to_source)


# -- The editor: running work, the input line, its completions, and the status line.


LINES_TYPED = 8
LINES_OFFERED = 6
LINES_LIVE = 10
MARK = "» "


@dataclass
class _Shown:
    """The content of the screen below the printed lines."""

    live: tuple[Line, ...] = ()
    status: Line = ()
    asking: SurfaceQuestion | None = None
    selected: int | None = None
    """The choice of the question that Enter takes."""


ANSWERED = ("yes", "no", "never")
"""Words that operators may type whole, although their first letter already answers."""
LEFTOVER = 1.0
"""Seconds in which the rest of such a word, and its Enter, are dropped."""
RECENT = 5.0
"""Seconds after an unanswered question in which keys for it must not answer another one."""
WITHDRAWN = line(Span("· the question is closed: input for it is dropped; pause, or press Enter", "warn"))


class _Leftover:
    """The rest of a word whose first letter has answered; its keys are dropped."""

    def __init__(self) -> None:
        self._rests: list[str] = []
        self._until = 0.0

    def expect(self, key: str) -> None:
        """Expect the rest of a word after its first key has answered."""
        self._rests = [word[1:] for word in ANSWERED if word[0] == key] or [""]
        self._until = time.monotonic() + LEFTOVER

    def forget(self) -> None:
        """Expect nothing any more, as something else was typed."""
        self._rests = []

    @property
    def is_expected(self) -> bool:
        """Whether the next key may be part of the word."""
        return bool(self._rests) and time.monotonic() <= self._until

    def takes(self, data: str) -> bool:
        """Return whether a key is part of the word; its Enter, or any other key, ends it."""
        if data == "\r":
            self._rests = []
            return True
        self._rests = [rest[1:] for rest in self._rests if rest.startswith(data)]
        return bool(self._rests)


class _Withdrawn:
    """Input for a question that ended unanswered; its keys are dropped until Enter or a pause of :data:`LEFTOVER`."""

    def __init__(self) -> None:
        self._until = 0.0
        self._began = -math.inf
        self.was_told = False

    def begin(self) -> None:
        """Start to drop keys, as a question with the focus has ended unanswered."""
        self._began = time.monotonic()
        self._until = self._began + LEFTOVER
        self.was_told = False

    def goes_on(self) -> None:
        """Drop keys for another question, too, as a key for the previous one must not answer it."""
        now = time.monotonic()
        if now <= self._began + RECENT:
            self._until = now + LEFTOVER

    def end(self) -> None:
        """Stop dropping keys."""
        self._until, self._began = 0.0, -math.inf

    @property
    def takes_keys(self) -> bool:
        """Whether to drop the next key."""
        return time.monotonic() <= self._until

    def take(self, *, enter: bool) -> None:
        """Drop a key."""
        self._until = 0.0 if enter else time.monotonic() + LEFTOVER


def fragments(lines: tuple[Line, ...]) -> StyleAndTextTuples:
    """Return lines as prompt_toolkit fragments. Pure."""
    drawn: StyleAndTextTuples = []
    for number, one in enumerate(lines):
        if number:
            drawn.append(("", "\n"))
        drawn += [(f"class:{span.role}" if span.role else "", _flat(span.text)) for span in one]
    return drawn


def _flat(text: str) -> str:
    return printable(text).replace("\n", " ").expandtabs(4)


class _Renderer(Renderer):
    """Renderer that skips drawing while the terminal is behind, and draws the current state later."""

    def __init__(self, style: BaseStyle, output: Output, behind: Callable[[], bool]) -> None:
        super().__init__(style, output)
        self._behind = behind

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        """Draw, unless the terminal is behind."""
        if not self._behind():
            super().render(app, layout, is_done)


class Editor:
    """The editor: key bindings, layout and drawing.

    ``happened`` is called with the operator's inputs, ``answered`` with the answer to the shown question. While the
    terminal is ``behind`` with its output, nothing is drawn.
    """

    def __init__(
        self,
        keys: Keys,
        output: Output,
        *,
        history: History,
        completer: Completer,
        theme: Callable[[], Theme],
        happened: Callable[[Input], None],
        answered: Callable[[str | None], None],
        keyboard: InputFocus,
        behind: Callable[[], bool] = lambda: False,
    ) -> None:
        self._theme = theme
        self._happened = happened
        self._answered = answered
        self._keyboard = keyboard
        self._shown = _Shown()
        self.line = Buffer(
            history=history,
            completer=completer,
            complete_while_typing=Condition(lambda: self.line.text.startswith("/")),
            enable_history_search=False,
            multiline=True,
        )
        self._answer = Buffer(multiline=False)
        self._leftover = _Leftover()
        self._withdrawn = _Withdrawn()
        self._is_open = False  # whether the shown question waits for an answer
        self.line.on_text_insert += lambda sender: self._leftover.forget()
        self.app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=self._bindings(),
            style=None,
            input=keys,
            output=output,
            full_screen=False,
            erase_when_done=True,
            terminal_size_polling_interval=None,
            min_redraw_interval=0.03,
        )
        self.app.renderer = _Renderer(self.app.renderer.style, output, behind)
        self.restyle()

    # -- what is shown

    def restyle(self) -> None:
        """Draw with the current theme."""
        styles = {str(role): style for role, style in self._theme().styles.items() if role}
        hidden = {"search-toolbar": "", "bottom-toolbar": "noreverse"}
        self.app.style = Style.from_dict(hidden | styles)
        self.app.invalidate()

    def live(self, lines: tuple[Line, ...]) -> None:
        """Show running work."""
        if lines == self._shown.live:
            return
        if len(lines) < len(self._shown.live) and self.app.is_running:
            self.app.renderer.erase(leave_alternate_screen=False)  # else the renderer keeps its height
        self._shown.live = lines
        self.app.invalidate()

    def status(self, line: Line) -> None:
        """Show the status line."""
        if line != self._shown.status:
            self._shown.status = line
            self.app.invalidate()

    def question(self, asking: SurfaceQuestion | None) -> None:
        """Give the keyboard focus to a question, or back to the input line for None."""
        if self._shown.asking is not None and self._shown.asking.secret:
            self.app.clipboard.set_text("")  # a cut part of a password must not be pasted into the line
        if self._is_open and asking is None:
            self._withdrawn.begin()
        elif asking is not None:
            self._withdrawn.goes_on()
        self._shown.asking, self._shown.selected = asking, None
        self._is_open = asking is not None
        self._answer.reset()
        if asking is not None:
            self._answer.insert_text(asking.prefill)
        self.app.layout.focus(self.line if asking is None else self._answer)
        self.app.invalidate()

    @property
    def asking(self) -> SurfaceQuestion | None:
        """The question with the keyboard focus."""
        return self._shown.asking

    def above(self, text: str) -> None:
        """Print text above the editor; it must be escaped and end with a line feed."""
        output = self.app.output
        if self.app.is_running:
            self.app.renderer.erase(leave_alternate_screen=False)
        output.write_raw(text.replace("\n", "\r\n"))
        output.flush()
        self.app.invalidate()

    def draw_again(self) -> None:
        """Redraw everything soon, at the current cursor; may be called from a signal handler."""
        if self.app.loop is not None:
            self.app.loop.call_soon_threadsafe(self._draw_again)

    def _draw_again(self) -> None:
        self.app.renderer.reset()
        self.app.invalidate()

    # -- the layout

    def _layout(self) -> Layout:
        asked = Condition(lambda: self._shown.asking is not None)
        secret = Condition(lambda: self._shown.asking is not None and self._shown.asking.secret)
        search = SearchToolbar()
        line = Window(
            BufferControl(
                self.line,
                input_processors=[InvisibleCharacterProcessor()],
                search_buffer_control=search.control,
                preview_search=True,
            ),
            height=Dimension(min=1, max=LINES_TYPED),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._line_prefix,
        )
        answer = Window(
            BufferControl(
                self._answer,
                input_processors=[
                    ConditionalProcessor(PasswordProcessor(), secret),
                    InvisibleCharacterProcessor(),
                    BeforeInput(self._label, style="class:prompt"),
                ],
            ),
            height=Dimension(min=1, max=LINES_TYPED),
            wrap_lines=True,
            dont_extend_height=True,
        )
        return Layout(
            HSplit(
                [
                    ConditionalContainer(
                        Window(
                            FormattedTextControl(lambda: fragments(self._shown.live[-LINES_LIVE:])),
                            height=self._height_of_live,
                            dont_extend_height=True,
                        ),
                        Condition(lambda: bool(self._shown.live)),
                    ),
                    ConditionalContainer(
                        Window(FormattedTextControl(self._choices_text), wrap_lines=True, dont_extend_height=True),
                        Condition(lambda: self._shown.asking is not None and bool(self._shown.asking.choices)),
                    ),
                    ConditionalContainer(answer, asked),
                    ConditionalContainer(line, ~asked),
                    search,
                    CompletionsMenu(max_height=LINES_OFFERED),
                    Window(FormattedTextControl(self._status_text), height=1, style="class:status"),
                    Window(height=Dimension(min=0, preferred=0)),
                ]
            ),
            focused_element=line,
        )

    def _height_of_live(self) -> Dimension:
        lines = min(len(self._shown.live), LINES_LIVE, max(1, self.app.output.get_size().rows - 6))
        return Dimension.exact(lines)

    def _line_prefix(self, number: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", MARK if not number and not wrapped else "  ")]

    def _label(self) -> str:
        return f"{self._shown.asking.label} " if self._shown.asking is not None else ""

    def _choices_text(self) -> StyleAndTextTuples:
        if self._shown.asking is None:
            return []
        width = self.app.output.get_size().columns - 1
        return fragments(tuple(choice_lines(self._shown.asking.choices, width, self._shown.selected)))

    def _status_text(self) -> StyleAndTextTuples:
        return fragments((self._shown.status,))

    # -- the keys

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        asked = Condition(lambda: self._shown.asking is not None)
        typing = ~asked & ~is_searching
        choosing = Condition(self._is_choosing)
        keys.add("<any>", filter=choosing)(self._choice_key)
        for name, step in (("down", 1), ("right", 1), ("tab", 1), ("up", -1), ("left", -1), ("s-tab", -1)):
            keys.add(name, filter=choosing)(partial(self._select, step))
        keys.add("enter", filter=asked)(self._enter_answer)
        keys.add("enter", filter=typing)(self._enter_line)
        for names in (("escape", "enter"), ("c-j",)):
            keys.add(*names, filter=typing)(lambda event: event.current_buffer.newline(copy_margin=False))
        keys.add("c-c")(self._interrupt)
        keys.add("c-d")(self._end)
        keys.add("c-o")(lambda event: self._happened(ExpandRequested()))
        keys.add("c-z")(lambda event: None)  # a typing error must not stop the process
        keys.add("c-l")(lambda event: event.app.renderer.clear())
        for name in ("enter", *sorted({letter for word in ANSWERED for letter in word[1:]})):
            keys.add(name, filter=Condition(lambda: self._leftover.is_expected) & ~is_searching)(self._leftover_key)
        for name in ("<any>", "enter", "c-j", "c-d", "tab", "<bracketed-paste>"):
            keys.add(name, filter=Condition(lambda: self._withdrawn.takes_keys))(self._drop_withdrawn)
        return keys

    def _enter_line(self, event: KeyPressEvent) -> None:
        buffer = self.line
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_state = None
            return
        if self._keyboard.enter_ends_line(len(event.app.key_processor.input_queue)):
            buffer.insert_text("\n")
        elif _continues(buffer.document.current_line_before_cursor) and buffer.document.is_cursor_at_the_end:
            if not buffer.text.startswith("!"):  # in a command the backslash is the shell's
                buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            self._accept()

    def _accept(self) -> None:
        self.entered(self.line.text)

    def entered(self, text: str) -> None:
        """Handle a text as if it had been typed and entered."""
        self.line.text = text
        self.line.append_to_history()
        self.line.reset()
        self._happened(TextEntered(text))

    def _enter_answer(self, event: KeyPressEvent) -> None:
        asking, selected = self._shown.asking, self._shown.selected
        if asking is not None and selected is not None and not self._answer.text:
            self._answer_with(asking.choices[selected].key)
        else:
            self._answer_with(self._answer.text)

    def _answer_with(self, text: str | None) -> None:
        self._is_open = False
        self._withdrawn.end()
        self._answered(text)

    def _drop_withdrawn(self, event: KeyPressEvent) -> None:
        if not self._withdrawn.was_told:
            self._withdrawn.was_told = True
            self.above(painted((WITHDRAWN,), self._theme()))
        self._withdrawn.take(enter=event.key_sequence[-1].key == "c-m")

    def _is_choosing(self) -> bool:
        return self._shown.asking is not None and bool(self._shown.asking.choices) and not self._answer.text

    def _choice_key(self, event: KeyPressEvent) -> None:
        """Answer with a key that answers alone, or start an answer that Enter ends."""
        asking = self._shown.asking
        if asking is not None and any(choice.at_once and choice.key == event.data for choice in asking.choices):
            self._leftover.expect(event.data)
            self._answer_with(event.data)
        else:
            self._answer.insert_text(event.data)

    def _leftover_key(self, event: KeyPressEvent) -> None:
        """Drop a key that belongs to a given answer; handle any other key as usual."""
        enter = event.key_sequence[-1].key == "c-m"
        if self._leftover.takes("\r" if enter else event.data):
            return
        if enter:
            (self._enter_line if self._shown.asking is None else self._enter_answer)(event)
        elif self._is_choosing():
            self._choice_key(event)
        else:
            event.current_buffer.insert_text(event.data)

    def _select(self, step: int, event: KeyPressEvent) -> None:
        """Mark the next or the previous choice; Enter chooses it."""
        asking, selected = self._shown.asking, self._shown.selected
        if asking is None:
            return
        first = 0 if step > 0 else len(asking.choices) - 1
        self._shown.selected = first if selected is None else (selected + step) % len(asking.choices)
        self.app.invalidate()

    def _interrupt(self, event: KeyPressEvent) -> None:
        if event.app.layout.is_searching:
            stop_search()
            return
        self._is_open = False
        self._withdrawn.end()
        self._happened(Interrupted())

    def _end(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text or event.app.layout.is_searching:
            buffer.delete()
        elif self._shown.asking is not None:
            self._answer_with(None)
        else:
            self._happened(InputEnded())


def _continues(line: str) -> bool:
    """Return whether the line ends with an unescaped backslash. Pure."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
