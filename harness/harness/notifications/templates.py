"""What is sent to a webhook: the formats of ntfy, Slack and Teams, and an operator's own. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from .channel import NotificationError
from .notification import Notification
from .settings import TemplateName

__all__ = ["check_body", "request_of"]

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
PLACEHOLDERS = ("title", "text", "event", "target", "session", "url", "host", "count")
CARD_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"
LINK = "Open the dashboard"
MAX_NESTED = 20
MAX_NTFY_BYTES = 4_000
"""ntfy takes 4,096 bytes; of a longer message it makes an attachment, or refuses it."""
MAX_SLACK_CHARS = 3_000
"""Slack refuses a section with a longer text."""


def request_of(
    notification: Notification, url: str, template: TemplateName, body: Mapping[str, Any] | None
) -> tuple[str, bytes]:
    """Return the URL and the JSON document of a request.

    Raises:
        NotificationError: The URL does not fit the template.
    """
    if body is not None:
        document: Any = _filled(body, notification)
    elif template == "ntfy":
        url, topic = _ntfy_topic(url)
        document = _ntfy(notification, topic)
    else:
        document = {"slack": _slack, "teams": _teams, "json": Notification.to_json}[template](notification)
    return url, json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


# -- ntfy: https://docs.ntfy.sh/publish/#publish-as-json


def _ntfy_topic(url: str) -> tuple[str, str]:
    """Return the URL of the server, and the topic: the last part of the path."""
    parts = urlsplit(url)
    path, _, topic = parts.path.rstrip("/").rpartition("/")
    if not topic:
        raise NotificationError("the URL has no topic", hint="write https://ntfy.sh/TOPIC")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/", parts.query, "")), unquote(topic)


def _ntfy(notification: Notification, topic: str) -> dict[str, Any]:
    priority = 4 if notification.is_urgent else 3
    message = _cut_bytes(notification.text, MAX_NTFY_BYTES)
    document = {"topic": topic, "title": notification.title, "message": message, "priority": priority}
    return document | ({"click": notification.url} if notification.url else {})


def _cut_bytes(text: str, limit: int) -> str:
    """Return a text of limited length in UTF-8, without a part of a character at its end."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else f"{data[: limit - 4].decode('utf-8', 'ignore')} …"


# -- Slack: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks


def _slack(notification: Notification) -> dict[str, Any]:
    text = f"*{_slack_text(notification.title)}*\n{_slack_text(notification.text)}"
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": _cut_slack_text(text)}}]
    if notification.url:
        link = f"<{_slack_text(notification.url)}|{LINK}>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link}})
    return {"text": _slack_text(notification.title), "blocks": blocks}


def _slack_text(text: str) -> str:
    """Return a text that mentions no one and contains no link: these are written between angle brackets."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut_slack_text(text: str) -> str:
    """Return an escaped text, cut to the limit of a section, and not within one of its entities."""
    if len(text) <= MAX_SLACK_CHARS:
        return text
    head = text[: MAX_SLACK_CHARS - 2]
    entity = head.rfind("&")
    return f"{head if ';' in head[entity:] else head[:entity]} …"


# -- Teams: a workflow that posts the adaptive cards of "When a Teams webhook request is received"


def _teams(notification: Notification) -> dict[str, Any]:
    title = {"type": "TextRun", "text": notification.title, "weight": "bolder"}
    lines = [{"type": "TextRun", "text": line} for line in notification.text.split("\n") if line]
    card: dict[str, Any] = {
        "$schema": CARD_SCHEMA,
        "type": "AdaptiveCard",
        "version": "1.4",
        # text runs, unlike text blocks, have no markup
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in (title, *lines)],
    }
    if notification.url:
        card["actions"] = [{"type": "Action.OpenUrl", "title": LINK, "url": notification.url}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


# -- An operator's own JSON object.


def check_body(body: Mapping[str, Any]) -> None:
    """Check the placeholders of an operator's own body.

    Raises:
        ValueError: One is unknown, or the body is nested too deeply.
    """
    for text in _texts(body, MAX_NESTED):
        for name in PLACEHOLDER.findall(text):
            if name not in PLACEHOLDERS:
                raise ValueError(f"body: unknown placeholder {{{name}}}; there are: {', '.join(PLACEHOLDERS)}")


def _texts(value: Any, depth: int) -> list[str]:
    if depth == 0:
        raise ValueError("body is nested too deeply")
    if isinstance(value, str):
        return [value]
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for child in children for text in _texts(child, depth - 1)]


def _filled(value: Any, notification: Notification) -> Any:
    """Return the body with its placeholders replaced, once: a value that looks like a placeholder stays."""
    if isinstance(value, str):
        first = notification.items[0] if notification.items else None
        values = {
            "title": notification.title,
            "text": notification.text,
            "event": notification.event,
            "target": first.target if first is not None else "",
            "session": first.session if first is not None else "",
            "url": notification.url,
            "host": notification.host,
            "count": str(sum(notification.counts.values())),
        }
        return PLACEHOLDER.sub(lambda match: values[match[1]], value)
    if isinstance(value, Mapping):
        return {name: _filled(child, notification) for name, child in value.items()}
    return [_filled(child, notification) for child in value] if isinstance(value, list) else value
