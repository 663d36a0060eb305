"""What comes together in one step or evaluation until it is handed to the writer."""

from __future__ import annotations

import time
from typing import Any

from vinedresser.capture.config import Due
from vinedresser.capture.store.step_record import HostTensor, Mode, StepRecord

__all__ = ["Recording"]


class Recording:
    """A step record in the making.

    Attributes:
        mode: "train", "eval" or "predict".
        step: optimizer steps done before it.
        due: the collections that are due, and what they ask.
        explicit: a user's own call (`Hook.save`, `Hook.metric`) put something in.
        forwards: calls of the whole model so far.
        batch: samples in the latest of them, the weight of scalars in an evaluation.
        closure: the optimizer itself runs the model (LBFGS), perhaps several times.
        tensors: full tensors by name; the first of a name stays.
        reductions: by tensor's name, statistics by reduction's name; the first of a name stay.
        kept: for frameworks, what they have copied of which tensor in this step.
    """

    def __init__(self, mode: Mode, step: int, due: Due) -> None:
        self.mode: Mode = mode
        self.step = step
        self.due = due
        self.explicit = False
        self.forwards = 0
        self.batch = 1
        self.closure = False
        self.tensors: dict[str, HostTensor] = {}
        self.reductions: dict[str, dict[str, float]] = {}
        self.kept: dict[Any, Any] = {}
        self._means: dict[str, tuple[float, float]] = {}

    @property
    def first_batch(self) -> bool:
        """Whether tensors are still taken: those of a record are those of its first batch."""
        return self.forwards <= 1

    @property
    def empty(self) -> bool:
        """Whether nothing was captured."""
        return not (self._means or self.tensors or self.reductions)

    def names(self) -> set[str]:
        """Return the names of all that was captured."""
        return {*self._means, *self.tensors, *self.reductions}

    def weight(self, batch: int | None = None) -> float:
        """Return how much a scalar counts in the mean of its name.

        Args:
            batch: samples behind the scalar, where known; else those of the latest forward.

        Micro-batches of a train step count alike, batches of an evaluation by their size.
        """
        if self.mode == "train":
            return 1.0
        return float(max(self.batch if batch is None else batch, 1))

    def add_scalar(self, name: str, value: float, weight: float = 1.0) -> None:
        """Take a scalar into the weighted mean of all scalars of its name."""
        if name in self._means:
            mean, weights = self._means[name]
            value = (mean * weights + value * weight) / (weights + weight)
            weight += weights
        self._means[name] = (value, weight)

    def to_record(self) -> StepRecord:
        """Return what was captured, with the present time."""
        scalars = {name: mean for name, (mean, _) in self._means.items()}
        return StepRecord(self.mode, self.step, time.time(), self.tensors, scalars, self.reductions)
