"""The targets that an agent may send another one to: those that the operator has named, and no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread

from ..context import ExecutionContext, connect
from ..errors import HarnessError, TargetNotFound
from ..login import use_prompter
from ..settings import Choices, Settings, load_settings
from ..target import Target

__all__ = ["NamedTargets"]


class NamedTargets:
    """The ``[targets.NAME]`` tables of the settings.

    Args:
        config_file: the file of ``--config``, if there is one.
    """

    def __init__(self, config_file: str | None = None) -> None:
        self._config_file = config_file

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[ExecutionContext]:
        """Connect to one, by its name or its URL. Nobody is asked for a password or a host key.

        Raises:
            TargetNotFound: the settings do not name it.
            ConnectError: it cannot be reached.
        """
        settings = await to_thread.run_sync(self._settings, name)
        with use_prompter(None):
            async with connect(settings.target, tmux=settings.tmux, config=settings.config) as execution:
                yield execution

    def _settings(self, name: str) -> Settings:
        known = load_settings(Choices(config_file=self._config_file)).targets
        urls = {_url(url): one for one, url in reversed(known)}
        chosen = name if name in dict(known) else urls.get(_url(name))
        if chosen is None:
            names = ", ".join(one for one, _ in known) or "none"
            raise TargetNotFound(
                f"no agent can be sent to {name!r}: the settings name: {names}", hint="leave backend out"
            )
        return load_settings(Choices(config_file=self._config_file, target=chosen))


def _url(text: str) -> str:
    """A URL as it is compared; what is none stays as it is."""
    try:
        return str(Target.parse(text))
    except (HarnessError, ValueError):
        return text
