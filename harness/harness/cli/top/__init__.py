"""``harness top``: the dashboard in a terminal."""
