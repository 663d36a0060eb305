"""The meaning of a metric by its name: which direction is better, and what guessing reaches."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "MetricScale",
    "direction",
    "is_best",
    "is_error",
    "is_return",
    "metric_scale",
    "tells_learning",
]

# fmt: off
_HIGHER = frozenset((
    "acc", "accuracy", "ari", "auc", "auprc", "auroc", "bleu", "chrf", "correct", "dice", "f1",
    "iou", "jaccard", "kappa", "macrof1", "map", "mcc", "meteor", "miou", "mrr", "ndcg", "nmi",
    "nse", "pearson", "pearsonr", "precision", "psnr", "r2", "recall", "return", "returns",
    "reward", "rewards", "rouge", "score", "spearman", "spearmanr", "ssim", "success", "top1",
    "top5", "uar",
))
_LOWER = frozenset((
    "bpc", "bpd", "brier", "cer", "eer", "err", "error", "errorrate", "fid", "kid", "logloss",
    "loss", "lpips", "mae", "mape", "merror", "mse", "nll", "perplexity", "ppl", "rmse", "rmsle",
    "smape", "wer",
))
# Shares of wrong rows, words or characters, which stay the same while no prediction changes.
_COUNTED = frozenset(("cer", "eer", "err", "error", "errorrate", "merror", "wer"))
# They improve as soon as the frequencies of the classes are learned.
_OF_FREQUENCIES = frozenset(("brier", "logloss"))
# Words that do not change the meaning of a metric. With any other ("probe", "adversarial",
# "class"), it may measure something else than the task of the loss.
_NEUTRAL = frozenset((
    "average", "avg", "batch", "best", "current", "dev", "ema", "epoch", "eval", "evaluation",
    "final", "held", "heldout", "holdout", "last", "macro", "mean", "metric", "metrics", "micro",
    "out", "overall", "percent", "score", "test", "total", "train", "training", "val", "valid",
    "validation",
))
# fmt: on
# Returns of a policy, unlike those of curiosity, do not become worse while it learns.
_RETURNS = frozenset({"return", "returns", "reward", "rewards", "success"})
_EPISODES = frozenset({"cumulative", "ep", "episode", "episodes", "episodic", "rate", "rollout"})
_ACCURACY = frozenset({"acc", "accuracy", "top1"})
_OF_CLASSES = frozenset({"categorical", "classification", "multiclass", "sparse"})
_AUC = frozenset({"auc", "auroc"})
# By kind: words of which one must be in the name, and further words that may be.
_KINDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "accuracy": (_ACCURACY, _ACCURACY | _OF_CLASSES),
    "balanced accuracy": (frozenset({"bal", "balanced", "uar"}), _ACCURACY),
    "top-5 accuracy": (frozenset({"top5"}), frozenset({"acc", "accuracy"}) | _OF_CLASSES),
    "error rate": (frozenset({"errorrate", "merror"}), _OF_CLASSES),
    "perplexity": (frozenset({"perplexity", "ppl"}), frozenset()),
    "R2": (frozenset({"nse", "r2"}), frozenset()),
    "AUC": (_AUC, frozenset({"roc"})),
    "MCC": (frozenset({"mcc"}), frozenset()),
    "kappa": (frozenset({"kappa"}), frozenset({"cohen", "cohens", "quadratic", "weighted"})),
    "correlation": (
        frozenset({"pearson", "pearsonr", "spearman", "spearmanr"}),
        frozenset({"coefficient", "corr", "correlation", "r", "rank"}),
    ),
    "F1": (frozenset({"f1"}), frozenset()),
    "macro F1": (frozenset({"macrof1"}), frozenset()),
    "Dice": (frozenset({"dice"}), frozenset()),
    "IoU": (frozenset({"iou", "jaccard"}), frozenset()),
    "mean IoU": (frozenset({"miou"}), frozenset()),
    "error rate of words": (frozenset({"wer"}), frozenset()),
    "error rate of characters": (frozenset({"cer"}), frozenset()),
}
# Values of guessing, where they do not depend on the number of classes.
_GUESSING = {
    **dict.fromkeys(("R2", "MCC", "kappa", "correlation", "F1", "Dice", "IoU"), 0.0),
    "AUC": 0.5,
    "error rate of words": 1.0,
    "error rate of characters": 1.0,
}
# Metrics that are 0 if nothing is found: chance finds something.
_OVERLAPS = ("F1", "Dice", "IoU")
# Metrics that know a wrong order or wrong classes from none.
_TWO_SIDED = ("accuracy", "balanced accuracy", "AUC", "MCC", "kappa", "correlation", "error rate")
# Metrics of which less is better; the best value is 0.
_ERRORS = ("error rate", "error rate of words", "error rate of characters")
# Names of several words, in the order of replacement.
_JOINED = {
    "r squared": "r2",
    "rsquared": "r2",
    "r 2": "r2",
    "nash sutcliffe( efficiency)?": "nse",
    "top 1": "top1",
    "top 5": "top5",
    "f 1": "f1",
    "macro f1( score)?|f1( score)? macro": "macrof1",
    "io u": "iou",
    "(m|mean) iou": "miou",
    "(macro|unweighted average) recall|recall macro": "uar",
    "(err|error|misclassification) rate|(classification|top1) (err|error)": "errorrate",
    "word errorrate": "wer",
    "(char|character) errorrate": "cer",
}

_TOP = 5
# Above this, a share is a percentage.
_SHARE = 1.5
# Gain that guessing does not reach by chance, and value of an overlap that is as good as 0.
_LEAST, _NOTHING = 0.03, 0.005


class MetricScale(NamedTuple):
    """The scale of a metric.

    Attributes:
        kind: its usual name, such as "accuracy".
        guessing: value of a model that knows nothing about its inputs.
        least: minimum gain of a model that knows something.
        share: whether it is a share, which may be reported as a percentage.
        best: value of a model without errors.
        two_sided: whether far worse values than those of guessing show that the opposite of the
            task was learned.
    """

    kind: str
    guessing: float
    least: float
    share: bool
    best: float
    two_sided: bool

    def gains(self, values: Sequence[float]) -> list[float]:
        """Return how far values are on the way from guessing (0) to perfect (1).

        Args:
            values: finite values of the metric. Shares are percentages if any exceeds 1.5.
        """
        if self.kind == "perplexity":
            # In nats, as the cross-entropy.
            return [1 - math.log(max(value, 1.0)) / math.log(self.guessing) for value in values]
        percent = self.share and max(map(abs, values), default=0.0) > _SHARE
        unit = 100.0 if percent else 1.0
        way = self.best - self.guessing
        return [(value / unit - self.guessing) / way for value in values]


def direction(name: str) -> int:
    """Return 1 if higher is better, -1 if lower is better, 0 if the name does not tell.

    Args:
        name: name of a metric, such as "metrics/val_accuracy" or "valAccuracy".
    """
    words = set(_words(name.rpartition("/")[2]))
    return bool(words & _HIGHER) - bool(words & _LOWER)


def tells_learning(name: str) -> bool:
    """Return whether an improvement of a metric shows more than knowledge of class frequencies."""
    return not set(_words(name.rpartition("/")[2])) & _OF_FREQUENCIES


def is_error(name: str) -> bool:
    """Return whether a metric changes whenever an output does, as a mean error or a loss."""
    words = frozenset(_words(name.removeprefix("metrics/"))) - _NEUTRAL
    return bool(words) and words <= _LOWER - _COUNTED


def is_best(name: str) -> bool:
    """Return whether a metric is the best value so far, which stands while others become worse."""
    return "best" in _words(name)


def is_return(name: str) -> bool:
    """Return whether a metric is the return of a policy, by its name."""
    words = frozenset(_words(name.removeprefix("metrics/"))) - _NEUTRAL
    return _is_named(words, _RETURNS, _EPISODES)


def metric_scale(name: str, classes: int) -> MetricScale | None:
    """Return the scale of a metric; None unless its name and the number of classes tell.

    Args:
        name: name of a metric; with unknown words, its meaning is not clear.
        classes: number of classes of the task; 0 if unknown.
    """
    words = frozenset(_words(name.removeprefix("metrics/"))) - _NEUTRAL
    kinds = [kind for kind, (needed, more) in _KINDS.items() if _is_named(words, needed, more)]
    if not kinds:
        return None
    (kind,) = kinds
    guessing = _guessing(kind, classes)
    if guessing is None:
        return None
    least = _NOTHING if kind in _OVERLAPS else _LEAST
    share = kind not in ("perplexity", "R2")
    best = 0.0 if kind in _ERRORS else 1.0
    return MetricScale(kind, guessing, least, share, best, kind in _TWO_SIDED)


def _guessing(kind: str, classes: int) -> float | None:
    """Return the value of guessing; None if it depends on something that is not known.

    A constant prediction has at most 1 / classes of an F1 or IoU that is a mean over the classes.
    """
    if kind in _GUESSING:
        return _GUESSING[kind]
    if classes < 2 or (kind == "top-5 accuracy" and classes <= _TOP):
        return None
    if kind == "perplexity":
        return float(classes)
    if kind == "error rate":
        return 1 - 1 / classes
    return (_TOP if kind == "top-5 accuracy" else 1) / classes


def _is_named(words: frozenset[str], needed: frozenset[str], more: frozenset[str]) -> bool:
    return bool(words & needed) and words <= needed | more


def _words(name: str) -> list[str]:
    """Return the words of a name in lower case: "val" and "acc" of "valAcc" or "val-acc"."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    text = " ".join(re.split(r"[^a-z0-9]+", apart))
    for several, one in _JOINED.items():
        text = re.sub(rf"\b(?:{several})\b", one, text)
    return text.split()
