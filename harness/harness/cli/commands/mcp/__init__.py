"""``harness mcp``: the server, and its entry in a client's configuration."""
