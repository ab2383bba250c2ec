"""For tests of what builds on harness: the backend contract, an embedded SSH server, a slow link, a scripted backend.

Nothing is imported until it is used: :mod:`.contract`, :mod:`.ssh_server`, :mod:`.delay`, :mod:`.memory`.
"""

__all__: list[str] = []
