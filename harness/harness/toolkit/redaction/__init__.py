"""Secrets in texts, found and replaced."""

from __future__ import annotations

from ...deprecated_names import moved_names

__all__: list[str] = []

__getattr__ = moved_names(__name__, ".redactor")
