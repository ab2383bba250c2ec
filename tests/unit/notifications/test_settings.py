"""The ``[notifications]`` table: what it accepts, and that a directory of others cannot set it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.agent.models.keys import EnvironmentKey, FileKey
from harness.errors import ConfigError
from harness.notifications.settings import NotificationSettings
from harness.notifications.settings_loader import notification_settings_of
from harness.settings import SettingsTable

SECRET = "https://hooks.example/T000/very-secret-path"


def settings(*values: Mapping[str, Any], trusted: bool = True) -> NotificationSettings:
    return notification_settings_of(SettingsTable("file", value, trusted) for value in values)


def hook(**more: Any) -> dict[str, Any]:
    return {"webhooks": [{"url": SECRET, **more}]}


def test_nothing_is_notified_unless_a_channel_is_set() -> None:
    assert not settings().has_channels
    assert not settings({"min_duration": "5m", "include_output": True}).has_channels
    assert not settings({"bell": True, "events": []}).has_channels
    assert settings({"terminal": "osc9"}).has_channels


def test_later_files_override_key_by_key() -> None:
    found = settings({"bell": True, "min_duration": "5m", "events": ["job_ended"]}, {"bell": False, "command": ["x"]})
    assert (found.bell, found.min_duration, found.events, found.command) == (False, 300.0, ("job_ended",), ("x",))


def test_a_webhook_names_where_its_secrets_are_kept() -> None:
    found = settings(
        {
            "webhooks": [
                {"url": {"env": "SLACK"}, "token": {"file": "~/t"}, "headers": {"X-A": "b", "X-K": {"env": "K"}}}
            ]
        }
    ).webhooks[0]
    assert (found.url, found.token) == (EnvironmentKey("SLACK"), FileKey("~/t"))
    assert found.headers == {"X-A": "b", "X-K": EnvironmentKey("K")}
    assert SECRET not in repr(settings(hook()))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sound": True}, "notifications.sound: unknown key"),
        ({"events": ["lunch"]}, "notifications.events.0: input should be"),
        ({"command": "notify-me"}, "notifications.command"),
        ({"command": ["./notify.sh"]}, "relative one depends on the directory"),
        ({"command": [""]}, "must be a program"),
        ({"command": ["a", "b\0"]}, "NUL"),
        ({"max_per_minute": 0}, "notifications.max_per_minute"),
        ({"min_duration": "soon"}, "notifications.min_duration"),
        (hook(template="mattermost"), "notifications.webhooks.0.template"),
        (hook(body={"a": "{token}"}), "unknown placeholder {token}"),
        (hook(body={"a": "b"}, template="slack"), "template or body, not both"),
        (hook(urls="x"), "notifications.webhooks.0.urls: unknown key"),
        (hook(headers={"a\r\nb": "c"}), "is not a header"),
        (hook(headers={"Host": "c"}), "is not a header"),
        (hook(headers={"X-A": "c\r\nX-B: d"}), "printable ASCII"),
        (hook(headers={"Authorization": "Bearer secret "}), "the value of Authorization must not start or end"),
        (hook(headers={"X-A": " secret"}), "the value of X-A must not start or end with a blank"),
        (hook(headers={"X-A": "secret\t"}), "printable ASCII"),
        (hook(events=[]), "notifications.webhooks.0.events: name at least one event"),
        (hook(headers={"Authorization": "x"}, token={"env": "T"}), "contradict"),
        ({"webhooks": [{"url": "http://hooks.example/secret"}]}, "must start with https"),
        ({"webhooks": [{"url": "https://u:p@hooks.example/secret"}]}, "must not contain a user"),
        ({"webhooks": [{"url": "ftp://hooks.example/secret"}]}, "starts with https"),
        ({"webhooks": [{"url": "https://hooks.example:x/secret"}]}, "is not a URL"),
        ({"webhooks": [{"url": {"env": "A", "file": "b"}}]}, "give one of env"),
    ],
)
def test_a_wrong_value_is_named_and_never_shown(values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(values)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost:1/x", "http://127.0.0.2/x", "http://[::1]:8/x", "https://a.example"])
def test_only_this_machine_may_be_reached_without_encryption(url: str) -> None:
    assert settings({"webhooks": [{"url": url}]}).webhooks[0].url == url


@pytest.mark.parametrize("values", [{"bell": True}, {"command": ["x"]}, {"min_duration": 1}, hook()])
def test_a_directory_that_is_not_trusted_may_set_nothing(values: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="only be set by files that are trusted"):
        settings(values, trusted=False)


def test_the_documented_tables_are_valid() -> None:
    page = (Path(__file__).parents[3] / "docs/notifications.md").read_text()
    blocks = [tomllib.loads(text)["notifications"] for text in re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)]
    found = [settings(block) for block in blocks]
    assert len(found) == 4
    assert [hook.template for one in found for hook in one.webhooks] == ["ntfy", "slack", "teams", "json"]
