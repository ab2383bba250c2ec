"""The messages between processes and dashboards: every one survives its line, and nothing else is taken for one."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.live.protocol import KINDS, MAX_LINE_BYTES, LineBuffer, Message, ProtocolError, Reply, decode, encode
from harness.live.sessions.state import HostCounts, JobState, RunningCall, SessionState, WaitingApproval, short_text

VALUES = {
    "int": st.integers(0, 1 << 40),
    "str": st.text(),
    "bool": st.booleans(),
    "Mapping[str, Any]": st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.booleans())),
}


def messages() -> st.SearchStrategy[Message]:
    made = [st.builds(kind, **{one.name: VALUES[str(one.type)] for one in fields(kind)}) for kind in KINDS.values()]
    return st.one_of(made)


@given(messages())
def test_every_message_survives_its_line(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


@given(st.lists(messages(), max_size=5), st.lists(st.integers(0, 2000)))
def test_lines_are_found_however_the_bytes_are_split(sent: list[Message], places: list[int]) -> None:
    data = b"".join(map(encode, sent))
    cuts = [0, *sorted(place for place in places if place < len(data)), len(data)]
    buffer = LineBuffer()
    lines = [line for start, end in pairwise(cuts) for line in buffer.feed(data[start:end])]
    assert [decode(line) for line in lines] == sent


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_of_no_known_kind(line: bytes) -> None:
    with suppress(ProtocolError):
        assert decode(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b'{"kind":"reply","request":1}',
        b'{"kind":"reply","request":"1","ok":true}',
        b'{"kind":"reply","request":true,"ok":true}',
        b'{"kind":"session","session":"a","fields":[]}',
        b"[" * 100_000,
    ],
)
def test_what_is_almost_a_message_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


def test_long_lines_are_refused_on_both_sides() -> None:
    with pytest.raises(ProtocolError, match="would have"):
        encode(Reply(1, ok=True, result={"text": "x" * MAX_LINE_BYTES}))
    buffer = LineBuffer()
    assert buffer.feed(b"x" * MAX_LINE_BYTES) == []
    with pytest.raises(ProtocolError, match="more than"):
        buffer.feed(b"x")


def test_kinds_and_members_of_later_versions_are_ignored() -> None:
    assert decode(b'{"kind":"later","x":1}') is None
    assert decode(b'{"kind":"complete","later":[1]}') is not None
    document: dict[str, Any] = {"session": "a", "later": 1, "running": [{"call_id": "c", "later": 2}]}
    assert SessionState.from_json(document).running == (RunningCall("c"),)


def test_a_state_survives_json() -> None:
    state = SessionState(
        session="s",
        running=(RunningCall("c", "run_shell", "true", 1.5),),
        approvals=(WaitingApproval("r", scopes=("once", "deny-once")),),
        jobs=(JobState("7", "sleep 1", 2.0, False, 1),),
        hosts=HostCounts(3, 1, 1, 1),
        taken_by={"main": "anna"},
        attach=("tmux", "attach"),
    )
    back = SessionState.from_json(json.loads(json.dumps(state.to_json())))
    assert back.running == state.running
    assert back.hosts == state.hosts
    assert (back.approvals[0].request_id, list(back.approvals[0].scopes)) == ("r", ["once", "deny-once"])
    assert (back.jobs, back.taken_by, back.attach) == (state.jobs, state.taken_by, state.attach)


def test_a_long_text_is_cut_and_says_so() -> None:
    assert short_text("x" * 12, 10) == "x" * 10 + " … 2 more characters"
    assert short_text("x" * 10, 10) == "x" * 10
