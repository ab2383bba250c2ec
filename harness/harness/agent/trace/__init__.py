"""Observers of a conversation: traces in a file, and OpenTelemetry.

::

    async with open_trace(path, redactor) as trace:
        async with open_agent(..., open_one=observed(open_model, [trace])) as agent:
            with watching(agent.events, [trace]):
                ...
"""

from __future__ import annotations

from .observer import Observer, observed, watching
from .writing import Trace, open_trace

__all__ = ["Observer", "Trace", "observed", "open_trace", "watching"]
