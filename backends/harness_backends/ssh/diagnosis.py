"""Why a login failed, from what ``ssh`` logged. Pure."""

from __future__ import annotations

import re

from harness.errors import AuthenticationError, ConfigError, ConnectError, HarnessError, HostKeyError, TargetNotFound

from .refusal import find_cause

__all__ = ["diagnose"]

_NOISE = re.compile(r"^(debug\d: |OpenSSH_|Authenticated to |@{3,}|\s*$|Pseudo-terminal )")
_PRESENTED = re.compile(r"Server host key: (\S+) (SHA256:\S+)")
_OFFENDING = re.compile(r"Offending .*key in (.+)")

_CHANGED = ("REMOTE HOST IDENTIFICATION HAS CHANGED", "REVOKED HOST KEY", "host key mismatch")
_UNKNOWN = ("Host key verification failed", "host key is known for", "No matching host key fingerprint found")
_NAME = ("Could not resolve hostname", "Name or service not known", "no address associated with name")
_REFUSED = (
    "Permission denied",
    "Too many authentication failures",
    "No more authentication methods",
    "Authentication failed",
    "no mutual signature",
)
_CONFIG = (
    "Bad configuration option",
    "bad configuration options",
    "command-line line 0",
    "Bad owner or permissions",
    "Can't open user config file",
    "Unsupported option",
    "missing argument",
    "keyword ",
)

_REACH = "check that the host is up, its SSH port is reachable, and any jump host lets you in"
_CONNECTING = (
    ("Connection refused", "nothing listens there: check the port, and that the SSH server runs"),
    ("timed out during banner exchange", "something listens there and does not speak SSH, or the host is overloaded"),
    ("Connection timed out", "no answer: the host is down, or a firewall drops the connection"),
    ("No route to host", "the host is down, or a firewall refuses the connection"),
    ("Network is unreachable", "this machine has no route to that network: check its network or VPN"),
    (
        "Unable to negotiate",
        "the two sides share no algorithm: allow an older one, as with -o HostKeyAlgorithms=+ssh-rsa",
    ),
    ("invalid characters", "another service than SSH listens there: check the port"),
    ("Connection reset by peer", "the server ended it before the login: MaxStartups, a ban or a firewall"),
    ("Connection closed by remote host", "the server ended it before the login: MaxStartups, a ban or a firewall"),
)
_KINDS = (
    (_CONFIG, ConfigError, "ssh does not accept its configuration: ", "try it by hand: ssh -G HOST"),
    (
        ("Temporary failure in name resolution",),
        TargetNotFound,
        "",
        "the name service did not answer: check this machine's network",
    ),
    (_NAME, TargetNotFound, "", "check the name, or the Host entry in ~/.ssh/config"),
)


def diagnose(log: str, target: object) -> HarnessError:
    """The error for a login that ssh gave up, with the line of its log that says why."""
    log = log.replace("\r", "")
    lines = [line.rstrip() for line in log.splitlines() if not _NOISE.match(line)]
    text = "\n".join(lines)
    if _any(_CHANGED, text):
        return _changed(text, log, target)
    if _any(_UNKNOWN, text):
        return _unknown(log, target)
    for signs, kind, what, hint in _KINDS:
        if line := _first(signs, lines):
            return kind(f"{what}{_short(line)}", target=target, hint=hint)
    if line := _first(("Permission denied (",), lines) or _first(_REFUSED, lines):
        return _refused(line, log, target)
    for sign, hint in _CONNECTING:
        if line := _first((sign,), lines):
            return ConnectError(_short(line), target=target, hint=hint)
    return ConnectError(_short(_why(lines)), target=target, hint=_REACH)


def _refused(line: str, log: str, target: object) -> AuthenticationError:
    what = f"the login was refused: {_short(line)}"
    cause = find_cause(log)
    if cause is None:
        return AuthenticationError(what, target=target, hint="check the user, and the key or the agent")
    return AuthenticationError(f"{what}; {cause.what}", target=target, hint=cause.hint)


def _changed(text: str, log: str, target: object) -> HostKeyError:
    offending = _OFFENDING.search(text)
    known = f"; the one on record is in {offending[1]}" if offending else ""
    return HostKeyError(
        f"the host key is NOT the one on record: {_presented(log)}{known}",
        target=target,
        hint="somebody may be in between; ask the host's administrator, and only then remove the old key "
        "with ssh-keygen -R HOST",
    )


def _unknown(log: str, target: object) -> HostKeyError:
    return HostKeyError(
        f"the host key is not known here: {_presented(log)}",
        target=target,
        hint="compare the fingerprint with the host's own, then connect once by hand with ssh to record it",
    )


def _presented(log: str) -> str:
    found = _PRESENTED.findall(log)
    return " ".join(found[-1]) if found else "it was not shown"


def _any(signs: tuple[str, ...], text: str) -> bool:
    return any(sign in text for sign in signs)


def _first(signs: tuple[str, ...], lines: list[str]) -> str:
    return next((line for line in lines if _any(signs, line)), "")


def _why(lines: list[str]) -> str:
    """The line that says most: a jump host's own words come before the 'closed by UNKNOWN' that follows from them."""
    telling = [line for line in lines if "UNKNOWN port" not in line and not line.startswith("Warning:")]
    return (telling or lines or ["ssh ended without a word"])[-1]


def _short(line: str) -> str:
    return line.removeprefix("ssh: ").removesuffix(".").strip()
