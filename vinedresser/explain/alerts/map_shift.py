"""Whether a model looks elsewhere: the distance between mean saliency maps, and what is usual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MapShift", "map_shift", "mean_map"]

_Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class MapShift:
    """Distance between the mean maps of two sets of examples.

    Attributes:
        distance: share of the saliency that would have to move, from 0 (the same map) to 1.
        usual: the distance that 95 % of random divisions of the same examples stay below.
        p_value: share of random divisions with at least this distance, the given one included;
            valid for one comparison that was planned before.
    """

    distance: float
    usual: float
    p_value: float

    @property
    def text(self) -> str:
        """The result in words."""
        share = f"{self.distance:.0%} of the saliency is elsewhere"
        if self.p_value <= 0.05:
            return f"{share}; chance alone stays below {self.usual:.0%} (p = {self.p_value:.2g})"
        return f"{share}, which is usual: chance alone reaches {self.usual:.0%}"


def mean_map(maps: _Floats) -> NDArray[np.float64]:
    """Return the mean of maps of which each has the same weight.

    Args:
        maps: saliency, at least one, [N, H, W] or [N, features]; signs are ignored.

    Returns:
        float64 [H, W] or [features], with the sum 1; even where all maps are zero.
    """
    mean: NDArray[np.float64] = _normalised(maps).mean(0)
    return mean


def map_shift(now: _Floats, before: _Floats, *, rounds: int = 999, seed: int = 0) -> MapShift:
    """Compare the mean maps of two sets of examples by a permutation test.

    The distance is the total variation between the mean maps, each map having the sum 1.

    Args:
        now: maps of the requests, at least two, [N, H, W] or [N, features].
        before: maps of the baseline, at least two, [M, H, W] or [M, features].
        rounds: number of random divisions of all maps into N and M.
        seed: of the divisions.
    """
    pooled = _normalised(np.concatenate([now, before])).reshape(len(now) + len(before), -1)
    random = np.random.default_rng(seed)
    weights = np.concatenate(
        [np.full(len(now), 1 / len(now)), np.full(len(before), -1 / len(before))]
    )
    distance = float(_distances(weights[None], pooled)[0])
    # In parts, so that memory does not grow with the number of pixels times rounds.
    others = np.concatenate(
        [
            _distances(np.stack([random.permutation(weights) for _ in range(part)]), pooled)
            for part in _parts(rounds)
        ]
    )
    # The given division is one of those that were equally likely (Phipson and Smyth, 2010). A
    # division with the same maps may differ in rounding.
    as_far = int((others >= distance * (1 - 1e-9)).sum())
    return MapShift(distance, float(np.quantile(others, 0.95)), (1 + as_far) / (1 + rounds))


def _distances(weights: NDArray[np.float64], maps: NDArray[np.float64]) -> NDArray[np.float64]:
    distances: NDArray[np.float64] = np.abs(weights @ maps).sum(1) / 2
    return distances


def _parts(total: int, size: int = 64) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]


def _normalised(maps: _Floats) -> NDArray[np.float64]:
    """Return maps without signs whose sums are 1; float64."""
    flat = np.abs(maps.astype(np.float64)).reshape(len(maps), -1)
    sums = flat.sum(1, keepdims=True)
    even = np.full_like(flat, 1 / flat.shape[1])
    return np.where(sums > 0, flat / np.where(sums > 0, sums, 1), even).reshape(maps.shape)
