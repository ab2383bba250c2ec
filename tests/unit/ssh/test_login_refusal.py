"""What a refused login says beyond the refusal."""

from __future__ import annotations

import pytest

from harness.errors import AuthenticationError, ConnectError, TargetNotFound
from harness_backends.ssh.login import diagnose, find_cause

DENIED = "me@web1: Permission denied (publickey).\n"


@pytest.mark.parametrize(
    ("log", "what", "hint"),
    [
        (
            f"Permissions 0644 for '/k' are too open.\nLoad key \"/k\": bad permissions\n{DENIED}",
            "the key /k was ignored: other users can read it (mode 0644)",
            "chmod 600 /k",
        ),
        (f'Load key "/k": error in libcrypto\n{DENIED}', "the key /k was not used: error in libcrypto", "puttygen"),
        (f'Load key "/k": invalid format\n{DENIED}', "the key /k was not used: invalid format", "ssh-keygen -y"),
        (f'Load key "/k": Permission denied\n{DENIED}', "/k is not readable", "owner"),
        (f'Load key "/k": incorrect passphrase supplied to decrypt private key\n{DENIED}', "passphrase", "ssh-add"),
        (
            f"Warning: Identity file /a b not accessible: No such file or directory.\n{DENIED}",
            "the key /a b was not used: No such file or directory",
            "existing key",
        ),
        (f"no such identity: /k: No such file or directory\n{DENIED}", "the key /k was not used: No such", "existing"),
        (f"debug1: Server accepts key: /k ED25519 SHA256:x explicit\n{DENIED}", "accepts the key /k", "ssh-add"),
        (
            f"debug1: Offering public key: /k ED25519 SHA256:x explicit\n{DENIED}",
            "the server does not accept /k (ED25519)",
            "authorized_keys",
        ),
        (
            f"debug1: get_agent_identities: ssh_fetch_identitylist: agent contains no identities\n{DENIED}",
            "the agent holds no key",
            "ssh-add",
        ),
        (
            f"debug1: get_agent_identities: ssh_get_authentication_socket: No such file or directory\n{DENIED}",
            "the agent could not be reached (No such file or directory)",
            "SSH_AUTH_SOCK",
        ),
        (DENIED, "no key was offered", "ssh-add"),
    ],
)
def test_a_refusal_says_which_key_and_why(log: str, what: str, hint: str) -> None:
    error = diagnose(log, "ssh://web1")
    assert isinstance(error, AuthenticationError)
    assert "Permission denied (publickey)" in error.message
    assert what in error.message
    assert hint in error.hint
    assert "debug1" not in str(error)


def test_a_server_that_wants_a_password_says_nothing_about_keys() -> None:
    assert find_cause("debug1: x\nme@web1: Permission denied (password).\n") is None


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ssh: connect to host web1 port 22: Connection refused", "no server listens"),
        ("ssh: connect to host web1 port 22: Connection timed out", "no answer"),
        ("Connection timed out during banner exchange\nConnection to web1 port 22 timed out", "does not speak SSH"),
        ("ssh: connect to host web1 port 22: No route to host", "host is down"),
        ("ssh: connect to host web1 port 22: Network is unreachable", "VPN"),
        ("Unable to negotiate with x port 22: no matching host key type found. Their offer: ssh-rsa", "algorithm"),
        ("banner exchange: Connection to 127.0.0.1 port 80: invalid characters in banner", "is not SSH"),
        ("kex_exchange_identification: Connection closed by remote host", "MaxStartups"),
        ("kex_exchange_identification: read: Connection reset by peer", "MaxStartups"),
        ("something new", "check that the host is up"),
    ],
)
def test_a_host_that_was_not_entered_says_what_to_look_at(line: str, hint: str) -> None:
    error = diagnose(line, "ssh://web1")
    assert type(error) is ConnectError
    assert hint in error.hint
    assert "\n" not in str(error)


def test_a_name_service_that_does_not_answer_is_told_from_an_unknown_name() -> None:
    error = diagnose("ssh: Could not resolve hostname web1: Temporary failure in name resolution\n", "ssh://web1")
    assert isinstance(error, TargetNotFound)
    assert "network" in error.hint


def test_a_revoked_host_key_is_called_so() -> None:
    log = (
        "debug1: Server host key: ssh-ed25519 SHA256:abc\n@       WARNING: REVOKED HOST KEY DETECTED!               @\n"
        "Host key verification failed.\n"
    )
    assert "the host key is revoked: ssh-ed25519 SHA256:abc" in str(diagnose(log, "web1"))
