"""Worlds that were written down before the monitor was tuned, and are reported as they come."""

from __future__ import annotations

import numpy as np
from scipy import stats

from benchmarks.drift.noise import autoregressive, independent, sessions
from benchmarks.drift.worlds import Values, World, codes, shift

__all__ = ["SEALED_DRIFTS", "SEALED_NULLS"]


def inflated(random: np.random.Generator, values: Values) -> Values:
    """Zero in two rows of three, lognormal otherwise."""
    return np.where(random.random(values.shape) < 2 / 3, 0.0, np.exp(values))


def student(_random: np.random.Generator, values: Values) -> Values:
    return np.asarray(stats.t.ppf(stats.norm.cdf(values), 3))


def rare(_random: np.random.Generator, values: Values) -> Values:
    return (values > 2).astype(float)


def cycle(_random: np.random.Generator, values: Values) -> Values:
    """A daily cycle of 50 rows."""
    return values + np.sin(np.arange(len(values)) * 2 * np.pi / 50)[:, None, None]


def heavier(_random: np.random.Generator, values: Values, _strength: float) -> Values:
    """One column gets the tails of Student with 2 degrees of freedom, and keeps its quartiles."""
    found = values.copy()
    found[..., 0] = stats.t.ppf(stats.norm.cdf(values[..., 0]), 2) * 0.6745 / stats.t.ppf(0.75, 2)
    return found


def bimodal(random: np.random.Generator, values: Values, _strength: float) -> Values:
    found = values.copy()
    side = np.sign(random.normal(size=values.shape[:-1]))
    found[..., 0] = 0.9 * side + np.sqrt(0.19) * values[..., 0]
    return found


def swapped(random: np.random.Generator, values: Values, _strength: float) -> Values:
    """One row in ten of the most frequent category gets the next one."""
    found = values.copy()
    found[..., 0] += (values[..., 0] == 0) & (random.random(values.shape[:-1]) < 0.1)
    return found


def fading(random: np.random.Generator, values: Values, strength: float) -> Values:
    found = values.copy()
    lost = random.random(values.shape[:-1]) < 0.1 * strength
    found[..., 0] = np.where(lost, np.nan, values[..., 0])
    return found


def paired(_random: np.random.Generator, values: Values) -> Values:
    found = values.copy()
    found[..., 1] = 0.6 * values[..., 0] + 0.8 * values[..., 1]
    return found


def unpaired(_random: np.random.Generator, values: Values, _strength: float) -> Values:
    """A correlation of 0.6 becomes one of -0.6."""
    found = values.copy()
    found[..., 0] = -values[..., 0]
    return found


def one_dimension(_random: np.random.Generator, values: Values, strength: float) -> Values:
    found = values.copy()
    found[..., 30] += 0.7 * strength
    return found


SEALED_NULLS = [
    World("zero inflated, baseline of 500", shaped=inflated, baseline=500),
    World(
        "Student, autocorrelated 0.7",
        noise=lambda: autoregressive(0.7),
        shaped=student,
        ordered=False,
    ),
    World(
        "categories in sessions of 8",
        noise=lambda: sessions(8, 0.3),
        shaped=codes,
        kind="category",
        ordered=False,
    ),
    World(
        "windows of 20 to 400 rows",
        baseline=300,
        rows=lambda window: 20 + (window * 137) % 381,
    ),
    World("baseline of 60 rows", baseline=60),
    World(
        "rare events, autocorrelated 0.8",
        noise=lambda: autoregressive(0.8),
        shaped=rare,
        ordered=False,
    ),
    World("daily cycle", noise=independent, shaped=cycle),
    World("sessions of 30 rows", noise=lambda: sessions(30, 0.5), ordered=False),
    World("autocorrelated 0.97", noise=lambda: autoregressive(0.97), ordered=False),
]

SEALED_DRIFTS = [
    World("shift 0.3 sd, 1 of 20", drifted=shift(0.3, 1)),
    World("heavier tails, 1 of 20", drifted=heavier),
    World("two modes, 1 of 20", drifted=bimodal),
    World("10 % of a category swapped", shaped=codes, drifted=swapped, kind="category"),
    World(
        "missing, 0 to 10 % in 50 windows",
        drifted=fading,
        strength=lambda since: min((since + 1) / 50, 1.0),
    ),
    World("correlation 0.6 to -0.6 of 2", shaped=paired, drifted=unpaired),
    World(
        "shift 0.5 sd, autocorrelated 0.5",
        noise=lambda: autoregressive(0.5),
        drifted=shift(0.5),
        ordered=False,
    ),
    World("embedding: 1 of 64 by 0.7 sd", drifted=one_dimension, kind="embedding"),
]
