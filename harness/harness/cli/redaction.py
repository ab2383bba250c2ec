"""The redactor of a command's texts: for its recording, for dashboards, and for notifications."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..settings import CommandLineChoices, Settings

if TYPE_CHECKING:
    from ..toolkit.redaction.redactor import Redactor

__all__ = ["session_redactor"]


def session_redactor(
    settings: Settings, choices: CommandLineChoices, variables: Mapping[str, str] | None = None
) -> Redactor:
    """Return a redactor that knows the secrets of the environment and of the settings.

    Args:
        settings: The settings, whose ``env`` every command gets.
        choices: The choices of the command line, for the patterns of the settings.
        variables: The environment of one command, in addition to both.

    Raises:
        ConfigError: A file with settings cannot be read, or a pattern is wrong.
    """
    from ..settings import load_tables
    from ..toolkit.catalog import tool_settings_of
    from ..toolkit.redaction.redactor import PatternRedactor, secrets_in

    patterns = tool_settings_of(load_tables("tools", choices)).redact_patterns
    added = (*secrets_in(dict(settings.config.env)), *secrets_in(variables or {}))
    return PatternRedactor.with_environment(os.environ, secrets=added, patterns=patterns)
