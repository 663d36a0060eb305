"""Settings of property tests: the same examples each time, or many random ones.

``make test-random`` loads the profile "random"; every other run uses "fixed".
"""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples", "register_profiles"]

_BASE = 100
# `make test-random` tries that many times more examples.
_RANDOM_FACTOR = 30


def register_profiles() -> None:
    """Register both profiles, and load "fixed"."""
    settings.register_profile(
        "fixed", max_examples=_BASE, deadline=None, database=None, derandomize=True
    )
    settings.register_profile(
        "random",
        max_examples=_BASE * _RANDOM_FACTOR,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=True,
    )
    settings.load_profile("fixed")


def examples(count: int) -> settings:
    """Return settings for a number of examples, multiplied in the profile "random"."""
    return settings(max_examples=count * settings().max_examples // _BASE)
