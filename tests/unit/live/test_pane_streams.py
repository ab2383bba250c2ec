"""What dashboards get of a pane's events."""

from __future__ import annotations

import base64
from typing import Any, get_args

from harness.live.sessions.pane_streams import PIECE_BYTES, TYPES, _item, _pieces
from harness.pane_events import Output, PaneEvent, Screen, Typed


def items(event: PaneEvent) -> list[dict[str, Any]]:
    return [_item(piece) for piece in _pieces(event)]


def test_every_event_but_what_was_typed_is_sent() -> None:
    assert set(get_args(PaneEvent)) - set(TYPES) == {Typed}
    assert items(Typed(1.0, b"secret")) == []


def test_long_bytes_are_spread_over_items() -> None:
    content = bytes(range(256)) * (PIECE_BYTES // 200)
    for event in (Screen(1.0, 80, 24, content), Output(1.0, content)):
        first, *rest = items(event)
        assert len(rest) == 1
        assert {item["type"] for item in rest} == {"output"}
        parts = [first["content" if isinstance(event, Screen) else "data"], *(item["data"] for item in rest)]
        assert b"".join(map(base64.b64decode, parts)) == content
    assert [item["type"] for item in items(Output(1.0, b""))] == ["output"]
