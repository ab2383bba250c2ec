"""A link that is lost and comes back, as traces and telemetry tell of it."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.faults.rig import Place, kill, until

from harness.agent.trace import open_trace
from harness.agent.trace.observer import LOGGER, link_news
from harness.agent.trace.open_telemetry import Telemetry, providers_of
from harness.agent.trace.reading import read_trace, summary_of
from harness.toolkit.redaction.redactor import PatternRedactor


@pytest.mark.usefixtures("needs_tmux")
async def test_a_link_that_is_lost_and_comes_back_is_traced_and_counted(far: Place, tmp_path: Path) -> None:
    exporter, reader, path = InMemorySpanExporter(), InMemoryMetricReader(), tmp_path / "trace"
    made = providers_of(exporter, reader, None, {}, processor=SimpleSpanProcessor)
    telemetry = Telemetry(made.spans, made.metrics)
    async with far.connect() as ctx:
        assert (await ctx.run_shell("true", timeout=60)).ok
        async with open_trace(path, PatternRedactor()) as trace:
            with link_news(telemetry.link_back):
                assert far.sshd is not None
                for pid in far.sshd.session_pids():
                    kill(pid, signal.SIGKILL)
                assert (await ctx.run_shell("true", timeout=60)).ok
                await until(lambda: bool(exporter.get_finished_spans()), "the link is back", 60)
            await trace.flush()
    spans = exporter.get_finished_spans()
    assert {(span.name, (span.attributes or {})["harness.target"]) for span in spans} == {
        ("reconnect", str(ctx.target))
    }
    assert summary_of(read_trace(path)).reconnects >= 1
    targets = [line.values["target"] for line in read_trace(path) if line.kind == "link_back"]
    assert set(targets) == {str(ctx.target)}


def test_listening_for_links_shows_nothing_that_was_not_shown_and_leaves_no_trace_behind() -> None:
    logger, heard = logging.getLogger(LOGGER), []
    before = logger.level, logger.propagate, list(logger.handlers)
    parent = logging.getLogger("harness_backends")
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]  # all that it has to do
    parent.addHandler(handler)
    level = parent.level
    try:
        for shown in (logging.WARNING, logging.INFO):
            parent.setLevel(shown)
            with link_news(lambda *news: heard.append(news)), link_news(lambda *news: heard.append(news)):
                logger.info("%s is back after %.1f s", "ssh://web1", 2.5)
                logger.info("something else")
            logger.info("%s is back after %.1f s", "ssh://web1", 3.5)
    finally:
        parent.setLevel(level)
        parent.removeHandler(handler)
    assert heard == [("ssh://web1", 2.5)] * 4
    assert [record.levelname for record in seen] == ["INFO"] * 3
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
