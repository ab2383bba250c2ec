"""Commands that copy files between this machine and targets."""
