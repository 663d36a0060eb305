"""Weights that still have the random values that torch gave them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

# Elements of a weight that are looked at: enough to be sure, and quick for any model.
_MOST = 1 << 14

_FEWEST = 64
"""Minimum number of values that tell their distribution."""
# Standard errors by which a statistic of drawn values may differ from its expectation.
_SURE = 4.5
# The largest of n values from 0 to 1 is below 1 - 12/n with a probability of exp(-12).
_GAP = 12.0
# Rounding of float32, relatively.
_ROUNDING = 1e-6


def fresh_weights(modules: Iterable[nn.Module]) -> set[int]:
    """Return the ids of the weights that still have random values of torch's initialisation.

    These are, of layers and recurrent layers (`reset_parameters`), uniform with a bound of
    1/sqrt(inputs) or 1/sqrt(hidden units); of attention and transformers, Xavier's uniform values;
    of embeddings, standard normal. Weights of fewer than 64 elements, vectors and weights with
    other dtypes than floats tell nothing.

    Args:
        modules: modules; of each, its own weights are looked at.
    """
    return {
        id(weight)
        for module in modules
        for weight in module._parameters.values()
        if weight is not None and _is_plain(weight) and _is_fresh(module, weight)
    }


def _is_plain(weight: nn.Parameter) -> bool:
    # Subclasses may be sharded or quantised.
    known = type(weight) is nn.Parameter and not is_lazy(weight)
    return known and weight.ndim >= 2 and weight.is_floating_point() and not weight.is_meta


def _is_fresh(module: nn.Module, weight: nn.Parameter) -> bool:
    values = _some(module, weight).float().cpu().numpy()
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return _from_normal(values)
    return any(_from_uniform(values, bound) for bound in _bounds(module, weight))


def _some(module: nn.Module, weight: nn.Parameter) -> Tensor:
    """Return elements of a weight, without the row of zeros of a padding token."""
    found = weight.detach()
    rows = max(_MOST // max(math.prod(weight.shape[1:]), 1), 1)
    padding = getattr(module, "padding_idx", None)
    if isinstance(padding, int) and 0 <= padding < min(rows, len(found)):
        return torch.cat([found[:padding], found[padding + 1 : rows]])
    return found[:rows]


def _bounds(module: nn.Module, weight: nn.Parameter) -> Iterator[float]:
    """Yield bounds of uniform values that torch may have drawn."""
    hidden = getattr(module, "hidden_size", 0)
    inputs = math.prod(weight.shape[1:])
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and hidden:
        yield 1 / math.sqrt(hidden)
    elif inputs:
        # He's initialisation with a gain of 1/sqrt(3), and Xavier's.
        yield 1 / math.sqrt(inputs)
    if inputs:
        yield math.sqrt(6 / (inputs + len(weight) * math.prod(weight.shape[2:])))


def _from_uniform(values: NDArray[Any], bound: float) -> bool:
    """Return whether values seem to be drawn uniformly from -bound to bound.

    Their mean and variance must be those of the distribution within 4.5 standard errors, and the
    largest must be next to the bound, but not beyond it. A few steps of training break that.

    Args:
        values: any shape, at least `_FEWEST` finite floats.
        bound: positive.
    """
    if len(flat := _flat(values)) < _FEWEST:
        return False
    most = float(np.abs(flat).max()) / bound
    if not 1 - _GAP / len(flat) <= most <= 1 + _ROUNDING:
        return False
    # The fourth moment of a uniform distribution is 9/5 of its squared variance.
    return _as_expected(flat, bound**2 / 3, 1.8)


def _from_normal(values: NDArray[Any]) -> bool:
    """Return whether values seem to be drawn from the standard normal distribution.

    Their mean, variance and fourth moment must be those of the distribution within 4.5 standard
    errors.

    Args:
        values: any shape, at least `_FEWEST` finite floats.
    """
    if len(flat := _flat(values)) < _FEWEST:
        return False
    # The standard deviation of x⁴ is the root of 105 - 9.
    error = math.sqrt(96 / len(flat))
    return _as_expected(flat, 1.0, 3.0) and abs(float((flat**4).mean()) - 3) <= _SURE * error


def _flat(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the values as one row; none if any is not finite."""
    flat = values.astype(np.float64).ravel()
    return flat if np.isfinite(flat).all() else flat[:0]


def _as_expected(values: NDArray[np.float64], variance: float, fourth: float) -> bool:
    """Return whether mean and mean square are those of a symmetric distribution around 0.

    Args:
        values: [values].
        fourth: its fourth moment as a multiple of the squared variance.
    """
    mean = abs(float(values.mean())) <= _SURE * math.sqrt(variance / len(values))
    error = variance * math.sqrt((fourth - 1) / len(values))
    return mean and abs(float((values**2).mean()) - variance) <= _SURE * error
