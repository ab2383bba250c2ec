"""What operators do with a target beside running commands: look after it, and see the demo."""

__all__: list[str] = []
