"""The schema of the ``[web]`` table in a settings file."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import ConfigError
from ..settings import SettingsTable

__all__ = ["Provider", "SearchTable", "WebTable", "checked"]

Provider = Literal["ddgs", "searxng", "brave"]


class SearchTable(BaseModel):
    """``[web.search]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    provider: Provider = "ddgs"
    url: str = ""
    key: str = ""
    api_key_env: str = ""
    engines: list[str] = Field(["duckduckgo"], min_length=1)


class WebTable(BaseModel):
    """``[web]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    allowed_hosts: list[str] | None = None
    credential_hosts: list[str] | None = None
    proxy: str | None = None
    timeout: float | None = Field(None, gt=0, le=600, strict=False)
    search: SearchTable | None = None


def checked(table: SettingsTable) -> WebTable:
    """Validate the table of one file.

    Raises:
        ConfigError: a key is unknown, or a value is invalid.
    """
    try:
        return WebTable.model_validate(dict(table.values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(["web", *(str(part) for part in first["loc"])])
        raise ConfigError(f"{table.origin}: {where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
