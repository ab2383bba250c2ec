"""The slash commands of the prompt."""
