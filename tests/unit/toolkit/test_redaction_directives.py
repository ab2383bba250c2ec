"""Secrets in settings of programs and routers, in connection strings and in XML; and what looks like them."""

from __future__ import annotations

import json
import time

import pytest

from harness.toolkit.redaction.redactor import MARK, PatternRedactor
from harness.toolkit.redaction.stream import StreamRedactor

PLAIN = PatternRedactor()
SECRETS = ("canary7", "Zx9-" + "kQ7vT2mWp4")

WIRELESS = [
    "PrivateKey = {}",
    "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.1/24",
    "PresharedKey = {}",
    "private key: {}",
    "Private Key: {}",
    "  preshared key: {}\n  endpoint: 10.0.0.1:51820",
    "pre-shared key: {}",
    "api key: {}",
    "iwconfig wlan0 key s:{}",
    "iwconfig wlan0 key restricted s:{}",
    "iwconfig wlan0 essid home key {}",
    "iwconfig wlan0 key [2] {}",
    "iwconfig wlan0 enc {}",
    "iw dev wlan0 connect home key 0:{}",
    "iw dev wlan0 connect home keys d:1:{} 2:{}",
    'network={\n  ssid="home"\n  psk="{}"\n}',
    "network={\n  ssid=home\n  psk={}\n}",
    '  wep_key0="{}"',
    "  wep_key3={}",
    "wep-key1={}",
    "  sae_password={}",
    '  private_key_passwd="{}"',
    "iwpriv wlan0 set WPAPSK={}",
    'wpa_cli set_network 0 psk "{}"',
    '\t#psk="{}"',
]
SERVERS = [
    "stats auth user:{}",
    "    stats auth admin:{}",
    "  user bob password {}",
    "  user bob password {} groups admins",
    "  user bob insecure-password {}",
    "rocommunity {}",
    "rwcommunity {} 10.0.0.0/8",
    "rocommunity6 {} default",
    "#rocommunity {}",
    "+rocommunity {}",
    "/etc/snmp/snmpd.conf:12:rocommunity {}",
    "echo 'rocommunity {}' >> snmpd.conf",
    "trapcommunity {}",
    "trapsink 10.0.0.1 {}",
    "trap2sink 10.0.0.1 {}",
    "informsink nms.example.org {}",
    "com2sec local 127.0.0.1 {}",
    "com2sec6 local ::1 {}",
    "com2sec -Cn ctx notConfigUser default {}",
    'createUser x SHA "{}"',
    "createUser x SHA {} AES {}",
    'createUser x MD5 "{}" DES',
    'createUser -e 0x80 x SHA-256 "{}" AES "{}"',
    "defAuthPassphrase {}",
    "snmp-server community {}",
    "snmp-server community {} RO",
    "snmp-server host 10.0.0.1 version 2c {}",
    "snmp-server user x g v3 auth sha {} priv aes 128 {}",
    "set snmp community {} authorization read-only",
    "snmpget -v2c -c {} h sysDescr.0",
    "snmpwalk -v 2c -c{} h",
    "snmptrap -v2c -c {} h",
    "snmpbulkget -v3 -A {} -X {} h",
    "check_snmp -H h -C {}",
    "user default on >{} ~* +@all",
    "redis-cli ACL SETUSER bob on >{}",
    "enable secret 5 {}",
    "enable password {}",
    "username bob secret 5 {}",
    "username bob privilege 15 password 7 {}",
    " neighbor 10.0.0.1 password {}",
    "radius-server host 10.0.0.1 key {}",
    "tacacs-server key 7 {}",
    " key-string {}",
    " ip ospf authentication-key {}",
    " ip ospf message-digest-key 1 md5 {}",
    "crypto isakmp key {} address 10.0.0.1",
    "pre-shared-key ascii-text {}",
    " wpa-psk ascii 0 {}",
    ': PSK "{}"',
    'bob : EAP "{}"',
    "[mail.example.org]:587 bob:{}",
    "[mail.example.org]:2525 bob@example.org:{}",
    "[mail.example.org]:submission bob@example.org:{}",
    "mail.example.org:587 bob:{}",
    "example.org bob@example.org:{}",
    "@example.org bob@example.org:{}",
    "bob * {} *",
    "bob  *  {}  10.0.0.1",
    "bob pptpd {} *",
    "bob l2tpd {} *",
    'bob * "{}"',
    '"bob" "my server" "{}" *',
    '"bob" * "{}" 10.0.0.1',
    "/etc/ppp/chap-secrets:3:bob * {} *",
    ": PSK {}",
    "10.0.0.1 10.0.0.2 : PSK {}",
    '%any : PSK "{}"',
    "@host : PSK '{}'",
    "bob : EAP {}",
    'bob : XAUTH "{}"',
    "example.org : NTLM {}",
    "%smartcard : PIN {}",
    ': RSA server.pem "{}"',
    ': PKCS8 server.pem "{}"',
    "account = x\nkey = {}",
    "[c]\ntype = crypt\npassword2 = {}",
    "secret_key = {}",
    "gpg_passphrase = {}",
    "00:00:00:00:00:00 {}",
    "db.example.org:5432:app:bob:{}",
    "*:*:*:bob:{}",
    "machine h login me password {}",
    "machine h password {} login me",
    "machine h\n  login me\n  password {}\nmachine i",
    "machine h login me\npassword {}",
]
STRINGS = [
    "Pwd={};Uid=y",
    "Pwd={}",
    "PWD={};UID=sa",
    "Uid=y;Pwd={}",
    "Server=x; Uid=y; Pwd={}",
    "Server=x;User ID=y;Password={};",
    "Driver={ODBC};UID=sa;PWD={}",
    '<password value="{}"/>',
    "<password value='{}' />",
    '<db:password type="x" value="{}"/>',
    '<property name="password" value="{}"/>',
    '<property value="{}" name="password"/>',
    '<entry key="db.password">{}</entry>',
    '<string name="password">{}</string>',
    '<setting name="ApiKey" serializeAs="String"><value>{}</value></setting>',
    "<password>{}</password>",
    "<Password>\n  {}\n</Password>",
    "<passwordHash>{}</passwordHash>",
    "<pass>{}</pass>",
    '<add name="x" connectionString="Server=h;Password={};Database=d"/>',
]
COMMANDS = [
    "htpasswd -b f u {}",
    "mysql -p{}",
    "sshpass -p {} ssh h",
    "sshpass -v -P prompt -p {} ssh h",
    "curl -u user:{} https://x",
    "curl -su user:{} https://x",
    "curl -sSLu 'user:{}' https://x",
    "curl -sU user:{} https://x",
    "curl -sE x.pem:{} https://x",
    "curl --proxy-cert x:{} https://x",
    "curl -x bob:{}@proxy:3128 https://x",
    "curl -sx bob:{}@proxy:3128 https://x",
    "smbclient -U user%{} //h/s",
    "smbclient //h/s -Uuser%{}",
    "mount -t cifs -o user=bob%{},vers=3 //h/s /m",
    "ldapsearch -x -w {}",
    "ldapsearch -xw {} -b dc=x",
    "ldapmodify -LLLxw {} -f x",
]
REDACTED = [*WIRELESS, *SERVERS, *STRINGS, *COMMANDS]

ORDINARY = [
    "private key: /etc/ssl/private/x.key",
    "Private key: not found",
    "private key: RSA-2048",
    "Private-Key: (2048 bit)",
    "private key: server1.pem",
    "  private key: (hidden)",
    "public key: xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    "the private key: keep it safe",
    "access key: Alt+S",
    "API key: missing",
    "shared secret: <your secret>",
    "Encryption key:off",
    "iwconfig wlan0 key off",
    "iwconfig wlan0 key [2]",
    "iwconfig wlan0 essid home",
    "iw dev wlan0 connect home",
    "wpa_cli set_network 0 ssid home",
    "the rocommunity directive gives read access",
    "a community of users, community: public health",
    "snmp-server enable traps",
    "snmp-server contact bob@example.org",
    "trapsink is deprecated",
    "com2sec is a directive",
    "create user bob",
    "stats uri /haproxy?stats",
    "stats auth is required",
    "user bob password expired",
    "User admin password reset",
    "user bob password authentication failed",
    "Enable password authentication",
    "enable secret rotation",
    "Username for 'https://github.com':",
    "echo user bob on > file",
    "neighbor 10.0.0.1 remote-as 65000",
    "radius-server host 10.0.0.1 auth-port 1812",
    "pre-shared-key authentication is used",
    "src/a.py:12:x:y:z",
    "users:3:bob:x:1000:1000::/home/bob:/bin/sh",
    "0.0.0.0:5432->5432/tcp, :::5432->5432/tcp",
    "tcp 0 0 127.0.0.1:5432 0.0.0.0:* LISTEN",
    "2001:db8:0:1:2",
    "nobody:*:99:99:Nobody:/var/empty:/usr/bin/false",
    "root:*:19000:0:99999:7:::",
    "[12:30:01] bob: hello",
    "[INFO] worker:started",
    "[10.0.0.1]:22 ssh-ed25519 AAAAC3Nz",
    "PWD=/tmp;UID=0",
    "PWD=/home/bob OLDPWD=/",
    "Pwd=${DB_PWD};Uid=y",
    "<fail>3</fail><pass>97</pass>",
    "Authorization: Bearer <token>\nhello there",
    "usage: login <password>\nlogs in",
    '<password value=""/>',
    '<password value="${db.password}"/>',
    "<Password>\n  ${DB_PASSWORD}\n</Password>",
    '<property name="passwordEncoder" ref="x"/>',
    '<entry key="user">bob</entry>',
    '<label for="password">Password</label>',
    '<button name="token">Go</button>',
    "<passwordPolicy>strict</passwordPolicy>",
    "machine learning login page",
    "the machine has a password here",
    "login me\npassword must be changed",
    "Please login now\npassword is required",
    "curl -sSL https://x:8080/y",
    "curl -sSu bob https://x",
    "curl -xk https://x",
    "curl -x proxy:3128 https://x",
    "curl -X POST -H Host:x https://x",
    "ldapsearch -x -LLL -b dc=x",
    "ldapsearch -xW -D cn=x",
    "sshpass -e ssh -p 22 h",
    "mount -t cifs -o user=bob,vers=3 //h/s /m",
    "smbclient -Uuser //h/s",
    "snmpwalk -v2c -Cc -c $COMMUNITY h",
    "ACL SETUSER bob on ~* +@all",
    "JPOOL_PASS = A second pass over the text",
    "x * y",
    "    width * height12",
    "5 * 3 *",
    "0 5 * * * root run-parts /etc/cron.daily",
    "* main 3f2a1bc a subject",
    "* Version 1.2.3a *",
    "10.0.0.0 * 255.255.255.0 U 0 0 0 eth0",
    "default * 10.0.0.1",
    "*  ctx  cluster12  user1  ns",
    "* 0 /usr/bin/vim.basic 50 auto mode",
    "web1 prod i-0abc123def 10.0.0.1",
    "bob pts/0 x1y2z3w4 10.0.0.1",
    "ppp interface ppp0 up",
    "pppd options are in /etc/ppp/options",
    "security : psk or eap",
    "error: psk mismatch",
    "auth : eap md5",
    "key type: rsa 4096",
    ": RSA server.pem %prompt",
    "origin\tgit@github.com:bob/repo1.git (fetch)",
    "example.org git@example.org:bob/repo1",
    "[app.main] user:id42",
    "[2024-01-01] job:id42",
    "mail.example.org:587 open",
    "account = 12ab\nname = b",
    "key = value",
    "hashes.txt:12:d41d8cd98f00b204e9800998ecf8427e",
    "d41d8cd98f00b204e9800998ecf8427e  file",
    "echo $1$2 $6$7",
    "awk '{print $1$2$5}'",
    "bob:x:1000:1000::/home/bob:/bin/sh",
    "bob:!:19000:0:99999:7:::",
    "the hash begins with $6$ and a salt",
    "00:11:22:33:44:55 phone12",
]


def test_a_secret_is_redacted_and_nothing_else() -> None:
    for text in REDACTED:
        for secret in SECRETS:
            assert PLAIN.text(text.replace("{}", secret)) == text.replace("{}", MARK)


def test_a_plain_word_is_a_secret_where_only_secrets_stand() -> None:
    for text in ("rocommunity {}", "stats auth bob:{}", "com2sec a b {}", "Pwd={};Uid=y", "neighbor a password {}"):
        assert PLAIN.text(text.replace("{}", "public")) == text.replace("{}", MARK)
    assert PLAIN.text("10.0.0.1 %any : PSK 0sYWJj") == f"10.0.0.1 %any : PSK {MARK}"
    assert PLAIN.text("set passwd ENC c2VjcmV0") == f"set passwd {MARK} {MARK}"
    assert PLAIN.text("Encryption key:0123-4567-89") == f"Encryption key:{MARK}"


def test_ordinary_texts_stay() -> None:
    assert [text for text in ORDINARY if PLAIN.text(text) != text] == []


def test_a_secret_is_redacted_in_json_that_holds_the_text() -> None:
    for text in REDACTED:
        for before in ("", "first\n"):
            shown = PLAIN.text(json.dumps({"a": before + text.replace("{}", SECRETS[1])}))
            assert SECRETS[1] not in shown, text


def test_a_stream_shows_no_part_of_a_secret_wherever_it_is_cut() -> None:
    for text in [*REDACTED, *ORDINARY]:
        whole = text.replace("{}", SECRETS[1]) + "\n"
        clean = PLAIN.text(whole)
        for size in (1, 7, 13):
            stream = StreamRedactor(PLAIN)
            shown = "".join(stream.feed(whole[at : at + size]) for at in range(0, len(whole), size))
            assert shown + stream.flush() == clean, text


MB = 1 << 20
ADVERSARIAL = {
    "user": "user " * (MB // 5),
    "users": "user bob " * (MB // 9),
    "on": "user bob on " * (MB // 12) + " >",
    "blanks": "com2sec" + " " * MB,
    "words": "trapsink " + "x" * MB,
    "snmp": "snmp-server host 1 " * (MB // 19),
    "server": "radius-server " * (MB // 14) + "key",
    "fields": "a:54" + "a" * MB,
    "element": "<password" + " x" * (MB // 2),
    "elements": "<password>" * (MB // 10) + "</",
    "called": '<entry name="password" ' * (MB // 23) + "</",
    "value": 'value="x" ' * (MB // 10) + "</",
    "isakmp": "isakmp key " * (MB // 11),
    "netrc": "login a\npassword " * (MB // 17),
    "curl": "curl -" + "s" * MB,
    "pwd": "pwd=" * (MB // 4) + "uid=" * 10,
    "token": "token=" * (MB // 6),
    "stars": "a * b2c3d4 \n" * (MB // 12),
    "vpn": "bob " + "vpn" * (MB // 3) + " x",
    "ppp": "bob pptpd abcdef7 " + "* " * (MB // 2),
    "psk": ": psk " * (MB // 12),
    "mail": "a@b.c " * (MB // 6),
    "dots": "@" + "a." * (MB // 2),
    "account": "account = x\n" * (MB // 12),
    "hashes": "$6$" * (MB // 3),
    "hash": "$y$" + "a" * MB,
    "pass": "pass = " * (MB // 7),
}


HASHES = [
    "$1$abcdefgh$" + "x" * 22,
    "$apr1$abcdefgh$" + "D" * 22,
    "$5$saltsalt$" + "C" * 43,
    "$6$rounds=5000$saltsalt$" + "A" * 86,
    "$6$saltsalt$" + "A" * 86,
    "$y$j9T$abcdef$" + "B" * 43,
    "$gy$j9T$abcdef$" + "B" * 43,
    "$2y$05$" + "E" * 53,
    "$P$" + "B" * 31,
    "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$" + "F" * 43,
    "pbkdf2_sha256$600000$salt$" + "G" * 43 + "=",
    "{SSHA}" + "H" * 32,
    "{SHA}" + "I" * 27 + "=",
]


@pytest.mark.parametrize("found", HASHES)
def test_a_hash_of_a_password_is_redacted_in_the_files_that_hold_it(found: str) -> None:
    for line in (
        f"bob:{found}",
        f"bob:{found}:19000:0:99999:7:::",
        f"bob:1000:2:$1$a${'x' * 22},{found}",
        f'"{found}"',
    ):
        assert found[-12:] not in PLAIN.text(line)
        stream = StreamRedactor(PLAIN)
        assert found[-12:] not in "".join([*map(stream.feed, line), stream.flush()])


def test_old_hashes_and_digests_are_redacted_by_the_fields_around_them() -> None:
    assert PLAIN.text("bob:aNhG7.xXq2rSo:19000:0:99999:7:::") == f"bob:{MARK}:19000:0:99999:7:::"
    assert PLAIN.text(f"bob:a realm:{'0a' * 16}") == f"bob:a realm:{MARK}"
    assert PLAIN.text("bob\t*\tcanary7\t10.0.0.1") == f"bob\t*\t{MARK}\t10.0.0.1"
    assert PLAIN.text("AGE-SECRET-KEY-1" + "Q" * 58) == MARK
    assert PLAIN.text("key: AGE-SECRET-KEY-PQ-1" + "Q" * 58) == f"key: {MARK}"
    assert PLAIN.text("key = K001a" + "a1" * 13) == f"key = {MARK}"


@pytest.mark.usefixtures("needs_time")
def test_a_megabyte_meant_to_be_slow_takes_linear_time() -> None:
    """One that is not linear takes minutes."""
    for name, text in ADVERSARIAL.items():
        before = time.process_time()
        PLAIN.text(text)
        assert time.process_time() - before < 5.0, name
