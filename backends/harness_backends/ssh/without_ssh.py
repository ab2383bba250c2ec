"""The engine of a host on a machine without the ssh program: asyncssh, if it can know the host's whole configuration.

asyncssh reads the ssh configuration itself then, and silently skips what it does not know. So each line of the files
must be one that it follows, whichever host it is about.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from harness.config import Config
from harness.errors import ConnectError
from harness.target import Target

from .engine_choice import FOLLOWED_SETTINGS

__all__ = ["SYSTEM_CONFIG", "USER_CONFIG", "find_unknown_line", "has_ssh", "no_ssh_hint", "only_ssh"]

USER_CONFIG, SYSTEM_CONFIG = "~/.ssh/config", "/etc/ssh/ssh_config"
_LINE = re.compile(r"\s*([^\s=#]+)[\s=]*([^\s]*)")
_SKIPPED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("addkeystoagent", "checkhostip", "hashknownhosts", "proxyusefdpass"), frozenset({"no", "false"})),
    **dict.fromkeys(("nohostauthenticationforlocalhost", "verifyhostkeydns"), frozenset({"no", "false"})),
    **dict.fromkeys(("knownhostscommand", "revokedhostkeys"), frozenset({"none"})),
    "stricthostkeychecking": frozenset({"ask"}),
    "updatehostkeys": frozenset({"ask", "false", "no", "true", "yes"}),
}
"""Settings that asyncssh does not read, with the values that change nothing."""


def has_ssh() -> bool:
    """Return whether this machine has the ssh program."""
    return shutil.which("ssh") is not None


def no_ssh_hint() -> str:
    """Return what to do on a machine without the ssh program."""
    hint = 'install the OpenSSH client, or set ssh_engine = "asyncssh"'
    if find_spec("asyncssh"):
        return hint
    from harness.extras import install_extra

    return f"{hint}, which needs: {install_extra('asyncssh')}"


def only_ssh(target: Target, reason: str) -> ConnectError:
    """Return the error about a setting that only ssh follows."""
    return ConnectError(
        f"ssh is not installed, and asyncssh does not follow the ssh configuration: {reason}",
        target=target,
        hint='install the OpenSSH client, or set ssh_engine = "asyncssh" to log in without this setting',
    )


def find_unknown_line(config: Config) -> str:
    """Return the first line of the configuration files that asyncssh may not follow; empty without one."""
    wanted = [config.ssh_config] if config.ssh_config else [USER_CONFIG, SYSTEM_CONFIG]
    for path in (Path(name).expanduser() for name in wanted):
        for number, name, value in _settings(path):
            known = name == "host" or name in FOLLOWED_SETTINGS
            if not known or value not in _SKIPPED.get(name, (value,)):
                return f"{path} line {number} has {name} {value}".rstrip()
    return ""


def _settings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the settings of a file: the number of the line, the name and the first word of the value."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return  # as for ssh, which ignores a missing file
    for number, line in enumerate(lines, 1):
        if match := _LINE.match(line):
            yield number, match[1].lower(), match[2].lower().strip('"')
