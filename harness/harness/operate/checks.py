"""Doctor's checks of a target and of the ssh client: one probe script, and pure functions for its results."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import PurePosixPath

import anyio
import anyio.to_thread

from ..backend import Capabilities, Finding, fail, ok, warn
from ..config import Config
from ..target import Hop

__all__ = [
    "PROBE",
    "Facts",
    "check_ssh_client",
    "judge_capabilities",
    "judge_disk",
    "judge_facts",
    "judge_ssh_config",
    "judge_tmux_version",
    "parse_facts",
    "parse_ssh_config",
]


# -- Checks of the ssh client and of its configuration for a host.


TIMEOUT = 10.0

# option → (values that are a trap, what it does, what to do)
TRAPS: Mapping[str, tuple[frozenset[str], str, str]] = {
    "requesttty": (frozenset({"yes", "force", "true"}), "asks for a terminal on every command", "RequestTTY auto"),
    "forwardx11": (frozenset({"yes", "true"}), "lets the host draw on, and read, your display", "ForwardX11 no"),
    "forwardagent": (frozenset({"yes", "true"}), "lets root on the host use your keys", "ForwardAgent no"),
    "stricthostkeychecking": (
        frozenset({"no", "off", "false"}),
        "accepts any host key, so that an attacker can pose as the host",
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
    """Return the first value of each option in the output of ``ssh -G``."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        options.setdefault(name.lower(), value)
    return options


def judge_ssh_config(options: Mapping[str, str]) -> list[Finding]:
    """Return findings about options with known problems."""
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
    return findings or [ok("ssh config", "no known problems")]


def _trap(option: str, value: str, effect: str, fix: str, ignored: bool) -> Finding:
    note = "; harness ignores it, ssh by hand does not" if ignored else ""
    return warn("ssh config", f"{option} {value}: {effect}{note}", f"for this host set: {fix}")


async def check_ssh_client(hop: Hop, config: Config) -> list[Finding]:
    """Return findings about ssh on this machine and its configuration for a host, without connecting."""
    if config.ssh_engine == "asyncssh":
        return [ok("ssh client", f"the {config.ssh_engine} engine needs none")]
    if shutil.which("ssh") is None:
        return [_without_ssh(config)]
    code, version = await _run(["ssh", "-V"])
    code, text = await _run(_dump_command(hop, config))
    findings = [ok("ssh client", version.strip())]
    if code != 0:
        return [
            *findings,
            fail(
                "ssh config",
                text.strip().splitlines()[-1] if text.strip() else "ssh -G failed",
                "fix the ssh configuration",
            ),
        ]
    return findings + judge_ssh_config(parse_ssh_config(text))


def _without_ssh(config: Config) -> Finding:
    said, fix = "ssh is not installed on this machine", 'install openssh-client, or set ssh_engine = "asyncssh"'
    if config.ssh_engine == "openssh" or not find_spec("asyncssh"):
        return fail("ssh client", said, fix)
    return ok("ssh client", f"{said}; asyncssh takes its place")


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


# -- Checks of a target.


Facts = Mapping[str, str]

OLDEST_TMUX = (2, 6)
KNOWN_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash", "mksh", "fish", "busybox"})
NO_SHELLS = frozenset({"nologin", "false", "true"})
CLOCK_WARN = 5.0
DISK_FAIL_KB, DISK_WARN_KB = 10 * 1024, 1024 * 1024

NEEDED_PROGRAMS = (
    "awk cat chmod date find grep head id kill ls mkdir mkfifo mv rm rmdir sed sleep sort tail tr wc xargs"
)
"""What a target needs besides ``sh``; docs/target-programs.md names the same."""

# $1: the state directory, $2: the operator's TERM, $3: the tmux socket. The slowest question comes last.
PROBE = (
    f"""
missing=
for program in {NEEDED_PROGRAMS}; do command -v "$program" >/dev/null 2>&1 || missing="$missing, $program"; done
for program in sha256sum shasum sha256 openssl cksum none; do command -v "$program" >/dev/null 2>&1 && break; done
[ "$program" != none ] || missing="$missing, cksum"
"""
    + r"""
say() { printf '%s %s\n' "$1" "$2"; }
say missing "${missing#, }"
say now "$(date +%s)"
say lang "${LC_ALL:-${LC_CTYPE:-${LANG:-}}}"
say charmap "$(locale charmap 2>/dev/null)"
say utf8 "$(locale -a 2>/dev/null | grep -ic 'utf-*8')"
say state "$(ls -ldn "$1" 2>/dev/null | { read -r mode links uid rest; printf '%s %s' "$mode" "$uid"; })"
say disk "$(df -Pk "$1" 2>/dev/null | { read -r head; read -r fs size used free rest; printf '%s' "$free"; })"
tmp=${TMPDIR:-/tmp}
probe=$tmp/harness-doctor.$(date +%s).$$
if mkdir -m 700 "$probe" 2>/dev/null; then
  printf '#!/bin/sh\nexit 0\n' >"$probe/try" && chmod 700 "$probe/try"
  if "$probe/try" 2>/dev/null; then say exec yes; else say exec no; fi
  rm -rf "$probe"
elif ! command -v mkdir >/dev/null 2>&1; then :
else say exec unwritable
fi
say tmpdir "$tmp"
if command -v tmux >/dev/null 2>&1; then
  say server "$(tmux -L "$3" list-sessions 2>&1 | grep -i mismatch)"
  sock=harness-doctor-$$
  if tmux -L "$sock" -f /dev/null -C new-session -d 'exec sleep 9' </dev/null >/dev/null 2>&1 &&
    tmux -L "$sock" list-panes >/dev/null 2>&1; then say control yes; else say control no; fi
  tmux -L "$sock" kill-server >/dev/null 2>&1
  rm -f "${TMUX_TMPDIR:-/tmp}/tmux-$(id -u)/$sock"
  [ -z "$2" ] || if infocmp "$2" >/dev/null 2>&1; then say term yes; else say term no; fi
fi
if [ "$(id -u)" = 0 ]; then say sudo root
elif ! command -v sudo >/dev/null 2>&1; then say sudo none
elif sudo -n true </dev/null >/dev/null 2>&1; then say sudo free
else say sudo asks; fi
say end yes
"""
)


def parse_facts(text: str) -> Facts:
    """Return the probe's results by name."""
    lines = (line.partition(" ") for line in text.splitlines())
    return {name: value.strip() for name, _, value in lines if name}


def judge_capabilities(found: Capabilities, *, tmux_wanted: bool) -> list[Finding]:
    """Return findings about the capabilities that were probed on connection."""
    return [
        _login_shell(found.shell),
        judge_tmux_version(found.tmux_version, wanted=tmux_wanted),
        ok("setsid", "commands get a session of their own")
        if found.has("setsid")
        else warn("setsid", "not installed, so ending a command's processes takes longer", "install util-linux"),
    ]


def _login_shell(path: str) -> Finding:
    name = PurePosixPath(path).name
    if name in NO_SHELLS:
        return fail("login shell", f"login shell {path} does not allow logins", "chsh -s /bin/sh, or another user")
    if name in KNOWN_SHELLS:
        return ok("login shell", path)
    return warn("login shell", f"{path or 'unknown'} is not one that panes work in", 'set shell = "/bin/sh"')


def judge_tmux_version(version: str, *, wanted: bool, here: bool = False) -> Finding:
    """Return a finding about tmux.

    Args:
        version: What ``tmux -V`` prints; empty if it is not installed.
        wanted: Whether the target's commands run in tmux.
        here: Whether this is the tmux of this machine, whatever the target.
    """
    complain: Callable[[str, str, str], Finding] = fail if wanted else warn
    if not version and here:
        return complain("tmux", "not installed", "install tmux, to see commands run and to attach to sessions")
    if not version:
        return complain("tmux", "not installed on the target", 'install tmux, or set tmux_host = "local"')
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < OLDEST_TMUX:
        return complain("tmux", f"{version} is older than 2.6", 'install a newer one, or set tmux_host = "local"')
    return ok("tmux", version)


def judge_facts(facts: Facts, *, uid: int, local_time: float, by_engine: bool = False) -> list[Finding]:
    """Return findings about the results of :data:`PROBE`.

    Args:
        facts: The results.
        uid: The login's user ID.
        local_time: This machine's time of the probe in seconds since the epoch.
        by_engine: Whether the target is a container.
    """
    findings = [
        _programs(facts),
        _control_mode(facts),
        _locale(facts),
        _terminfo(facts),
        _temporary(facts),
        _state(facts, uid),
        _disk(facts),
        _clock(facts, local_time),
        _sudo(facts, by_engine=by_engine),
    ]
    if "end" not in facts:
        findings.append(
            warn("probe", "the target did not answer every question in time", "see whether it is overloaded")
        )
    return [finding for finding in findings if finding is not None]


def _programs(facts: Facts) -> Finding | None:
    if "missing" not in facts:
        return None
    if facts["missing"]:
        return fail(
            "programs", f"not installed, or not in PATH: {facts['missing']}", "install them: harness needs them"
        )
    return ok("programs", "all that harness needs are there")


def _control_mode(facts: Facts) -> Finding | None:
    if facts.get("server"):
        return fail("tmux server", facts["server"], "end the old server: tmux -L harness kill-server")
    if "control" not in facts:
        return None
    if facts["control"] == "yes":
        return ok("tmux server", "control mode works")
    return fail("tmux server", "a server with control mode does not start", "try on the target: tmux -C new-session")


def _locale(facts: Facts) -> Finding | None:
    if "lang" not in facts:
        return None
    name = facts["lang"] or "unset"
    if "utf" in facts.get("charmap", "").lower() or "utf" in name.lower():
        return ok("locale", name)
    if facts.get("utf8", "0") not in {"", "0"}:
        return ok("locale", f"{name}; panes use a UTF-8 locale of the target")
    return warn("locale", f"{name}, and the target has no UTF-8 locale", "install one, such as C.UTF-8 or en_US.UTF-8")


def _terminfo(facts: Facts) -> Finding | None:
    if facts.get("term") != "no":
        return None
    return warn(
        "terminfo", "the target does not know your TERM, so attaching may fail", "attach with TERM=xterm-256color"
    )


def _temporary(facts: Facts) -> Finding | None:
    where = facts.get("tmpdir", "/tmp")  # noqa: S108  # a name for the message, not a file of harness
    known = {
        "yes": ok("temporary files", where),
        "no": warn("temporary files", f"{where} is mounted noexec", "scripts put there need 'sh FILE', not './FILE'"),
        "unwritable": fail("temporary files", f"{where} cannot be written", "chmod 1777 /tmp, or set TMPDIR"),
    }
    return known.get(facts.get("exec", ""))


def _state(facts: Facts, uid: int) -> Finding | None:
    mode, _, owner = facts.get("state", "").partition(" ")
    if not mode:
        return None
    if mode.startswith("drwx------") and owner == str(uid):
        return ok("state directory", "private")
    return fail("state directory", f"mode {mode}, owner {owner}", "chmod 700 it, and own it; see 'state_dir' in --json")


def _disk(facts: Facts) -> Finding | None:
    if not facts.get("disk", "").isdigit():
        return None
    return judge_disk("disk space", int(facts["disk"]), "for jobs")


def judge_disk(check: str, free: int, purpose: str) -> Finding:
    """Return a finding about free space.

    Args:
        check: The name of the check.
        free: The free space in KiB.
        purpose: What it is for, such as ``for jobs``.
    """
    said = f"{free / 1024 / 1024:.1f} GiB free" if free >= DISK_WARN_KB else f"{free // 1024} MiB free"
    said = f"{said} {purpose}"
    if free < DISK_FAIL_KB:
        return fail(check, said, "make room, or run harness doctor --clean")
    return ok(check, said) if free >= DISK_WARN_KB else warn(check, said, "harness doctor --clean")


def _clock(facts: Facts, local_time: float) -> Finding | None:
    if not facts.get("now", "").isdigit():
        return None
    skew = int(facts["now"]) - local_time
    if abs(skew) <= CLOCK_WARN:
        return ok("clock", "agrees with ours")
    way = "ahead of" if skew > 0 else "behind"
    return warn("clock", f"{abs(skew):.0f} s {way} ours, as are the times of jobs", "run NTP on both machines")


def _sudo(facts: Facts, *, by_engine: bool) -> Finding | None:
    if by_engine and facts.get("sudo") in ("asks", "none"):
        return ok("sudo", "not needed: the engine does --user; in a pane it needs root, or sudo")
    known = {
        "root": ok("sudo", "not needed: the login is root"),
        "free": ok("sudo", "works without a password"),
        "asks": ok("sudo", "asks for a password; --user asks for it, or sudo_password_command gives it"),
        "none": ok("sudo", "not installed, so --user does not work"),
    }
    return known.get(facts.get("sudo", ""))
