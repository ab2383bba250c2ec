"""Settings of the agent: the ``[agent]`` table of the settings files.

A file of a directory that is not trusted may set none of it: it would choose who is paid and what the model is told.
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
    """What the operator has set about the agent."""

    model: str = ""
    """The profile that conversations begin with; empty: the only one there is, or none."""
    instructions: str = ""
    """What the model is told besides our own rules."""
    max_steps: int = 50
    """Answers of the model in one turn."""
    turn_budget_usd: float | None = None
    """US dollars for one turn, where prices are known."""
    conversation_budget_usd: float | None = None
    """US dollars for one conversation."""
    conversation_max_tokens: int | None = None
    """Tokens of one conversation, in and out."""
    compaction_threshold: float = 0.85
    """The share of the model's context at which older messages are put together."""
    on_job_exit: JobEnd = "start_turn"
    """When a command that was left running has ended: begin a turn, or tell it with the next one."""
    theme: str = ""
    """How the prompt looks; empty chooses by the terminal."""
    show_reasoning: bool = False
    """Reasoning is shown as it comes; else one line says that there is some."""
    telemetry: bool = False
    """OpenTelemetry spans and metrics, also without the variables of its own."""
    telemetry_content: bool = False
    """Spans hold prompts, commands and results."""
    conversations_max_age: float = 366 * 86400.0
    """Seconds after its last change for which a conversation is stored: ``90d``."""
    conversations_max_bytes: int = 1 << 30
    """Bytes of all stored conversations, such as ``256MiB``; the oldest go first."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: str | None = None
    instructions: str | None = None
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
    """The agent's table of the settings files.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, a value is wrong, or a file that is not trusted sets one.
    """
    return agent_settings_of(load_tables("agent", choices))


def agent_settings_of(tables: Iterable[SettingsTable]) -> AgentSettings:
    """The settings of all files, in their order: what comes later counts.

    Raises:
        ConfigError: as :func:`load_agent_settings`.
    """
    settings = AgentSettings()
    for table in tables:
        if not table.trusted:
            raise ConfigError(
                f"{table.origin}: [agent] may only be set by files that are trusted",
                hint="add the directory to trusted_dirs in your own settings, or set it there",
            )
        settings = replace(settings, **_checked(table))
    return settings


def _checked(table: SettingsTable) -> dict[str, Any]:
    try:
        return _Table.model_validate(dict(table.values)).model_dump(exclude_none=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["agent", *(str(part) for part in first["loc"])])
        raise ConfigError(f"{table.origin}: {where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
