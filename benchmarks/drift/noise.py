"""Sequences of random values, one for each of many monitors and columns.

A noise returns float64 [rows, monitors, columns] and remembers what its dependence needs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Noise", "autoregressive", "independent", "sessions", "weekly"]

Shape = tuple[int, int, int]
Noise = Callable[[np.random.Generator, Shape], NDArray[np.float64]]


def independent() -> Noise:
    """Return normal values without dependence."""
    return lambda random, shape: random.normal(size=shape)


def autoregressive(rho: float) -> Noise:
    """Return normal values of an autoregressive process of order 1."""
    last: list[NDArray[np.float64]] = []

    def noise(random: np.random.Generator, shape: Shape) -> NDArray[np.float64]:
        found = np.sqrt(1 - rho**2) * random.normal(size=shape)
        value = last[0] if last else random.normal(size=shape[1:])
        for row in range(len(found)):
            found[row] += rho * value
            value = found[row]
        last[:] = [value.copy()]
        return np.asarray(found)

    return noise


def sessions(length: float, share: float) -> Noise:
    """Return normal values of which rows of a session have a share in common.

    Args:
        length: mean number of rows of a session.
        share: of the variance.
    """
    last: list[NDArray[np.float64]] = []

    def noise(random: np.random.Generator, shape: Shape) -> NDArray[np.float64]:
        rows, monitors, columns = shape
        begins = random.random((rows, monitors)) < 1 / length
        found = np.sqrt(1 - share) * random.normal(size=shape)
        common = last[0] if last else random.normal(size=(monitors, columns))
        for row, new in enumerate(begins):
            common[new] = random.normal(size=(int(new.sum()), columns))
            found[row] += np.sqrt(share) * common
        last[:] = [common]
        return np.asarray(found)

    return noise


def weekly(days: Callable[[int], int]) -> Noise:
    """Return normal values that are higher by 0.84 at weekends.

    Args:
        days: number of rows of a day, by its number in the week, from Monday on.
    """
    rows_of = [days(number) for number in range(7)]
    higher = np.repeat([0.0] * 5 + [0.84] * 2, rows_of)[:, None, None]
    seen = [0]

    def noise(random: np.random.Generator, shape: Shape) -> NDArray[np.float64]:
        at = (seen[0] + np.arange(shape[0])) % len(higher)
        seen[0] += shape[0]
        return np.asarray(random.normal(size=shape) + higher[at])

    return noise
