"""Asking an estimator something without leaving a trace."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["aside"]


@contextmanager
def aside(*estimators: Any) -> Iterator[None]:
    """Return a context in which no warning is shown and random numbers stay as they were.

    A few estimators draw random numbers when they predict, such as a dummy classifier that guesses;
    some warn, and would warn of something that the user has not called.

    Args:
        estimators: whose ``random_state`` may be a generator of their own.
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
