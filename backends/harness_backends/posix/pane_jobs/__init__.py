"""Jobs of panes, read and concluded without a terminal: prompt markers, proofs of ends, output in the pane's log."""

from __future__ import annotations
