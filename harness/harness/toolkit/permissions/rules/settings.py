"""The ``[permissions]`` settings, and the patterns of secret and protected files."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ....deprecated_names import renamed_fields
from ....errors import ConfigError
from ....patterns.wildcards import has_wildcard, matches
from ....settings import SettingsTable
from ..lookalikes import fold
from .rule import ANYTHING, BLOCKED, Action, Match, Rule

__all__ = [
    "PROTECTED",
    "SECRETS",
    "Mode",
    "PermissionSettings",
    "SecretPaths",
    "check_hosts",
    "settings_of",
]


# -- Secret files, which no call may access, and protected files, which no call may write. Pure.


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
    "**/harness/live/token",
    "**/harness/web/logins.json",
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
"""Patterns of secret paths; ``!`` revokes earlier matches. A copy of such a file (``id_rsa.bak``) is a secret, too."""

PROTECTED = (
    *(".aiexclude", "**/.config/harness/**", "**/harness/permissions.json"),
    *("**/.local/state/harness/live/**", "**/.local/state/harness/web/**"),
    "**/.local/state/harness/lent-panes/**",
    *("**/.local/state/harness/mcp/**", "**/.local/state/harness/audit/**", "**/harness/audit.head"),
)
"""Patterns of protected paths: writing them could grant permissions or hide what was done."""

_COPY = re.compile(
    r"[.#]?(?P<name>.+?)(?:~|#|\.~[0-9]+~|\.sw[a-p]|\.[0-9]{1,14}|\.(?:gz|xz|bz2|zst)"
    r"|[._-](?:bak|old|orig|saved?|backup|copy|tmp|dpkg-[a-z]+|ucf-[a-z]+|rpm[a-z]+)[0-9]*)",
    re.DOTALL,
)
"""The name of a copy of a file, made by an editor, a package tool or a user."""
_MAX_NAME_CHARS = 255
"""No file has a longer name."""

MAGIC = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(?:root|cwd)(?P<rest>/.*)?")


class SecretPaths:
    """An ordered list of path patterns, of which the last match decides; ``~`` is the home on the target.

    Args:
        patterns: the patterns; ``!`` revokes earlier matches.
        copies: a file with the name of a copy (``NAME.bak``) counts as its original.
    """

    def __init__(self, patterns: Iterable[str], *, copies: bool = True) -> None:
        self.patterns = tuple(patterns)
        self._copies = copies
        self._folded = [(fold(pattern.removeprefix("!")), pattern) for pattern in reversed(self.patterns)]
        self._hints = _Hints(plain for plain, pattern in self._folded if not pattern.startswith("!"))
        self._found = lru_cache(maxsize=8192)(self._find)

    def matching(self, path: str, home: str) -> str:
        """Return the pattern that decides that this absolute path matches; empty if it does not match."""
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
    """A quick pre-check that rules out most paths before the patterns are tried."""

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
        """Return whether one of the patterns may match."""
        names = path.rstrip("/").split("/")
        return self._any or not self._names.isdisjoint(names) or self._last_name.match(names[-1]) is not None


def _forms(path: str, *, copies: bool) -> list[str]:
    """Return the path, its forms without the ``root`` and ``cwd`` links of /proc, and the originals of copies."""
    plain = posixpath.normpath(path)
    plain = plain[1:] if plain.startswith("//") else plain
    found = [plain]
    while (match := MAGIC.fullmatch(found[-1])) and match["rest"]:
        found.append(match["rest"])
    return [*found, *(original for form in found for original in (_originals(form) if copies else ()))]


def _originals(path: str) -> list[str]:
    """Return the originals of a copy by its name; a leading dot may belong to the original or the copy."""
    directory, name = posixpath.split(path)
    found: list[str] = []
    while len(name) <= _MAX_NAME_CHARS and (match := _COPY.fullmatch(name)) is not None:
        found += [posixpath.join(directory, name[: match.end("name")]), posixpath.join(directory, match["name"])]
        name = name[: match.end("name")]
    return found


# -- The ``[permissions]`` table of the settings files.
#
# Settings of an untrusted directory may only be stricter: allow rules, a laxer mode, exceptions from secrets and other
# relaxed values are an error.


class Mode(StrEnum):
    """What happens to calls that no rule decides."""

    ASK = "ask"
    """Read-only calls run, all others ask."""
    AUTO = "auto"
    """Calls run, except those that always ask."""
    DENY = "deny"
    """No call runs."""
    STRICT = "strict"
    """Everything asks."""


STRICTNESS = {Mode.AUTO: 0, Mode.ASK: 1, Mode.STRICT: 2, Mode.DENY: 3}


@renamed_fields(
    only="allowed_tools",
    secrets="secret_paths",
    blocked="blocked_commands",
    timeout="approval_timeout",
    aiexclude_seconds="aiexclude_cache_seconds",
)
@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """The permission settings of the operator. Times are in seconds."""

    mode: Mode = Mode.ASK
    rules: tuple[Rule, ...] = ()
    """In order; the first match decides, but a deny rule always takes precedence."""
    allowed_tools: tuple[str, ...] = ()
    """Patterns of the only tools that may run; empty for no limit."""
    secret_paths: tuple[str, ...] = SECRETS
    blocked_commands: tuple[str, ...] = BLOCKED
    network_lookups: bool = False
    """Commands that query other hosts (``dig``, ``ping -c``, ``curl -I``) count as reading."""
    approval_timeout: float = 60.0
    """How long an approval request waits for its decision; then it is denied."""
    aiexclude_cache_seconds: float = 5.0
    """How long the content of an ``.aiexclude`` is cached."""


class _RuleTable(BaseModel):
    """A rule in a settings file: ``"git *"`` is one for commands, a table can set more."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    target: str = ANYTHING
    tool: str = ANYTHING
    argument: str | None = None
    match: Literal["glob", "literal"] = "glob"
    hosts: str | None = None


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    mode: Mode | None = None
    allow: list[_RuleTable | str] = Field(default_factory=list)
    deny: list[_RuleTable | str] = Field(default_factory=list)
    ask: list[_RuleTable | str] = Field(default_factory=list)
    allowed_tools: list[str] = Field(default_factory=list)
    secret_paths: list[str] = Field(default_factory=list)
    blocked_commands: list[str] = Field(default_factory=list)
    network_lookups: bool | None = None
    approval_timeout: float | None = Field(None, gt=0, le=86400)
    aiexclude_cache_seconds: float | None = Field(None, ge=0, le=3600)


def settings_of(tables: Iterable[SettingsTable]) -> PermissionSettings:
    """Merge the settings of all files in order.

    Later modes, times and ``allowed_tools`` replace earlier ones; lists add up.

    Args:
        tables: the ``[permissions]`` tables with their origins.

    Raises:
        ConfigError: a key is unknown, a value is invalid, or an untrusted file would relax a setting.
    """
    settings = PermissionSettings()
    for table in tables:
        settings = _with(settings, _checked(table.values, table.origin), table)
    return settings


def _checked(values: Mapping[str, Any], origin: str) -> _Table:
    try:
        return _Table.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["permissions", *(str(part) for part in first["loc"] if part not in ("_RuleTable", "str"))])
        raise ConfigError(f"{origin}: {where}: {first['msg']}", hint="docs/permissions.md lists the keys") from None


def _with(settings: PermissionSettings, table: _Table, source: SettingsTable) -> PermissionSettings:
    if not source.trusted:
        _refuse_loosening(settings, table, source.origin)
    rules = tuple(_rule(entry, action, source.origin) for action, entry in _entries(table))
    return replace(
        settings,
        mode=table.mode or settings.mode,
        rules=(*rules, *settings.rules),
        allowed_tools=_narrowed(settings.allowed_tools, tuple(table.allowed_tools), trusted=source.trusted),
        secret_paths=(*settings.secret_paths, *table.secret_paths),
        blocked_commands=(*settings.blocked_commands, *table.blocked_commands),
        network_lookups=settings.network_lookups if table.network_lookups is None else table.network_lookups,
        approval_timeout=table.approval_timeout or settings.approval_timeout,
        aiexclude_cache_seconds=_given(table.aiexclude_cache_seconds, settings.aiexclude_cache_seconds),
    )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _narrowed(known: tuple[str, ...], added: tuple[str, ...], *, trusted: bool) -> tuple[str, ...]:
    """Return the later allowlist of tools; an untrusted one can only remove tools."""
    if not added or trusted or not known:
        return added or known
    return tuple(name for name in added if name in known) or ("",)


def _entries(table: _Table) -> list[tuple[Action, _RuleTable | str]]:
    return [
        *((Action.DENY, entry) for entry in table.deny),
        *((Action.ASK, entry) for entry in table.ask),
        *((Action.ALLOW, entry) for entry in table.allow),
    ]


def _rule(entry: _RuleTable | str, action: Action, origin: str) -> Rule:
    table = _RuleTable(tool="run_shell", argument=entry) if isinstance(entry, str) else entry
    argument = table.argument or ""
    literal = table.match == "literal" or ("/" in argument and not has_wildcard(argument))
    match = Match.LITERAL if literal else Match.GLOB
    if table.hosts is not None:
        check_hosts(table.hosts, f"{origin}: permissions.{action}: hosts")
    return Rule(action, table.target, table.tool, table.argument, match, origin=origin, hosts=table.hosts)


def check_hosts(pattern: str, where: str) -> None:
    """Refuse a pattern of hosts that is wrong, whatever the hosts are: its rule would match none of them.

    Args:
        pattern: The pattern.
        where: Where it was written, for the error.

    Raises:
        ConfigError: The pattern is wrong, or the extra for patterns is not installed.
    """
    from ....fleets.patterns import check_pattern  # only for rules with hosts

    try:
        check_pattern(pattern)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from error


def _refuse_loosening(settings: PermissionSettings, table: _Table, origin: str) -> None:
    loosened = [
        *(["allow"] if table.allow else []),
        *(["mode"] if table.mode and STRICTNESS[table.mode] < STRICTNESS[settings.mode] else []),
        *(["secret_paths"] if any(pattern.startswith("!") for pattern in table.secret_paths) else []),
        *(["network_lookups"] if table.network_lookups and not settings.network_lookups else []),
        *(["approval_timeout"] if (table.approval_timeout or 0) > settings.approval_timeout else []),
        *(
            ["aiexclude_cache_seconds"]
            if _given(table.aiexclude_cache_seconds, 0) > settings.aiexclude_cache_seconds
            else []
        ),
    ]
    if loosened:
        raise ConfigError(
            f"{origin}: permissions.{loosened[0]} would allow more, and this directory is not trusted",
            hint="add the directory to trusted_dirs in your own settings, or set it there",
        )
