"""Attention weights of the layers of a model, and tokens.

Shape legend: N examples, H heads, L queries, S keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError

__all__ = ["Attention", "LayerAttention"]

# Largest error of the sum of a query's weights: that of bfloat16, over many keys.
_TOLERANCE = 0.03


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Attention weights of one call of a layer.

    Attributes:
        name: path of the layer, with the number of the call from the second call on, such as
            "encoder.layer#1".
        weights: float64 [N, H, L, S]; each query's weights sum to 1. NaN for a masked query, one
            that has no visible keys.
    """

    name: str
    weights: NDArray[np.float64]

    @classmethod
    def checked(cls, name: str, values: NDArray[Any]) -> LayerAttention:
        """Return the weights of a layer; queries with only zeros or NaN are masked.

        Args:
            name: see the attribute.
            values: [N, H, L, S], [H, L, S] or [L, S], any real dtype.

        Raises:
            ConfigError: the shape is another one, or the weights are not probabilities.
        """
        if not 2 <= values.ndim <= 4 or 0 in values.shape:
            raise ConfigError(
                f"attention {name}: must be [examples, heads, queries, keys], not "
                f"{list(values.shape)}"
            )
        weights = values.astype(np.float64).reshape((1,) * (4 - values.ndim) + values.shape)
        masked = (np.isnan(weights) | (weights == 0)).all(-1)
        sums = weights.sum(-1)[~masked]
        if not (weights[~masked] >= 0).all() or not (np.abs(sums - 1) <= _TOLERANCE).all():
            raise ConfigError(
                f"attention {name}: the weights of a query must be at least 0 and sum to 1, as "
                "they do after the softmax and before dropout"
            )
        weights[masked] = np.nan
        return cls(name, weights)

    @property
    def masked(self) -> NDArray[np.bool_]:
        """Masked queries, bool [N, H, L]."""
        return np.asarray(np.isnan(self.weights[..., 0]))


@dataclass(frozen=True, eq=False)
class Attention:
    """Attention weights of the layers of a model, for the same examples.

    Attributes:
        layers: calls of layers, in the order of the model.
        origin: where the weights come from as text, such as "step 20".
        ids: token ids of the examples, integers [N, S]; None if they were not captured.
    """

    layers: Sequence[LayerAttention]
    origin: str = ""
    ids: NDArray[Any] | None = field(default=None)

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Attention:
        """Return attention given as arrays.

        Args:
            arrays: weights by name of a layer, each [N, H, L, S], [H, L, S] or [L, S]: arrays, or
                tensors that `numpy.asarray` accepts.

        Raises:
            ConfigError: there are none, or they are not probabilities.
        """
        if not arrays:
            raise ConfigError("attention: no layers are given")
        return cls(
            [LayerAttention.checked(name, np.asarray(value)) for name, value in arrays.items()]
        )

    @property
    def examples(self) -> int:
        """Number of examples: the smallest of all layers."""
        return min(len(layer.weights) for layer in self.layers)
