"""The train steps that Keras's own loop makes."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.keras_.steps.asking import OF_UPDATES
from vinedresser.capture.keras_.steps.runner import Plain, Runner, Shown
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.recording import Recording

__all__ = ["Training"]


class Training:
    """Does what ``model.train_function`` does, one saved step after the other.

    Where nothing is due, Keras's own function is called as it is.

    Args:
        watched: the model.
        runner: does saved steps.
    """

    def __init__(self, watched: Watched, runner: Runner) -> None:
        self._session = watched.session
        self._recorder = watched.session.recorder
        self._model = watched.model
        self._keeping = watched.keeping
        self._leads = watched.leads
        self._count = watched.count
        # Batches that a scaler of the loss has skipped.
        self._skipped = 0
        self._skipped_name = f"state/{watched.names.prefix}skipped_steps"
        self._runner = runner
        guard = watched.session.shield.guard
        self._before = guard("counting steps", watched.count.before)
        self._after = guard("counting steps", watched.count.after)
        self._begin = guard("the start of a step", self._begun)
        self._keep = guard("the end of a batch", self._kept)
        self._look_ahead = guard("looking ahead", self._due_within)
        # TrainingStopped passes the guard.
        self._end_step = guard("the end of a step", watched.session.step_ended)

    def run(self, plain: Plain, iterator: Any) -> Any:
        """Do what the plain function does."""
        fused = self._model.steps_per_execution
        if fused > 1 and self._look_ahead(fused):
            return self._singly(plain, iterator, fused)
        return self._batch(plain, iterator).logs

    def _batch(self, plain: Plain, iterator: Any, *, single: bool = False) -> Shown:
        """Do a batch, or all those that Keras does at once.

        Args:
            plain: Keras's function.
            iterator: as it is given.
            single: it must be one batch, whether anything is due or not.
        """
        recording = None if self._recorder.quiet else self._begin()
        before = self._before()
        if recording is None and not single:
            shown = Shown(plain(iterator), {}, single=False)
        else:
            shown = self._runner.run("train_step", plain, iterator, recording)
        steps = self._after(before)
        if steps == 0 and self._count.skips:
            # The next batch is all that its step shows.
            self._skipped += 1
            if recording is not None:
                recording.forwards -= 1
        elif recording is not None:
            self._keep(recording, shown, steps)
        if self._leads():
            # Where counting failed, a batch is a step.
            for _ in range(1 if steps is None else steps):
                self._end_step()
        return shown

    def _singly(self, plain: Plain, iterator: Any, fused: int) -> Any:
        """Do one by one what Keras would do at once, since some of it is due."""
        self._session.shield.report(
            f"steps_per_execution is {fused}: wherever something is due within {fused} steps, they "
            "run one by one; what is saved at every step, such as the losses, makes that all steps"
        )
        batches = self._runner.batches(iterator, fused)
        logs = self._batch(plain, next(batches), single=True).logs
        for batch in batches:
            logs = self._batch(plain, batch, single=True).logs
        return logs

    def _begun(self) -> Recording | None:
        """Begin a batch of the step that is going on; None where nothing of it is due."""
        self._recorder.resume_training()
        recording = self._recorder.recording(self._recorder.explicit_mode or "train")
        if recording is not None:
            recording.forwards += 1
        return recording

    def _kept(self, recording: Recording, shown: Shown, steps: int | None) -> None:
        """Keep what a batch has shown."""
        for name, value in shown.tensors.items():
            # Of an update that did not come about there is nothing.
            if steps != 0 or not name.startswith(OF_UPDATES):
                self._keeping.keep(recording, name, value)
        self._keeping.logs(recording, shown.logs, known=shown.losses)
        if self._count.skips and recording.due.ask(self._skipped_name):
            recording.add_scalar(self._skipped_name, float(self._skipped))

    def _due_within(self, steps: int) -> bool:
        """Say whether anything is due within the next steps."""
        recorder = self._recorder
        if not recorder.quiet:
            return True
        return any(recorder.config.due(recorder.steps + i, "train") for i in range(1, steps))
