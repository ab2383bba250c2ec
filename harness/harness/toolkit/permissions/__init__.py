"""Permissions of tool calls: rules, hard denials, and approval requests for calls that nothing else decides."""
