"""``harness forward``: ports and sockets over the SSH connection."""
