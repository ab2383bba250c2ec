"""What else ssh's log says about a login that the server refused: which key was not used, and why. Pure.

The server says the same to all of them (``Permission denied``); the reason is mostly on this side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Cause", "find_cause"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why no key was accepted, and what to do about it."""

    what: str
    hint: str


_MISSING = "name an existing key file (-i, identity, or IdentityFile in the ssh config)"
_FORMAT = (
    "it is damaged, or of a kind that ssh does not read: check it with ssh-keygen -y -f FILE; "
    "PuTTY's keys are converted with puttygen -O private-openssh"
)
_START = "start one (eval $(ssh-agent); ssh-add), or point SSH_AUTH_SOCK or IdentityAgent to it"

# In the order in which they are told: what stopped a certain key comes before what there was none of.
_CAUSES = (
    (
        r"Permissions (\d+) for '(.+)' are too open",
        "the key {1} was ignored: others may read it (mode {0})",
        "chmod 600 {1}",
    ),
    (
        r'Load key "(.+)": Permission denied',
        "the key {0} may not be read by this user",
        "check the file's owner and mode",
    ),
    (
        r'Load key "(.+)": incorrect passphrase',
        "the passphrase of the key {0} was wrong",
        "try again, or add the key to an agent with ssh-add",
    ),
    (r'Load key "(.+)": (.+)', "the key {0} was not used: {1}", _FORMAT),
    (r"Identity file (.+) not accessible: (.+?)\.?$", "the key {0} was not used: {1}", _MISSING),
    (r"no such identity: (.+): (.+)", "the key {0} was not used: {1}", _MISSING),
    (
        r"(signing failed for .+|no mutual signature.+)",
        "{0}",
        "unlock the key in its agent or token, or use another one",
    ),
)
_AGENT = (
    (r"agent contains no identities", "the agent holds no key", "add one with ssh-add"),
    (r"ssh_get_authentication_socket: (.+)", "the agent was not reached ({0})", _START),
)
_ACCEPTED = re.compile(r"Server accepts key: (\S+)")
_OFFERED = re.compile(r"Offering public key: (\S+) (\S+)")
_METHODS = re.compile(r"Permission denied \(([a-z0-9@.,-]+)\)")


def find_cause(log: str) -> Cause | None:
    """The reason that ssh's log (with its debug lines) gives; None when it says nothing beyond the refusal."""
    if cause := _first(_CAUSES, log) or _locked(log):
        return cause
    if not _wants_key(log):
        return None
    offered = [f"{name} ({kind})" for name, kind in _OFFERED.findall(log)]
    if offered:
        return Cause(
            f"it does not accept {', '.join(dict.fromkeys(offered))}",
            "check the user, and that the public key is in the account's authorized_keys there",
        )
    return _first(_AGENT, log) or Cause("there was no key to offer", f"{_MISSING}, or add one to an agent with ssh-add")


def _first(table: tuple[tuple[str, str, str], ...], log: str) -> Cause | None:
    for pattern, what, hint in table:
        if found := re.search(pattern, log, re.M):
            words = found.groups()
            return Cause(what.format(*words), hint.format(*words))
    return None


def _locked(log: str) -> Cause | None:
    """A key that the server would take, and that ssh did not use all the same: it could not be opened."""
    accepted = _ACCEPTED.search(log)
    if accepted is None:
        return None
    return Cause(
        f"the server accepts the key {accepted[1]}, but it could not be used: its passphrase was not given",
        "add it to an agent with ssh-add, or answer the question at a terminal",
    )


def _wants_key(log: str) -> bool:
    methods = _METHODS.findall(log)
    return bool(methods) and "publickey" in methods[-1]
