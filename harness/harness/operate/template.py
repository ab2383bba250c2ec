"""The commented settings file that ``harness init`` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..config import Config
from ..settings import SAFE_IN_PROJECTS
from ..settings_schema import ENGINE_KEYS

__all__ = ["DESCRIPTIONS", "settings_template"]

DESCRIPTIONS: Mapping[str, str] = {
    "target": "Where commands run when neither --target nor --ssh says so: a URL, or a name from [targets].",
    "tmux": "Run in a tmux session: true, false, or the session's name.",
    "pane": "The pane to use instead of the default one.",
    "timeout": "How long 'harness run' waits when --timeout is not given; without it there is no limit.",
    "trusted_dirs": 'Directories whose harness.toml may hold any key; "~/ops/*" is everything below ~/ops.',
    "session": "The tmux session for --tmux without a name.",
    "tmux_socket": "The tmux server, as in tmux -L.",
    "tmux_host": "Where tmux runs: on the target, on this machine (local; the pane's shell is on the target), or auto.",
    "control_mode": 'Use tmux\'s control mode if available ("auto"), or "never": commands are then slower.',
    "shell": "The shell of new panes; empty is the login shell.",
    "prompt_tag": "Show [harness ID: CODE] before the prompt.",
    "keyboard_lock": "Block an operator's keys in a pane while a command of harness runs in it.",
    "width": "Columns of a pane.",
    "height": "Lines of a pane.",
    "history_limit": "Scrollback lines for operators; results do not depend on it.",
    "max_sessions": "Maximum number of sessions that harness creates on a target.",
    "max_panes": "Maximum number of panes that harness creates in a session.",
    "prompt_timeout": "Timeout for the first prompt of a new shell.",
    "ssh_engine": 'The SSH client: "openssh" is your own ssh, "asyncssh" a library, "auto" chooses for each host.',
    "ssh_options": 'Passed to ssh -o, for example ["ProxyJump=bastion"].',
    "ssh_config": "A file other than ~/.ssh/config, as ssh -F.",
    "identity": "A private key, as ssh -i.",
    "connect_timeout": "Timeout for a connection.",
    "login_timeout": "Timeout for a login, including your answers.",
    "keepalive_interval": "Seconds of silence after which the connection is probed.",
    "keepalive_count": "Unanswered probes after which the connection is lost.",
    "control_persist": "How long an unused connection is kept for the next harness.",
    "dedicated_connection": "Use a dedicated connection; do not share the SSH master.",
    "max_channels": "sshd's MaxSessions if it is lower than 10; 0 detects it.",
    "image": "Run in a temporary container of this image, removed on exit, as --image.",
    "image_memory": 'Memory limit of the container, for example "512m".',
    "image_cpus": 'CPU limit of the container, for example "1.5".',
    "image_network": 'Network of the container: "none", "host" or one of the engine\'s.',
    "image_mounts": 'Bind mounts of host directories, for example ["/srv/data:/data:ro"].',
    "job_log_max_bytes": "How much of one command's output is kept on the target.",
    "jobs_max_bytes": "How much all ended jobs may take on the target.",
    "jobs_max_age": "How long ended jobs are kept on the target.",
    "sudo_password_command": "A command on this machine that prints the password for sudo, instead of asking you.",
    "sudo_password_max_age": "How long a password that sudo accepted is kept in memory.",
    "announce": "Let 'harness top' and 'harness web' show the processes of harness, and act on them.",
    "record": "Record the panes of commands that run something, as --record.",
    "record_format": 'The asciicast version of recordings: "v2", which every player reads, or "v3".',
    "record_input": "Also record what harness types, which may be a secret that the screen does not show.",
    "record_max_bytes": "Maximum size of one recording.",
    "recordings_max_bytes": "How much all recordings may take on this machine.",
    "recordings_max_age": "How long recordings are kept.",
    "cwd": "The directory in which commands run, or new shells start.",
    "env": "Extra environment of commands.",
}
"""The description of each setting, in one sentence."""

DEFAULTS: Mapping[str, str] = {
    "target": '"local:"',
    "tmux": "false",
    "pane": '"build"',
    "timeout": '"2m"',
    "trusted_dirs": '["~/ops/*"]',
    "cwd": '"/srv/app"',
    "env": '{ PAGER = "cat" }',
    "job_log_max_bytes": '"256MiB"',
    "jobs_max_bytes": '"2GiB"',
    "jobs_max_age": '"14d"',
    "control_persist": '"10m"',
    "sudo_password_command": '["secret-tool", "lookup", "sudo", "{user}@{host}"]',
    "sudo_password_max_age": '"15m"',
    "record_max_bytes": '"64MiB"',
    "recordings_max_bytes": '"1GiB"',
    "recordings_max_age": '"30d"',
}

HEADER = """\
# Settings of harness. Every key is shown with its default or an example; remove the '#' to set it.
# Times are seconds, or "500ms", "30s", "10m", "1h", "1d"; sizes are bytes, or "64k", "256MiB", "2G".
# Later wins: this file, ./harness.toml, --config FILE, [targets.NAME], HARNESS_* variables, options.
"""
PROJECT_HEADER = """\
# Settings of harness for this directory. Remove the '#' to set a key.
# Only these keys are allowed here, unless trusted_dirs in your own settings names this directory.
"""
TARGETS = """
# Named targets, for --target NAME. They may hold any setting above, for this target alone.
# [targets.web1]
# ssh = "deploy@web1"
# tmux = true
# cwd = "/srv/app"
#
# [targets.db]
# url = "ssh://admin@db.example.com:2222"
# ssh_options = ["ProxyJump=bastion"]
#
# [targets.stage]
# exec = ["lxc", "exec", "stage", "--", "{argv}"]
"""
MODELS = """
# Models that the agent can talk to, for 'model' in [agent], HARNESS_MODEL and /model. Settings hold no keys: 'key' says
# where one is kept. Without it the provider's usual variable counts, such as ANTHROPIC_API_KEY.
# [models.claude]
# provider = "anthropic"
# model = "claude-opus-5"
# key = { file = "~/.config/harness/anthropic.key" }
# reasoning = "medium"
#
# [models.gpt]
# provider = "openai-responses"
# model = "gpt-5"
# key = { command = ["pass", "show", "openai"] }
# prices = { input = 1.25, output = 10, cache_read = 0.125 }
#
# [models.local]
# provider = "ollama"
# model = "qwen3:8b"
# base_url = "http://127.0.0.1:11434/v1"
# context_window = 32768
"""


def settings_template(*, project: bool = False) -> str:
    """Return the text of a settings file; ``project`` omits keys that ``./harness.toml`` must not contain."""
    keys = [name for name in _keys() if not project or name in SAFE_IN_PROJECTS]
    entries = [f"\n# {DESCRIPTIONS.get(name, name)}\n# {name} = {_default(name)}\n" for name in keys]
    return (PROJECT_HEADER if project else HEADER) + "".join(entries) + ("" if project else TARGETS + MODELS)


def _keys() -> list[str]:
    general = [name for name in DESCRIPTIONS if name not in Config.__dataclass_fields__]
    return general + list(ENGINE_KEYS)


def _default(name: str) -> str:
    if name in DEFAULTS:
        return DEFAULTS[name]
    value = getattr(Config(), name)
    return json.dumps(list(value) if isinstance(value, tuple) else value)
