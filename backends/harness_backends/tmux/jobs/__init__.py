"""One command in a pane: wrapped and typed, followed to its end, or killed.

Who decides that a command is over:

- usually the end marker of its shell: ``PaneJob.finish_by_marker``, called by ``pane/pane_state.py``;
- its record on the target, if no marker arrives: ``sources/live_panes.py``, ``sources/stream_gaps.py`` (after a gap)
  and ``sources/target_watch.py`` (without control mode);
- ``job_killing.py``, for a command that is killed or has reached its time limit;
- ``false_end_check.py`` looks again at an end that was reported twice.
"""

from __future__ import annotations
