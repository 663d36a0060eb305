"""Capture from ``fit``, ``evaluate``, ``predict`` and the methods for a single batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vinedresser.capture.keras_.loops.evaluation import Evaluation
from vinedresser.capture.keras_.observation.due_filter import UPDATE_TENSORS
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.step_runner import StepFunction, StepResult, StepRunner
from vinedresser.capture.recording.recording import Recording

# Called with the wrapped function and the arguments of the call.
_Replacement = Callable[..., Any]


class BuiltinLoops:
    """Wraps the functions with which Keras trains, evaluates and predicts.

    Args:
        runner: runs the steps of which tensors are captured.
    """

    def __init__(self, watched: WatchedModel, runner: StepRunner) -> None:
        self._watched = watched
        self._runner = runner
        self._find_layers = watched.session.shield.guard(
            "looking for new layers", self._register_layers
        )
        if watched.guard is not None:
            # Functions that were made before are not guarded.
            watched.model.train_function = None
        self._wrappers = _FunctionWrappers(watched.model)
        test = Evaluation(watched, "eval", runner)
        predict = Evaluation(watched, "predict", runner)
        self._wrap("train", _TrainFunction(watched, runner).run)
        self._wrap("test", test.test)
        self._wrap("predict", predict.predict)
        self._wrappers.wrap_method("evaluate", test.run)
        self._wrappers.wrap_method("predict", predict.run)

    def remove(self) -> None:
        """Restore the model's own functions."""
        self._wrappers.remove()

    def _register_layers(self) -> None:
        self._watched.register_layers({id(layer) for _, layer in self._watched.names.layers()})

    def _wrap(self, kind: str, replacement: Callable[..., Any]) -> None:
        """Wrap the function of one kind of step: "train", "test" or "predict"."""

        @functools.wraps(replacement)
        def inner(*args: Any) -> Any:
            before, self._watched.busy = self._watched.busy, True
            try:
                return replacement(*args)
            finally:
                self._watched.busy = before

        def on_make() -> None:
            self._runner.reset(f"{kind}_step")
            # Keras builds a model before it makes the functions.
            self._find_layers()
            if kind == "train":
                self._watched.counter.forget()
                self._watched.session.newly_set_up = True

        making = self._watched.making if kind == "train" else nullcontext
        self._wrappers.wrap_made(
            f"make_{kind}_function", f"{kind}_function", inner, on_make, making
        )


class _FunctionWrappers:
    """Replaces methods of a model and the functions that Keras makes for it.

    The replacements are set as instance attributes, bypassing the attribute tracking of Keras, so
    they are not saved or cloned with the model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._names: list[str] = []
        # The function last made by Keras and its wrapper, by attribute.
        self._made: dict[str, tuple[Any, Any]] = {}

    def wrap_made(
        self,
        maker: str,
        attribute: str,
        replacement: _Replacement,
        on_make: Callable[[], None],
        making: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Wrap a function that the model makes on demand.

        Args:
            maker: the model's method that makes it, such as "make_train_function".
            attribute: attribute in which it is stored, such as "train_function".
            on_make: called whenever a new function was made.
        """
        make = getattr(self._model, maker)

        def wrap() -> None:
            original = getattr(self._model, attribute)
            known = self._made.get(attribute)
            if original is None or (known is not None and original is known[1]):
                return
            on_make()
            wrapped = functools.partial(replacement, original)
            self._made[attribute] = (original, wrapped)
            vars(self._model)[attribute] = wrapped

        @functools.wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:
            with making():
                result = make(*args, **kwargs)
            wrap()
            return result if result is None else getattr(self._model, attribute)

        self._set(maker, made)
        wrap()

    def wrap_method(self, name: str, replacement: _Replacement) -> None:
        """Wrap a method of the model."""
        original = getattr(self._model, name)
        self._set(name, functools.wraps(original)(functools.partial(replacement, original)))

    def remove(self) -> None:
        """Restore the model's own functions and methods."""
        for attribute, (original, wrapped) in self._made.items():
            if getattr(self._model, attribute, None) is wrapped:
                vars(self._model)[attribute] = original
        self._made.clear()
        while self._names:
            vars(self._model).pop(self._names.pop(), None)

    def _set(self, name: str, function: Any) -> None:
        vars(self._model)[name] = function
        self._names.append(name)


class _TrainFunction:
    """Replaces ``model.train_function``; calls it unchanged if nothing is due.

    Args:
        runner: runs the steps of which tensors are captured.
    """

    def __init__(self, watched: WatchedModel, runner: StepRunner) -> None:
        self._session = watched.session
        self._recorder = watched.session.recorder
        self._model = watched.model
        self._writer = watched.writer
        self._leads = watched.leads
        self._counter = watched.counter
        # Number of batches skipped by a LossScaleOptimizer.
        self._skipped = 0
        self._skipped_name = f"state/{watched.names.prefix}skipped_steps"
        self._runner = runner
        self._guard = watched.guard
        guard = watched.session.shield.guard
        self._before = guard("counting steps", watched.counter.before)
        self._after = guard("counting steps", watched.counter.after)
        self._begin = guard("the start of a step", self._begin_batch)
        self._write = guard("the end of a batch", self._write_batch)
        self._look_ahead = guard("looking ahead", self._due_within)
        # The guard lets TrainingStopped through.
        self._end_step = guard("the end of a step", watched.session.step_ended)

    def run(self, original: StepFunction, iterator: Any) -> Any:
        """Run the steps of one execution, as Keras's own function does."""
        fused = self._model.steps_per_execution
        if fused > 1 and self._look_ahead(fused):
            return self._run_singly(original, iterator, fused)
        return self._run_batch(original, iterator).logs

    def _run_batch(
        self, original: StepFunction, iterator: Any, *, single: bool = False
    ) -> StepResult:
        """Run one batch, or all batches of one execution.

        Args:
            single: whether exactly one batch must be run even if nothing is due.
        """
        recording = None if self._recorder.quiet else self._begin()
        before = self._before()
        result = self._execute(original, iterator, recording, single=single)
        steps = self._after(before)
        if steps == 0 and self._counter.skips:
            # The step consists of the next batch alone.
            self._skipped += 1
            if recording is not None:
                recording.forwards -= 1
        elif recording is not None:
            self._write(recording, result, steps)
        if self._leads():
            # If counting failed, a batch counts as a step.
            for _ in range(1 if steps is None else steps):
                self._end_step()
        return result

    def _execute(
        self, original: StepFunction, iterator: Any, recording: Recording | None, *, single: bool
    ) -> StepResult:
        """Run the function on its batches, and note which those were."""
        alone = single or recording is not None

        def execute() -> StepResult:
            if not alone:
                return StepResult(original(iterator))
            return self._runner.run("train_step", original, iterator, recording)

        ran = False
        try:
            if self._guard is None:
                result = execute()
            else:
                result = self._guard.around(
                    execute, lambda data: StepResult(original(iter((data,))))
                )
            ran = True
        finally:
            if not ran and recording is not None:
                # There was no batch: Keras learns of the end of the data by asking for one.
                recording.forwards -= 1
        used = self._recorder.batch
        used.steps_ran(1 if alone else self._model.steps_per_execution)
        if recording is not None:
            recording.note_batch(used.origins)
        return result

    def _run_singly(self, original: StepFunction, iterator: Any, fused: int) -> Any:
        """Run the steps of one execution one by one, since some are due."""
        self._session.shield.report(
            f"steps_per_execution is {fused}: if something is due within {fused} steps, they run "
            "one by one; this affects all steps if anything, such as the losses, is saved at every "
            "step"
        )
        batches = self._runner.batches(iterator, fused)
        logs = self._run_batch(original, next(batches), single=True).logs
        for batch in batches:
            logs = self._run_batch(original, batch, single=True).logs
        return logs

    def _begin_batch(self) -> Recording | None:
        """Return the recording of the current step; None if nothing is due."""
        self._recorder.resume_training()
        recording = self._recorder.recording(self._recorder.explicit_mode or "train")
        if recording is not None:
            recording.forwards += 1
        return recording

    def _write_batch(self, recording: Recording, result: StepResult, steps: int | None) -> None:
        """Write the tensors and logs of a batch."""
        for name, value in result.tensors.items():
            # Without an update, its tensors do not exist.
            if steps != 0 or not name.startswith(UPDATE_TENSORS):
                self._writer.write(recording, name, value)
        self._writer.write_logs(recording, result.logs, known=result.losses)
        if self._counter.skips and recording.due.ask(self._skipped_name):
            recording.add_scalar(self._skipped_name, float(self._skipped))

    def _due_within(self, steps: int) -> bool:
        """Return whether anything is due within the next steps."""
        recorder = self._recorder
        if not recorder.quiet:
            return True
        return any(recorder.train_due(recorder.steps + i) for i in range(1, steps))
