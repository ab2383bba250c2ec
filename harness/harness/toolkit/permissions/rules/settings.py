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
    # keys
    *("**/.ssh/**", "!**/.ssh/*.pub", "!**/.ssh/config", "!**/.ssh/known_hosts*", "!**/.ssh/authorized_keys"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_*_sk", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519", "*.ppk"),
    *("*.pem", "*.key", "*.p8", "*.pk8", "*.p12", "*.pfx", "*.pkcs12", "*.jks", "*.jceks", "*.keystore", "*.kdb"),
    *("*.kdbx", "!/etc/ssl/certs/**", "!/usr/share/ca-certificates/**", "!/etc/pki/tls/certs/**"),
    *("!/etc/pki/ca-trust/**", "!cacert.pem", "/etc/ssl/private/**", "/etc/pki/tls/private/**"),
    *("**/private_key.json", "*.keytab", "krb5cc_*", "*.keyring", "!/usr/share/keyrings/**"),
    *("!/etc/apt/**/*.keyring", "/etc/ssh/ssh_host_*_key", "**/.gnupg/**", "secring.*", "*.agekey"),
    *("**/age/keys.txt", "**/.age/**"),
    # passwords of the system and its networks
    *("/etc/shadow*", "/etc/gshadow*", "/etc/master.passwd", "opasswd", "/etc/wireguard/**", "**/wireguard/*.conf"),
    *("*.nmconnection", "**/system-connections/**", "**/wpa_supplicant*.conf", "*.ovpn", "chap-secrets"),
    *("pap-secrets", "*.secrets", "**/ipsec.d/private/**", "**/swanctl/private/**", "**/davfs2/secrets"),
    *("sasl_passwd*", "passwd.client", "smbpasswd", ".smbcredentials", "**/samba/private/**", "/etc/pve/priv/**"),
    *("/etc/corosync/authkey", "/etc/credstore/**", "/run/credentials/**", "/var/lib/systemd/credential.secret"),
    *("/var/lib/cloud/**/user-data*", "/run/secrets/**", "/var/run/secrets/**", "**/harness/mcp-token"),
    # settings and credentials of programs
    *(".env", ".env.*", "*.env", ".envrc", "!.env.example", "!.env.sample", "!.env.template", "!.env.dist"),
    *("!.env.defaults", "!example.env", "!sample.env", "!template.env", "!/usr/lib/**/*.env", ".netrc", "_netrc"),
    *(".authinfo", ".pgpass", ".my.cnf", ".mylogin.cnf", "/etc/mysql/debian.cnf", ".msmtprc", ".fetchmailrc"),
    *(".git-credentials", ".npmrc", ".pypirc", ".vault-token", ".vault_pass*", ".htpasswd", ".htdigest"),
    *("**/.cargo/credentials", "**/.cargo/credentials.toml", "**/.gem/credentials", "**/.m2/settings*.xml"),
    *("**/.composer/auth.json", "**/composer/auth.json", "**/client_secret*.json"),
    *("**/application_default_credentials.json", "**/.aws/credentials", "**/.aws/sso/cache/**"),
    *("**/.aws/cli/cache/**", "**/.azure/*token*", "**/.azure/msal_*", "**/.config/gcloud/*credential*"),
    *("**/.config/gcloud/*.db", "**/.config/gcloud/legacy_credentials/**", ".boto", ".s3cfg", "**/rclone.conf"),
    *("**/.config/gh/hosts.yml", "**/.config/hub", "**/glab-cli/config.yml", "**/.config/op/**"),
    *("**/doctl/config.yaml", "**/hcloud/cli.toml", "**/.fly/config.yml", "*.tfstate"),
    *("**/.terraform.d/credentials*", ".terraformrc", "**/.kube/config", "/etc/kubernetes/*.conf"),
    *("/etc/rancher/*/*.yaml", "**/k3s/server/*token", "**/.docker/config.json", ".dockercfg"),
    *("**/.docker/trust/private/**", "**/containers/auth.json", "**/gitlab-runner/config.toml"),
    *("**/gitlab-secrets.json", "**/jenkins/secrets/**", "**/.password-store/**", "**/.local/share/keyrings/**"),
    *("**/Library/Keychains/**", "**/.mozilla/firefox/*/key4.db", "**/.mozilla/firefox/*/logins.json"),
    *("**/.mozilla/firefox/*/cookies.sqlite", "**/google-chrome/**/Login Data", "**/google-chrome/**/Cookies"),
    *("**/.claude/.credentials.json", "**/.codex/auth.json", "**/.config/git/credentials", "**/vault_pass*"),
    *("**/filezilla/sitemanager.xml", "**/filezilla/recentservers.xml", "**/jenkins/credentials.xml", ".Xauthority"),
    *("**/borg/passphrase", "*.passphrase", "/var/lib/sss/secrets/**", "/var/lib/tor/**/*_secret_key"),
    *("**/docker/containers/*/config.v2.json", "**/.config/restic/password*"),
    # what was typed, and what programs hold
    *(".*_history", ".zhistory", ".histfile", "fish_history", ".viminfo", "/proc/*/environ", "/proc/*/task/*/environ"),
    *("/proc/*/mem", "/proc/kcore", "/dev/mem", "/dev/kmem"),
)
"""What is a secret by its path; ``!`` takes an earlier one back. A copy under such a name (``id_rsa.bak``) is one."""

PROTECTED = (
    *(".aiexclude", "**/.config/harness/**", "**/harness/permissions.json"),
    *("**/.local/state/harness/mcp/**", "**/.local/state/harness/audit/**", "**/harness/audit.head"),
)
"""What no call may write: it would give rights to whoever asks for them, or hide what was done."""

_COPY = re.compile(
    r"[.#]?(?P<name>.+?)(?:~|#|\.~[0-9]+~|\.sw[a-p]|\.[0-9]{1,14}|\.(?:gz|xz|bz2|zst)"
    r"|[._-](?:bak|old|orig|saved?|backup|copy|tmp|dpkg-[a-z]+|ucf-[a-z]+|rpm[a-z]+)[0-9]*)",
    re.DOTALL,
)
"""The name of a copy that editors, package tools and people keep of a file."""
_MAX_NAME_CHARS = 255
"""No file has a longer name."""

MAGIC = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(?:root|cwd)(?P<rest>/.*)?")


class SecretPaths:
    """An ordered list of patterns; the last that matches decides. ``~`` is the home directory on the target.

    Args:
        copies: a file under the name of a copy (``NAME.bak``) counts as its original.
    """

    def __init__(self, patterns: Iterable[str], *, copies: bool = True) -> None:
        self.patterns = tuple(patterns)
        self._copies = copies
        self._folded = [(fold(pattern.removeprefix("!")), pattern) for pattern in reversed(self.patterns)]
        self._hints = _Hints(plain for plain, pattern in self._folded if not pattern.startswith("!"))
        self._found = lru_cache(maxsize=8192)(self._find)

    def matching(self, path: str, home: str) -> str:
        """The pattern that makes this absolute path a secret; empty when none does."""
        return self._found(path, home)

    def _find(self, path: str, home: str) -> str:
        return next(
            (found for form in _forms(path, copies=self._copies) if (found := self._last(fold(form), fold(home)))), ""
        )

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
            last_name = pattern.rpartition("/")[2]
            if "/" not in pattern or (literal == "~" and last_name.strip("*")):
                last_names.append(fnmatch.translate(last_name))
            elif literal != "~":
                self._names.add(literal)
            else:
                self._any = True
        self._last_name = re.compile("|".join(last_names) or r"(?!)")

    def possible(self, path: str) -> bool:
        """Whether one of them may match."""
        names = path.rstrip("/").split("/")
        return self._any or not self._names.isdisjoint(names) or self._last_name.match(names[-1]) is not None


def _forms(path: str, *, copies: bool) -> list[str]:
    """The path, and what it is when the links of /proc in it are left out; of a copy also what it is a copy of."""
    plain = posixpath.normpath(path)
    plain = plain[1:] if plain.startswith("//") else plain
    found = [plain]
    while (match := MAGIC.fullmatch(found[-1])) and match["rest"]:
        found.append(match["rest"])
    return [*found, *(original for form in found for original in (_originals(form) if copies else ()))]


def _originals(path: str) -> list[str]:
    """What the path is a copy of, by its name; a leading dot may belong to that name, or to the copy's."""
    directory, name = posixpath.split(path)
    found: list[str] = []
    while len(name) <= _MAX_NAME_CHARS and (match := _COPY.fullmatch(name)) is not None:
        found += [posixpath.join(directory, name[: match.end("name")]), posixpath.join(directory, match["name"])]
        name = name[: match.end("name")]
    return found
