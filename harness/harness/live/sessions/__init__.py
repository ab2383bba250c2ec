"""What dashboards see of a session and do in it: its state, calls, approvals, jobs, panes and streams."""

from __future__ import annotations
