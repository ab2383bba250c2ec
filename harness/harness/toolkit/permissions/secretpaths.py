"""Files that hold secrets, and files that decide what may be done: nothing reads or writes them for an agent. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from functools import lru_cache

from .globs import matches
from .lookalikes import fold

__all__ = ["PROTECTED", "SECRETS", "SecretPaths"]

SECRETS = (
    *("**/.ssh/**", "!**/.ssh/*.pub", "!**/.ssh/config", "!**/.ssh/known_hosts*", "!**/.ssh/authorized_keys"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_*_sk", "*.ppk", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks"),
    *("*.keystore", "*.kdbx", "!/etc/ssl/certs/**", "!/usr/share/ca-certificates/**", "!/etc/pki/tls/certs/**"),
    *("!/etc/pki/ca-trust/**", "!cacert.pem", "/etc/ssl/private/**", "/etc/pki/tls/private/**"),
    *("/etc/shadow*", "/etc/gshadow*", "/etc/master.passwd", "/etc/krb5.keytab", "/etc/ssh/ssh_host_*_key"),
    *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template"),
    *(".netrc", "_netrc", ".pgpass", ".my.cnf", ".git-credentials", ".npmrc", ".pypirc", ".vault-token", ".htpasswd"),
    *("**/.aws/credentials", "**/.aws/sso/cache/**", "**/.aws/cli/cache/**", "**/.azure/*token*", "**/.azure/msal_*"),
    *("**/.config/gcloud/*credential*", "**/.config/gcloud/*.db", "**/.config/gh/hosts.yml", "**/.kube/config"),
    *("/etc/kubernetes/*.conf", "/etc/rancher/*/*.yaml", "**/.docker/config.json", "**/containers/auth.json"),
    *("**/.gnupg/**", "**/.password-store/**", "**/.local/share/keyrings/**", "**/.terraform.d/credentials*"),
    *("/run/secrets/**", "/var/run/secrets/**", "**/harness/mcp-token"),
    *("/proc/*/environ", "/proc/*/task/*/environ", "/proc/*/mem", "/proc/kcore", "/dev/mem", "/dev/kmem"),
)
"""What is a secret by its path; ``!`` takes an earlier one back."""

PROTECTED = (
    *(".aiexclude", "**/.config/harness/**", "**/harness/permissions.json"),
    *("**/.local/state/harness/mcp/**", "**/.local/state/harness/audit/**", "**/harness/audit.head"),
)
"""What no call may write: it would give rights to whoever asks for them, or hide what was done."""

MAGIC = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(?:root|cwd)(?P<rest>/.*)?")


class SecretPaths:
    """An ordered list of patterns; the last that matches decides. ``~`` is the home directory on the target."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._folded = [(fold(pattern.removeprefix("!")), pattern) for pattern in reversed(self.patterns)]
        self._found = lru_cache(maxsize=8192)(self._find)

    def matching(self, path: str, home: str) -> str:
        """The pattern that makes this absolute path a secret; empty when none does."""
        return self._found(path, home)

    def _find(self, path: str, home: str) -> str:
        return next((found for form in _forms(path) if (found := self._last(fold(form), fold(home)))), "")

    def _last(self, path: str, home: str) -> str:
        for plain, pattern in self._folded:
            anchored = home.rstrip("/") + plain[1:] if plain.startswith("~/") else plain
            if matches(anchored, path, "path"):
                return "" if pattern.startswith("!") else pattern
        return ""


def _forms(path: str) -> list[str]:
    """The path, and what it is when the links of /proc in it are left out."""
    plain = posixpath.normpath(path)
    plain = plain[1:] if plain.startswith("//") else plain
    found = [plain]
    while (match := MAGIC.fullmatch(found[-1])) and match["rest"]:
        found.append(match["rest"])
    return found
