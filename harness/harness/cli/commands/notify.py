"""``harness notify``: the configured notifications, and a test of each channel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import click

from ...errors import ConfigError, HarnessError
from ..notifications import dashboard_link, notification_settings
from ..options import command, group
from ..output import print_json, readable
from ..runtime import CliSession, session_of
from ..streams import Interruption, run_async

if TYPE_CHECKING:
    from ...notifications.channel import Channel
    from ...notifications.settings import NotificationSettings

__all__ = ["notify"]

SETUP = "add a [notifications] table to your settings, such as: bell = true"


def _channels(session: CliSession) -> tuple[NotificationSettings, tuple[Channel, ...]]:
    from ...notifications.notifier import build_channels

    settings = notification_settings(session.invocation)
    return settings, build_channels(settings)


@command("show")
@click.pass_context
def show(ctx: click.Context) -> None:
    """Print what is notified, and by which channels; secrets are not read."""
    session = session_of(ctx)
    settings, channels = _channels(session)
    if session.json:
        events = {channel.name: list(channel.events) for channel in channels}
        print_json({"events": list(settings.events), "channels": events, "min_duration": settings.min_duration})
        return
    if not channels:
        why = "" if settings.has_channels else f": {SETUP}"
        click.echo(f"no notifications{why or ': standard error is not a terminal'}")
        return
    click.echo(f"events:   {', '.join(settings.events)}")
    for channel in channels:
        only = "" if set(channel.events) >= set(settings.events) else f" (only {', '.join(channel.events)})"
        click.echo(f"channel:  {readable(channel.name)}{only}")


@command("test")
@click.pass_context
def test(ctx: click.Context) -> int:
    """Send a test notification by each channel, and print what worked.

    The exit code is 1 if one of them failed.
    """
    session = session_of(ctx)
    settings, channels = _channels(session)
    if not channels:
        if settings.has_channels:
            raise HarnessError("the terminal cannot be notified: standard error is not a terminal")
        raise ConfigError("no notifications are configured", hint=SETUP)
    results: dict[str, tuple[bool, str]] = {}

    async def work(interruption: Interruption) -> int:
        from ...notifications.notifier import find_dashboard

        url = await find_dashboard(partial(dashboard_link, "", ""))
        for channel in channels:
            results[channel.name] = await _test_channel(channel, url)
            if not session.json:
                is_sent, what = results[channel.name]
                click.echo(f"{readable(channel.name)}: {'sent' if is_sent else 'FAILED'}: {readable(what)}")
        return 0 if all(is_sent for is_sent, _ in results.values()) else 1

    code = run_async(work)
    if session.json:
        print_json([{"channel": name, "sent": ok, "result": what} for name, (ok, what) in results.items()])
    return code


async def _test_channel(channel: Channel, url: str) -> tuple[bool, str]:
    from dataclasses import replace

    from ...notifications.notification import Notification, NotificationItem
    from ...notifications.notifier import CHANNEL_TIMEOUT

    item = NotificationItem(channel.events[-1], "this is a test of 'harness notify test'")
    notification = replace(Notification.of([item]), url=url, is_test=True)
    try:
        with anyio.fail_after(CHANNEL_TIMEOUT):
            return True, await channel.send(notification)
    except TimeoutError:
        return False, f"it took longer than {CHANNEL_TIMEOUT:g} s"
    except HarnessError as error:
        return False, str(error)


notify = group("notify", "show", (show, test), "Show and test notifications.")
