"""Commands that run on many hosts, and what they print."""
