"""What comes together in one step or evaluation until it is handed to the writer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.recording.plain_step import PlainStep
from vinedresser.store.reductions import Statistics
from vinedresser.store.step_record import HostTensor, Mode, StepRecord

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
        deferred: by tensor's name, statistics that are more than such figures (`Statistics.late`).
        kept: for frameworks, what they have copied of which tensor in this step.
        progress: for adapters, how far the model of each is.
        awaited: names of what is still on its way, from a device or from what is to be read.
        arriving: completes the record, on the writer's thread, with what is on its way.
        arriving_bytes: of host memory that these hold until then.
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
        self.deferred: dict[str, Statistics] = {}
        self.kept: dict[Any, Any] = {}
        self.progress: dict[Any, Any] = {}
        self.awaited: set[str] = set()
        self.arriving: list[Callable[[StepRecord], None]] = []
        self.arriving_bytes = 0
        self._means: dict[str, tuple[float, float]] = {}

    @property
    def first_batch(self) -> bool:
        """Whether tensors are still taken: those of a record are those of its first batch."""
        return self.forwards <= 1

    @property
    def empty(self) -> bool:
        """Whether nothing was captured."""
        return not (self._means or self.awaited or self.tensors or self.reductions or self.deferred)

    def names(self) -> set[str]:
        """Return the names of all that was captured."""
        return {*self._means, *self.awaited, *self.tensors, *self.reductions, *self.deferred}

    def weight(self, batch: int | None = None) -> float:
        """Return how much a scalar counts in the mean of its name.

        Args:
            batch: samples behind the scalar, where known; else those of the latest forward.

        Micro-batches of a train step count alike, batches of an evaluation by their size.
        """
        if self.mode == "train":
            return 1.0
        return float(max(self.batch if batch is None else batch, 1))

    def take_over(self, plain: PlainStep) -> None:
        """Take what was captured of its step before it was made."""
        self._means = plain.means()
        self.explicit = plain.explicit

    def add_scalar(self, name: str, value: float, weight: float = 1.0) -> None:
        """Take a scalar into the weighted mean of all scalars of its name."""
        if name in self._means:
            mean, weights = self._means[name]
            value = (mean * weights + value * weight) / (weights + weight)
            weight += weights
        self._means[name] = (value, weight)

    def narrow(self, due: Due) -> None:
        """Have only this be due, and drop what was taken of more.

        Args:
            due: the collections, and what they ask.
        """
        self.due = due
        for name in self.names():
            ask = due.ask(name)
            if not ask:
                self._means.pop(name, None)
            if not ask.tensor:
                self.tensors.pop(name, None)
            if not ask.reductions:
                self.reductions.pop(name, None)
                self.deferred.pop(name, None)

    def has_statistics(self, name: str) -> bool:
        """Say whether statistics of a tensor of this name were taken."""
        return name in self.reductions or name in self.deferred

    def add_statistics(self, name: str, statistics: Statistics) -> None:
        """Take the statistics of a tensor; those of one tensor may come under several names."""
        if statistics.late:
            self.deferred[name] = statistics
        else:
            self.reductions[name] = statistics.scalars

    def scalars(self) -> dict[str, float]:
        """Return the means of the scalars that are here."""
        return {name: mean for name, (mean, _) in self._means.items()}

    def to_record(self) -> StepRecord:
        """Return what was captured, with the present time."""
        return StepRecord(
            self.mode,
            self.step,
            time.time(),
            self.tensors,
            self.scalars(),
            self.reductions,
            self.deferred,
            self.arriving,
            self.arriving_bytes,
        )
