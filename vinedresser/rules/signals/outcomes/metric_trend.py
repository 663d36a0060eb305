"""Whether a metric improves, by its name and values."""

from __future__ import annotations

import math
import re

from vinedresser.rules.signals.bounded import bounded

__all__ = ["MetricTrend", "direction"]

# fmt: off
_HIGHER = frozenset((
    "acc", "accuracy", "auc", "auroc", "bleu", "correct", "dice", "f1", "iou", "map", "mcc",
    "miou", "ndcg", "precision", "psnr", "r2", "recall", "return", "reward", "score", "ssim",
    "top1", "top5",
))
_LOWER = frozenset((
    "cer", "err", "error", "fid", "loss", "mae", "mape", "mse", "nll", "perplexity", "ppl", "rmse",
    "wer",
))
# fmt: on
_MOST_VALUES = 128
_SURE = 2.0
# Learning only the class frequencies improves an accuracy slightly.
_LEAST = 0.1


def direction(name: str) -> int:
    """Return 1 if higher is better, -1 if lower is better, 0 if the name does not tell.

    Args:
        name: name of a metric, such as "metrics/val_accuracy".
    """
    words = set(re.split(r"[^a-z0-9]+", name.rpartition("/")[2].lower()))
    return bool(words & _HIGHER) - bool(words & _LOWER)


class MetricTrend:
    """The values of one metric, in bounded memory: neighbours are averaged if there are many.

    Args:
        name: name of the metric, which determines the better direction.
    """

    def __init__(self, name: str) -> None:
        self.direction = direction(name)
        self.last = math.nan
        self._means: list[float] = []
        self._pending: list[float] = []
        self._per_mean = 1

    def add(self, value: float) -> None:
        """Process the next value; ignore it if it is not finite."""
        if not math.isfinite(value):
            return
        self.last = value
        self._pending.append(bounded(value))
        if len(self._pending) < self._per_mean:
            return
        self._means.append(math.fsum(self._pending) / self._per_mean)
        self._pending = []
        if len(self._means) == _MOST_VALUES:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(a + b) / 2 for a, b in pairs]
            self._per_mean *= 2

    def improving(self) -> bool:
        """Return whether the metric improves steadily, by a tenth of its first values in total.

        Steadiness is the test of Mann and Kendall, which counts the pairs of values in the right
        order: by chance a metric may jump, but not rise steadily.
        """
        values = [self.direction * value for value in self._means]
        count = len(values)
        if not self.direction or count < 4:
            return False
        ordered = sum(
            (later > value) - (later < value)
            for place, value in enumerate(values)
            for later in values[place + 1 :]
        )
        deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
        eighth = max(2, count // 8)
        first = math.fsum(values[:eighth]) / eighth
        gain = math.fsum(values[-eighth:]) / eighth - first
        return ordered - 1 > _SURE * deviation and gain > _LEAST * abs(first)
