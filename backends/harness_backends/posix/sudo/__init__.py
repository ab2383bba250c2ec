"""Commands as another user by a ``sudo`` that asks for a password."""
