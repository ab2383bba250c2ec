"""Tool profiles: other names, arguments and result formats for the same tools."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from ..deprecated_names import renamed_names
from ..errors import ConfigError, ToolError
from .arguments import with_choices
from .contract import OutputLimit, Tool, Traits
from .registry import Registry, is_builtin
from .results import BLOCK_LIMIT, cut, cut_again
from .values import (
    Advice,
    Block,
    CallOutcome,
    CallStatus,
    Image,
    Json,
    JsonObject,
    ShownForm,
    Subject,
    Text,
    ToolCall,
    ToolResult,
)

if TYPE_CHECKING:
    from .contract import ToolContext
    from .redaction.redactor import Redactor

__all__ = [
    "AdaptedCall",
    "AdaptedTool",
    "NameMap",
    "RenderedResult",
    "ToolAdapter",
    "ToolProfile",
    "face_names",
    "load_profile",
    "profile_names",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        Names="NameMap",
        Face="ToolAdapter",
        FacedTool="AdaptedTool",
        FacedCall="AdaptedCall",
        Shown="RenderedResult",
        Profile="ToolProfile",
    )


# -- The advice in a result, for a model with other names of arguments and tools. Pure.


TOLD = ("note", "notices")
"""The members of a result's data that contain sentences of its text."""


@dataclass(frozen=True, slots=True)
class NameMap:
    """Maps harness's names of arguments and tools to those that the model knows."""

    arguments: Mapping[str, str]
    tools: Mapping[str, str]

    def told(self, result: ToolResult) -> ToolResult:
        """Return the result with the advice in the model's names, without advice that it cannot follow."""
        for advice in (advice for advice in result.advice if advice.text):
            result = _changed(result, advice.text, self._restated(advice))
        return result

    def _restated(self, advice: Advice) -> str:
        names = {**{name: self.tools.get(name) for name in advice.tools}}
        names |= {name: self.arguments.get(name) for name in advice.arguments}
        known = {name: theirs for name, theirs in names.items() if theirs is not None}
        if len(known) < len(names):
            return ""
        words = "|".join(map(re.escape, known))
        return re.sub(rf"\b(?:{words})\b", lambda match: known[match[0]], advice.text)


def _changed(result: ToolResult, old: str, new: str) -> ToolResult:
    content: tuple[Block, ...] = tuple(
        Text(_last(block.text, old, new)) if isinstance(block, Text) else block for block in result.content
    )
    return replace(result, content=content, data=_in_data(result.data, old, new))


def _in_data(data: Json, old: str, new: str) -> Json:
    if not isinstance(data, dict):
        return data
    return {**data, **{name: _in_told(data[name], old, new) for name in TOLD if name in data}}


def _in_told(told: Json, old: str, new: str) -> Json:
    if isinstance(told, list):
        return [_in_told(one, old, new) for one in told]
    return _last(told, old, new) if isinstance(told, str) else told


def _last(text: str, old: str, new: str) -> str:
    """Return the text with the last occurrence replaced: advice follows the content."""
    before, found, after = text.rpartition(old)
    return f"{before}{new}{after}" if found else text


# -- Profiles: harness's tools with the names, arguments and result formats of another set of tools.
#
# A model that knows another product's tools is offered those. The tool that works, and that the policy, rules, hooks,
# events and the audit log name, is always harness's own with its own arguments. A tool profile is one
# :class:`ToolAdapter` for each tool that it offers. Other tools of harness are not offered; tools from elsewhere
# (packages, declarations, the program's own sources) are offered next to them under their own names::
#
#     ToolAdapter(
#         tool="read_file",
#         name="Read",
#         description="Read a file.",
#         arguments=ReadArguments,
#         fields={"path": "path"},
#         more=lambda args: {"byte_offset": args.offset},
#         render=lambda args, result: RenderedResult(result.text, result.is_error),
#     )
#
# Packages register profiles with the entry point ``harness.profiles``.


log = logging.getLogger(__name__)

A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class RenderedResult:
    """The result as the model receives it. ``data`` is the same as a JSON value, if the text is JSON."""

    text: str
    is_error: bool = False
    data: Json = None


@dataclass(frozen=True, slots=True)
class ToolAdapter(Generic[A]):
    """How a profile presents one tool.

    Args:
        tool: the tool's own name.
        name: the name that models see; letters, digits, ``_`` and ``-``, at most 64.
        description: the description that models see.
        arguments: the model of the arguments that models see.
        fields: the arguments that are only renamed: the profile's name, and the tool's. None values are omitted.
        more: converts the other arguments, and sets defaults that differ. It takes precedence over ``fields``.
        told: names (the profile's, the tool's) of arguments that ``more`` converts, for error messages.
        render: the result in the profile's format, from its text and its data; None uses the profile's default.
        limit: the size of the rendered text; None uses the tool's limit.
        stream: the number of characters shown of each stream of a command, and how many of them from its end; None:
            the streams share ``limit``.
        gap: the text in place of the omitted part of a stream, with ``{}`` for the amount; None uses harness's.
        measure: returns the length of a text in the profile's format, such as JSON; tools that page by offset fill
            ``limit``.
        further: an addition to the description from the tool's state, such as the list of skills.
        choices: the values of arguments that depend on the tool's state, by the names that models see.
    """

    tool: str
    name: str
    description: str
    arguments: type[A]
    fields: Mapping[str, str] = field(default_factory=dict)
    more: Callable[[A], JsonObject] = lambda args: {}
    told: Mapping[str, str] = field(default_factory=dict)
    render: Callable[[A, ToolResult], RenderedResult | None] = lambda args, result: None
    limit: OutputLimit | None = None
    stream: tuple[int, int] | None = None
    gap: str | None = None
    measure: Callable[[str], int] = len
    further: Callable[[Tool[Any]], str] = lambda tool: ""
    choices: Callable[[Tool[Any]], Mapping[str, Sequence[str]]] = lambda tool: {}

    def translate(self, args: A) -> dict[str, Json]:
        """Return the arguments of harness's tool."""
        given = args.model_dump(mode="json", include=set(self.fields), exclude_none=True)
        return {**{self.fields[name]: value for name, value in given.items()}, **self.more(args)}

    @property
    def names(self) -> dict[str, str]:
        """The profile's names of the tool's arguments, by the tool's names."""
        return {ours: theirs for theirs, ours in (*self.told.items(), *self.fields.items())}


class AdaptedTool(Tool[A]):
    """A tool as a profile presents it. ``tools`` maps harness's names of tools to the profile's."""

    def __init__(
        self,
        tool: Tool[Any],
        face: ToolAdapter[A],
        failed: Callable[[str], str],
        tools: Mapping[str, str] | None = None,
    ) -> None:
        names = dict.fromkeys((tool.name, *tool.traits.aliases))  # reserved, so that no other tool uses them
        aliases = tuple(name for name in names if name != face.name)
        super().__init__(
            face.name, face.description + face.further(tool), face.arguments, replace(tool.traits, aliases=aliases)
        )
        self._own = tool
        self.face = face
        self.failed = failed
        self._tools = tools or {}
        self._names = NameMap(face.names, self._tools)

    @property
    def own(self) -> Tool[Any]:
        return self._own

    @property
    def schema(self) -> JsonObject:
        return with_choices(super().schema, self.face.choices(self._own))

    @property
    def tools(self) -> Mapping[str, str]:
        """The profile's names of tools, by harness's."""
        return self._tools

    def with_own(self, tool: Tool[Any]) -> AdaptedTool[A]:
        """Return another tool with the same adapter."""
        return AdaptedTool(tool, self.face, self.failed, self._tools)

    def translated(self, args: A) -> tuple[JsonObject, Any]:
        """Return the tool's own arguments, as raw values and validated.

        Raises:
            ToolError: ``invalid_args``, with the adapter's names.
        """
        values = self.face.translate(args)
        try:
            return values, self._own.parse(values)
        except ToolError as error:
            raise ToolError(_restated(error.message, self._own.name, self.face), code=error.code) from error

    def traits_of(self, args: A) -> Traits:
        return self._own.traits_of(self.translated(args)[1])

    def subjects(self, args: A) -> tuple[Subject, ...]:
        return self._own.subjects(self.translated(args)[1])

    def preview(self, args: A) -> str | None:
        return self._own.preview(self.translated(args)[1])

    def execution_place(self, args: A) -> str:
        return self._own.execution_place(self.translated(args)[1])

    def requires_approval(self, args: A) -> bool:
        return self._own.requires_approval(self.translated(args)[1])

    def paths(self, args: A) -> tuple[str, ...]:
        return self._own.paths(self.translated(args)[1])

    async def run(self, args: A, ctx: ToolContext) -> ToolResult:
        return await self._own.run(self.translated(args)[1], ctx)

    def shown(self, args: A | None, result: ToolResult) -> RenderedResult:
        """Return a result in the profile's format. ``args`` is None if they were invalid."""
        result = self._names.told(result)
        found = self._rendered(args, result) if args is not None else None
        limit = self.face.limit or self._own.traits.limit
        if found is None:
            text = result.text if result.cut is None else cut_again(result.text, limit, result.cut)
            said = self.failed(_in_words_of(self.face, text)) if result.is_error else text
            found = RenderedResult(said, is_error=result.is_error)
            if result.cut is not None:
                return found
        if result.cut is not None and found.text == result.text:
            return replace(found, text=cut_again(found.text, limit, result.cut))
        return found if found.data is not None else replace(found, text=cut(found.text, limit))

    def _rendered(self, args: A, result: ToolResult) -> RenderedResult | None:
        try:
            return self.face.render(args, result)
        except Exception:  # the call has run: its result matters more than the format
            log.exception("the result of %s could not be rendered as %s", self._own.name, self.name)
            return None


def _restated(message: str, own: str, face: ToolAdapter[Any]) -> str:
    """Return a message about the tool's arguments with the adapter's names. Pure."""
    names = face.names
    lines = []
    for line in message.removeprefix(f"{own}: ").split(";\n"):
        where, colon, what = line.partition(":")
        head, *rest = where.split(".")
        inside = (names.get(part, part) if "_" in part else part for part in rest)
        lines.append(f"{'.'.join([names.get(head, head), *inside])}{colon}{_in_words_of(face, what)}")
    return f"{face.name}: " + ";\n".join(lines)


def _in_words_of(face: ToolAdapter[Any], text: str) -> str:
    """Replace argument names with the adapter's, but no plain words and no parts of paths. Pure."""
    names = {ours: theirs for ours, theirs in face.names.items() if "_" in ours and ours != theirs}
    if not names:
        return text
    return re.sub(rf"(?<![\w./-])(?:{'|'.join(names)})(?![\w/-]|\.\w)", lambda match: names[match[0]], text)


@dataclass(slots=True)
class AdaptedCall:
    """One call of an adapted tool: the model sees the adapter's names, everything else harness's."""

    tool: AdaptedTool[Any]
    call: ToolCall
    args: Any = None

    def own(self, args: Any) -> tuple[Tool[Any], JsonObject, Any]:
        """Return harness's tool and its arguments, as raw values and validated.

        Raises:
            ToolError: ``invalid_args``.
        """
        values, parsed = self.tool.translated(args)
        self.args = args
        return self.tool.own, values, parsed

    @property
    def form(self) -> ShownForm:
        """The size and form of the result that the model receives."""
        face = self.tool.face
        limit = face.limit or self.tool.own.traits.limit
        form = ShownForm(min(limit.characters, BLOCK_LIMIT), face.measure, limit.tail, face.stream)
        return form if face.gap is None else replace(form, gap=face.gap)

    def shown(self, outcome: CallOutcome, redactor: Redactor) -> CallOutcome:
        """Return the outcome for the model. A running job keeps its data, which user interfaces need to follow it."""
        result = outcome.result
        shown = self.tool.shown(self.args, result)
        text = shown.text if shown.data is not None else redactor.text(shown.text)
        images: tuple[Block, ...] = tuple(block for block in result.content if isinstance(block, Image))
        given = replace(
            result,
            content=(Text(text), *images),
            is_error=shown.is_error,
            data=result.data if _goes_on(outcome) else shown.data,
        )
        call = replace(outcome.call, name=self.tool.name, arguments=self.call.arguments)
        return replace(outcome, call=call, result=given)


def _goes_on(outcome: CallOutcome) -> bool:
    data = outcome.result.data
    return outcome.status is CallStatus.OK and isinstance(data, dict) and data.get("status") == "running"


@dataclass(frozen=True, slots=True)
class ToolProfile:
    """A set of tool adapters.

    Args:
        failed: converts an error message without a format of its own; the default leaves it unchanged.
        max_agent_depth: the depth at which agents cannot start others, unless the settings set it; None uses
            harness's default.
    """

    name: str
    faces: tuple[ToolAdapter[Any], ...]
    failed: Callable[[str], str] = lambda text: text
    max_agent_depth: int | None = None

    def over(self, registry: Registry) -> Registry:
        """Return the profile's tools that exist, and all tools that are not built in, unchanged.

        A tool that is not built in never gets an adapter, whatever its name.

        Raises:
            ConfigError: such a tool has a name that the profile uses.
        """
        found = Registry()
        names = {face.tool: face.name for face in self.faces if registry.get(face.tool) is not None}
        for face in self.faces:
            tool, source = registry.get(face.tool), registry.source_of(face.tool) or ""
            if tool is not None and tool.name == face.tool and is_builtin(source):
                found.register(AdaptedTool(tool, face, self.failed, names), source)
        for tool in registry.list():
            source = registry.source_of(tool.name) or ""
            if not is_builtin(source):
                self._add_custom(found, tool, source)
        return found

    def _add_custom(self, found: Registry, tool: Tool[Any], source: str) -> None:
        for name in dict.fromkeys((tool.name, *tool.traits.aliases)):
            shown = found.get(name)
            if isinstance(shown, AdaptedTool):
                raise ConfigError(
                    f"the profile {self.name!r} shows {shown.own.name} as {shown.name!r}, but {source} has the tool "
                    f"{tool.name!r}, which is also called {name!r}",
                    hint=f"exclude one of them ([tools] exclude = [{tool.name!r}]), or choose another profile",
                )
        found.register(tool, source)


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that installed packages provide, without importing them."""
    from .plugins import PROFILES, find

    return tuple(sorted({plugin.name for plugin in find(PROFILES)}))


def load_profile(name: str) -> ToolProfile:
    """Import a profile.

    Raises:
        ConfigError: no package provides that name, several packages provide it, or it cannot be loaded.
    """
    from .plugins import PROFILES, find, imported

    plugins = [plugin for plugin in find(PROFILES) if plugin.name == name]
    if not plugins:
        known = ", ".join(profile_names())
        raise ConfigError(f"unknown profile {name!r}", hint=f"there are: {known or 'none'}")
    if len(plugins) > 1:
        offered = " and ".join(f"{plugin.distribution} ({plugin.value})" for plugin in plugins)
        raise ConfigError(
            f"several packages provide a profile {name!r}: {offered}",
            hint="uninstall one of them, or rename its profile",
        )
    plugin = plugins[0]
    try:
        found = imported(plugin)
        made = found if isinstance(found, ToolProfile) else found()
    except Exception as error:
        raise ConfigError(f"the profile {name!r} of {plugin.distribution} cannot be loaded: {error}") from error
    if not isinstance(made, ToolProfile):
        raise ConfigError(f"the profile {name!r} of {plugin.distribution} is not a profile")
    return made


@lru_cache(maxsize=1)
def face_names() -> Mapping[str, str]:
    """Return the tool for each name that profiles use, without ambiguous names. Imports all profiles.

    A profile that cannot be loaded is skipped.
    """
    found: dict[str, set[str]] = {}
    for name in profile_names():
        try:
            faces = load_profile(name).faces
        except ConfigError as error:
            log.warning("%s", error.message)
            continue
        for face in faces:
            found.setdefault(face.name, set()).add(face.tool)
    return {name: next(iter(tools)) for name, tools in found.items() if len(tools) == 1}
