"""Which settings of the ssh configuration asyncssh follows; with any other, a host gets OpenSSH."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.config import Config
from harness.errors import ConfigError
from harness.target import Target
from harness_backends.ssh.configuration import read_defaults, read_settings
from harness_backends.ssh.engine_choice import has_kerberos, reasons_for_openssh
from harness_backends.ssh.host_engine import FUTURE_ASYNCSSH, OLDEST_ASYNCSSH
from harness_backends.ssh.options import SshSettings

WEB1 = Target.parse("ssh://deploy@web1:2222")

FOLLOWED = [
    "HostName 10.0.0.1\nPort 2200\nUser deploy",
    "IdentityFile ~/.ssh/id_web\nIdentitiesOnly yes",
    "IdentityAgent none",
    "IdentityAgent /run/agent",
    "IdentityAgent SSH_AUTH_SOCK",
    "ProxyJump me@bastion:2222,other",
    "HostKeyAlias web",
    "UserKnownHostsFile /k1 ~/k2\nGlobalKnownHostsFile none\nHashKnownHosts yes",
    "StrictHostKeyChecking yes",
    "StrictHostKeyChecking accept-new",
    "SendEnv LANG LC_*\nSetEnv A=1",
    "AddressFamily inet\nTCPKeepAlive no",
    "ServerAliveInterval 3\nConnectTimeout 2\nBatchMode yes",
    "ControlMaster auto\nControlPath /s\nControlPersist yes",
    "LocalForward 8080 localhost:80\nForwardX11 yes\nRequestTTY force\nRemoteCommand top",
    "PermitLocalCommand yes\nLocalCommand touch /x",
    "GSSAPIAuthentication yes",
    "Match host web1 exec true\n  Port 9",
    "UpdateHostKeys no",
    "PasswordAuthentication no",
]
REFUSED = [
    ("ProxyCommand nc %h %p", "proxycommand"),
    ("ForwardAgent yes", "forwardagent"),
    ("PKCS11Provider /usr/lib/p11.so", "pkcs11provider"),
    ("SecurityKeyProvider /usr/lib/sk.so", "securitykeyprovider"),
    ("CertificateFile ~/.ssh/id-cert.pub", "certificatefile"),
    ("VerifyHostKeyDNS yes", "verifyhostkeydns"),
    ("KnownHostsCommand /bin/keys %H", "knownhostscommand"),
    ("RevokedHostKeys /etc/ssh/revoked", "revokedhostkeys"),
    ("CanonicalizeHostname yes\nCanonicalDomains example.com", "canonicalizehostname"),
    ("AddKeysToAgent yes", "addkeystoagent"),
    ("CheckHostIP yes", "checkhostip"),
    ("StrictHostKeyChecking no", "stricthostkeychecking"),
    ("NoHostAuthenticationForLocalhost yes", "nohostauthenticationforlocalhost"),
    ("UpdateHostKeys ask", "updatehostkeys"),
    ("HostbasedAuthentication yes", "hostbasedauthentication"),
    ("EnableSSHKeysign yes", "enablesshkeysign"),
    ("PubkeyAuthentication no", "pubkeyauthentication"),
    ("PreferredAuthentications password", "preferredauthentications"),
    ("PubkeyAcceptedAlgorithms ssh-ed25519", "pubkeyacceptedalgorithms"),
    ("HostKeyAlgorithms ssh-ed25519", "hostkeyalgorithms"),
    ("CASignatureAlgorithms ssh-ed25519", "casignaturealgorithms"),
    ("Ciphers aes256-ctr", "ciphers"),
    ("MACs hmac-sha2-512", "macs"),
    ("KexAlgorithms curve25519-sha256", "kexalgorithms"),
    ("RequiredRSASize 4096", "requiredrsasize"),
    ("Compression yes", "compression"),
    ("RekeyLimit 1M", "rekeylimit"),
    ("IPQoS ef", "ipqos"),
    ("BindAddress 127.0.0.1", "bindaddress"),
    ("ConnectionAttempts 3", "connectionattempts"),
    ("NumberOfPasswordPrompts 1", "numberofpasswordprompts"),
    ("FingerprintHash md5", "fingerprinthash"),
    ("UserKnownHostsFile relative", "userknownhostsfile"),
    ("IdentityFile %d/.ssh/key", "identityfile"),
]


async def reasons(path: Path, text: str, *, kerberos: bool = False) -> tuple[str, ...]:
    """What a configuration with these lines for all hosts says against asyncssh."""
    path.write_text(text + "\n")
    config = Config(ssh_config=str(path))
    settings = await read_settings(WEB1, config)
    return reasons_for_openssh(settings, await read_defaults(WEB1, config), kerberos=kerberos)


@pytest.mark.usefixtures("needs_ssh")
@pytest.mark.parametrize("text", FOLLOWED)
async def test_asyncssh_follows_what_is_usual(tmp_path: Path, text: str) -> None:
    assert await reasons(tmp_path / "config", text) == ()


@pytest.mark.usefixtures("needs_ssh")
@pytest.mark.parametrize(("text", "name"), REFUSED, ids=[name for _, name in REFUSED])
async def test_any_other_setting_needs_openssh_and_is_named(tmp_path: Path, text: str, name: str) -> None:
    found = await reasons(tmp_path / "config", text)
    assert any(reason.startswith(f"{name} ") for reason in found), found


@pytest.mark.usefixtures("needs_ssh")
async def test_gssapi_needs_openssh_where_there_may_be_tickets(tmp_path: Path) -> None:
    assert await reasons(tmp_path / "config", "GSSAPIAuthentication yes", kerberos=True) == (
        "gssapiauthentication yes",
    )
    assert await reasons(tmp_path / "config", "GSSAPIAuthentication no", kerberos=True) == ()
    assert has_kerberos({"KRB5CCNAME": "KEYRING:persistent:0"})


def test_the_versions_of_asyncssh_are_those_of_the_extra() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (requirement,) = project["optional-dependencies"]["asyncssh"]
    oldest, future = (".".join(map(str, version)) for version in (OLDEST_ASYNCSSH, FUTURE_ASYNCSSH))
    assert requirement == f"asyncssh[bcrypt]>={oldest},<{future}"


@pytest.mark.usefixtures("needs_ssh")
async def test_a_setting_of_one_host_concerns_no_other(tmp_path: Path) -> None:
    assert (
        await reasons(tmp_path / "config", "Host other\n  ForwardAgent yes\nMatch user nobody\n  Ciphers aes256-ctr")
        == ()
    )


@pytest.mark.usefixtures("needs_ssh")
async def test_a_configuration_that_openssh_refuses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?i)nosuchoption"):
        await reasons(tmp_path / "config", "NoSuchOption yes")


def test_a_setting_that_a_newer_openssh_has_is_not_trusted() -> None:
    defaults = SshSettings.parse("host x\nnewoption no\n")
    assert reasons_for_openssh(defaults, defaults, kerberos=False) == ()
    changed = SshSettings.parse("host x\nnewoption yes\nother 1\n")
    assert reasons_for_openssh(changed, defaults, kerberos=False) == ("newoption yes", "other 1")


def test_what_must_be_off_must_be_so_even_if_it_is_the_default() -> None:
    defaults = SshSettings.parse("checkhostip yes\n")
    assert reasons_for_openssh(defaults, defaults, kerberos=False) == ("checkhostip yes",)


@pytest.mark.parametrize(
    "line", ["hostname wéb", "user jörg", "hostname fe80::1%eth0", "hostname WEB1", "user none", "proxyjump %h-gateway"]
)
def test_names_that_the_engines_could_encode_differently_need_openssh(line: str) -> None:
    assert reasons_for_openssh(SshSettings.parse(line), SshSettings(), kerberos=False) == (line,)


@pytest.mark.usefixtures("needs_process")
def test_importing_asyncssh_starts_no_compiler_to_search_libraries() -> None:
    script = """
import ctypes.util, sys
started, search = [], ctypes.util.find_library
sys.addaudithook(lambda event, args: started.append(str(args[0])) if event == "subprocess.Popen" else None)
from harness_backends.ssh.host_engine import problem_of_asyncssh
assert not problem_of_asyncssh() and "asyncssh" in sys.modules and ctypes.util.find_library is search
print(*started)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    if Path("/etc/ld.so.cache").exists():
        assert {Path(name).name for name in done.stdout.split()} <= {"ldconfig"}
