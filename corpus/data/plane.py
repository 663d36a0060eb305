"""Points in the plane, and how well a distribution of them is met.

Shape legend: N, M points.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from corpus.draw import Draw

__all__ = ["discrepancy", "gaussian_surprise", "points"]


def points(draw: Draw, count: int) -> Tensor:
    """Return shuffled, standardised points float32 [N, 2] of a drawn shape."""
    shape, noise = draw.choice(["moons", "ring", "blobs", "cross"]), draw.between(0.03, 0.1)
    source = draw.numpy
    side = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
    angle = source.uniform(0, 2 * math.pi, count)
    if shape == "moons":
        half = angle / 2
        x = np.stack([np.cos(half), np.sin(half)], 1) * side[:, None]
        x += (1 - side[:, None]) / 2 * np.array([1.0, 0.5])
    elif shape == "ring":
        x = np.stack([np.cos(angle), np.sin(angle)], 1)
    elif shape == "blobs":
        number = draw.choice([4, 5, 6])
        corner = 2 * math.pi * source.integers(0, number, count) / number
        x = np.stack([np.cos(corner), np.sin(corner)], 1)
        noise *= 1.5
    else:
        along = source.uniform(-1, 1, count)
        x = np.stack([along, along * side], 1)
    x = x + noise * source.normal(size=x.shape)
    x = (x - x.mean(0)) / x.std(0)
    return torch.tensor(source.permutation(x), dtype=torch.float32)


def gaussian_surprise(x: Tensor, x_val: Tensor) -> float:
    """Return the mean negative log-density, in nats, of points [M, 2] for a Gaussian fit to x."""
    spread = torch.cov(x.T.double())
    fitted = torch.distributions.MultivariateNormal(x.double().mean(0), spread)
    return -float(fitted.log_prob(x_val.double()).mean())


def discrepancy(x: Tensor, y: Tensor) -> float:
    """Return the squared maximum mean discrepancy of samples [N, 2] and [M, 2], without bias.

    The kernel is Gaussian, with a bandwidth of 0.5, after Gretton et al., "A kernel two-sample
    test", JMLR 2012.
    """
    x, y = x.double(), y.double()

    def kernel(distance: Tensor) -> float:
        return float((-distance.square() / (2 * 0.5**2)).exp().mean())

    within = kernel(torch.pdist(x)) + kernel(torch.pdist(y))
    return within - 2 * kernel(torch.cdist(x, y))
