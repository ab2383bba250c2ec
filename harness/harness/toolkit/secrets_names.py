"""Names whose values are secrets."""

from __future__ import annotations

import re

__all__ = ["MARK", "is_secret_name"]

MARK = "[redacted]"
"""What stands in the place of a secret."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WORDS = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "credentials"),
    *("apikey", "authorization", "accesskey", "privatekey"),
)
_PAIRS = frozenset({"api", "access", "private", "secret", "auth", "account", "signing", "encryption", "master"})
_DIRECTORIES = (["pwd"], ["old", "pwd"], ["oldpwd"])


def is_secret_name(name: str) -> bool:
    """Whether the value of that name is a secret: ``DB_PASSWORD``, ``apiKey``, ``client-secret``."""
    words = [part.lower() for part in _PARTS.findall(name.rstrip("0123456789_-"))]
    if not words or words in _DIRECTORIES:
        return False
    return words[-1].endswith(_WORDS) or (len(words) > 1 and words[-1] == "key" and words[-2] in _PAIRS)
