"""What is measured beside what pydantic-ai measures of requests: ``gen_ai.client.token.usage`` and others."""

from __future__ import annotations

from opentelemetry.metrics import MeterProvider

from ..events import UsageChanged

__all__ = ["Meters"]


class Meters:
    """The instruments."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("harness.agent")
        self.turn_seconds = meter.create_histogram("harness.turn.duration", "s", "Turns, by how they ended.")
        self.call_seconds = meter.create_histogram("harness.tool_call.duration", "s", "Calls of tools.")
        self.approval_seconds = meter.create_histogram("harness.approval.duration", "s", "Waiting for a person.")
        self.retries = meter.create_counter("harness.model.retries", "1", "Requests that were made again.")
        self.reconnects = meter.create_counter("harness.reconnects", "1", "Links that were lost, and are back.")
        self.compactions = meter.create_counter("harness.compactions", "1", "Conversations made shorter.")
        self._tokens = meter.create_counter("harness.tokens", "1", "Tokens that models read and wrote.")
        self._cost = meter.create_counter("harness.cost", "USD", "What models cost, where prices are known.")
        self._input = self._output = 0
        self._spent = 0.0

    def used(self, event: UsageChanged) -> None:
        """A conversation has used more: the event holds its sums."""
        self._tokens.add(max(0, event.input_tokens - self._input), {"harness.direction": "input"})
        self._tokens.add(max(0, event.output_tokens - self._output), {"harness.direction": "output"})
        self._cost.add(max(0.0, (event.cost or 0.0) - self._spent))
        self._input, self._output, self._spent = event.input_tokens, event.output_tokens, event.cost or 0.0
