"""Secrets are taken out wherever they stand, and ordinary text stays as it is."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.toolkit import Image, Text, ToolResult
from harness.toolkit.redaction.patterns import is_secret_name
from harness.toolkit.redaction.redactor import MARK, PatternRedactor, redact_head, secrets_in

PLAIN = PatternRedactor()
SECRET = "Zx9-" + "kQ7vT2mWp4"
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
LONG = "a1B2c3D4e5" * 4
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N"
BODY = "\n".join(base64.b64encode(hashlib.sha512(bytes([n])).digest()).decode()[:64] for n in range(5))


def key(kind: str = "RSA ", body: str = BODY) -> str:
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


TOKENS = [
    AWS_ID,
    "ASIA" + "ABCDEFGHIJKLMNOP",
    *(f"gh{kind}_" + LONG[:36] for kind in "pousr"),
    "github_pat_" + "11ABCDEFG0" + LONG,
    "glpat-" + "xyz_ABC-123456789012",
    "xoxb-" + "123456789012-123456789012-AbCdEf",
    "xapp-" + "1-A1B2C3-123-abcdef",
    "hooks.slack.com/services/" + "T00000000/B00000000/abcdEFGH1234",
    "sk-" + "proj-" + LONG,
    "sk-" + "ant-api03-" + LONG,
    "sk_live_" + LONG[:24],
    "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "npm_" + LONG[:36],
    "hvs." + LONG,
    JWT,
    JWT.rpartition(".")[0] + ".",
]
AROUND = ["{}", "token is {}.", '"{}"', "a={};", "({})", "<{}>", "x:{}\n", "{} {}", "https://host/{}?x=1"]


def test_a_token_is_taken_out_wherever_it_stands() -> None:
    for token in TOKENS:
        for around in AROUND:
            text = around.replace("{}", token)
            assert token not in PLAIN.text(text)
            assert PLAIN.text(text).replace(MARK, "") in {around.replace("{}", ""), around.replace("{}.", "")}


NAMED = [
    ("export API_KEY={}", "export API_KEY={}"),
    ("DB_PASSWORD={}", "DB_PASSWORD={}"),
    ("DB_PASSWORD='{}'", "DB_PASSWORD='{}'"),
    ('GITHUB_TOKEN="{}" make', 'GITHUB_TOKEN="{}" make'),
    ("MY_SECRET={} other=1", "MY_SECRET={} other=1"),
    ("password={}", "password={}"),
    ("password = {}", "password = {}"),
    ("  password: {}", "  password: {}"),
    ("password: {} # of the database", "password: {} # of the database"),
    ("passphrase: '{}'", "passphrase: '{}'"),
    ('{"password": "{}", "user": "bob"}', '{"password": "{}", "user": "bob"}'),
    ('{"clientSecret":"{}"}', '{"clientSecret":"{}"}'),
    ('"{\\"apiKey\\": \\"{}\\"}"', '"{\\"apiKey\\": \\"{}\\"}"'),
    ("?access_token={}&page=2", "?access_token={}&page=2"),
    ("aws_secret_access_key = {}", "aws_secret_access_key = {}"),
    ("Server=db;Uid=sa;Pwd={};Database=x", "Server=db;Uid=sa;Pwd={};Database=x"),
    ("DefaultEndpointsProtocol=https;AccountKey={};", "DefaultEndpointsProtocol=https;AccountKey={};"),
    ("Authorization: Bearer {}", "Authorization: Bearer {}"),
    ("curl -H 'Authorization: token {}' https://x", "curl -H 'Authorization: token {}' https://x"),
    ('"authorization": "Basic {}"', '"authorization": "Basic {}"'),
    ("X-Api-Key: {}", "X-Api-Key: {}"),
    ("postgres://app:{}@db:5432/x", "postgres://app:{}@db:5432/x"),
    ("https://:{}@host", "https://:{}@host"),
    ("mysql -u root -p{} db", "mysql -u root -p{} db"),
    ("mysqldump -p'{}' db", "mysqldump -p'{}' db"),
    ("sshpass -p {} ssh host", "sshpass -p {} ssh host"),
    ("curl -u bob:{} https://x", "curl -u bob:{} https://x"),
    ("curl --user 'bob:{}' https://x", "curl --user 'bob:{}' https://x"),
    ("redis-cli -a {} ping", "redis-cli -a {} ping"),
    ("vault login --token {}", "vault login --token {}"),
    ("tool --db-password {} -v", "tool --db-password {} -v"),
    ("tool --password={} -v", "tool --password={} -v"),
    ("machine h login me password {}", "machine h login me password {}"),
]


def test_a_value_with_the_name_of_a_secret_is_taken_out_and_nothing_else() -> None:
    for text, clean in NAMED:
        for before in ["", "first line\n", "a " * 300]:
            assert PLAIN.text(before + text.replace("{}", SECRET)) == before + clean.replace("{}", MARK)


def test_a_secret_beside_an_aws_id_is_taken_out() -> None:
    assert PLAIN.text(f"bob,{AWS_ID},{AWS_SECRET}\n") == f"bob,{MARK}\n"


def test_bearer_and_basic_are_taken_out_without_the_header() -> None:
    login = base64.b64encode(f"bob:{SECRET}".encode()).decode()
    assert PLAIN.text(f"sent Basic {login}.") == f"sent Basic {MARK}."
    assert PLAIN.text(f"bearer {LONG}") == f"bearer {MARK}"


@pytest.mark.parametrize("kind", ["RSA ", "EC ", "", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_is_taken_out(kind: str) -> None:
    assert PLAIN.text(f"before\n{key(kind)}\nafter") == f"before\n{MARK}\nafter"
    assert PLAIN.text(json.dumps({"k": key(kind)})) == json.dumps({"k": MARK})
    assert PLAIN.text(f"{key(kind)}\n{key(kind)}\nend") == f"{MARK}\n{MARK}\nend"


def test_a_private_key_with_headers_and_a_pgp_block_are_taken_out() -> None:
    headed = key(body="Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n" + BODY)
    assert PLAIN.text(headed) == MARK
    pgp = f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{BODY}\n-----END PGP PRIVATE KEY BLOCK-----"
    assert PLAIN.text(pgp) == MARK


def test_a_private_key_without_its_end_or_its_beginning_is_taken_out() -> None:
    head, tail = key()[:200], key()[100:]
    assert PLAIN.text(f"x\n{head}\n(cut)") == f"x\n{MARK}\n(cut)"
    assert PLAIN.text(f"hello, world\n{tail}\nafter") == f"hello, world\n{MARK}\nafter"


def test_a_private_key_in_base64_is_taken_out_and_a_certificate_stays() -> None:
    secret = base64.b64encode(key("").encode()).decode()
    public = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n").decode()
    assert PLAIN.text(f"client-key-data: {secret}\nca: {public}\n") == f"client-key-data: {MARK}\nca: {public}\n"


SHA = hashlib.sha256(b"x").hexdigest()
ORDINARY = [
    SHA,
    SHA[:40],
    f"commit {SHA[:40]} (HEAD -> main)",
    f"sha256:{SHA}",
    str(uuid.UUID(int=1 << 100)),
    base64.b64encode(os.urandom(3000)).decode(),
    "\n".join([BODY] * 3),
    "-----BEGIN CERTIFICATE-----\n" + BODY + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + BODY + "\n-----END PUBLIC KEY-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGZk bob@host",
    "Password: ",
    "[sudo] password for bob: ",
    "Enter your password: then press Enter",
    "the password is wrong; the token has expired; the secret of success",
    "token = lexer.next()",
    "token = tokens[0]",
    "password = getpass.getpass()",
    'secret = os.environ["SECRET"]',
    "password = new_password",
    "def login(user: str, password: str) -> Token:",
    "password: string;",
    "  token: string",
    "max_tokens=4096 tokens: 12",
    "token: 5 of 7",
    "PASSWORD=$PASSWORD",
    "TOKEN=${TOKEN}",
    "TOKEN=$(cat file; rm -rf /)",
    "password: ${DB_PASSWORD}",
    "password: {{ vault_password }}",
    "API_KEY=<your key>",
    "password=********",
    "PWD=/home/bob/project OLDPWD=/",
    "passwd:         files systemd",
    "/etc/passwd: No such file or directory",
    "bob:x:1000:1000:Bob:/home/bob:/bin/bash",
    "https://example.org:8080/path?a=b@c",
    "ssh://git@github.com:22/x.git",
    "git@github.com:owner/name.git",
    'http://host:80","mail":"a@b',
    "docker run -u 1000:1000 -p 80:80 nginx",
    "docker run --user www-data:www-data x",
    "bearer of bad news, bearer authentication-and-authorization",
    "basic knowledge of Basic English",
    "Authorization: required",
    "class sk-toggleable__label-arrow-and-more sk-estimator-doc-link",
    "task-1234567890-abcdefghij-klmnop",
    "eyJhbGciOiJIUzI1NiJ9 is a header",
    "AKIA is a prefix; akiaiosfodnn7example",
    "ghp_short xoxb-1 glpat-x npm_install",
    "monkey: banana, keyboard=qwerty, tokens=9",
    "a\x00b\x1b[31mred\x1b[0m\udcff\ud800",
    "İstanbul PASSWORDLESS=yes",
    MARK,
    f"password: {MARK}",
]


def test_ordinary_text_stays() -> None:
    for text in ORDINARY:
        assert PLAIN.text(text) == text


def test_letters_whose_small_form_is_longer_do_not_move_the_secret() -> None:
    assert PLAIN.text(f"İİİ password={SECRET} İ") == f"İİİ password={MARK} İ"


# -- known secrets

KNOWN = "p@ss/wörd+1 \"x\" 'y'"
FORMS: dict[str, Callable[[str], str]] = {
    "itself": str,
    "URL": lambda text: quote(text, safe=""),
    "URL path": quote,
    "form": quote_plus,
    "JSON": lambda text: json.dumps({"a": text}),
    "JSON with letters": lambda text: json.dumps([text], ensure_ascii=False),
    "hexadecimal": lambda text: text.encode().hex(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 after one": lambda text: base64.b64encode(b"u:" + text.encode() + b"abc").decode(),
    "base64 after two": lambda text: base64.b64encode(b"u" + text.encode() + b"ab").decode(),
    "base64 in a URL": lambda text: base64.urlsafe_b64encode(b"user:" + text.encode()).decode(),
    "shell": lambda text: "'" + text.replace("'", "'\\''") + "'",
}


def test_a_known_secret_is_taken_out_in_every_form() -> None:
    for secret in [KNOWN, "correct-horse-battery-staple", "näïve€ßecret??>>", "\udcff\udcfebytes"]:
        for form in FORMS.values():
            try:
                text = form(secret)
            except UnicodeEncodeError:
                text = secret
            clean = PatternRedactor([secret]).text(f"a {text} b")
            assert MARK in clean
            assert len(clean.replace(MARK, "")) <= len("a  b") + 12  # what surrounds it in the form
            assert secret not in clean


def test_a_secret_of_several_lines_is_taken_out_with_either_line_end() -> None:
    redactor = PatternRedactor(["first line\nsecond line"])
    assert redactor.text("a first line\r\nsecond line b") == f"a {MARK} b"
    assert redactor.text("a first line\nsecond line b") == f"a {MARK} b"


def test_secrets_that_are_part_of_one_another_leave_nothing() -> None:
    assert PatternRedactor(["abcd-1234", "abcd-1234-efgh"]).text("x abcd-1234-efgh abcd-1234") == f"x {MARK} {MARK}"
    assert PatternRedactor(["abcdef", "defghi"]).text("abcdefghi") == MARK


def test_a_secret_of_three_characters_is_not_looked_for() -> None:
    assert PatternRedactor(["abc", ""]).text("abcabc") == "abcabc"
    assert PatternRedactor(["redacted"]).text("it was [redacted]") == "it was [redacted]"


def test_variables_that_are_named_like_secrets_are_known_but_for_common_words() -> None:
    environ = {
        "AWS_SECRET_ACCESS_KEY": AWS_SECRET,
        "DB_PASSWORD": "hunter2",
        "PGPASSWORD": "s3cr3t!",
        "API_TOKEN": "enabled",
        "SECRET_KEY": "/run/secrets/key",
        "PWD": "/home/hunter3x",
        "HOME": "/home/bob",
        "SSH_AUTH_SOCK": "/tmp/agent.123",
    }
    assert set(secrets_in(environ)) == {AWS_SECRET, "hunter2", "s3cr3t!"}
    assert PatternRedactor.with_environment(environ).text("say hunter2, enabled") == f"say {MARK}, enabled"


NAMES_OF_SECRETS = [
    *[(name, True) for name in ("password", "DB_PASSWORD", "apiKey", "client-secret", "TOKEN", "PGPASSWORD", "dbpwd")],
    *[(name, False) for name in ("PWD", "OLDPWD", "max_tokens", "token_type", "secretName", "key", "monkey", "")],
]


def test_names_of_secrets() -> None:
    for name, secret in NAMES_OF_SECRETS:
        assert is_secret_name(name) is secret


# -- patterns of the operator


def test_further_patterns_take_out_their_group_or_all_of_it() -> None:
    redactor = PatternRedactor(patterns=[r"card (\d{4})", r"emp-\d+"])
    assert redactor.text("card 1234 of emp-77") == f"card {MARK} of {MARK}"


def test_a_wrong_pattern_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"redaction: '\(' is not a regular expression"):
        PatternRedactor(patterns=["("])


# -- results and objects


def test_a_text_under_the_name_of_a_secret_is_one() -> None:
    value = {"env": {"DB_PASSWORD": "x", "HOME": "/home/bob"}, "args": [{"token": "y"}], "count": 3, "secret": ""}
    assert PLAIN.json(value) == {
        "env": {"DB_PASSWORD": MARK, "HOME": "/home/bob"},
        "args": [{"token": MARK}],
        "count": 3,
        "secret": "",
    }


def test_every_text_of_a_result_is_redacted_and_pictures_stay() -> None:
    picture = Image(b"password=hunter2", "image/png")
    result = ToolResult((Text(f"password={SECRET}"), picture), data=[SECRET, {"password": "p"}], metadata={"a": SECRET})
    clean = PatternRedactor([SECRET]).result(result)
    assert clean.content == (Text(f"password={MARK}"), picture)
    assert clean.data == [MARK, {"password": MARK}]
    assert clean.metadata == {"a": MARK}


def test_the_head_of_a_text_holds_no_half_of_a_secret() -> None:
    for at in range(90, 101):
        text = "x" * at + " ghp_" + LONG[:36] + " " + "y " * 20_000
        head = redact_head(PLAIN.text, text, 100)
        assert len(head) <= 100
        assert "ghp" not in head
    many = f"password={SECRET}\n" * 5_000
    assert SECRET[:4] not in redact_head(PLAIN.text, many, 2_000)


# -- properties

PIECES = st.one_of(
    st.text(max_size=20),
    st.sampled_from([*TOKENS, *ORDINARY[8:40], key(), key()[:120], key()[80:]]),
    st.sampled_from([text.replace("{}", SECRET) for text, _ in NAMED]),
    st.sampled_from(["password=", "token: ", "://", "a:b@c", "-----BEGIN ", '"', "'", "\\", "\n", " ", MARK, "[redac"]),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@given(TEXTS)
def test_redacting_again_changes_nothing(text: str) -> None:
    once = PLAIN.text(text)
    assert PLAIN.text(once) == once


def test_a_secret_with_a_letter_struck_over_is_taken_out() -> None:
    for text in (f"{SECRET}\b", f"{SECRET}\b\b\b", f"a\b{SECRET}\b \x1b[1mx", f"{SECRET}\r\x1b[K"):
        assert SECRET not in PatternRedactor([SECRET]).text(text)
    for token in TOKENS:
        assert token not in PLAIN.text(f"{token}\b"), token


@given(st.lists(st.text(max_size=30), min_size=2, max_size=5), st.sampled_from(["h4nter2-geheim", KNOWN, "ab\ncd ef"]))
def test_a_known_secret_never_stays(texts: list[str], secret: str) -> None:
    assert secret not in PatternRedactor([secret]).text(secret.join(texts))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_text_survive(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    clean = PLAIN.text(text + f" password={SECRET}\n" + text)
    assert SECRET not in clean
    clean.encode("utf-8", "surrogateescape")


# -- time

MB = 1 << 20
ADVERSARIAL = {
    "one letter": "a" * MB,
    "spaces": " " * MB,
    "lines": "\n" * MB,
    "dashes": "-" * MB,
    "base64": BODY.replace("\n", "") * (MB // 320),
    "sk-": "sk-" * (MB // 3),
    "sk-a": "sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa " * (MB // 41),
    "eyJ": "eyJ" * (MB // 3),
    "eyJ dots": "eyJaaaaaaaa." * (MB // 12),
    "ghp": "ghp_" * (MB // 4),
    "begin": "-----BEGIN RSA PRIVATE KEY-----" * (MB // 31),
    "end": "-----END RSA PRIVATE KEY-----\n" * (MB // 30),
    "begin without end": ("-----BEGIN RSA PRIVATE KEY-----\n" + BODY + "\n") * (MB // 360),
    "url": "://" * (MB // 3),
    "url users": "://aaaa:bbbb" * (MB // 12),
    "colons": ":" * MB,
    "equals": "password" + "=" * MB,
    "names": "password" * (MB // 8),
    "keywords": "password secret token api_key " * (MB // 30),
    "quotes": 'password="' * (MB // 10),
    "escapes": 'password="' + "\\" * MB,
    "code": "token=(" * (MB // 7),
    "words": "bearer " * (MB // 7),
    "basic": "basic aaaaaaaa" * (MB // 14),
    "authorization": "authorization:" * (MB // 14),
    "options": "-password " * (MB // 10),
    "curl": "curl" + " -u" * (MB // 3),
    "titles": "\x1b]0;title\x07" * (MB // 10),
    "titles with secrets": "\x1b]0;password=hunter2x1\x07" * (MB // 24),
    "titles without end": ("\x1b]0;" + "a" * 5000) * (MB // 5004),
    "wide": "\u0130\u20ac" * (MB // 2),
}


@pytest.mark.usefixtures("needs_time")
def test_a_megabyte_meant_to_be_slow_is_not() -> None:
    for text in ADVERSARIAL.values():
        taken = [_seconds(text)]
        while min(taken) >= 2.0 and len(taken) < 3:  # once may be another program's fault
            taken.append(_seconds(text))
        assert min(taken) < 2.0, f"{min(taken):.3f} s for {len(text)} characters"


def _seconds(text: str) -> float:
    before = time.process_time()
    PLAIN.text(text)
    return time.process_time() - before
