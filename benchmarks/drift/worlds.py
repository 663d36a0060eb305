"""Worlds of requests: what monitors see without drift, and with drift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.drift.noise import Noise, autoregressive, independent, sessions, weekly

__all__ = ["COLUMNS", "DRIFTS", "NULLS", "Values", "World"]

COLUMNS = 20
Values = NDArray[np.float64]
# Turns normal values [rows, monitors, columns] into those of the world.
Shaping = Callable[[np.random.Generator, Values], Values]


def unchanged(_random: np.random.Generator, values: Values) -> Values:
    return values


@dataclass(frozen=True)
class World:
    """What monitors see.

    Args:
        name: shown in the table.
        noise: makes the normal values; called once for the baseline and the windows of a run.
        shaped: makes values from them.
        drifted: changes values at full strength; `strength` is the share of it at a window.
        strength: of the drift, by the number of windows since it began.
        kind: "number", or "embedding" of 64 dimensions, or "category" with codes.
        width: number of columns, unless it is an embedding.
        baseline: number of rows.
        rows: number of rows of a window, by its index.
        ordered: whether the baseline is in time order, too; otherwise it is a shuffled sample, and
            the monitor is told so.
        timed: whether requests have times, a day for each window, and the monitor compares the days
            of a week. The baseline is the windows before, then.
    """

    name: str
    noise: Callable[[], Noise] = independent
    shaped: Shaping = unchanged
    drifted: Callable[[np.random.Generator, Values, float], Values] | None = None
    strength: Callable[[int], float] = field(default=lambda _since: 1.0)
    kind: str = "number"
    width: int = COLUMNS
    baseline: int = 1000
    rows: Callable[[int], int] = field(default=lambda _window: 200)
    ordered: bool = True
    timed: bool = False

    @property
    def columns(self) -> int:
        """Number of columns, or of dimensions."""
        return 64 if self.kind == "embedding" else self.width


def heavy(_random: np.random.Generator, values: Values) -> Values:
    """Cauchy, Student with 3 degrees of freedom, lognormal, and normal columns in turn."""
    found = values.copy()
    found[..., ::4] = np.tan(np.pi * (stats.norm.cdf(values[..., ::4]) - 0.5))
    found[..., 1::4] = np.sign(values[..., 1::4]) * abs(values[..., 1::4]) ** 3
    found[..., 2::4] = np.exp(2 * values[..., 2::4])
    return found


def discrete(_random: np.random.Generator, values: Values) -> Values:
    """Binary with 50 % and 5 %, counts, rounded, and constant columns in turn."""
    found = np.round(values)
    found[..., ::5] = values[..., ::5] > 0
    found[..., 1::5] = values[..., 1::5] > 1.645
    found[..., 2::5] = np.floor(np.exp(values[..., 2::5]))
    found[..., 4::5] = 7.0
    return found


def correlated(_random: np.random.Generator, values: Values) -> Values:
    common = values.mean(-1, keepdims=True) * np.sqrt(values.shape[-1])
    return np.asarray(0.9 * common + np.sqrt(1 - 0.81) * values)


def missing(random: np.random.Generator, values: Values) -> Values:
    share = np.linspace(0, 0.5, values.shape[-1])
    return np.where(random.random(values.shape) < share, np.nan, values)


def codes(_random: np.random.Generator, values: Values) -> Values:
    """Five categories with 55 % to 2 %."""
    return np.searchsorted(stats.norm.ppf([0.55, 0.8, 0.93, 0.98]), values).astype(float)


def shift(size: float, columns: int = 5) -> Callable[[np.random.Generator, Values, float], Values]:
    def drifted(_random: np.random.Generator, values: Values, strength: float) -> Values:
        found = values.copy()
        found[..., :columns] += size * strength
        return found

    return drifted


def wider(_random: np.random.Generator, values: Values, strength: float) -> Values:
    found = values.copy()
    found[..., :5] *= np.sqrt(1 + 0.5 * strength)
    return found


def correlation(random: np.random.Generator, values: Values, _strength: float) -> Values:
    """Five columns get a correlation of 0.5; each one's distribution stays the same."""
    found = values.copy()
    common = random.normal(size=(*values.shape[:-1], 1))
    found[..., :5] = np.sqrt(0.5) * common + np.sqrt(0.5) * values[..., :5]
    return found


def new_category(random: np.random.Generator, values: Values, _strength: float) -> Values:
    found = values.copy()
    found[..., 0] = np.where(random.random(values.shape[:-1]) < 0.05, 9.0, values[..., 0])
    return found


def gone(random: np.random.Generator, values: Values, strength: float) -> Values:
    found = values.copy()
    lost = random.random(values.shape[:-1]) < 0.2 * strength
    found[..., 0] = np.where(lost, np.nan, values[..., 0])
    return found


def one_direction(_random: np.random.Generator, values: Values, strength: float) -> Values:
    """The mean moves by 1 in a direction that no single dimension shows."""
    return np.asarray(values + strength / np.sqrt(values.shape[-1]))


def days(number: int) -> int:
    """Return the number of requests of a day: a third of them at weekends."""
    return 66 if number % 7 >= 5 else 200


NULLS = [
    World("normal"),
    World("heavy tails", shaped=heavy),
    World("discrete", shaped=discrete),
    World("categories", shaped=codes, kind="category"),
    World("correlated columns", shaped=correlated),
    World("missing values", shaped=missing),
    World("baseline of 200 rows", baseline=200),
    World("embedding, 64 dimensions", kind="embedding"),
    World("autocorrelated, 0.5", noise=lambda: autoregressive(0.5), ordered=False),
    World("autocorrelated, 0.9", noise=lambda: autoregressive(0.9), ordered=False),
    World(
        "autocorrelated, 0.9, ordered baseline",
        noise=lambda: autoregressive(0.9),
        baseline=5000,
    ),
    World("sessions of 10 rows", noise=lambda: sessions(10, 0.5), ordered=False),
    *(
        World(
            f"sessions of {rows} rows, 1 column, windows of 100",
            noise=partial(sessions, rows, 0.5),
            width=1,
            rows=lambda _window: 100,
            ordered=False,
        )
        for rows in (30, 100)
    ),
    World("sessions of a window", noise=lambda: sessions(200, 0.5), ordered=False),
    *(
        World(
            f"weeks{', with times' if timed else ''}",
            noise=lambda: weekly(days),
            shaped=codes,
            kind="category",
            baseline=sum(map(days, range(56))),
            rows=days,
            timed=timed,
        )
        for timed in (False, True)
    ),
]

DRIFTS = [
    World("shift 0.25 sd, 5 of 20", drifted=shift(0.25)),
    World("shift 0.5 sd, 5 of 20", drifted=shift(0.5)),
    World("shift 1 sd, 5 of 20", drifted=shift(1.0)),
    World("same, 0.5 sd, baseline 200", drifted=shift(0.5), baseline=200),
    World(
        "slow shift, 1 sd in 50 windows",
        drifted=shift(1.0),
        strength=lambda since: min((since + 1) / 50, 1.0),
    ),
    World("variance x 1.5, 5 of 20", drifted=wider),
    World("correlation 0.5 of 5 columns", drifted=correlation),
    World("new category, 5 %", shaped=codes, drifted=new_category, kind="category"),
    World("20 % missing in 1 column", drifted=gone),
    World("embedding moves by 1 sd", drifted=one_direction, kind="embedding"),
    *(
        World(
            f"weeks{', with times' if timed else ''}: shift 0.5 sd",
            noise=lambda: weekly(days),
            drifted=shift(0.5, COLUMNS),
            baseline=sum(map(days, range(56))),
            rows=days,
            timed=timed,
        )
        for timed in (False, True)
    ),
    World("shuffled baseline, shift 0.5 sd", drifted=shift(0.5), ordered=False),
    World(
        "autocorrelated 0.9, shift 1 sd",
        noise=lambda: autoregressive(0.9),
        drifted=shift(1.0),
        ordered=False,
    ),
]
