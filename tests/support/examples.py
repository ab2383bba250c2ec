"""A pytest plugin: how many examples hypothesis tries, one profile for each tier of scripts/test.

Tests have no numbers of their own. A test whose examples start programs, servers or event loops asks for
``few_examples()``. The examples are the same in each run; ``--hypothesis-profile explore`` looks for new ones.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

__all__ = ["EXAMPLES", "few_examples"]

EXAMPLES = {"fast": 20, "usual": 100, "all": 1000}
"""Examples of one test, by tier."""
PROGRAMS = 10
"""By how much fewer examples there are where each one starts something."""

_ABSENT = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]  # a busy machine; fixtures that examples share

for _tier, _count in EXAMPLES.items():
    settings.register_profile(
        _tier, max_examples=_count, deadline=None, derandomize=True, suppress_health_check=_ABSENT
    )
settings.register_profile("explore", settings.get_profile("all"), derandomize=False, print_blob=True)
settings.load_profile("usual")


def few_examples() -> settings:
    """The settings of a test whose examples start programs, servers or event loops."""
    current = settings()
    return settings(current, max_examples=max(EXAMPLES["fast"] // 2, current.max_examples // PROGRAMS))
