"""Calls of an estimator without side effects."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["without_side_effects"]


@contextmanager
def without_side_effects(*estimators: Any) -> Iterator[None]:
    """Suppress warnings and restore the random state at the end of the context.

    Some estimators draw random numbers when they predict, for example a random dummy classifier,
    and some emit warnings about calls that the user did not make.

    Args:
        estimators: estimators whose ``random_state`` may be a generator.
    """
    own = (getattr(estimator, "random_state", None) for estimator in estimators)
    generators = [one for one in own if isinstance(one, np.random.RandomState)]
    states = [one.get_state() for one in generators]
    common = np.random.get_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(common)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
