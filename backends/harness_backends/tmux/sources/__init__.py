"""How the state of panes and jobs is learned: from the stream of control mode, or by a watch on the target."""

from __future__ import annotations
