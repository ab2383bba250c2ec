"""Files that hold secrets, and files that decide what may be done: nothing reads or writes them for an agent. Pure."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable
from functools import lru_cache

from .globs import has_wildcard, matches
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
        self._hints = _Hints(plain for plain, pattern in self._folded if not pattern.startswith("!"))
        self._found = lru_cache(maxsize=8192)(self._find)

    def matching(self, path: str, home: str) -> str:
        """The pattern that makes this absolute path a secret; empty when none does."""
        return self._found(path, home)

    def _find(self, path: str, home: str) -> str:
        return next((found for form in _forms(path) if (found := self._last(fold(form), fold(home)))), "")

    def _last(self, path: str, home: str) -> str:
        if not self._hints.possible(path):
            return ""
        for plain, pattern in self._folded:
            anchored = home.rstrip("/") + plain[1:] if plain.startswith("~/") else plain
            if matches(anchored, path, "path"):
                return "" if pattern.startswith("!") else pattern
        return ""


class _Hints:
    """What a path must have for any of the patterns to match: most have nothing of it, and are done at once."""

    def __init__(self, patterns: Iterable[str]) -> None:
        last_names, self._names, self._any = [], set[str](), False
        for pattern in patterns:
            literal = next((name for name in reversed(pattern.split("/")) if name and not has_wildcard(name)), "~")
            if "/" not in pattern:
                last_names.append(fnmatch.translate(pattern))
            elif literal != "~":
                self._names.add(literal)
            else:
                self._any = True
        self._last_name = re.compile("|".join(last_names) or r"(?!)")

    def possible(self, path: str) -> bool:
        """Whether one of them may match."""
        names = path.rstrip("/").split("/")
        return self._any or not self._names.isdisjoint(names) or self._last_name.match(names[-1]) is not None


def _forms(path: str) -> list[str]:
    """The path, and what it is when the links of /proc in it are left out."""
    plain = posixpath.normpath(path)
    plain = plain[1:] if plain.startswith("//") else plain
    found = [plain]
    while (match := MAGIC.fullmatch(found[-1])) and match["rest"]:
        found.append(match["rest"])
    return found
