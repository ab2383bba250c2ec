"""The backends that come with harness: this machine and hosts behind SSH."""
