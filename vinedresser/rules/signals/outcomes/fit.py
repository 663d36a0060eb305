"""How well predictions fit the labels, compared with guessing.

The gain is the share of the error of guessing that the model removes: 1 - error/chance. It is 1 for
perfect predictions, 0 for guessing the most frequent class (or the mean), and negative for worse
predictions. For squared errors it is the coefficient of determination R2.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import BatchSignal, Compared
from vinedresser.rules.signals.losses.loss_formulas import class_indices, one_hot_rows
from vinedresser.rules.signals.losses.loss_identity import LossIdentities, LossIdentity
from vinedresser.store.reading.step import Step

__all__ = ["Fit", "FitSeries", "Gain", "Task", "error_of_share"]


Task = Literal["classes", "binary", "labels", "values"]

# Samples of the current gain, their minimum number of rows, and the samples that are kept.
_WINDOW = 8
_ROWS = 256
_KEPT = 512
# A class with a smaller share is rare: then the order of the scores matters, not the accuracy.
_RARE = 0.25
# Standard errors of a bound.
_SURE = 2.0


class Gain(NamedTuple):
    """The improvement over guessing.

    Attributes:
        value: 1 - error/chance; at most 1.
        error: standard error of the value.
        score: accuracy, or R2 for values.
        chance: accuracy of guessing the most frequent class; 0 for values.
        step: train step of the last sample.
    """

    value: float
    error: float
    score: float
    chance: float
    rows: int
    step: int

    @property
    def least(self) -> float:
        """The value less two standard errors."""
        return self.value - _SURE * self.error

    @property
    def most(self) -> float:
        """The value plus two standard errors."""
        return self.value + _SURE * self.error


class _Sample(NamedTuple):
    """The sums of one batch.

    Attributes:
        step: train step.
        rows: number of predictions.
        wrong: number of wrong predictions, or sum of squared errors.
        scores, truths: predictions and labels of a binary task, [rows].
        sums: for values, of each output the number, the sum and the sum of squares of its labels,
            and the same sums of its predictions, [5, outputs].
    """

    step: int
    rows: int
    wrong: float
    scores: NDArray[np.float64] | None
    truths: NDArray[np.bool_] | None
    sums: NDArray[np.float64] | None


class FitSeries:
    """How the predictions of one loss fit its labels, in one mode.

    Attributes:
        task: "classes" (one of several), "binary", "labels" (several yes or no), "values"; None
            before the first batch, or if labels and predictions do not match.
        counts: frequency of each class among the labels, float64 [classes]; for "labels", frequency
            of yes for each.
        total: number of labels.
    """

    def __init__(self, identity: LossIdentity) -> None:
        self.identity = identity
        self.task: Task | None = None
        self.counts: NDArray[np.float64] = np.zeros(0)
        self.total = 0
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)

    def add(self, step: int, compared: Compared) -> None:
        """Process a batch; ignore it if labels and predictions do not match or are not finite."""
        labels, predictions = compared.labels, compared.predictions
        task = _task(self.identity, labels, predictions)
        if task is None or not predictions.size or not np.isfinite(predictions).all():
            return
        self.task = self.task or task
        if task != self.task:
            return
        if task == "values":
            self._add_values(step, np.asarray(labels, np.float64), predictions)
        elif task == "classes":
            self._add_classes(step, labels, predictions)
        else:
            self._add_binary(step, labels, predictions)

    @property
    def partial(self) -> bool:
        """Whether the loss is more than the function that compared labels and predictions."""
        return self.identity.reduction == "part"

    @property
    def window(self) -> int:
        """Number of samples of a gain: at least 8, and enough for 256 rows, but at most 64."""
        rows = self._samples[-1].rows if self._samples else _ROWS
        return min(max(_WINDOW, -(-_ROWS // max(rows, 1))), 8 * _WINDOW)

    def gain(self, before: int = 0, *, last: int | None = None) -> Gain | None:
        """Return the gain over a window of samples; None without any, or if nothing can be gained.

        Args:
            before: number of last samples to skip.
            last: number of samples; None: `window`.
        """
        samples = list(self._samples)[: len(self._samples) - before][-(last or self.window) :]
        if not samples:
            return None
        chance = self._chance(samples)
        rows = sum(sample.rows for sample in samples)
        wrong = math.fsum(sample.wrong for sample in samples)
        if chance <= 0 or not rows:
            return None
        gain = 1 - wrong / chance
        score = gain if self.task == "values" else 1 - wrong / rows
        guessed = 0.0 if self.task == "values" else 1 - chance / rows
        if self.task == "binary" and chance / rows < _RARE:
            gain = max(gain, _order(samples))
        return Gain(gain, self._error(samples, chance), score, guessed, rows, samples[-1].step)

    def correlation(self) -> float | None:
        """Return the correlation of predictions and labels over a window of samples, for values.

        Over all outputs, each around its mean. None for other tasks, or if either is constant.
        """
        samples = list(self._samples)[-self.window :]
        sums = _by_width(samples).values()
        labels = math.fsum(_squared_deviations(*one[:3]) for one in sums)
        predicted = math.fsum(_squared_deviations(one[0], *one[3:]) for one in sums)
        if not labels > 0 or not predicted > 0:
            return None
        # As (t - p)^2 = t^2 + p^2 - 2 t p, errors tell the products.
        squares = math.fsum(float(one[2].sum() + one[4].sum()) for one in sums)
        products = (squares - math.fsum(sample.wrong for sample in samples)) / 2
        means = math.fsum(float((one[1] * one[3] / np.maximum(one[0], 1)).sum()) for one in sums)
        return (products - means) / math.sqrt(labels * predicted)

    def samples(self) -> int:
        """Return the number of samples that are kept."""
        return len(self._samples)

    def _error(self, samples: list[_Sample], chance: float) -> float:
        """Return the standard error of a gain, from the spread of samples around a trend."""
        rows = sum(sample.rows for sample in samples)
        rates = [sample.wrong / sample.rows for sample in samples]
        noise = 0.0
        if len(rates) > 2:
            noise = math.sqrt(float(np.mean(np.diff(rates) ** 2)) / 2 / len(rates))
        if self.task != "values":
            rate = math.fsum(sample.wrong for sample in samples) / rows
            noise = max(noise, error_of_share(rate, rows))
        return noise * rows / chance

    def _chance(self, samples: list[_Sample]) -> float:
        """Return the error of guessing over these samples."""
        rows = sum(sample.rows for sample in samples)
        if self.task == "values":
            return math.fsum(_squared_deviations(*one[:3]) for one in _by_width(samples).values())
        if not self.total:
            return 0.0
        shares = self.counts / self.total
        if self.task == "labels":
            return rows * float(np.minimum(shares, 1 - shares).mean())
        return rows * float(1 - shares.max())

    def _add_values(self, step: int, labels: NDArray[Any], predictions: NDArray[Any]) -> None:
        truth = labels.reshape(len(labels), -1)
        predicted = predictions.reshape(len(labels), -1)
        both = [part for one in (truth, predicted) for part in (one.sum(0), (one**2).sum(0))]
        sums = np.stack([np.full(truth.shape[1], len(truth)), *both])
        self.total += len(truth)
        wrong = float(((truth - predicted) ** 2).sum())
        self._samples.append(_Sample(step, len(truth), wrong, None, None, sums))

    def _add_classes(self, step: int, labels: NDArray[Any], predictions: NDArray[Any]) -> None:
        classes = predictions.shape[-1]
        truth = class_indices(labels, classes)
        assert truth is not None, "the task was derived from it"
        predicted = predictions.argmax(-1).ravel()
        truth = truth.ravel()
        if not self._count(np.bincount(truth, minlength=classes), len(truth)):
            return
        wrong = float((truth != predicted).sum())
        self._samples.append(_Sample(step, len(truth), wrong, None, None, None))

    def _add_binary(self, step: int, labels: NDArray[Any], predictions: NDArray[Any]) -> None:
        truth = np.asarray(labels, np.float64).reshape(predictions.shape) > 0.5
        limit = 0.0 if self.identity.takes == "logits" else 0.5
        predicted = predictions > limit
        if self.task == "labels":
            axes = tuple(range(truth.ndim - 1))
            counted = self._count(truth.sum(axes), truth.size // truth.shape[-1])
        else:
            yes = truth.sum()
            counted = self._count(np.array([truth.size - yes, yes]), truth.size)
        if not counted:
            return
        wrong = float((truth != predicted).sum())
        sample = _Sample(step, truth.size, wrong, predictions.ravel(), truth.ravel(), None)
        self._samples.append(sample)

    def _count(self, labels: NDArray[Any], total: int) -> bool:
        """Count labels; return False if their classes are others than those of the first batch.

        In contrastive training each row is a class, and the last batch has fewer.

        Args:
            labels: frequency of each class, [classes].
        """
        if not self.counts.size:
            self.counts = np.zeros(len(labels))
        if len(labels) != len(self.counts):
            return False
        self.counts += labels
        self.total += total
        return True


class Fit(BatchSignal):
    """The fit of predictions and labels of each loss whose function is known."""

    def __init__(self) -> None:
        super().__init__()
        self.identities = LossIdentities()
        self._series: dict[tuple[str, str], FitSeries] = {}
        self._early: list[tuple[str, int, Compared]] = []

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        for compared in self.batches.compared:
            self._early.append((step.mode, step.step, compared))
        # Identifying a loss by its values takes some steps.
        waiting = []
        for mode, number, compared in self._early:
            identity = self.identities.of(compared.loss) or self.identities.part(compared.loss)
            if identity is None:
                waiting.append((mode, number, compared))
                continue
            key = (compared.loss, mode)
            self._series.setdefault(key, FitSeries(identity)).add(number, compared)
        self._early = waiting[-_WINDOW:]

    def of(self, mode: str) -> dict[str, FitSeries]:
        """Return the series of a mode by name of the loss, if the task is known."""
        return self._known(mode, partial=False)

    def gains(self, mode: str) -> list[Gain]:
        """Return the gains of the series of `of`, as far as they are known."""
        return [gain for series in self.of(mode).values() if (gain := series.gain())]

    def parts(self, mode: str) -> dict[str, FitSeries]:
        """Return the series of losses that are more than the function that compares their labels.

        Another term may be what is trained for, so they tell less than those of `of`.
        """
        return self._known(mode, partial=True)

    def _known(self, mode: str, *, partial: bool) -> dict[str, FitSeries]:
        return {
            loss: series
            for (loss, one), series in self._series.items()
            if one == mode and series.task is not None and series.partial is partial
        }


def error_of_share(share: float, rows: int) -> float:
    """Return the standard error of a share of some rows; that of 1 row if it is 0 or 1."""
    return math.sqrt(max(share * (1 - share), 1 / rows) / rows)


def _task(
    identity: LossIdentity, labels: NDArray[Any], predictions: NDArray[np.float64]
) -> Task | None:
    """Return the task of labels and predictions; None if they do not match."""
    classes = predictions.shape[-1] if predictions.ndim > 1 else 1
    one_hot = one_hot_rows(labels) and labels.shape == predictions.shape
    if identity.loss == "cross_entropy" or one_hot:
        numbers = class_indices(labels, classes) if classes > 1 else None
        fits = numbers is not None and numbers.shape == predictions.shape[:-1]
        return "classes" if fits else None
    if np.size(labels) != predictions.size:
        return None
    values = np.asarray(labels, np.float64)
    if ((values == 0) | (values == 1)).all() and identity.loss != "huber":
        return "binary" if predictions.size == len(predictions) else "labels"
    if identity.loss == "binary_cross_entropy":
        return None
    return "values"


def _by_width(samples: list[_Sample]) -> dict[int, NDArray[np.float64]]:
    """Return the sums of samples by number of outputs: images of several sizes have different ones.

    Returns:
        Sums as in `_Sample`, float64 [5, outputs].
    """
    sums: dict[int, NDArray[np.float64]] = {}
    for sample in samples:
        if sample.sums is not None:
            wide = sample.sums.shape[1]
            sums[wide] = sums.get(wide, 0.0) + sample.sums
    return sums


def _squared_deviations(
    count: NDArray[np.float64], total: NDArray[np.float64], squares: NDArray[np.float64]
) -> float:
    """Return the sum of squared deviations from the mean of each output.

    Args:
        count: number of values, [outputs].
        total: their sum, [outputs].
        squares: sum of their squares, [outputs].
    """
    return float(np.maximum(squares - total**2 / np.maximum(count, 1), 0).sum())


def _order(samples: list[_Sample]) -> float:
    """Return 2 AUC - 1 over some samples (Mann and Whitney)."""
    pairs = [(sample.scores, sample.truths) for sample in samples if sample.scores is not None]
    scores = np.concatenate([scores for scores, _ in pairs])
    truths = np.concatenate([truths for _, truths in pairs if truths is not None])
    yes = int(truths.sum())
    no = len(truths) - yes
    if not yes or not no:
        return 0.0
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    # Equal scores share the mean of their ranks.
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.bincount(inverse, ranks) / counts)[inverse]
    return 2 * (float(ranks[truths].sum()) - yes * (yes + 1) / 2) / (yes * no) - 1
