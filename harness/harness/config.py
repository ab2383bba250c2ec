"""The settings of the engine; :mod:`harness.settings` loads them from files and the environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .deprecated_names import renamed_fields
from .target import ExecTarget

__all__ = ["Config"]


@renamed_fields(
    {"tmux_at": {"here": "local"}},
    tmux_at="tmux_host",
    fresh_connection="dedicated_connection",
    job_log_limit="job_log_max_bytes",
)
@dataclass(frozen=True, slots=True)
class Config:
    """The settings of the engine; times are in seconds, sizes in bytes."""

    # terminal
    session: str = "harness"
    """The tmux session for ``tmux=True``."""
    tmux_socket: str = "harness"
    """The tmux server, as in ``tmux -L``."""
    tmux_host: Literal["auto", "target", "local"] = "auto"
    """Where tmux runs: on the target, on this machine, or on the target if it has tmux."""
    control_mode: Literal["auto", "never"] = "auto"
    """Use tmux's control mode if available, or never: then fallback mode, which is slower."""
    shell: str = ""
    """The shell of new panes; empty is the login shell."""
    prompt_tag: bool = True
    """Show ``[harness ID: CODE]`` before the prompt."""
    keyboard_lock: bool = True
    """Block an operator's keys in a pane while a command of harness runs in it."""
    width: int = 150
    height: int = 40
    history_limit: int = 50_000
    """Scrollback lines for operators; results do not depend on it."""
    max_sessions: int = 1
    max_panes: int = 5
    prompt_timeout: float = 15.0
    """Timeout for the first prompt of a new shell."""

    # ssh
    ssh_engine: Literal["default", "auto", "openssh", "asyncssh"] = "default"
    """``auto``: asyncssh for each host whose ssh configuration it follows, else OpenSSH; ``default``: ``auto`` for the
    hosts of a fleet without tmux, else OpenSSH."""
    ssh_options: tuple[str, ...] = ()
    """Passed to ``ssh -o``, for example ``"ProxyJump=bastion"``."""
    ssh_config: str = ""
    """A configuration file other than ``~/.ssh/config`` (``ssh -F``)."""
    identity: str = ""
    """A private key file (``ssh -i``)."""
    connect_timeout: float = 15.0
    login_timeout: float = 60.0
    """Timeout for the whole login, including the operator's answers."""
    keepalive_interval: int = 5
    keepalive_count: int = 3
    control_persist: float = 600.0
    """How long an unused master connection is kept for the next harness process."""
    dedicated_connection: bool = False
    """Use a dedicated connection; do not share the SSH master with other harness processes."""
    max_channels: int = 0
    """sshd's MaxSessions if it is lower than 10; 0 detects it."""

    # containers
    image: str = ""
    """Run in a temporary container of this image, with the target's name, removed on exit."""
    image_memory: str = ""
    """Memory limit of the container, such as ``512m``; empty is the engine's default, as for the others."""
    image_cpus: str = ""
    """CPU limit of the container, such as ``1.5``."""
    image_network: str = ""
    """Network of the container: ``none``, ``host``, or one of the engine's."""
    image_mounts: tuple[str, ...] = ()
    """Bind mounts of host directories: ``/host/dir:/dir[:ro]``, or as for ``docker --mount``."""

    # programs
    exec_targets: tuple[tuple[str, ExecTarget], ...] = ()
    """The targets ``exec://NAME``; in files, the tables ``[targets.NAME]`` with ``exec``."""

    # jobs
    job_log_max_bytes: int = 256 << 20
    """Maximum size of each stream of a command's output on the target; at least 1 MiB."""
    jobs_max_bytes: int = 2 << 30
    jobs_max_age: float = 14 * 86400.0

    # sudo
    sudo_password_command: tuple[str, ...] = ()
    """A command on this machine that prints the password for ``sudo``; ``{user}``, ``{host}`` and ``{target}`` are
    replaced. Empty: the operator is asked."""
    sudo_password_max_age: float = 900.0
    """How long a password that ``sudo`` accepted is kept in memory."""

    # dashboards
    announce: bool = True
    """Let the dashboards of this user show the process; see :mod:`harness.live`."""

    # recordings
    record: bool = False
    """Record the panes of commands that run something; see :mod:`harness.recordings`."""
    record_format: Literal["v2", "v3"] = "v2"
    """The version of the asciicast format; every player reads v2."""
    record_input: bool = False
    """Also record what harness types, which may be a secret that the screen does not show."""
    record_max_bytes: int = 64 << 20
    """Maximum size of one recording."""
    recordings_max_bytes: int = 1 << 30
    recordings_max_age: float = 30 * 86400.0

    # everything
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = field(default=())
