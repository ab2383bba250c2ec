"""Settings of the agent: the ``[agent]`` table of the settings files.

Files in untrusted directories cannot set it: they could choose which provider is paid and what the model is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..command import parse_duration
from ..deprecated_names import renamed_fields
from ..errors import ConfigError
from ..settings import CommandLineChoices, SettingsTable, load_tables
from ..settings_schema import parse_size

__all__ = ["AgentSettings", "JobEnd", "agent_settings_of", "load_agent_settings"]

JobEnd = Literal["start_turn", "next_turn"]


@renamed_fields(
    {"on_job_end": {"wake": "start_turn", "tell": "next_turn"}},
    keep_conversations="conversations_max_age",
    conversations_size="conversations_max_bytes",
    compact_at="compaction_threshold",
    on_job_end="on_job_exit",
    turn_budget="turn_budget_usd",
    session_budget="conversation_budget_usd",
    session_tokens="conversation_max_tokens",
)
@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The operator's settings of the agent."""

    model: str = ""
    """The model profile of new conversations; empty: the only profile, if there is exactly one."""
    instructions: str = ""
    """Instructions for the model in addition to those of harness."""
    project_instructions: bool = True
    """Read ``AGENTS.md`` of the working directory and, in a Git repository, of those above it."""
    target_instructions: bool = False
    """Also read ``AGENTS.md`` of the target's working directory, as data of the target."""
    max_steps: int = 50
    """Maximum model responses in one turn."""
    turn_budget_usd: float | None = None
    """Maximum US dollars for one turn; needs known prices."""
    conversation_budget_usd: float | None = None
    """Maximum US dollars for one conversation; needs known prices."""
    conversation_max_tokens: int | None = None
    """Maximum tokens of one conversation, input plus output."""
    compaction_threshold: float = 0.85
    """The fraction of the model's context at which older messages are compacted."""
    on_job_exit: JobEnd = "start_turn"
    """When a background command ends: start a turn, or notify the model with the next one (``next_turn``)."""
    theme: str = ""
    """Colors of the prompt; empty chooses by the terminal."""
    show_reasoning: bool = False
    """Show the model's reasoning as received; otherwise one line says that there is some."""
    telemetry: bool = False
    """Send OpenTelemetry spans and metrics, even if OpenTelemetry's own environment variables are not set."""
    telemetry_content: bool = False
    """Include prompts, commands and results in spans."""
    conversations_max_age: float = 366 * 86400.0
    """Seconds for which a conversation is stored after its last change; set as a duration such as ``90d``."""
    conversations_max_bytes: int = 1 << 30
    """Maximum bytes of all stored conversations, such as ``256MiB``; the oldest are deleted first."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: str | None = None
    instructions: str | None = None
    project_instructions: bool | None = None
    target_instructions: bool | None = None
    max_steps: int | None = Field(None, ge=1, le=10_000)
    turn_budget_usd: float | None = Field(None, gt=0, strict=False)
    conversation_budget_usd: float | None = Field(None, gt=0, strict=False)
    conversation_max_tokens: int | None = Field(None, ge=1)
    compaction_threshold: float | None = Field(None, ge=0.2, le=0.95, strict=False)
    on_job_exit: JobEnd | None = None
    theme: str | None = None
    show_reasoning: bool | None = None
    telemetry: bool | None = None
    telemetry_content: bool | None = None
    conversations_max_age: Annotated[float, BeforeValidator(parse_duration), Field(ge=3600.0)] | None = None
    conversations_max_bytes: Annotated[int, BeforeValidator(parse_size), Field(ge=1 << 20)] | None = None


def load_agent_settings(choices: CommandLineChoices | None = None) -> AgentSettings:
    """Return the settings of the ``[agent]`` tables of the settings files.

    Raises:
        ConfigError: a file is unreadable, a key is unknown, a value is wrong, or an untrusted file sets one.
    """
    return agent_settings_of(load_tables("agent", choices))


def agent_settings_of(tables: Iterable[SettingsTable]) -> AgentSettings:
    """Return the settings of all tables; later tables override earlier ones.

    Raises:
        ConfigError: as for :func:`load_agent_settings`.
    """
    settings = AgentSettings()
    for table in tables:
        table.check_trusted("[agent]")
        settings = replace(settings, **_checked(table))
    return settings


def _checked(table: SettingsTable) -> dict[str, Any]:
    try:
        return _Table.model_validate(dict(table.values)).model_dump(exclude_none=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["agent", *(str(part) for part in first["loc"])])
        raise ConfigError(f"{table.origin}: {where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
