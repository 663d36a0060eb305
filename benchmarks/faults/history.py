"""What a training leaves behind for its outcome to be measured by."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean

from torch import Tensor, nn

from benchmarks.faults.data import Data

__all__ = ["Epoch", "History", "Trained"]


@dataclass(frozen=True)
class Epoch:
    """One epoch, as Keras's history has it.

    Attributes:
        step: optimizer steps done at its end.
        loss: mean over its batches, each in training mode before its update.
        score: accuracy of these, or R² for regression.
        val_loss, val_score: of the evaluation at or last before its end; None: there was none.
    """

    step: int
    loss: float
    score: float
    val_loss: float | None
    val_score: float | None


@dataclass
class History:
    """What happened along the steps.

    Attributes:
        losses: of each step.
        epochs: each of them, the last one as far as it went.
        val: (step, loss, score) of each evaluation.
        updates: median over the weights of norm(update) / norm(weight), at some steps.
    """

    losses: list[float] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    val: list[tuple[int, float, float]] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)
    _batch: list[tuple[float, float]] = field(default_factory=list)

    def batch(self, loss: float, score: float) -> None:
        """Take in a step."""
        self.losses.append(loss)
        self._batch.append((loss, score))

    def end_epoch(self, step: int) -> None:
        """End an epoch, unless nothing happened in it."""
        if not self._batch:
            return
        loss, score = (fmean(values) for values in zip(*self._batch, strict=True))
        _, val_loss, val_score = self.val[-1] if self.val else (0, None, None)
        self.epochs.append(Epoch(step, loss, score, val_loss, val_score))
        self._batch.clear()


@dataclass
class Trained:
    """A training that is over.

    Attributes:
        model: as it is at the end.
        first: its parameters and buffers before the first step, by name.
        data: what it was trained on.
        loss: one of `LOSSES`.
        loss_fn: that loss.
        history: what happened.
        eval_in_train_mode: its loop evaluates in training mode.
        chunk: rows in a batch of an evaluation.
        double_softmax: its loop puts a softmax on the outputs.
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
