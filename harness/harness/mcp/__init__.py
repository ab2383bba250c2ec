"""The Model Context Protocol: our tools for its clients, and its servers' tools for ours."""
