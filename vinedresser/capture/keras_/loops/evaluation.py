"""Capture from ``evaluate`` and ``predict``."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np

from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.step_runner import StepFunction, StepResult, StepRunner
from vinedresser.capture.recording.recording import Recording
from vinedresser.store.collections.collection import FIRST_LABEL
from vinedresser.store.step_record import Mode

# Kinds of tensors that require observation of a batch.
_OBSERVED = ("inputs", "outputs", "attention", "labels", "predictions")
# Numbers of labels that are compared after each evaluation.
_MOST_LABELS = 1 << 22


class Evaluation:
    """Records each ``evaluate`` or ``predict``.

    The losses and metrics are the final ones of Keras, the tensors those of the first batch. Of
    labels in an array, the share that equals the first one is recorded, too.

    Args:
        mode: "eval" or "predict".
        runner: runs the observed batches.
    """

    def __init__(self, watched: WatchedModel, mode: Mode, runner: StepRunner) -> None:
        self._session = watched.session
        self._recorder = watched.session.recorder
        self._model = watched.model
        self._names = watched.names
        self._writer = watched.writer
        self._mode: Mode = mode
        self._runner = runner
        # Whether a whole evaluation is running, and the logs of its latest batch.
        self._whole = False
        self._logs: Any = None
        guard = watched.session.shield.guard
        self._begin = guard("the start of an evaluation", self._begin_batch)
        self._write = guard("a batch of an evaluation", self._write_batch)
        self._end = guard("the end of an evaluation", self._write_final_logs)
        self._look_at_labels = guard("the labels of an evaluation", self._write_first_label)
        # The guard lets TrainingStopped through.
        self._stop = guard("the end of the training", watched.session.stop_if_asked)

    def run(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a whole evaluation or prediction."""
        alone = self._recorder.explicit_mode is None
        before, self._whole, self._logs = self._whole, True, None
        try:
            with self._recorder.mode(self._mode) if alone else nullcontext():
                result = original(*args, **kwargs)
                self._look_at_labels(*args, **kwargs)
                self._end()
        finally:
            self._whole = before
        return result

    def test(self, original: StepFunction, iterator: Any) -> Any:
        """Run Keras's test function on one batch or on several."""
        self._stop()
        recording = self._begin()
        if recording is None:
            logs = original(iterator)
            self._recorder.batch.steps_ran(self._model.steps_per_execution)
            return logs
        first = self._run_batch("test_step", original, iterator, recording)
        self._note_batches(recording, 1 if first.single else self._model.steps_per_execution)
        logs = self._run_rest(original, iterator, first).logs
        self._write(recording, first, logs)
        return logs

    def predict(self, original: StepFunction, data: list[Any]) -> Any:
        """Run Keras's predict function on some batches and return the predictions."""
        self._stop()
        recording = self._begin()
        self._recorder.batch.steps_ran(len(data))
        if recording is None:
            return original(data)
        recording.note_batch(self._recorder.batch.origins if len(data) == 1 else None)
        if len(data) == 1:
            result = self._run_batch(
                "predict_step", lambda one: original(list(one)), iter(data), recording
            )
        else:
            result = StepResult(original(data))
            self._report_fused(recording)
        self._write(recording, result, None)
        return result.logs

    def _run_batch(
        self, method: str, original: StepFunction, iterator: Any, recording: Recording
    ) -> StepResult:
        due = recording.due
        if recording.first_batch and any(due.reaches(kind) for kind in _OBSERVED):
            return self._runner.run(method, original, iterator, recording)
        return StepResult(original(iterator))

    def _run_rest(self, original: StepFunction, iterator: Any, first: StepResult) -> StepResult:
        """Run the other batches of one execution if only the first was run."""
        result = first
        others = self._model.steps_per_execution - 1 if first.single else 0
        for batch in self._runner.batches(iterator, others):
            result = self._runner.run("test_step", original, batch, None)
            self._recorder.batch.steps_ran()
        return result

    def _note_batches(self, recording: Recording, batches: int) -> None:
        """Note where the first of some batches that have run comes from."""
        used = self._recorder.batch
        used.steps_ran(batches)
        recording.note_batch(used.origins if batches == 1 else None)

    def _begin_batch(self) -> Recording | None:
        recording = self._recorder.recording(self._recorder.explicit_mode or self._mode)
        if recording is not None:
            recording.forwards += 1
        return recording

    def _write_batch(self, recording: Recording, result: StepResult, logs: Any) -> None:
        for name, value in result.tensors.items():
            self._writer.write(recording, name, value)
        if recording.first_batch:
            self._writer.write_variables(recording)
        if self._whole:
            self._logs = logs
        else:
            self._writer.write_logs(recording, logs)

    def _write_final_logs(self) -> None:
        """Write the losses and metrics of the whole evaluation."""
        logs, self._logs = self._logs, None
        recording = self._recorder.recording(self._recorder.explicit_mode or self._mode)
        if recording is not None and logs is not None:
            self._writer.write_logs(recording, logs)

    def _write_first_label(self, *args: Any, **kwargs: Any) -> None:
        """Write the share of all labels that equal the first one, if they are in one array.

        Args:
            args: positional arguments of ``evaluate``, of which the labels are the second.
        """
        y: Any = kwargs.get("y", args[1] if len(args) > 1 else None)
        recording = self._recorder.recording(self._recorder.explicit_mode or self._mode)
        name = f"{FIRST_LABEL}{self._names.prefix}loss"
        if recording is None or not recording.due.ask(name):
            return
        tensor = isinstance(y, np.ndarray) or keras.ops.is_tensor(y)
        # Ragged tensors have no lengths of rows.
        if not tensor or None in y.shape or len(y.shape) > 2 or math.prod(y.shape) > _MOST_LABELS:
            return
        labels = keras.ops.convert_to_numpy(y)
        if labels.ndim and len(labels):
            recording.add_first_label(name, labels)

    def _report_fused(self, recording: Recording) -> None:
        if any(recording.due.reaches(kind) for kind in _OBSERVED):
            self._session.shield.report(
                "steps_per_execution is greater than 1: inputs, outputs and attention of "
                "predictions are not captured"
            )
