"""What a model is told: the history of a conversation, the instructions, and what holds for one request alone."""
