"""The verdict on a training, and the numbers behind it in words."""

from __future__ import annotations

from typing import Literal, NamedTuple

from vinedresser.rules.signals.outcomes.fit import FitSeries, Gain

__all__ = ["Verdict", "gain_in_words"]


class Verdict(NamedTuple):
    """The verdict on a training.

    Attributes:
        kind: "good", "poor" (it does not learn, or less than it should), or "open".
        reason: explanation with numbers, such as "accuracy 0.11 where guessing gives 0.10".
        plateau: the verdict is poor because the loss stands still, but it may leave its plateau:
            the first half of the run is not over, as far as is known.
    """

    kind: Literal["good", "poor", "open"]
    reason: str = ""
    plateau: bool = False


def gain_in_words(series: FitSeries, gain: Gain, simple: float | None) -> str:
    """Return text such as "accuracy 0.11 where guessing gives 0.10".

    Args:
        series: predictions and labels of a loss.
        simple: gain of simple models on the same rows; None if it is unknown or tells nothing.
    """
    if series.task == "values":
        other = "the mean of the labels has 0" if simple is None else None
        return f"R2 {gain.score:.3g} where {other or f'simple models reach {simple:.3g}'}"
    words = f"accuracy {gain.score:.3g} where guessing gives {gain.chance:.3g}"
    if simple is None:
        return words
    return f"{words} and simple models reach {gain.chance + (1 - gain.chance) * simple:.3g}"
