"""Predictions in groups: the cells of the confusion matrix, or the least confident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cell", "cells"]


@dataclass(frozen=True)
class Cell:
    """Requests with the same prediction and, if it is known, the same true class.

    Attributes:
        true: the true class; None if it is unknown.
        places: the requests, least confident first.
    """

    predicted: str
    true: str | None
    places: tuple[int, ...]

    @property
    def title(self) -> str:
        """What the requests have in common."""
        if self.true is None:
            return f"least confident as {self.predicted}"
        return f"{self.true} taken for {self.predicted}"


def cells(
    predicted: Sequence[str],
    confidence: NDArray[np.floating],
    true: Sequence[str | None],
    *,
    most: int = 8,
) -> list[Cell]:
    """Group predictions that are wrong or, where the truth is unknown, least confident.

    Args:
        predicted: predicted class of each request.
        confidence: of the prediction [N]; NaN counts as least.
        true: true class of each request; None where it is unknown.
        most: number of groups, and of requests in each.

    Returns:
        Groups of wrong predictions, largest first; then, of requests without a true class, those
        of each predicted class whose least confident one is least.
    """
    order = np.argsort(np.nan_to_num(confidence, nan=-np.inf), kind="stable").tolist()
    wrong: dict[tuple[str, str], list[int]] = {}
    unsure: dict[str, list[int]] = {}
    for place in order:
        truth, guess = true[place], predicted[place]
        if truth is None:
            unsure.setdefault(guess, []).append(place)
        elif truth != guess:
            wrong.setdefault((truth, guess), []).append(place)
    largest = sorted(wrong.items(), key=lambda item: -len(item[1]))
    found = [Cell(guess, truth, tuple(places[:most])) for (truth, guess), places in largest]
    found += [Cell(guess, None, tuple(places[:most])) for guess, places in unsure.items()]
    return found[:most]
