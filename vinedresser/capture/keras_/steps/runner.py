"""Doing one step of a model in a way that shows what is to be captured of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from vinedresser.capture.recording.recording import Recording

__all__ = ["Plain", "Runner", "Shown"]

# A function that Keras has made, of an iterator.
Plain = Callable[[Any], Any]


class Shown(NamedTuple):
    """One step that was done.

    Attributes:
        logs: what it returned.
        tensors: what was seen of it and is still to be kept, by name; perhaps more than is due.
        losses: full names of the losses that were seen.
        single: it was one batch, not several that Keras runs at once.
    """

    logs: Any
    tensors: Mapping[str, Any]
    losses: frozenset[str] = frozenset()
    single: bool = True


class Runner(Protocol):
    """Does steps."""

    def run(self, method: str, plain: Plain, iterator: Any, recording: Recording | None) -> Shown:
        """Do one step, with the next batch of an iterator.

        Args:
            method: of the model: "train_step", "test_step" or "predict_step".
            plain: what Keras would do; called where there is no other way.
            iterator: as Keras gives it, or one of `batches`.
            recording: of the step, its forwards counted; None: nothing is due.
        """

    def batches(self, iterator: Any, most: int) -> Iterator[Any]:
        """Yield the next batches of an iterator, each in a form that `run` takes."""

    def reset(self, method: str) -> None:
        """Forget what was made for a method of the model: the model was compiled again."""
