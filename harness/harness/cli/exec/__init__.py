"""``harness exec``: one prompt for an agent, without a conversation on the screen."""
