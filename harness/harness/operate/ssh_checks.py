"""Doctor's checks of the ssh client and of what the user's configuration does to a host."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

import anyio
import anyio.to_thread

from ..config import Config
from ..target import Hop
from .findings import Finding, fail, ok, warn

__all__ = ["check_ssh_client", "judge_ssh_config", "parse_ssh_config"]

TIMEOUT = 10.0

# option → (values that are a trap, what it does, what to do)
TRAPS: Mapping[str, tuple[frozenset[str], str, str]] = {
    "requesttty": (frozenset({"yes", "force", "true"}), "asks for a terminal on every command", "RequestTTY auto"),
    "forwardx11": (frozenset({"yes", "true"}), "lets the host draw on, and read, your display", "ForwardX11 no"),
    "forwardagent": (frozenset({"yes", "true"}), "lets root on the host use your keys", "ForwardAgent no"),
    "stricthostkeychecking": (
        frozenset({"no", "off", "false"}),
        "accepts any host key, so that anybody can pose as the host",
        "StrictHostKeyChecking ask, or accept-new",
    ),
    "userknownhostsfile": (
        frozenset({"/dev/null"}),
        "forgets every host key, so that a changed one goes unnoticed",
        "remove the UserKnownHostsFile line",
    ),
    "permitlocalcommand": (
        frozenset({"yes", "true"}),
        "runs LocalCommand here at every login",
        "PermitLocalCommand no",
    ),
}
IGNORED_BY_HARNESS = frozenset({"requesttty", "forwardx11", "permitlocalcommand"})


def parse_ssh_config(text: str) -> dict[str, str]:
    """The first value of each option in the output of ``ssh -G``."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        options.setdefault(name.lower(), value)
    return options


def judge_ssh_config(options: Mapping[str, str]) -> list[Finding]:
    """Findings about options that are known to surprise."""
    findings = []
    remote = options.get("remotecommand", "none")
    if remote not in {"none", ""}:
        findings.append(
            _trap("RemoteCommand", remote, "replaces every command given to ssh", "RemoteCommand none", True)
        )
    for name, (values, effect, fix) in TRAPS.items():
        if options.get(name, "").lower() in values:
            findings.append(
                _trap(fix.split()[0] if " " in fix else name, options[name], effect, fix, name in IGNORED_BY_HARNESS)
            )
    return findings or [ok("ssh config", "nothing in it is known to surprise")]


def _trap(option: str, value: str, effect: str, fix: str, ignored: bool) -> Finding:
    note = "; harness ignores it, ssh by hand does not" if ignored else ""
    return warn("ssh config", f"{option} {value}: {effect}{note}", f"for this host set: {fix}")


async def check_ssh_client(hop: Hop, config: Config) -> list[Finding]:
    """Findings about the ssh on this machine and its configuration for a host. It connects to nothing."""
    if config.ssh_engine != "openssh":
        return [ok("ssh client", f"the {config.ssh_engine} engine needs none")]
    if shutil.which("ssh") is None:
        return [fail("ssh client", "there is no ssh on this machine", "install openssh-client")]
    code, version = await _run(["ssh", "-V"])
    code, text = await _run(_dump_command(hop, config))
    findings = [ok("ssh client", version.strip())]
    if code != 0:
        return [
            *findings,
            fail("ssh config", text.strip().splitlines()[-1] if text.strip() else "ssh -G failed", "mend it"),
        ]
    return findings + judge_ssh_config(parse_ssh_config(text))


def _dump_command(hop: Hop, config: Config) -> list[str]:
    words = ["ssh", "-G"]
    words += ["-F", config.ssh_config] if config.ssh_config else []
    words += [word for option in config.ssh_options for word in ("-o", option)]
    words += ["-p", str(hop.port)] if hop.port else []
    words += ["-l", hop.user] if hop.user else []
    return [*words, "--", hop.host]


async def _run(words: list[str]) -> tuple[int, str]:
    def run() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False)

    try:
        done = await anyio.to_thread.run_sync(run)
    except subprocess.TimeoutExpired:
        return 1, f"{words[0]} did not answer in {TIMEOUT:g} s"
    return done.returncode, (done.stdout or done.stderr).decode("utf-8", "replace")
