"""The protocol of what runs one step of a model and returns the captured tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from vinedresser.capture.recording.recording import Recording

__all__ = ["StepFunction", "StepResult", "StepRunner"]

# A train, test or predict function made by Keras; its argument is an iterator over batches.
StepFunction = Callable[[Any], Any]


class StepResult(NamedTuple):
    """Result of one step.

    Attributes:
        logs: return value of the step.
        tensors: captured tensors by full name that are not recorded yet; may contain more than is
            due.
        losses: full names of the captured losses.
        single: whether the step was exactly one batch; False if Keras may have run several at once.
    """

    logs: Any
    tensors: Mapping[str, Any] = MappingProxyType({})
    losses: frozenset[str] = frozenset()
    single: bool = False


class StepRunner(Protocol):
    """Runs steps of a model."""

    def run(
        self, method: str, original: StepFunction, iterator: Any, recording: Recording | None
    ) -> StepResult:
        """Run one step on the next batch of an iterator.

        Args:
            method: the model's method: "train_step", "test_step" or "predict_step".
            original: the function made by Keras; called if the step cannot be captured.
            iterator: an iterator passed by Keras, or an item of `batches`.
            recording: recording of the step, including this forward; None if nothing is due.
        """

    def batches(self, iterator: Any, limit: int) -> Iterator[Any]:
        """Yield at most `limit` batches of an iterator, each as an argument for `run`."""

    def reset(self, method: str) -> None:
        """Discard the functions made for a method, since the model was compiled again."""
