"""``harness shell``: a terminal on the target's tmux session that reconnects by itself."""
