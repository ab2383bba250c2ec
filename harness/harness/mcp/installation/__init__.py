"""Adding harness to the configuration files of MCP clients."""
