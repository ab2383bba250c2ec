"""Programs that only read: the allowlist, and the checks of their options and words."""
