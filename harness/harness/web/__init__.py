"""The dashboard in a browser: ``harness web``."""
