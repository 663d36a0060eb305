"""Whether a metric gets better, told from its name and its values."""

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
# The frequencies of the classes alone lift an accuracy a little.
_LEAST = 0.1


def direction(name: str) -> int:
    """Return 1 where higher is better, -1 where lower is, 0 where the name does not tell.

    Args:
        name: such as "metrics/val_accuracy".
    """
    words = set(re.split(r"[^a-z0-9]+", name.rpartition("/")[2].lower()))
    return bool(words & _HIGHER) - bool(words & _LOWER)


class MetricTrend:
    """The values of one metric, in bounded memory: neighbours are averaged when there are many.

    Args:
        name: of the metric; its words say which way is better.
    """

    def __init__(self, name: str) -> None:
        self.direction = direction(name)
        self.last = math.nan
        self._means: list[float] = []
        self._pending: list[float] = []
        self._per_mean = 1

    def add(self, value: float) -> None:
        """Take in the next value; one that is not finite is left out."""
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
        """Say whether it has got steadily better, by a tenth of its first values in the end.

        Steadily: by the test of Mann and Kendall, which counts the pairs of values that stand in
        the right order. Chance alone lets a metric jump, but not climb.
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
