"""Who watches a conversation without taking part in it: traces in a file, and OpenTelemetry.

::

    async with open_trace(path, redactor) as trace, open_telemetry(settings) as telemetry:
        for observer in (trace, telemetry):
            stack.enter_context(agent.events.listening(observer.heard))
            model = observer.model(model)           # around the model of an OpenModel
"""

from __future__ import annotations

from .observer import Observer

__all__ = ["Observer"]
