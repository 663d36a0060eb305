"""The interface between the recorder and what asks a training for its clients."""

from __future__ import annotations

from typing import Protocol

from vinedresser.capture.config.asked import Asked
from vinedresser.capture.recording.recording import PlainStep, Recording
from vinedresser.store.step_record import Mode

__all__ = ["Observer"]


class Observer(Protocol):
    """Answers standing queries on the training's thread.

    No method raises an error.
    """

    def asked(self, mode: Mode) -> Asked | None:
        """Return what is read in the train step or evaluation that begins; None: nothing."""

    def train_step_ended(self, step: int, found: Recording | PlainStep | None) -> None:
        """Answer at the end of a train step.

        Args:
            step: number of the step.
            found: what was captured in it; None: nothing.
        """

    def evaluation_ended(self, step: int, found: Recording | None) -> None:
        """Answer at the end of an evaluation; see `train_step_ended`."""
