"""The steps of a training loop that nothing can be hooked to."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.hook.user_values import UserValues
from vinedresser.capture.recording.session import Session

__all__ = ["LoopSteps"]

# What a loop reports, by `Hook.step`'s arguments: kind, and name of a single value.
_REPORTED = {
    "inputs": ("inputs", "batch"),
    "labels": ("labels", "batch"),
    "outputs": ("predictions", "batch"),
    "loss": ("losses", "loss"),
    "metrics": ("metrics", "metric"),
}


class LoopSteps:
    """Takes in the steps that a loop reports by itself.

    Args:
        session: captures.
        values: saves what is reported.
    """

    def __init__(self, session: Session, values: UserValues) -> None:
        guard = session.shield.guard
        self._session = session
        self._report = guard("the report of a step", values.report)
        # TrainingStopped passes the guard.
        self._end_step = guard("the end of a step", session.step_ended)

    def end(self, **reported: Any) -> None:
        """Save what is reported of a step, and end it; in an evaluation, of a batch.

        Args:
            reported: by the names of `Hook.step`'s arguments; what is None was not reported.

        Raises:
            TrainingStopped: the training was asked to end.
        """
        recorder = self._session.recorder
        if not recorder.quiet:
            for name, value in reported.items():
                if value is not None:
                    kind, one = _REPORTED[name]
                    self._report(kind, value, one)
        if recorder.explicit_mode in (None, "train"):
            self._end_step()
        else:
            self._session.stop_if_asked()
