"""Steps of a training loop without a watched model."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.hook.user_values import UserValues
from vinedresser.capture.recording.session import Session

__all__ = ["LoopSteps"]

# The kind and the name of a single value, by argument of `Hook.step`.
_REPORTED = {
    "inputs": ("inputs", "batch"),
    "labels": ("labels", "batch"),
    "outputs": ("predictions", "batch"),
    "loss": ("losses", "loss"),
    "metrics": ("metrics", "metric"),
}


class LoopSteps:
    """Captures the steps that a loop reports itself.

    Args:
        session: session of the hook.
        values: saves the reported values.
    """

    def __init__(self, session: Session, values: UserValues) -> None:
        guard = session.shield.guard
        self._session = session
        self._report = guard("the report of a step", values.report)
        # TrainingStopped passes the guard.
        self._end_step = guard("the end of a step", session.step_ended)

    def end(self, **reported: Any) -> None:
        """Save the values of a step or of an evaluation's batch, and end a step.

        Args:
            reported: values by argument of `Hook.step`; None: not reported.

        Raises:
            TrainingStopped: the training was asked to stop.
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
