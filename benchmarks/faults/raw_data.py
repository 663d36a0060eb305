"""Unmodified data sets: rows, and targets as class numbers or numbers.

Shape legend: N rows, F features, T time steps, K targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

__all__ = ["SETS", "RawData"]

Array = NDArray[Any]


@dataclass(frozen=True)
class RawData:
    """A data set.

    Attributes:
        x: [N, F], [N, T, F], or [N, T] of token numbers.
        y: class numbers int64 [N], or float64 [N, K].
        classes: number of classes; 0 for regression.
        train: number of training rows, which come first.
        unit: default divisor of the features; 0 standardises them by the training rows.
        vocabulary: number of tokens; 0 if the features are numbers.
    """

    x: Array
    y: Array
    classes: int
    train: int
    unit: float = 1.0
    vocabulary: int = 0


def _shuffled(x: Array, y: Array, classes: int, *, unit: float = 1.0, seed: int = 0) -> RawData:
    """Return shuffled rows, 80 % of them for training."""
    order = np.random.RandomState(seed).permutation(len(x))
    return RawData(x[order], y[order], classes, int(0.8 * len(x)), unit)


def _of_sklearn(name: str, unit: float = 0.0) -> RawData:
    """Return a data set from scikit-learn."""
    arguments = {"scaled": False} if name == "diabetes" else {}
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True, **arguments)
    if name == "diabetes":
        return _shuffled(x, y[:, None].astype(float), 0, unit=unit)
    return _shuffled(x, y.astype(np.int64), int(y.max()) + 1, unit=unit)


def _circles() -> RawData:
    x, y = datasets.make_circles(1000, noise=0.1, random_state=1)
    return RawData(x, y.astype(np.int64), 2, 700)


def _moons() -> RawData:
    x, y = datasets.make_moons(1000, noise=0.15, random_state=3)
    return RawData(x, y.astype(np.int64), 2, 700)


def _blobs() -> RawData:
    x, y = datasets.make_blobs(1000, centers=3, n_features=2, cluster_std=2, random_state=2)
    return RawData(x, y.astype(np.int64), 3, 700)


def _xor() -> RawData:
    x = np.random.RandomState(4).uniform(-1, 1, (1000, 2))
    return RawData(x, (x[:, 0] * x[:, 1] > 0).astype(np.int64), 2, 700)


def _spirals() -> RawData:
    """Return three arms of a spiral in the plane."""
    random = np.random.RandomState(5)
    y = random.randint(0, 3, 1200)
    radius = random.uniform(0.1, 1, 1200)
    angle = 4 * radius + 2 * np.pi * y / 3 + 0.15 * random.randn(1200)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return RawData(x, y.astype(np.int64), 3, 900)


def _classification() -> RawData:
    x, y = datasets.make_classification(
        2000, 30, n_informative=12, n_redundant=6, n_classes=4, class_sep=1.5, random_state=6
    )
    return RawData(x, y.astype(np.int64), 4, 1600, 0.0)


def _line() -> RawData:
    random = np.random.RandomState(0)
    x = random.uniform(0, 10, (500, 1))
    return RawData(x, 8 * x + 3 + 0.1 * random.randn(500, 1), 0, 400)


def _keypoints() -> RawData:
    digits = _of_sklearn("digits", 16.0)
    weights = np.random.RandomState(0).normal(0, 0.2, (64, 30))
    return RawData(digits.x, np.tanh(digits.x / 16 @ weights), 0, digits.train, 16.0)


def _sine() -> RawData:
    random = np.random.RandomState(8)
    x = random.uniform(-3, 3, (1000, 1))
    return RawData(x, np.sin(x) + 0.05 * random.randn(1000, 1), 0, 800)


def _parabola() -> RawData:
    x = np.random.RandomState(15).uniform(-2, 2, (800, 1))
    return RawData(x, x * x, 0, 640)


def _regression() -> RawData:
    x, y = datasets.make_regression(1000, 10, noise=5.0, random_state=16)
    return RawData(x, y[:, None], 0, 800)


def _friedman() -> RawData:
    x, y = datasets.make_friedman1(1500, 10, noise=0.5, random_state=9)
    return RawData(x, y[:, None], 0, 1200)


def _housing() -> RawData:
    """Return eight features on census scales and prices in dollars, like California housing."""
    random = np.random.RandomState(10)
    income = random.lognormal(1.2, 0.45, 2000)
    age = random.uniform(1, 52, 2000)
    rooms = random.normal(5.4, 1.2, 2000).clip(1)
    bedrooms = rooms / 5 + 0.1 * random.randn(2000)
    population = random.lognormal(7, 0.7, 2000)
    occupancy = random.normal(3, 0.7, 2000).clip(1)
    latitude, longitude = random.uniform(32.5, 42, 2000), random.uniform(-124, -114, 2000)
    coast = np.exp(-np.abs(longitude + 114 + 1.1 * (latitude - 32.5)) / 4)
    price = 4e4 * income + 6e4 * coast + 700 * age + 9e3 * rooms - 1.2e4 * occupancy
    y = (price + 1.5e4 * random.randn(2000))[:, None]
    columns = (income, age, rooms, bedrooms, population, occupancy, latitude, longitude)
    return RawData(np.stack(columns, axis=1), y, 0, 1600, 0.0)


def _waves() -> RawData:
    """Return sequences of 20 numbers: noisy sine, square or sawtooth waves of any phase."""
    random = np.random.RandomState(11)
    y = random.randint(0, 3, 900)
    phase = random.uniform(0, 1, 900)[:, None] + np.arange(20) / 10
    sine = np.sin(2 * np.pi * phase)
    shapes = np.stack([sine, np.sign(sine), 2 * (phase % 1) - 1])
    x = shapes[y, np.arange(900)] + 0.1 * random.randn(900, 20)
    return RawData(x[:, :, None], y.astype(np.int64), 3, 720)


def _series() -> RawData:
    """Return twelve numbers of a noisy sine of any frequency and phase; the target is the next."""
    random = np.random.RandomState(12)
    frequency, phase = random.uniform(0.2, 0.6, (1000, 1)), random.uniform(0, 6, (1000, 1))
    values = np.sin(frequency * np.arange(13) + phase) + 0.03 * random.randn(1000, 13)
    return RawData(values[:, :12, None], values[:, 12:], 0, 800)


def _tokens() -> RawData:
    """Return sentences of 15 of 50 tokens; the class tells whether tokens 1-8 or 9-16 prevail."""
    random = np.random.RandomState(13)
    x = random.randint(1, 50, (4000, 15))
    lean = ((x >= 1) & (x <= 8)).sum(axis=1) - ((x >= 9) & (x <= 16)).sum(axis=1)
    chosen = np.flatnonzero(lean)[:1500]
    return RawData(x[chosen], (lean[chosen] > 0).astype(np.int64), 2, 1200, 1.0, 50)


def _rare() -> RawData:
    """Return two overlapping classes, one of them with a share of 4 %."""
    x, y = datasets.make_classification(
        3000, 12, n_informative=6, weights=[0.96], class_sep=1.3, flip_y=0.01, random_state=14
    )
    return RawData(x, y.astype(np.int64), 2, 2400, 0.0)


SETS: dict[str, Callable[[], RawData]] = {
    "circles": _circles,
    "moons": _moons,
    "blobs": _blobs,
    "xor": _xor,
    "spirals": _spirals,
    "spiral": _spirals,
    "classification": _classification,
    "rare": _rare,
    "iris": lambda: _of_sklearn("iris"),
    "wine": lambda: _of_sklearn("wine"),
    "cancer": lambda: _of_sklearn("breast_cancer"),
    "bc": lambda: _of_sklearn("breast_cancer"),
    "breast_cancer": lambda: _of_sklearn("breast_cancer"),
    "digits": lambda: _of_sklearn("digits", 16.0),
    "diab": lambda: _of_sklearn("diabetes"),
    "diabetes": lambda: _of_sklearn("diabetes"),
    "lin": _line,
    "lin_small": _line,
    "line": _line,
    "keypoints": _keypoints,
    "sine": _sine,
    "sin": _sine,
    "parabola": _parabola,
    "quadratic": _parabola,
    "regression": _regression,
    "friedman": _friedman,
    "housing": _housing,
    "california": _housing,
    "waves": _waves,
    "series": _series,
    "tokens": _tokens,
}
