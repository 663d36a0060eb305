"""The evaluations and predictions that Keras's own loops make."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from vinedresser.capture.keras_.steps.runner import Plain, Runner, Shown
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.recording import Recording
from vinedresser.store.step_record import Mode

__all__ = ["Evaluation"]

# What of an evaluation has to be looked on at; all else can be read afterwards.
_SEEN = ("inputs", "outputs", "attention", "labels", "predictions")


class Evaluation:
    """Makes a record of each ``evaluate`` or ``predict``.

    Its losses and metrics are what Keras reports at the end, its tensors those of the first batch.

    Args:
        watched: the model.
        mode: "eval" or "predict".
        runner: does the batches that are looked on at.
    """

    def __init__(self, watched: Watched, mode: Mode, runner: Runner) -> None:
        self._session = watched.session
        self._recorder = watched.session.recorder
        self._model = watched.model
        self._keeping = watched.keeping
        self._mode: Mode = mode
        self._runner = runner
        # Whether a whole evaluation is going on, and what its latest batch has returned.
        self._whole = False
        self._logs: Any = None
        guard = watched.session.shield.guard
        self._begin = guard("the start of an evaluation", self._begun)
        self._keep = guard("a batch of an evaluation", self._kept)
        self._end = guard("the end of an evaluation", self._ended)
        # TrainingStopped passes the guard.
        self._stop = guard("the end of the training", watched.session.stop_if_asked)

    def around(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do all of an evaluation."""
        alone = self._recorder.explicit_mode is None
        before, self._whole, self._logs = self._whole, True, None
        try:
            with self._recorder.mode(self._mode) if alone else nullcontext():
                result = original(*args, **kwargs)
                self._end()
        finally:
            self._whole = before
        return result

    def test(self, plain: Plain, iterator: Any) -> Any:
        """Do what Keras's function of a batch, or of several, does."""
        self._stop()
        recording = self._begin()
        if recording is None:
            return plain(iterator)
        shown = self._shown("test_step", plain, iterator, recording)
        logs = self._rest(plain, iterator, shown).logs
        self._keep(recording, shown, logs)
        return logs

    def predict(self, plain: Plain, data: list[Any]) -> Any:
        """Do what Keras's function of some batches does, and return what they become."""
        self._stop()
        recording = self._begin()
        if recording is None:
            return plain(data)
        if len(data) == 1:
            shown = self._shown("predict_step", lambda one: plain(list(one)), iter(data), recording)
        else:
            shown = Shown(plain(data), {})
            self._complain(recording)
        self._keep(recording, shown, None)
        return shown.logs

    def _shown(self, method: str, plain: Plain, iterator: Any, recording: Recording) -> Shown:
        due = recording.due
        if recording.first_batch and any(due.reaches(kind) for kind in _SEEN):
            return self._runner.run(method, plain, iterator, recording)
        return Shown(plain(iterator), {}, single=False)

    def _rest(self, plain: Plain, iterator: Any, shown: Shown) -> Shown:
        """Do the other batches of those that Keras does at once, if only the first was done."""
        others = self._model.steps_per_execution - 1 if shown.single else 0
        for batch in self._runner.batches(iterator, others):
            shown = self._runner.run("test_step", plain, batch, None)
        return shown

    def _begun(self) -> Recording | None:
        recording = self._recorder.recording(self._recorder.explicit_mode or self._mode)
        if recording is not None:
            recording.forwards += 1
        return recording

    def _kept(self, recording: Recording, shown: Shown, logs: Any) -> None:
        for name, value in shown.tensors.items():
            self._keeping.keep(recording, name, value)
        if recording.first_batch:
            self._keeping.variables(recording)
        if self._whole:
            self._logs = logs
        else:
            self._keeping.logs(recording, logs)

    def _ended(self) -> None:
        """Keep what the evaluation came to."""
        logs, self._logs = self._logs, None
        recording = self._recorder.recording(self._recorder.explicit_mode or self._mode)
        if recording is not None and logs is not None:
            self._keeping.logs(recording, logs)

    def _complain(self, recording: Recording) -> None:
        if any(recording.due.reaches(kind) for kind in _SEEN):
            self._session.shield.report(
                "steps_per_execution is more than 1: of predictions no inputs, outputs or "
                "attention are captured"
            )
