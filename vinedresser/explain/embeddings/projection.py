"""Projections to a plane, aligned from step to step.

Shape legend: N examples, F features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import MissingDependency

__all__ = ["aligned", "neighbour_agreement", "pca", "tsne"]

_Array = NDArray[np.float64]

_PERPLEXITY = 30.0
_NEIGHBOURS = 5


def pca(values: _Array) -> tuple[_Array, _Array]:
    """Return the first two principal components, and their shares of the variance.

    Args:
        values: float64 [N, F].

    Returns:
        float64 [N, 2] and [2]; components that do not exist are 0.
    """
    centred = values - values.mean(0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    scores = np.zeros((len(values), 2))
    shares = np.zeros(2)
    kept = min(2, len(singular))
    scores[:, :kept] = left[:, :kept] * singular[:kept]
    total = float((singular**2).sum())
    if total > 0:
        shares[:kept] = singular[:kept] ** 2 / total
    return scores, shares


def tsne(values: Sequence[_Array]) -> list[_Array]:
    """Return t-SNE (van der Maaten and Hinton, JMLR 2008) of each step, from one initialisation.

    Args:
        values: activations of the same examples at each step, float64 [N, F] each; the
            initialisation is the principal components of the last one.

    Returns:
        float64 [N, 2] for each step.

    Raises:
        MissingDependency: scikit-learn is not installed.
    """
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise MissingDependency(
            "t-SNE needs scikit-learn: pip install 'vinedresser[sklearn]'"
        ) from error
    start, _ = pca(values[-1])
    spread = float(start[:, 0].std())
    # The scale that scikit-learn gives its own initialisation.
    start = (start / (spread or 1.0) * 1e-4).astype(np.float32)
    perplexity = min(_PERPLEXITY, (len(start) - 1) / 3)
    found = []
    for value in values:
        fitted = TSNE(perplexity=perplexity, init=start, random_state=0, n_jobs=1)
        found.append(np.asarray(fitted.fit_transform(value.astype(np.float32)), np.float64))
    return found


def aligned(points: Sequence[_Array]) -> list[_Array]:
    """Return points of each step, shifted, rotated and mirrored towards those of the previous step.

    Distances stay as they are (orthogonal Procrustes problem, Schönemann, Psychometrika 31, 1966).

    Args:
        points: float64 [N, 2] for each step, the same examples in the same order.
    """
    found: list[_Array] = []
    for point in points:
        centred = point - point.mean(0)
        if found:
            left, _, right = np.linalg.svd(centred.T @ found[-1])
            centred = centred @ (left @ right)
        found.append(centred)
    return found


def neighbour_agreement(values: _Array, labels: NDArray[np.int64]) -> float:
    """Return the share of the five nearest neighbours of an example that have its class.

    Args:
        values: activations, float64 [N, F].
        labels: classes, int64 [N].
    """
    squares = (values**2).sum(1)
    distances = squares[:, None] + squares - 2 * values @ values.T
    np.fill_diagonal(distances, np.inf)
    count = min(_NEIGHBOURS, len(values) - 1)
    nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
    return float((labels[nearest] == labels[:, None]).mean())
