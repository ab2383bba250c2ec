"""Whether asyncssh follows the ssh configuration of a host, setting by setting. Pure.

A setting that is not known here must have OpenSSH's default: asyncssh would ignore another value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from .options import SshSettings

__all__ = ["FOLLOWED_SETTINGS", "has_kerberos", "reasons_for_openssh", "unfollowed_settings"]

# The harness overrides these for both engines, or they have no effect without a terminal and forwardings.
_WITHOUT_EFFECT = (
    *("batchmode", "connecttimeout", "controlmaster", "controlpath", "controlpersist", "serveralivecountmax"),
    *("serveraliveinterval", "clearallforwardings", "dynamicforward", "exitonforwardfailure", "localforward"),
    *("remoteforward", "gatewayports", "permitremoteopen", "streamlocalbindmask", "streamlocalbindunlink"),
    *("tunnel", "tunneldevice", "forwardx11", "forwardx11timeout", "forwardx11trusted", "xauthlocation"),
    *("enableescapecommandline", "escapechar", "forkafterauthentication", "localcommand", "permitlocalcommand"),
    *("remotecommand", "requesttty", "sessiontype", "stdinnull", "visualhostkey"),
    *("loglevel", "logverbose", "syslogfacility", "tag"),
)
# asyncssh gets any value of these; some values are refused below.
_FOLLOWED = (
    *("host", "hostname", "user", "port", "addressfamily", "tcpkeepalive", "proxyjump", "hostkeyalias"),
    *("userknownhostsfile", "globalknownhostsfile", "hashknownhosts", "identityfile", "identitiesonly"),
    *("identityagent", "sendenv", "setenv", "kbdinteractiveauthentication", "passwordauthentication"),
)
_FREE = frozenset({*_WITHOUT_EFFECT, *_FOLLOWED})

_NO = frozenset({"no", "false", "none"})
_YES = frozenset({"yes", "true"})
# What is safe with asyncssh, whatever the default of this OpenSSH is.
_REQUIRED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("addkeystoagent", "canonicalizehostname", "certificatefile", "checkhostip", "compression"), _NO),
    **dict.fromkeys(("enablesshkeysign", "forwardagent", "gssapidelegatecredentials", "gssapikeyexchange"), _NO),
    **dict.fromkeys(("hostbasedauthentication", "knownhostscommand", "nohostauthenticationforlocalhost"), _NO),
    **dict.fromkeys(("pkcs11provider", "proxycommand", "proxyusefdpass", "revokedhostkeys", "verifyhostkeydns"), _NO),
    "gssapiauthentication": _NO,
    "pubkeyauthentication": _YES,
    "stricthostkeychecking": frozenset({"ask", "yes", "true", "accept-new"}),
    "updatehostkeys": _YES | _NO,
}


FOLLOWED_SETTINGS = _FREE | _REQUIRED.keys()
"""The settings that asyncssh follows, some of them only with certain values."""


def reasons_for_openssh(settings: SshSettings, defaults: SshSettings, *, kerberos: bool) -> tuple[str, ...]:
    """Return the settings of a host that asyncssh would not follow, as ``name value``; empty if it follows all.

    Args:
        settings: The host's settings.
        defaults: OpenSSH's settings without any configuration.
        kerberos: Whether this account may have Kerberos tickets; without them, GSSAPI has no effect.
    """
    changed = unfollowed_settings(settings, defaults, kerberos=kerberos)
    return tuple(sorted({*(f"{name} {value}".rstrip() for name, value in changed), *_odd_values(settings)}))


def unfollowed_settings(settings: SshSettings, defaults: SshSettings, *, kerberos: bool) -> list[tuple[str, str]]:
    """Return the settings whose values asyncssh might not follow, in the order of their names.

    Args:
        settings: As for :func:`reasons_for_openssh`, like all arguments.
    """
    names = sorted({*settings.values, *defaults.values})
    changed = [name for name in names if not _is_followed(name, settings, defaults, kerberos=kerberos)]
    return [(name, " ".join(settings.all(name))) for name in changed]


def _is_followed(name: str, settings: SshSettings, defaults: SshSettings, *, kerberos: bool) -> bool:
    values = settings.all(name)
    if name in _FREE or (name == "gssapiauthentication" and not kerberos):
        return True
    if name in _REQUIRED:
        return all(value.lower() in _REQUIRED[name] for value in values)
    return values == defaults.all(name)


def _odd_values(settings: SshSettings) -> Iterator[str]:
    """Yield values of followed settings that the two engines could understand differently."""
    for name in ("userknownhostsfile", "globalknownhostsfile"):
        for value in settings.all(name):
            if not all(_is_plain_path(word) for word in value.split()):
                yield f"{name} {value}"
    for value in settings.all("identityfile"):
        if "%" in value or "$" in value or (value.startswith("~") and not value.startswith("~/")):
            yield f"identityfile {value}"
    agent = settings.get("identityagent", "none")
    if agent != "SSH_AUTH_SOCK" and not _is_plain_path(agent):
        yield f"identityagent {agent}"
    for name in ("hostname", "hostkeyalias", "user"):
        value = settings.get(name)
        strange = not value.isascii() or "%" in value or value.lower() == "none"  # which asyncssh takes as unset
        if strange or (name != "user" and value != value.lower()):
            yield f"{name} {value}"
    if "%" in settings.get("proxyjump"):
        yield f"proxyjump {settings.get('proxyjump')}"


def _is_plain_path(path: str) -> bool:
    absolute = path.startswith(("/", "~/")) or path == "none"
    return absolute and "%" not in path and "$" not in path and '"' not in path


def has_kerberos(environ: Mapping[str, str]) -> bool:
    """Return whether this account may have Kerberos tickets: then GSSAPI could log in where a key would not."""
    if any(name.startswith("KRB5") for name in environ):  # KRB5CCNAME names a cache in another place
        return True
    default = Path(f"/tmp/krb5cc_{os.getuid()}")  # noqa: S108  # Kerberos's own default
    return default.exists() or Path("/etc/krb5.conf").exists()
