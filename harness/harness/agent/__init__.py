"""The agent: one conversation of a model with tools on a target, for prompts, scripts and programs."""
