"""Values of expressions: tensors where they are, and results in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "ByLabel",
    "Confusion",
    "Examples",
    "Histogram",
    "Host",
    "Image",
    "Pending",
    "Points",
    "Result",
    "Share",
    "Tensors",
    "Top",
    "number_of",
]

# An array of the training's framework, on its device.
Array = Any


@dataclass(frozen=True)
class Tensors:
    """Tensors by name, each computed when it is read and freed after it has been reduced.

    Attributes:
        read: returns the array of a name, or a number.
        known: returns a statistic of a name that is known without reading it, or None; the
            statistics are named as in `vinedresser.store.reductions`.
        lent: the arrays are the training's own, so that keeping them costs no memory.
    """

    names: tuple[str, ...]
    read: Callable[[str], Array]
    known: Callable[[str, str], float | None] = field(default=lambda _, __: None)
    lent: bool = False


@dataclass(frozen=True)
class Share:
    """A share of samples, such as an accuracy: windows weight it by the number of samples."""

    part: float
    whole: float

    def __float__(self) -> float:
        return self.part / self.whole if self.whole else float("nan")


@dataclass(frozen=True)
class ByLabel:
    """Results by label."""

    entries: dict[str, float | Share]


@dataclass(frozen=True)
class Histogram:
    """Counts of elements in bins; `fixed` if the edges do not depend on the data."""

    edges: NDArray[np.float64]
    counts: NDArray[np.float64]
    fixed: bool


@dataclass(frozen=True)
class Confusion:
    """Counts of pairs of classes; float64 [classes, classes], rows are labels."""

    counts: NDArray[np.float64]


@dataclass(frozen=True)
class Top:
    """The largest elements, as pairs of a value and its place, largest first."""

    count: int
    entries: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Image:
    """A picture; uint8 [height, width, channels], with 1 or 3 channels."""

    pixels: NDArray[np.uint8]


@dataclass(frozen=True)
class Examples:
    """Samples with their classes.

    Attributes:
        labels: class numbers.
        predictions: class numbers.
        images: the samples; [] if they are no images.
        rows: first numbers of the samples; [] if they are images.
    """

    labels: list[int]
    predictions: list[int]
    images: list[Image]
    rows: list[list[float]]


@dataclass(frozen=True)
class Points:
    """Pairs of numbers; float64 [points] each."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]


Result = (
    float
    | str
    | Share
    | ByLabel
    | Histogram
    | dict[str, Histogram]
    | Confusion
    | Top
    | Image
    | Examples
    | Points
)
# Samples and vectors are float64 arrays.
Host = Result | NDArray[np.float64]


@dataclass(frozen=True)
class Pending:
    """A result that waits for arrays from the device.

    Attributes:
        finish: returns the result, given the arrays as float64 in host memory.
    """

    finish: Callable[[Sequence[NDArray[np.float64]]], Any]
    arrays: list[Array] = field(default_factory=list)


def number_of(value: Any) -> Any:
    """Return a result as numbers for arithmetic: a share becomes a number."""
    return float(value) if isinstance(value, Share) else value
