"""Secrets in colored output: escape sequences in the name, or in the value, hide neither."""

from __future__ import annotations

import pytest

from harness.toolkit.redaction.patterns import plain_text
from harness.toolkit.redaction.redactor import PatternRedactor
from harness.toolkit.redaction.stream import StreamRedactor

RED, OFF = "\x1b[01;31m\x1b[K", "\x1b[m\x1b[K"
SHOWN = [
    f"DB_{RED}PASSWORD{OFF}=hunter2xx\n",
    f"{RED}DB_PASSWORD{OFF}={RED}hunter2xx{OFF}\n",
    f"{RED}password{OFF}: {RED}hun{OFF}ter2xx\n",
    f'{{\x1b[34;1m"token"{OFF}\x1b[1;39m:\x1b[0;32m"hunter2xxhunter2xx"{OFF}}}\n',
    f"Authorization: {RED}Bearer{OFF} hunter2xxhunter2xx\n",
    f"https://me:{RED}hunter2xx{OFF}@example.com\n",
    "\x1b]8;;http://x\x1b\\password\x1b]8;;\x1b\\=hunter2xx\n",
    "p\x08pa\x08as\x08ss\x08sw\x08wo\x08or\x08rd\x08d=hunter2xx\n",
    "\x1b(BDB_PASSWORD\x0f=hunter2xx\n",
]


@pytest.mark.parametrize("shown", SHOWN)
def test_colors_hide_no_secret(shown: str) -> None:
    found = PatternRedactor().text(shown)
    assert "[redacted]" in found
    assert "hun" not in found
    assert "ter2xx" not in found


def test_a_known_secret_is_found_with_colors_in_it() -> None:
    found = PatternRedactor(["opensesame"]).text(f"it is open{RED}sesame{OFF}, say it")
    assert found == f"it is [redacted]{OFF}, say it"


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_output_that_comes_in_pieces_is_redacted_in_the_same_way(shown: str, size: int) -> None:
    text = f"{RED}before{OFF} it\n{shown}after it\n"
    stream = StreamRedactor(PatternRedactor())
    pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, stream.flush()]) == PatternRedactor().text(text)


def test_what_is_no_secret_keeps_its_colors() -> None:
    text = f"{RED}ok{OFF} a\x1b[Kb p\x08p password: {RED}$PASSWORD{OFF}\n"
    assert PatternRedactor().text(text) == text
    assert plain_text("no sequence") is None


@pytest.mark.parametrize(
    "text",
    [
        "define('DB_PASSWORD', 'hunter2xx');",
        "$cfg['Servers'][1]['password'] = 'hunter2xx';",
        'app.config["SECRET"] = "hunter2xx"',
        "    auth_pass hunter2xx",
        'key "rndc" { secret "hunter2xx"; };',
        "wpa_psk=hunter2xx",
        "ldap_default_authtok = hunter2xx",
        "HMAC_KEY=hunter2xxhunter2xx",
        "PASSWORD=$'hunter2xx more'",
    ],
)
def test_more_forms_of_configuration_files_are_known(text: str) -> None:
    assert "hunter2xx" not in PatternRedactor().text(text)
    stream = StreamRedactor(PatternRedactor())
    assert "hunter2xx" not in "".join([*map(stream.feed, text), stream.flush()])


@pytest.mark.parametrize(
    "text",
    [
        "define('FORCE_SSL', 'yes');",
        "x['password'] = get()",
        "translate('password', 'Kennwort')",
        "a secret; b",
        "auth_pass",
    ],
)
def test_what_only_looks_like_these_stays(text: str) -> None:
    assert PatternRedactor().text(text) == text


@pytest.mark.parametrize("end", ["\x07", "\x1b\\"])
@pytest.mark.parametrize(
    "text", ["0;export PASSWORD=hunter2xx", "2;mysql -phunter2xx -u root", "8;;https://u:hunter2xx@host/"]
)
def test_titles_and_links_are_redacted(text: str, end: str) -> None:
    redactor = PatternRedactor()
    whole = f"\x1b]{text}{end}\x1b[1m$\x1b[0m ls\n"
    assert "hunter2xx" not in redactor.text(whole)
    for live in (None, lambda text: redactor.live(text)[0]):
        stream = StreamRedactor(redactor, live)
        shown = "".join(map(stream.feed, whole)) + stream.flush()
        assert shown == redactor.text(whole)
