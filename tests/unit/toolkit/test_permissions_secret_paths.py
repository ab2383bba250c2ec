"""Secret files, by their paths: those of programs, copies of them, and what must not be taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.toolkit.permissions.rules.settings import SECRETS, SecretPaths

HOME = "/home/ann"
SECRET = """
/etc/wireguard/wg0.conf /usr/local/etc/wireguard/wg0.conf
/etc/NetworkManager/system-connections/home.nmconnection /etc/wpa_supplicant/wpa_supplicant-wlan0.conf
/etc/openvpn/client/office.ovpn /etc/ppp/chap-secrets /etc/ppp/pap-secrets /etc/ipsec.secrets
/etc/ipsec.d/rw.secrets /etc/postfix/sasl_passwd /etc/postfix/sasl_passwd.db /etc/security/opasswd
/etc/exim4/passwd.client /etc/samba/smbpasswd /etc/davfs2/secrets /home/ann/.s3cfg
/home/ann/.config/rclone/rclone.conf /home/ann/.cargo/credentials.toml /home/ann/.cargo/credentials
/home/ann/.dockercfg /home/ann/.config/sops/age/keys.txt /srv/backup.agekey /srv/prod.env /srv/app/.envrc
/home/ann/.bash_history /home/ann/.zsh_history /home/ann/.python_history /home/ann/.psql_history
/home/ann/.local/share/fish/fish_history /home/ann/.zhistory /srv/db/.mysql_history /home/ann/.histfile
/home/ann/.ssh/id_rsa.bak /srv/id_rsa.old /srv/id_ed25519~ /srv/server.key.bak /srv/server.pem.orig
/srv/id_rsa.1 /srv/.id_rsa.swp /srv/#id_rsa# /srv/server.key.dpkg-old /srv/server.key.bak.gz /srv/prod.env.bak
/srv/.env.bak.20260101 /srv/.netrc~ /srv/.pgpass.save /srv/server_key.pem_old /etc/gshadow- /etc/shadow.bak
/srv/deploy_ed25519 /srv/infra/terraform.tfstate /srv/infra/terraform.tfstate.backup /etc/krb5.keytab
/srv/http.keytab /tmp/krb5cc_0 /home/ann/.m2/settings.xml /home/ann/.config/composer/auth.json
/etc/mysql/debian.cnf /home/ann/.mylogin.cnf /etc/letsencrypt/accounts/a/directory/b/private_key.json
/etc/ceph/ceph.client.admin.keyring /home/ann/.authinfo /var/lib/rancher/k3s/server/node-token
/etc/gitlab-runner/config.toml /srv/client_secret_1.json /home/ann/.mozilla/firefox/x/key4.db
/home/ann/Library/Keychains/login.keychain-db
/home/ann/.claude/.credentials.json /home/ann/.codex/auth.json /home/ann/.config/git/credentials /srv/vault_pass.txt
/etc/ansible/vault_pass /home/ann/.config/filezilla/sitemanager.xml /var/lib/jenkins/credentials.xml
/home/ann/.Xauthority /etc/borg/passphrase /srv/backup.passphrase /var/lib/sss/secrets/secrets.ldb
/var/lib/tor/web/hs_ed25519_secret_key /var/lib/docker/containers/0a1b/config.v2.json /home/ann/.viminfo
"""
PLAIN = """
/srv/example.env /srv/.env.dist /usr/lib/x/y.env /srv/environment /srv/app.environment.ts
/usr/share/keyrings/debian.keyring /home/ann/.ssh/id_rsa.pub /home/ann/.ssh/known_hosts.old
/etc/ssl/certs/x.pem.1 /srv/notes.bak /srv/history.txt /etc/NetworkManager/NetworkManager.conf /etc/ppp/options
/home/ann/.claude/settings.json /home/ann/.codex/config.toml /var/lib/tor/web/hostname /etc/tor/torrc
/srv/keys.txt /home/ann/.cargo/config.toml /srv/main.tf /etc/strongswan.conf /srv/wireguard.md /srv/passwd.bak
/srv/rsa.py /srv/server.crt /srv/server.csr.bak /srv/~ /srv/.bak
"""


@pytest.mark.parametrize("path", SECRET.split())
def test_what_keeps_secrets_is_one(path: str) -> None:
    assert SecretPaths(SECRETS).matching(path, HOME)


@pytest.mark.parametrize("path", PLAIN.split())
def test_what_only_looks_like_one_is_none(path: str) -> None:
    assert SecretPaths(SECRETS).matching(path, HOME) == ""


def test_what_settings_take_back_is_taken_back_for_its_copies() -> None:
    secrets = SecretPaths((*SECRETS, "!*.pem"))
    assert secrets.matching("/srv/x.pem", HOME) == secrets.matching("/srv/x.pem.bak", HOME) == ""


@given(st.text("ab.~#-_*?[]{}/swpbakold019", max_size=40))
def test_any_name_is_compared_and_no_copy_is_less_secret_than_its_original(name: str) -> None:
    secrets = SecretPaths(SECRETS)
    plain = name.replace("/", "")
    if plain.strip("~.#") and secrets.matching(f"/srv/{plain}", HOME):
        assert secrets.matching(f"/srv/{plain}.bak", HOME)
