"""Texts, templates and escape sequences of notifications: what a text contains never becomes a command."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.notifications.channel import NotificationError
from harness.notifications.notification import MAX_ITEMS, Notification, NotificationItem, last_lines, short_line
from harness.notifications.programs import notify_send_argv, program_environment
from harness.notifications.settings import EVENTS, TerminalProtocol
from harness.notifications.templates import check_body, request_of
from harness.notifications.terminal import choose_protocol, notification_sequence
from harness.toolkit.redaction.redactor import PatternRedactor

EVIL = "\x1b]0;evil\x07\x9d9;x\x9c\x1b\\<!channel> `x` & <b>\u202e\ud800\x00\n[a](https://evil)"
URL = "http://127.0.0.1:8642/#/session/1-2%2Fs"


def approval(**more: Any) -> NotificationItem:
    return NotificationItem("approval_waiting", "run_shell waits for approval", "ssh://web1", "s1", **more)


def job(number: int) -> NotificationItem:
    return NotificationItem("job_ended", f"job {number} has ended: exit code 0", "ssh://web1", "s1", exit_code=0)


def test_one_event_is_named_with_its_target_and_several_are_counted() -> None:
    one = Notification.of([approval(hint="harness top")])
    assert one.title == "harness: an approval waits on ssh://web1"
    assert one.text == f"run_shell waits for approval\nharness top (on {one.host})"
    many = Notification.of([job(1), job(2), approval(), job(3)])
    assert (many.title, many.event) == ("harness: an approval waits, 3 jobs ended", "approval_waiting")
    assert many.text.splitlines()[0] == "ssh://web1: run_shell waits for approval"


def test_a_thousand_events_are_one_short_notification() -> None:
    many = Notification.of([job(number) for number in range(990)], {"job_ended": 10})
    assert many.title == "harness: 1000 jobs ended"
    assert (len(many.items), many.text.splitlines()[-1]) == (MAX_ITEMS, "and 995 more")
    assert len(json.dumps(many.to_json())) < 10_000


def test_a_channel_gets_its_events_only() -> None:
    both = Notification.of([job(1), approval()])
    only = both.only(["job_ended"])
    assert only is not None
    assert (only.title, len(only.items)) == ("harness: a job ended on ssh://web1", 1)
    assert both.only(["fleet_ended"]) is None


@given(st.text(), st.text(), st.text())
def test_no_text_contains_a_control_character(summary: str, target: str, detail: str) -> None:
    item = NotificationItem("job_ended", summary, target, detail=detail, hint=summary)
    made = Notification.of([item, item])
    assert all(line.isprintable() for line in (made.title, *made.text.split("\n")))
    assert short_line(summary, 10) == "" or len(short_line(summary, 10)) <= 10
    json.dumps(made.to_json()).encode()


def test_the_first_line_of_an_output_that_was_cut_is_dropped() -> None:
    assert last_lines(b"ter2\none\n\x1b[1mtwo\x1b[0m\n\n", str, is_cut=True) == "one\ntwo"
    assert last_lines(b"one", str) == "one"
    assert last_lines(b"x" * 9_000 + b"\nlast", str) == "last"
    assert last_lines(b"a hunter2 b\xff", lambda text: text.replace("hunter2", "[redacted]")) == "a [redacted] b\ufffd"


@pytest.mark.parametrize("sequence", ["\x1bA", "\x1bZ", "\x1b^", "\x1b[1m", "\x1b]0;title\x07", "\x1b]0;\ntitle\x07"])
def test_a_secret_that_escape_sequences_split_is_redacted(sequence: str) -> None:
    redactor = PatternRedactor(["hunter2-battery"])
    found = last_lines(f"one hunter2{sequence}-battery two".encode(), redactor.text)
    assert found == "one [redacted] two"


# -- the terminal


@given(st.text(), st.text(), st.sampled_from(["osc9", "osc99", "osc777"]), st.booleans())
def test_a_sequence_contains_nothing_that_ends_it(title: str, text: str, kind: TerminalProtocol, in_tmux: bool) -> None:
    made = notification_sequence(kind, title, text, in_tmux=in_tmux)
    if in_tmux:
        outer = re.fullmatch(rb"\x1bPtmux;((?:[^\x1b]|\x1b\x1b)*)\x1b\\", made)
        assert outer is not None
        made = outer[1].replace(b"\x1b\x1b", b"\x1b")
    count = 2 if kind == "osc99" else 1
    assert re.fullmatch(rb"(?:\x1b\](?:9|99|777);[^\x00-\x1f\x7f]*\x1b\\){%d}" % count, made)
    assert not re.search("[\x80-\x9f]", made.decode())
    if kind == "osc777":
        assert made.count(b";", 0, made.index(b"notify;") + 7) == 2


def test_sequences_are_what_their_terminals_document() -> None:
    assert notification_sequence("osc9", "t", "b") == b"\x1b]9;t: b\x1b\\"
    assert notification_sequence("osc777", "a;t", "b;c") == b"\x1b]777;notify;a,t;b;c\x1b\\"
    title, body = base64.b64encode(b"t").decode(), base64.b64encode(b"b").decode()
    kitty = f"\x1b]99;i=harness:e=1:d=0;{title}\x1b\\\x1b]99;i=harness:e=1:p=body:d=1;{body}\x1b\\"
    assert notification_sequence("osc99", "t", "b") == kitty.encode()
    assert notification_sequence("off", "t", "b") == b""
    assert notification_sequence("osc9", "t", "", in_tmux=True) == b"\x1bPtmux;\x1b\x1b]9;t\x1b\x1b\\\x1b\\"


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "osc99"),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, "osc99"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "osc9"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "osc9"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "osc777"),
        ({"TERM": "xterm-256color", "WT_SESSION": "x"}, "osc777"),
        ({"TERM": "foot"}, "osc777"),
        ({"TERM": "xterm-256color"}, "osc9"),
    ],
)
def test_the_sequence_is_chosen_by_the_terminal(environment: dict[str, str], protocol: str) -> None:
    assert choose_protocol(environment) == protocol


# -- programs


def test_notify_send_gets_texts_that_are_neither_options_nor_markup() -> None:
    argv = notify_send_argv(Notification.of([NotificationItem("job_ended", "--help <b>&\\n\\x1b", "-t")]))
    assert argv[:4] == ["notify-send", "--app-name=harness", "--urgency=normal", "--"]
    assert argv[5] == "--help &lt;b&gt;&amp;\\\\n\\\\x1b"
    assert "--urgency=critical" in notify_send_argv(Notification.of([approval()]))


def test_a_program_gets_no_secret_of_the_environment() -> None:
    own = {
        "PATH": "/bin",
        "AWS_SECRET_ACCESS_KEY": "x",
        "DBUS_SESSION_BUS_ADDRESS": "d",
        "LC_ALL": "C",
        "HARNESS_SSH": "h",
    }
    assert program_environment(own, {"A": "b\0c"}) == {
        "PATH": "/bin",
        "DBUS_SESSION_BUS_ADDRESS": "d",
        "LC_ALL": "C",
        "A": "bc",
    }


# -- webhooks


def document(template: Any, notification: Notification, url: str = "https://x/y", body: Any = None) -> tuple[str, Any]:
    url, content = request_of(notification, url, template, body)
    return url, json.loads(content)


def linked(item: NotificationItem) -> Notification:
    made = Notification.of([item])
    return Notification(made.items, made.counts, URL)


def test_ntfy_gets_its_topic_and_a_link() -> None:
    url, found = document("ntfy", linked(approval()), "https://ntfy.example/sub/my%20topic")
    assert url == "https://ntfy.example/sub/"
    assert found == {
        "topic": "my topic",
        "title": "harness: an approval waits on ssh://web1",
        "message": "run_shell waits for approval",
        "priority": 4,
        "click": URL,
    }
    with pytest.raises(NotificationError, match="no topic"):
        document("ntfy", linked(approval()), "https://ntfy.sh/")


def test_ntfy_gets_no_message_that_it_would_make_an_attachment_of() -> None:
    items = [NotificationItem("job_ended", "\u6f22" * 300, "x") for _ in range(20)]
    _, found = document("ntfy", Notification.of(items), "https://ntfy.sh/topic")
    assert 3_900 < len(found["message"].encode()) <= 4_000
    assert found["message"].endswith("\u6f22 \u2026")


def test_slack_gets_no_mention_and_no_link_of_a_text() -> None:
    _, found = document("slack", linked(NotificationItem("job_ended", EVIL, EVIL)))
    texts = [found["text"], *(block["text"]["text"] for block in found["blocks"])]
    assert re.findall("<[^>]*>", "\n".join(texts)) == [f"<{URL}|Open the dashboard>"]
    assert all("&lt;!channel&gt;" in text for text in texts[:2])


@pytest.mark.parametrize("shift", range(6))
def test_slack_gets_no_section_that_it_refuses_and_no_part_of_an_entity(shift: int) -> None:
    item = NotificationItem("job_ended", "x", detail="y" * shift + "&" * 790, output="\n".join(["<" * 290] * 10))
    _, found = document("slack", Notification.of([item]))
    shown = found["blocks"][0]["text"]["text"]
    assert 2_990 < len(shown) <= 3_000
    assert re.fullmatch(r"(?:[^&<>]|&amp;|&lt;|&gt;)*", shown)


def test_slack_gets_a_text_of_the_longest_length_whole() -> None:
    item = NotificationItem("job_ended", "x", output="\n".join(["y" * 240] * 10))
    made = Notification.of([item])
    _, found = document("slack", made)
    assert found["blocks"][0]["text"]["text"] == f"*{made.title}*\n{made.text}"


def test_teams_gets_an_adaptive_card_without_markup() -> None:
    _, found = document("teams", linked(NotificationItem("job_ended", EVIL, EVIL)))
    (attachment,) = found["attachments"]
    card = attachment["content"]
    assert (found["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    assert {part["type"] for part in card["body"]} == {"RichTextBlock"}
    assert {run["type"] for part in card["body"] for run in part["inlines"]} == {"TextRun"}
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Open the dashboard", "url": URL}]


def test_an_own_body_is_filled_once_and_stays_json() -> None:
    body = {"msg": "{title} {count}", "parts": [{"t": "{target}"}, 3, None], "keep": "{ok: {}}"}
    item = NotificationItem("job_ended", 'x", "admin": true, "y": "{url}', 'a"b\\{text}')
    _, found = document("json", linked(item), body=body)
    assert found == {
        "msg": 'harness: a job ended on a"b\\{text} 1',
        "parts": [{"t": 'a"b\\{text}'}, 3, None],
        "keep": "{ok: {}}",
    }
    with pytest.raises(ValueError, match=r"unknown placeholder \{token\}"):
        check_body({"a": [{"b": "{token}"}]})


def test_the_json_names_every_event() -> None:
    items = [NotificationItem(event, "x") for event in EVENTS]
    _, found = document("json", Notification.of(items))
    assert [item["event"] for item in found["items"]] == list(EVENTS)
    assert found["counts"] == dict.fromkeys(EVENTS, 1)
