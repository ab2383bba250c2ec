"""The configuration of an evaluation's sandbox, and the target that it selects."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict

from ..config import Config
from ..errors import ConfigError
from ..settings import CommandLineChoices, load_settings
from ..target import Target

__all__ = ["Destination", "SandboxConfig", "resolve"]

_HOP = r"[a-z][a-z0-9]*:/?[^/]*"
_TARGET_AT_END = re.compile(rf"/((?:{_HOP}\+)*{_HOP})$")
_ONE_SLASH = re.compile(r"\b([a-z][a-z0-9]*):/(?!/)")

CONTAINERS = ("docker", "podman", "container")
MAX_PANES = 1000
"""Each sample in a terminal has a pane; the evaluation's own limits say how many samples run at a time."""


class SandboxConfig(BaseModel):
    """The configuration of a sandbox, with the names of harness's command line options.

    Other values come from harness's settings: the user's file, ``HARNESS_*`` variables and the defaults.

    Args:
        target: a target URL or a named target of the settings, as ``--target`` takes it.
        tmux: True for the configured tmux session, a string for the session of that name, False for none.
        cwd: the working directory of every sample, which must exist and is not removed. Without it each sample gets a
            new directory, which is removed at its end.
        image: give each sample a temporary container of this image. The target is then an engine with a prefix for the
            names, such as ``docker://eval``.
        settings_file: a settings file, as ``--config`` takes it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str | None = None
    tmux: bool | str | None = None
    cwd: str | None = None
    image: str | None = None
    settings_file: str | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the commands of samples run; equal destinations share one connection."""

    target: Target
    tmux: bool | str
    config: Config

    @property
    def in_container(self) -> bool:
        """True when commands run in a container."""
        return self.target.last.scheme in CONTAINERS

    @property
    def temporary(self) -> bool:
        """True when each sample has a container of its own."""
        return bool(self.config.image)

    def for_sample(self) -> Destination:
        """Return the destination of one sample: with an image, a container under a name of its own."""
        if not self.temporary:
            return self
        last = replace(self.target.last, host=f"{self.target.last.host}-{secrets.token_hex(4)}")
        return replace(self, target=Target((*self.target.hops[:-1], last)))


def target_text(text: str) -> str:
    """Return the target that an evaluation gave as text. Pure.

    inspect_ai treats the text as a file name: ``ssh://lab1`` arrives as ``/directory/of/the/task/ssh:/lab1``. Targets
    never start with a slash.
    """
    if not text.startswith("/"):
        return text
    found = _TARGET_AT_END.search(text)
    return _ONE_SLASH.sub(r"\1://", found[1]) if found else text.rpartition("/")[2]


def resolve(config: BaseModel | str | None) -> tuple[SandboxConfig, Destination]:
    """Return the configuration and the destination that it means.

    Args:
        config: what the evaluation gives; a string is a target.

    Raises:
        ConfigError: it is something else, or the settings are wrong.
        TargetNotFound: the target is not a URL and not the name of one.
    """
    if config is None or isinstance(config, str):
        config = SandboxConfig(target=target_text(config or "") or None)
    if not isinstance(config, SandboxConfig):
        raise ConfigError(
            f"the configuration of a harness sandbox is a {type(config).__name__}",
            hint="give a target such as 'ssh://lab1', or a harness.inspect_sandbox.SandboxConfig",
        )
    settings = load_settings(
        CommandLineChoices(config_file=config.settings_file, target=config.target, tmux=config.tmux)
    )
    engine = replace(
        settings.config,
        image=config.image or settings.config.image,
        max_panes=max(settings.config.max_panes, MAX_PANES),
    )
    return config, Destination(settings.target, settings.tmux, engine)
