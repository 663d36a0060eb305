"""The data captured in one step or evaluation until it is delivered to the writer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from numpy.typing import NDArray

from vinedresser.capture.config.capture_config import NOTHING_DUE, Due
from vinedresser.capture.recording.batch_source import BatchSource
from vinedresser.data.records import Origins
from vinedresser.store.reductions import Statistics
from vinedresser.store.step_record import HostTensor, Mode, StepRecord

__all__ = ["LiveValue", "PlainStep", "Recording"]


class LiveValue(Protocol):
    """A tensor as it was when it was captured, for standing queries."""

    @property
    def described(self) -> str:
        """Type and shape, such as ``float32 [16, 8]``."""

    @property
    def changed(self) -> bool:
        """Whether it has been overwritten since: it cannot be read; the next one is copied."""

    def read(self) -> Any:
        """Return the tensor, in its framework, or a number.

        Raises:
            QueryError: the queries read too much in one step.
        """


class PlainStep:
    """A cheap substitute for the `Recording` of a step in which only numbers are due.

    Most steps are such steps. A full recording replaces it as soon as anything but a number is
    captured, except for gradients that only standing queries read. One object serves all steps.

    Attributes:
        begun: part of the step was seen, so a recording would have been opened.
        explicit: see `Recording.explicit`.
        several: the step has several forwards.
        scalars: means of the numbers so far, by name.
        live: gradients that standing queries read at the end of the step, by name.
    """

    __slots__ = ("_weights", "begun", "due", "explicit", "live", "scalars", "several")

    def __init__(self) -> None:
        self.due: Due = NOTHING_DUE
        self.begun = False
        self.explicit = False
        self.several = False
        self.scalars: dict[str, float] = {}
        self.live: dict[str, LiveValue] = {}
        # The number of values in each mean of more than one value.
        self._weights: dict[str, float] = {}

    @property
    def keeps_gradients(self) -> bool:
        """Whether standing queries read gradients."""
        return self.due.asked is not None and self.due.asked.gradients

    def add(self, name: str, value: float) -> None:
        """Add a number to the mean of its name; see `Recording.add_scalar`."""
        self.begun = True
        if name in self.scalars:
            weight = self._weights.get(name, 1.0)
            value = (self.scalars[name] * weight + value) / (weight + 1.0)
            self._weights[name] = weight + 1.0
        self.scalars[name] = value

    def means(self) -> dict[str, tuple[float, float]]:
        """Return each mean with its number of values, by name."""
        return {name: (mean, self._weights.get(name, 1.0)) for name, mean in self.scalars.items()}

    def begin(self, due: Due) -> None:
        """Begin the next step, given what is due in it."""
        self.due = due
        self.begun = self.explicit = self.several = False
        # The previous step's dict belongs to its receiver.
        self.scalars = {}
        if self.live:
            self.live = {}
        if self._weights:
            self._weights = {}


class Recording:
    """A step record under construction.

    Attributes:
        mode: "train", "eval" or "predict".
        step: number of optimizer steps before it.
        due: collections that are due, and what they ask.
        explicit: the user saved a value (`Hook.save`, `Hook.metric`).
        forwards: number of calls of the whole model so far.
        batch: number of samples in the latest call, the weight of scalars in an evaluation.
        closure: the optimizer itself runs the model (LBFGS), perhaps several times.
        again: it runs the model again, after the first time in its step.
        tensors: full tensors by name; the first of each name is kept.
        reductions: by tensor name, scalar statistics by reduction; the first are kept.
        deferred: by tensor name, statistics to be completed later (`Statistics.late`).
        kept: for copiers, the copies made in this recording.
        progress: for adapters, the progress of each model.
        awaited: names of values that are not yet on the host.
        arriving: callbacks that complete the record on the writer's thread.
        arriving_bytes: host memory that these callbacks hold, in bytes.
        live: tensors that standing queries read at the end of the step, by name; see `Due.asked`.
        hidden: names of numbers that only standing queries read.
    """

    def __init__(self, mode: Mode, step: int, due: Due) -> None:
        self.mode: Mode = mode
        self.step = step
        self.due = due
        self.explicit = False
        self.forwards = 0
        self.batch = 1
        self.closure = self.again = False
        self.tensors: dict[str, HostTensor] = {}
        self.reductions: dict[str, dict[str, float]] = {}
        self.deferred: dict[str, Statistics] = {}
        self.kept: dict[Any, Any] = {}
        self.progress: dict[Any, Any] = {}
        self.awaited: set[str] = set()
        self.arriving: list[Callable[[StepRecord], None]] = []
        self.arriving_bytes = 0
        self.live: dict[str, LiveValue] = {}
        self.hidden: frozenset[str] = frozenset()
        # Origins of the batch of the first forward, and the numbers of rows that it was seen with.
        self._origins: Origins | None = None
        self._row_counts: set[int] = set()
        self._batch_noted = False
        self._means: dict[str, tuple[float, float]] = {}

    @property
    def first_batch(self) -> bool:
        """Whether tensors are still captured: a record holds those of its first batch."""
        return self.forwards <= 1

    @property
    def empty(self) -> bool:
        """Whether nothing was captured."""
        if self.hidden:
            return self.names() <= self.hidden
        return not (self._means or self.awaited or self.tensors or self.reductions or self.deferred)

    def names(self) -> set[str]:
        """Return the names of everything captured."""
        return {*self._means, *self.awaited, *self.tensors, *self.reductions, *self.deferred}

    def note_batch(self, origins: Origins | None) -> None:
        """Note where the batch of a forward comes from; that of the first one is kept.

        Args:
            origins: origins of its records; None if they are not known.
        """
        if not self._batch_noted:
            self._batch_noted = True
            self._origins = origins

    def saw_rows(self, rows: int) -> None:
        """Note the number of rows of the first forward's batch, as inputs or labels have them."""
        self._row_counts.add(rows)

    def weight(self, batch: int | None = None) -> float:
        """Return the weight of a scalar in the mean of its name.

        Micro-batches of a train step have equal weights, batches of an evaluation their sizes.

        Args:
            batch: number of samples behind the scalar; None: that of the latest forward.
        """
        if self.mode == "train":
            return 1.0
        return float(max(self.batch if batch is None else batch, 1))

    def take_over(self, plain: PlainStep) -> None:
        """Take over the contents of the step's `PlainStep`."""
        self._means = plain.means()
        self.explicit = plain.explicit
        self.live, plain.live = plain.live, {}

    def add_scalar(self, name: str, value: float, weight: float = 1.0) -> None:
        """Add a scalar to the weighted mean of its name."""
        if name in self._means:
            mean, weights = self._means[name]
            value = (mean * weights + value * weight) / (weights + weight)
            weight += weights
        self._means[name] = (value, weight)

    def add_first_label(self, name: str, labels: NDArray[Any]) -> None:
        """Add the share of the labels of an evaluation's batch that equal its first label.

        Args:
            name: full name of the share.
            labels: [rows, ...], any dtype, at least one row.
        """
        rows = labels.reshape(len(labels), -1)
        first = self.kept.setdefault(name, rows[:1].copy())
        # The labels of another output may have another length.
        alike = rows.shape[1] == first.shape[1]
        share = float((rows == first).all(1).mean()) if alike else 0.0
        self.add_scalar(name, share, self.weight(len(rows)))

    def narrow(self, due: Due) -> None:
        """Replace `due` and drop everything it does not ask for."""
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
        """Return whether the recording has statistics under a tensor name."""
        return name in self.reductions or name in self.deferred

    def add_statistics(self, name: str, statistics: Statistics) -> None:
        """Add the statistics of a tensor; the same object may be added under several names."""
        if statistics.late:
            self.deferred[name] = statistics
        else:
            self.reductions[name] = statistics.scalars

    def scalars(self) -> dict[str, float]:
        """Return the means of the scalars on the host, by name."""
        hidden = self.hidden
        return {name: mean for name, (mean, _) in self._means.items() if name not in hidden}

    def hide_what_is_only_asked(self) -> None:
        """Keep numbers out of the record that only standing queries read."""
        if self.due.asked is not None:
            stored = self.due.stored
            self.hidden = frozenset(name for name in self._means if not stored.ask(name))
            self.hidden |= {name for name in self.awaited if not stored.ask(name)}

    def to_record(self) -> StepRecord:
        """Return the record, with the current time."""
        if self._origins is not None:
            source = BatchSource(self._origins, self._row_counts == {len(self._origins)})
            self.tensors.update(source.tensors(self.tensors))
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
