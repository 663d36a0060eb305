"""Labels 0 and 1 of losses that take -1 and 1."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from vinedresser.rules.losses.mismatch import Mismatch

__all__ = ["LabelSigns"]

# Minimum number of labels, and of each value.
_LABELS, _OF_EACH = 64, 8
# What torch's losses of labels -1 and 1 make of a label 0, by the names of classes and functions.
_NOTHING = "is left out, so that nothing separates what does not belong together"
_CONSTANT = "adds a constant, so that nothing is learned from it"
_BOTH = "is taken for both -1 and 1"
_OF_ZERO = {
    "CosineEmbeddingLoss": _NOTHING,
    "cosine_embedding_loss": _NOTHING,
    "HingeEmbeddingLoss": _BOTH,
    "hinge_embedding_loss": _BOTH,
    "MarginRankingLoss": _CONSTANT,
    "margin_ranking_loss": _CONSTANT,
    "SoftMarginLoss": _CONSTANT,
    "soft_margin_loss": _CONSTANT,
}


class LabelSigns:
    """Recognises labels 0 and 1 where PyTorch's losses take -1 and 1, in bounded memory.

    Their formulas have a case for 1 and one for -1; a label of 0 has no gradient, or that of both.
    Labels of -1 beside 0 and 1 show that zeros are left out on purpose, such as ties in a ranking.

    Source: the documentation of these losses (torch.nn).
    """

    def __init__(self) -> None:
        # Numbers of zeros and ones of each loss; None once there were other labels.
        self._counts: dict[str, tuple[int, int] | None] = {}

    def look(self, loss: str, kind: str, labels: NDArray[Any]) -> Mismatch | None:
        """Return the mismatch once enough labels were seen.

        Args:
            loss: name of the loss.
            kind: class or function of a framework that is the loss; "" if it is none or unknown.
            labels: labels of a batch, [rows] or [rows, 1].
        """
        before = self._counts.get(loss, (0, 0))
        if kind not in _OF_ZERO or before is None:
            return None
        zeros, ones = int((labels == 0).sum()), int((labels == 1).sum())
        if zeros + ones < labels.size:
            self._counts[loss] = None
            return None
        zeros, ones = self._counts[loss] = (before[0] + zeros, before[1] + ones)
        if zeros + ones < _LABELS or min(zeros, ones) < _OF_EACH:
            return None
        return Mismatch(
            "labels_without_sign",
            sure=True,
            statistic="min",
            value=0.0,
            threshold=-1.0,
            seen=f"{kind} receives labels 0 and 1 ({zeros} of {zeros + ones} are 0)",
            cause=f"the loss takes labels -1 and 1: a label of 0 {_OF_ZERO[kind]}",
            remedy="use 2 * labels - 1",
            of="labels",
        )
