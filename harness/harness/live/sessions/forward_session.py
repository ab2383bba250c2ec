"""Running forwards, for dashboards and ``harness forward list``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import HarnessError
from ...target import Target, mask_password
from .session import LiveSession

if TYPE_CHECKING:
    from ...forwards.forwarder import ForwardStatus
    from .state import SessionState

__all__ = ["ForwardSession", "forwards_document"]


class ForwardSession(LiveSession):
    """The forwards that this process keeps.

    Args:
        name: Their name.
        target: The host.
        status: Returns their state.
        stop: Ends them.
    """

    def __init__(
        self, name: str, target: Target, status: Callable[[], ForwardStatus], stop: Callable[[], None]
    ) -> None:
        self.session_id = f"forward-{name}"
        self.started = time.time()
        self._name = name
        self._target = target
        self._status = status
        self._stop = stop

    def state(self) -> SessionState:
        """See :class:`LiveSession`."""
        from .state import ForwardState, SessionState, short_text  # with the first client

        status = self._status()
        texts = "; ".join(str(spec) for spec in status.specs)
        return SessionState(
            session=self.session_id,
            kind="forward",
            target=mask_password(str(self._target)),
            title=short_text(f"{self._name}: {texts}"),
            doing="running" if status.connected else "reconnecting",
            since=status.since,
            started=self.started,
            forward=ForwardState(self._name, forwards_document(status), status.connections),
            actions=("cancel",),
            note=short_text(status.note),
        )

    async def act(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        """See :class:`LiveSession`."""
        if action != "cancel":
            raise HarnessError(f"a forward does not support: {action}", hint="it can be cancelled")
        from .action_records import record_cancel

        texts = "; ".join(str(spec) for spec in self._status().specs)
        await record_cancel(self.session_id, mask_password(str(self._target)), f"forward {self._name}: {texts}", by)
        self._stop()
        return {}


def forwards_document(status: ForwardStatus) -> tuple[Mapping[str, str], ...]:
    """Return the forwards as JSON objects."""
    return tuple(
        {
            "kind": spec.kind,
            "listen": str(spec.listen),
            "connect": "socks" if spec.connect is None else str(spec.connect),
        }
        for spec in status.specs
    )
