"""Records of a training, from which its outcome is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean

from torch import Tensor, nn

from benchmarks.faults.data import Data

__all__ = ["Epoch", "History", "Trained"]


@dataclass(frozen=True)
class Epoch:
    """One epoch, as in Keras's history.

    Attributes:
        step: optimizer steps at its end.
        loss: mean loss over its batches, each in training mode before its update.
        score: accuracy on these batches, or R² for regression.
        val_loss, val_score: loss and score of the last evaluation; None if there was none.
    """

    step: int
    loss: float
    score: float
    val_loss: float | None
    val_score: float | None


@dataclass
class History:
    """Values recorded during a training.

    Attributes:
        losses: loss of each step.
        epochs: completed epochs, and the last one even if incomplete.
        val: (step, loss, score) of each evaluation.
        updates: median over the weights of norm(update) / norm(weight), at some steps.
    """

    losses: list[float] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    val: list[tuple[int, float, float]] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)
    _batch: list[tuple[float, float]] = field(default_factory=list)

    def batch(self, loss: float, score: float) -> None:
        """Add a step."""
        self.losses.append(loss)
        self._batch.append((loss, score))

    def end_epoch(self, step: int) -> None:
        """End an epoch, unless it is empty."""
        if not self._batch:
            return
        loss, score = (fmean(values) for values in zip(*self._batch, strict=True))
        _, val_loss, val_score = self.val[-1] if self.val else (0, None, None)
        self.epochs.append(Epoch(step, loss, score, val_loss, val_score))
        self._batch.clear()


@dataclass
class Trained:
    """A completed training.

    Attributes:
        model: final model.
        first: parameters and buffers before the first step, by name.
        data: data of the training.
        loss: name of the loss, from `LOSSES`.
        loss_fn: loss module.
        history: recorded values.
        eval_in_train_mode: whether the loop evaluates in training mode.
        chunk: rows per batch of an evaluation.
        double_softmax: whether the loop applies a softmax to the outputs.
    """

    model: nn.Module
    first: dict[str, Tensor]
    data: Data
    loss: str
    loss_fn: nn.Module
    history: History
    eval_in_train_mode: bool
    chunk: int
    double_softmax: bool
