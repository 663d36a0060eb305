"""What a training offers to queries at one of its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vinedresser.errors import UnknownTensor, did_you_mean
from vinedresser.queries.numeric import Numeric

__all__ = ["STANDARD", "Moment", "Observables"]

# Names that do not depend on the model, with their meaning. All others are names of tensors and
# scalars as in a run directory: `losses/…`, `metrics/…`, `weights/…`, `gradients/…`, `outputs/…`,
# `inputs/…`, `labels/…`, `predictions/…`, or those of the user's own values.
STANDARD: Mapping[str, str] = {
    "loss": "the first of `losses/…`",
    "loss_per_sample": "loss of each sample, [samples]; also spelled `loss per sample`",
    "lr": "learning rate of the first group of parameters",
    "step": "number of the step, from 0",
    "epoch": "number of the epoch, from 0",
    "step_seconds": "duration of the step in seconds",
    "inputs": "inputs of the batch",
    "labels": "labels of the batch, [samples]",
    "predictions": "outputs of the model that the loss compares with them",
}


class Moment(NamedTuple):
    """An event of a training.

    Attributes:
        event: "step" (a train step has ended), "batch" (a batch of an evaluation), "epoch" or
            "evaluation" (it has ended), or the name of the user's event.
        step: number of the step; for an evaluation, number of completed steps.
        mode: "train", "eval" or "predict".
        time: time of the event, seconds since the epoch.
    """

    event: str
    step: int
    mode: str
    rank: int
    time: float


class Observables:
    """What a training offers at one event: values by name, each computed when it is first read.

    Attributes:
        knows_statistics: some statistics, or sizes of tensors, are known without reading them.
        event, step, mode, rank, time: see `Moment`.

    Args:
        values: functions without arguments by name. Each returns an array or tensor that `numeric`
            understands, a number, or a string, and is called at most once.
        numeric: see above.
    """

    knows_statistics = False

    def __init__(
        self, moment: Moment, values: Mapping[str, Callable[[], Any]], numeric: Numeric
    ) -> None:
        self.event, self.step, self.mode, self.rank, self.time = moment
        self.numeric = numeric
        self._values = values
        self._read: dict[str, Any] = {}
        self._names: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of the mapping."""
        if self._names is None:
            self._names = tuple(self._values)
        return self._names

    def surely_tensor(self, name: str) -> bool:  # noqa: ARG002 (subclasses)
        """Return whether a name is known to be a tensor without reading it."""
        return False

    def known(self, name: str, reduction: str) -> float | None:  # noqa: ARG002 (subclasses)
        """Return a statistic of a tensor that is known without reading it; None if it is not.

        Args:
            reduction: as named in `vinedresser.store.reductions`.
        """
        return None

    def known_of_each(
        self,
        names: tuple[str, ...],  # noqa: ARG002 (subclasses)
        reduction: str,  # noqa: ARG002 (subclasses)
    ) -> list[float] | None:
        """Return a statistic of each of some tensors; None if it is not quickly known of all.

        Args:
            reduction: see `known`.
        """
        return None

    def size(self, name: str) -> int | None:  # noqa: ARG002 (subclasses)
        """Return the number of elements of a tensor if it is known without reading it."""
        return None

    def read(self, name: str) -> Any:
        """Return the value of a name; the same object every time.

        Raises:
            UnknownTensor: the event does not offer it; the message suggests similar names.
        """
        if name in self._read:
            return self._read[name]
        if name not in self._values:
            raise UnknownTensor(
                f"{name}: not offered at this {self.event}{did_you_mean(name, self.names)}"
            )
        value = self._read[name] = self._values[name]()
        return value
