"""A pytest plugin: how many examples hypothesis tries, one profile for each tier of scripts/test.

Tests have no numbers of their own, but for one file that draws keys for real terminals. A test whose examples start
programs, servers or event loops asks for ``few_examples()``. The examples are the same in each run;
``--hypothesis-profile explore`` draws new ones.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

__all__ = ["EXAMPLES", "few_examples"]

EXAMPLES = {"fast": 20, "usual": 100, "all": 1000}
"""Examples of one test, by tier."""
FEWER, LEAST = 10, 10
"""Where each example starts something: the part of the examples, and the least number of them."""

_SUPPRESSED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
"""The machine may be busy, and examples may share a fixture."""

for _tier, _count in EXAMPLES.items():
    settings.register_profile(
        _tier, max_examples=_count, deadline=None, derandomize=True, suppress_health_check=_SUPPRESSED
    )
settings.register_profile("explore", settings.get_profile("all"), derandomize=False, print_blob=True)
settings.load_profile("usual")


def few_examples() -> settings:
    """The settings of a test whose examples start programs, servers or event loops."""
    current = settings()
    return settings(current, max_examples=max(LEAST, current.max_examples // FEWER))
