"""Recordings of panes as asciicast files: written while harness streams the panes, listed, played and exported."""

from __future__ import annotations
