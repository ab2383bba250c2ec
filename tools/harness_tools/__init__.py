"""Tool sets built on ExecutionContext."""
