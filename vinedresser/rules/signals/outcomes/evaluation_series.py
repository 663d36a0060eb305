"""The evaluations of one loss, and whether they diverge from the training loss."""

from __future__ import annotations

import math
import re
import statistics
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from vinedresser.rules.signals.losses.loss_progress import spread
from vinedresser.rules.signals.outcomes.metric_scale import direction

__all__ = ["Evaluation", "EvaluationSeries", "Parting"]

_SURE = 2.0
# Minimum fall of the training loss, as a share.
_STILL_FALLING = 0.05
# Minimum fall of the training loss from its start, as a share.
_LEARNED = 0.1
# Before learning, training and evaluation data of the same task have the same loss except for
# chance: a batch of 64 rows rarely deviates by half, even with heavy-tailed squares.
_OTHER_TASK = 2.0
# Minimum improvement of a metric that outweighs the loss, as a share, and the fall that does not
# count.
_BETTER = 0.02
# Cross-entropy in nats, and share of the first training loss, below which a loss is that of a good
# model: the right classes have probabilities above 0.78 (geometric mean).
_GOOD, _LEFT = 0.25, 0.5
# Two standard errors of an accuracy of 0.95 over the 64 rows that are captured of an evaluation.
_OF_BATCH = 0.05
_MOST_EVALUATIONS = 512
# Median of |a - b| for two independent normal numbers of standard deviation 1: 0.6745 * sqrt(2).
_MEDIAN_CHANGE = 0.954
# Minimum reference of a rise of a cross-entropy.
_NAT_SHARE = 0.5
# Losses in the unit of the targets or its square, which have no such minimum.
_ERRORS = re.compile(r"(?i)mse|l1loss|huber|mae|squared|absolute")


class Evaluation(NamedTuple):
    """One evaluation.

    Attributes:
        step: optimizer steps before it.
        loss: loss on the evaluation data.
        train: mean training loss since the previous evaluation; NaN without training in between.
        metrics: metrics on the evaluation data by name.
        accuracy: that of captured predictions; NaN if it is not known.
    """

    step: int
    loss: float
    train: float
    metrics: Mapping[str, float]
    accuracy: float = math.nan

    @property
    def scores(self) -> dict[str, float]:
        """The metrics of which more is better, and the accuracy, by name."""
        known = {name: value for name, value in self.metrics.items() if direction(name) > 0}
        return known if math.isnan(self.accuracy) else known | {"": self.accuracy}


class Parting(NamedTuple):
    """A rise of the evaluation loss while the training loss falls.

    Attributes:
        best: the evaluation with the lowest loss.
        recent: the last evaluations.
        rise: from the best to the recent mean, as a share of `EvaluationSeries.scale`.
        noise: standard deviation of an evaluation.
        margin: excess of the rise over the required one, in standard errors.
        train_then: mean training loss at the best.
        train_now: mean training loss at the recent.
        certain: only the probabilities became worse: no score fell, and the recent loss is that of
            a good model.
    """

    best: Evaluation
    recent: list[Evaluation]
    rise: float
    noise: float
    margin: float
    train_then: float
    train_now: float
    certain: bool


class EvaluationSeries:
    """The evaluations of one loss; a pure fold, in bounded memory."""

    def __init__(self, name: str) -> None:
        self._unit = 0.0 if _ERRORS.search(name) else _NAT_SHARE
        self._first = math.nan
        # Whether the first evaluation came before any training.
        self._untrained = False
        self._since_best: deque[Evaluation] = deque(maxlen=_MOST_EVALUATIONS)
        # Changes between evaluations after the first, whose change is not noise.
        self._changes: deque[float] = deque(maxlen=_MOST_EVALUATIONS)
        self._last = math.nan

    def add(self, evaluation: Evaluation) -> None:
        """Process the next evaluation."""
        if math.isnan(self._first):
            self._first = evaluation.loss
            self._untrained = math.isnan(evaluation.train)
        else:
            self._changes.append(abs(evaluation.loss - self._last))
        self._last = evaluation.loss
        if not self._since_best or evaluation.loss < self._since_best[0].loss:
            self._since_best.clear()
        elif len(self._since_best) == _MOST_EVALUATIONS:
            # The best stays first.
            del self._since_best[1]
        self._since_best.append(evaluation)

    def scale(self) -> float:
        """Return the reference of a rise: the best loss, with a minimum for cross-entropies.

        Changes of a cross-entropy far below its unit (nat) are irrelevant. The minimum is 1/2, or
        the first evaluation if that is less.
        """
        return max(abs(self._since_best[0].loss), min(self._unit, abs(self._first)))

    def parting(self, ratio: float, patience: int, start: float) -> Parting | None:
        """Return how evaluation and training loss diverge; None unless they certainly do.

        Args:
            ratio: minimum rise of the evaluation loss, as a share of `scale`.
            patience: number of recent evaluations.
            start: first training loss; if little was learned, the fault is a different one.
        """
        best, *later = self._since_best
        if len(later) < patience or self._is_another_task(start):
            return None
        recent, asked = later[-patience:], ratio * self.scale()
        if min(one.loss for one in recent) - best.loss <= asked:
            return None
        # The best is the lowest of many, partly by chance: it is as uncertain as a single one.
        doubt = math.sqrt(1 + 1 / patience)
        rise = math.fsum(one.loss for one in recent) / patience - best.loss
        noise = self._noise()
        margin = (rise - asked) / (noise * doubt) if noise else math.inf
        then = later[0].train if math.isnan(best.train) else best.train
        now = math.fsum(one.train for one in recent) / patience
        train_noise = spread([then, *(one.train for one in later)])
        falls = then - now > max(_STILL_FALLING * abs(then), _SURE * train_noise * doubt)
        if margin <= _SURE or not falls or _better(best, recent):
            return None
        if now > start - _LEARNED * abs(start):
            return None
        good = self._unit > 0 and best.loss + rise < min(_GOOD, _LEFT * abs(start))
        certain = good and _holds(best, recent)
        return Parting(best, recent, rise / self.scale(), noise, margin, then, now, certain)

    def _is_another_task(self, start: float) -> bool:
        """Return whether the evaluation data were much harder before any training.

        Then the training data are only a part of the task (a curriculum, easy rows first), and
        progress on them does not apply to the whole.
        """
        return self._untrained and self._first > _OTHER_TASK * abs(start)

    def _noise(self) -> float:
        """Return the standard deviation of an evaluation, the larger of two estimates.

        They use the changes since the best evaluation, and the median of all changes.
        """
        since = spread([one.loss for one in self._since_best])
        return max(since, statistics.median(self._changes) / _MEDIAN_CHANGE)


def _better(best: Evaluation, recent: list[Evaluation]) -> bool:
    """Return whether a metric is better in the recent evaluations than at the best loss."""
    for name, then in best.metrics.items():
        values = [one.metrics[name] for one in recent if name in one.metrics]
        if len(values) < 2 or not direction(name):
            continue
        gain = direction(name) * (math.fsum(values) / len(values) - then)
        if gain > max(_BETTER * abs(then), spread(values)):
            return True
    return False


def _holds(best: Evaluation, recent: list[Evaluation]) -> bool:
    """Return whether scores are known, and none is worse in the recent evaluations than at best."""
    for name, then in best.scores.items():
        values = [one.scores[name] for one in recent if name in one.scores]
        mean = math.fsum(values) / max(len(values), 1)
        least = _BETTER * abs(then) if name else _OF_BATCH
        if len(values) < 2 or then - mean > max(least, spread(values)):
            return False
    return bool(best.scores)
