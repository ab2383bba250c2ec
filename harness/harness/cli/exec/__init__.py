"""``harness exec``: run an agent on one prompt, without the interactive prompt."""
