"""Evaluations that follow the train steps of a library."""

from __future__ import annotations

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.recording.recording import Recording


class Evaluations:
    """Opens the recordings of evaluations.

    Usually, every evaluation is saved, since evaluations are rare. For a library that evaluates
    after every step, ``every`` of save configs applies to evaluations as well.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: dict[tuple[bool, ...], Due] = {}
        self._of: Due | None = None

    def recording(self, *, frequent: bool = True) -> Recording | None:
        """Return the recording of an evaluation that begins now; None if nothing is due.

        Args:
            frequent: whether ``every`` applies, since there is an evaluation after each step.
        """
        due = self._recorder.config.due(self._recorder.steps, "eval")
        if frequent:
            due = self._in_steps(due, self._recorder.steps)
        recording = self._recorder.recording("eval") if due else None
        if recording is not None:
            recording.due = due
        return recording

    def _in_steps(self, due: Due, step: int) -> Due:
        """Return the parts of a `Due` whose schedules name a train step."""
        if due is not self._of:
            self._of, self._known = due, {}
        key = tuple(
            step in save.steps or bool(save.every and (step - save.start) % save.every == 0)
            for _, save in due.parts
        )
        if key not in self._known:
            parts = (part for part, met in zip(due.parts, key, strict=True) if met)
            self._known[key] = Due(tuple(parts))
        return self._known[key]
