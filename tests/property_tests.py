"""Settings of property tests: the same examples each time, or many random ones.

``make test-random`` loads the profile "random" and `make mutate` "mutants"; all others use "fixed".
"""

from __future__ import annotations

from hypothesis import Phase, settings

__all__ = ["examples", "register_profiles"]

_BASE = 100
# `make test-random` tries that many times more examples.
_RANDOM_FACTOR = 30


def register_profiles() -> None:
    """Register all profiles, and load "fixed"."""
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
    # Whether a mutant fails matters, not the smallest example.
    settings.register_profile(
        "mutants",
        max_examples=_BASE // 5,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
    )
    settings.load_profile("fixed")


def examples(count: int) -> settings:
    """Return settings for a number of examples, scaled in the other profiles."""
    return settings(max_examples=count * settings().max_examples // _BASE)
