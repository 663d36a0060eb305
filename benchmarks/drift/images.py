"""Images of digits that a classifier sees, corrupted from some window on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from benchmarks.drift.noise import Shape
from benchmarks.drift.worlds import COLUMNS, Values, World
from vinedresser.serving import describe

__all__ = ["IMAGE_DRIFTS", "IMAGE_NULL"]

# Outputs of the hidden layer that are columns, beside those of images and predictions.
_UNITS = 12
# The class that the classifier and the baseline do not know.
_NEW = 9


@cache
def _digits() -> tuple[NDArray[np.float64], NDArray[np.int64], MLPClassifier]:
    """Return images, [images, 8, 8] in [0, 1], classes, and a classifier of all classes but one."""
    images, classes = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    model = MLPClassifier((32,), random_state=0, max_iter=60, tol=1e-2)
    known = classes != _NEW
    model.fit(images[known].reshape(-1, 64), classes[known])
    return images, classes, model


def _columns(images: NDArray[np.float64]) -> Values:
    """Return what a monitor sees of images, float64 [images, COLUMNS]."""
    model = _digits()[2]
    rows = images.reshape(-1, 64)
    hidden = np.maximum(rows @ model.coefs_[0] + model.intercepts_[0], 0)
    found = describe(images.astype(np.float32), model.predict_proba(rows))
    named = [found[name].astype(np.float64) for name in sorted(found) if name != "embedding"]
    table = np.column_stack([*named, hidden[:, :_UNITS]])
    # Constant columns fill it up, so that the worlds have one width.
    return np.pad(table, ((0, 0), (0, COLUMNS - table.shape[1])))


@cache
def _table(corruption: str) -> Values:
    images, classes, _ = _digits()
    random = np.random.default_rng(0)
    clean = images[classes != _NEW]
    if corruption == "new class":
        return _columns(images[classes == _NEW])
    if corruption == "noise":
        return _columns(np.clip(clean + random.normal(0, 0.05, clean.shape), 0, 1))
    if corruption == "rotation":
        return _columns(ndimage.rotate(clean, 5, axes=(1, 2), reshape=False, order=1))
    if corruption == "blur":
        return _columns(ndimage.gaussian_filter(clean, (0, 0.3, 0.3)))
    if corruption == "contrast":
        return _columns(0.97 * clean)
    return _columns(clean)


def _rows_of(corruption: str, random: np.random.Generator, shape: tuple[int, ...]) -> Values:
    table = _table(corruption)
    return table[random.integers(len(table), size=shape)]


def _clean(random: np.random.Generator, values: Values) -> Values:
    return _rows_of("none", random, values.shape[:2])


def _corrupted(
    corruption: str, share: float = 1.0
) -> Callable[[np.random.Generator, Values, float], Values]:
    def drifted(random: np.random.Generator, values: Values, strength: float) -> Values:
        hit = random.random((*values.shape[:2], 1)) < share * strength
        return np.where(hit, _rows_of(corruption, random, values.shape[:2]), values)

    return drifted


def _no_noise(_random: np.random.Generator, shape: Shape) -> Values:
    return np.zeros(shape)


def _world(
    name: str, drifted: Callable[[np.random.Generator, Values, float], Values] | None
) -> World:
    return World(name, noise=lambda: _no_noise, shaped=_clean, drifted=drifted)


IMAGE_NULL = _world("images of digits", None)
IMAGE_DRIFTS = [
    _world("images: noise of 0.05", _corrupted("noise")),
    _world("images: rotated by 5 degrees", _corrupted("rotation")),
    _world("images: blurred by 0.3 pixels", _corrupted("blur")),
    _world("images: contrast x 0.97", _corrupted("contrast")),
    _world("images: new class, 10 %", _corrupted("new class", 0.1)),
]
