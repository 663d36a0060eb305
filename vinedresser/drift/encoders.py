"""How a column becomes streams of numbers, fixed by one half of the baseline.

The streams are then compared with the other half, which had no part in how they were made: only so
are its rows and those of a window alike as long as nothing drifts. Numbers are their own stream,
and are compared with the whole baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.columns import Kind

__all__ = ["CategoryEncoder", "EmbeddingEncoder", "Encoder", "NumberEncoder", "make_encoder"]

_COMPONENTS = 8
# Rows from which the axes of an embedding are computed, at most.
_ROWS = 1000


@dataclass(frozen=True)
class NumberEncoder:
    """A column of numbers is one stream."""

    streams: tuple[str, ...] = ("",)

    def encode(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the streams of a column, float64 [rows, streams].

        Args:
            values: see `read_column`.
        """
        return np.asarray(values, np.float64)[:, None]


@dataclass(frozen=True)
class CategoryEncoder:
    """A column of categories is one stream: rare categories are low, and new ones the lowest.

    Args:
        codes: place of each known category.
    """

    codes: dict[str, float]
    streams: tuple[str, ...] = ("",)

    def encode(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the streams of a column; see `NumberEncoder.encode`."""
        codes = [np.nan if value is None else self.codes.get(value, 0.0) for value in values]
        return np.array(codes, np.float64)[:, None]


@dataclass(frozen=True)
class EmbeddingEncoder:
    """An embedding has a stream for each leading component, and one for the distance to the centre.

    Args:
        centre: float64 [dimensions].
        axes: float64 [dimensions, components], scaled to a variance of 1.
    """

    centre: NDArray[np.float64]
    axes: NDArray[np.float64]

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams within the column."""
        shown = min(self.axes.shape[1], _COMPONENTS)
        return (*(f"component {number + 1}" for number in range(shown)), "distance from the centre")

    def encode(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the streams of a column; see `NumberEncoder.encode`."""
        centred = values - self.centre
        with np.errstate(invalid="ignore", over="ignore"):
            leading = centred @ self.axes[:, :_COMPONENTS]
            distance = np.linalg.norm(centred, axis=1)
        return np.column_stack([leading, distance])


Encoder = NumberEncoder | CategoryEncoder | EmbeddingEncoder


def make_encoder(kind: Kind, values: NDArray[Any]) -> Encoder:
    """Return the encoder of a column, from the rows of the baseline that are kept for it.

    Args:
        kind: what the column contains.
        values: see `read_column`.
    """
    if kind == "number":
        return NumberEncoder()
    if kind == "category":
        names, counts = np.unique(
            [value for value in values if value is not None], return_counts=True
        )
        # In the order of their counts; names decide between equal ones.
        order = np.lexsort((names, counts))
        return CategoryEncoder({str(names[at]): place + 1.0 for place, at in enumerate(order)})
    finite = values[np.isfinite(values).all(1)][:_ROWS]
    if len(finite) == 0:
        finite = np.zeros((1, values.shape[1]))
    centre = finite.mean(0)
    _, sizes, axes = np.linalg.svd(finite - centre, full_matrices=False)
    scale = sizes / np.sqrt(len(finite))
    kept = scale > 1e-9 * max(scale.max(), 1e-300)
    return EmbeddingEncoder(centre, (axes[kept] / scale[kept, None]).T)
