"""Scores that are right, but too close to each other for the loss to fall."""

from __future__ import annotations

from vinedresser.rules.advice import Advice
from vinedresser.rules.signals.outcomes.score_spread import ScoreSpread

__all__ = ["flat_scores"]

# Gain, less two standard errors, of predictions that are clearly better than guessing.
_RIGHT, _SURE = 0.2, 2.0
# Difference of scores that changes the share of a class by a tenth at most.
_FLAT = 0.1


def flat_scores(spread: ScoreSpread) -> Advice | None:
    """Return the diagnosis of a cross-entropy that stands although the right scores are highest.

    Scores that an unsuitable learning rate or the data keep close to each other are not in the
    right order. These are, so something scales them: a temperature that is far too high, or a mean
    in place of a sum. None if this is not so for every loss between classes.

    Args:
        spread: scores of the training.
    """
    losses = spread.fit.of("train")
    if not losses or losses.keys() != spread.greatest.keys():
        return None
    gains = [series.gain() for series in losses.values()]
    right = all(gain and gain.value - _SURE * gain.error > _RIGHT for gain in gains)
    widest = max(spread.greatest.values())
    if not right or widest > _FLAT:
        return None
    score = min(gain.score for gain in gains if gain is not None)
    return Advice(
        cause=f"the highest score is right in {score:.0%} of the rows, but the scores of a row "
        f"never differ by more than {widest:.2g}: softmax makes almost equal shares of them, as of "
        "a temperature that is far too high",
        remedy="divide the scores by a smaller temperature (0.05 to 0.2 for cosines), or multiply "
        "them by a scale that is learned",
    )
