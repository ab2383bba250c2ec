"""The settings of the engine. Loading them from files and the environment is in :mod:`harness.settings`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .deprecated_names import renamed_fields

__all__ = ["Config"]


@renamed_fields(
    {"tmux_at": {"here": "local"}},
    tmux_at="tmux_host",
    fresh_connection="dedicated_connection",
    job_log_limit="job_log_max_bytes",
)
@dataclass(frozen=True, slots=True)
class Config:
    """Settings that the engine reads. Times are in seconds, sizes in bytes."""

    # terminal
    session: str = "harness"
    """The tmux session that ``tmux=True`` means."""
    tmux_socket: str = "harness"
    """The tmux server, as in ``tmux -L``."""
    tmux_host: Literal["auto", "target", "local"] = "auto"
    """Where tmux runs: on the target, on this machine, or on the target when it has one."""
    control_mode: Literal["auto", "never"] = "auto"
    """Use tmux's control mode where it can be had, or never: then plain tmux commands, which take longer."""
    shell: str = ""
    """The shell of new panes; empty is the login shell."""
    prompt_tag: bool = True
    """Show ``[harness ID: CODE]`` before the prompt."""
    keyboard_lock: bool = True
    """Keep an operator's keys out of a pane while a command of ours runs in it."""
    width: int = 150
    height: int = 40
    history_limit: int = 50_000
    """Scrollback lines kept for people; results do not depend on it."""
    max_sessions: int = 1
    max_panes: int = 5
    prompt_timeout: float = 15.0
    """How long a new shell may take to its first prompt."""

    # ssh
    ssh_engine: Literal["openssh", "asyncssh"] = "openssh"
    ssh_options: tuple[str, ...] = ()
    """Passed to ``ssh -o``, for example ``"ProxyJump=bastion"``."""
    ssh_config: str = ""
    """Another configuration file than ``~/.ssh/config`` (``ssh -F``)."""
    identity: str = ""
    """A private key file (``ssh -i``)."""
    connect_timeout: float = 15.0
    login_timeout: float = 60.0
    """For the whole login, with the operator's answers."""
    keepalive_interval: int = 5
    keepalive_count: int = 3
    control_persist: float = 600.0
    """How long an unused master connection is kept for the next harness."""
    dedicated_connection: bool = False
    """Log in anew, and share nothing with other harness processes."""
    max_channels: int = 0
    """sshd's MaxSessions when it is lower than 10; 0 finds out."""

    # containers
    image: str = ""
    """Make a throw-away container of this image, under the target's name, and remove it at the end."""
    image_memory: str = ""
    """The most memory that it may take, such as ``512m``; empty is the engine's default, as it is for the others."""
    image_cpus: str = ""
    """The most processors that it may take, such as ``1.5``."""
    image_network: str = ""
    """Its network: ``none``, ``host``, or one of the engine's."""
    image_mounts: tuple[str, ...] = ()
    """What it sees of the host: ``/host/dir:/dir[:ro]``, or as ``--mount`` of the engines' programs."""

    # jobs
    job_log_max_bytes: int = 256 << 20
    """How much of one command's output is kept on the target, of each stream; at least 1 MiB."""
    jobs_max_bytes: int = 2 << 30
    jobs_max_age: float = 14 * 86400.0

    # everything
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = field(default=())
