"""The Model Context Protocol: a server of harness's tools, and a client of other servers."""
