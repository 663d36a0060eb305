"""The steps of one tf.function of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.backends.backend import first_length
from vinedresser.capture.keras_.nesting import leaves
from vinedresser.capture.keras_.steps.asking import OF_UPDATES, Asks
from vinedresser.capture.keras_.steps.mentions import mentions
from vinedresser.capture.keras_.steps.traced_function import TracedFunction
from vinedresser.capture.keras_.steps.updates import updates_made
from vinedresser.capture.keras_.steps.variants import Variants
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.recording import Recording

__all__ = ["UserFunction"]


class UserFunction:
    """A tf.function that the user's program calls, and in which a watched model may be trained.

    Where nothing is due it is called as it is. Where something is due, a second function is called,
    traced from the same Python function, that returns it as well. What a function does shows when
    it is first traced; one that names a watched model is therefore traced before its first step.

    Args:
        watched: the models, of one run.

    Attributes:
        calls: it calls a watched model.
    """

    def __init__(self, watched: list[Watched]) -> None:
        self.calls = False
        self._new = True
        self._watched = watched
        self._session = watched[0].session
        self._recorder = self._session.recorder
        # The optimizer whose steps are counted, its model, and what it had done when found.
        self._lead: tuple[Watched, Any, int] | None = None
        self._variants: Variants[TracedFunction] | None = None
        self._failed = False
        guard = self._session.shield.guard
        self._begin = guard("the start of a step", self._begun)
        self._look = guard("looking into a tf.function", self._looked)
        self._attempt = guard("a step in a tf.function", self._attempted)
        self._keep = guard("the end of a step", self._kept)
        # TrainingStopped passes the guard.
        self._end_step = guard("the end of a step", self._session.step_ended)

    @property
    def matters(self) -> bool:
        """Whether it has to be looked at when it is called."""
        evaluated = self._recorder.explicit_mode in ("eval", "predict")
        return self._new or self._lead is not None or (self.calls and evaluated)

    def found(self, watched: Watched, optimizer: Any) -> None:
        """Note that it updates a model; called while it is traced."""
        if watched.count.saw(optimizer) and (self._lead is None or watched.leads()):
            with tf.init_scope():
                self._lead = (watched, optimizer, updates_made(optimizer))

    def call(self, plain: Callable[..., Any], function: Any, args: Any, kwargs: Any) -> Any:
        """Do what the plain call does.

        Args:
            plain: calls the tf.function.
            function: the tf.function.
            args: its arguments.
            kwargs: those by name.
        """
        quiet = self._recorder.quiet
        if self._new and not quiet:
            self._look(function, args, kwargs)
        recording = None if quiet else self._begin(args, kwargs)
        attempt = None
        if recording is not None and not self._failed:
            before = self._made()
            attempt = self._attempt(function, recording, args, kwargs)
            self._failed = attempt is None
        else:
            before = self._made()
        if isinstance(attempt, BaseException):
            raise attempt
        result, tensors = (plain(*args, **kwargs), {}) if attempt is None else attempt
        if self._new:
            self._tell()
            before = self._lead[2] if before is None and self._lead is not None else before
        steps = (self._made() or 0) - (before or 0)
        if recording is not None:
            self._keep(recording, tensors, steps)
        self._end_steps(steps)
        return result

    def _looked(self, function: Any, args: Any, kwargs: Any) -> None:
        """Look what a function does that has never been called, without calling it."""
        models = [one.model for one in self._watched]
        recording = self._recorder.recording(self._recorder.explicit_mode or "train")
        if recording is not None and mentions(function.python_function, models):
            traced = self._choose(function, recording)
            traced.look(args, kwargs)
            for watched in self._watched:
                watched.take_in()
            self.calls |= any(name.startswith("outputs/") for name in traced.seen)
            for optimizer, variables in traced.updates:
                for watched in self._watched:
                    if watched.updated_by(optimizer, variables):
                        self.found(watched, optimizer)

    def _begun(self, args: Any, kwargs: Any) -> Recording | None:
        mode = self._recorder.explicit_mode or (None if self._lead is None else "train")
        if mode is None:
            return None
        if mode == "train":
            self._recorder.resume_training()
        recording = self._recorder.recording(mode)
        if recording is not None:
            recording.forwards += 1
            given = leaves([args, kwargs], "", lambda one: isinstance(one, tf.Tensor))
            recording.batch = first_length(one for _, one in given) or 1
        return recording

    def _choose(self, function: Any, recording: Recording) -> TracedFunction:
        if self._variants is None:

            def make(asks: Asks) -> TracedFunction:
                return TracedFunction(function, asks, [one.collector for one in self._watched])

            self._variants = Variants("train_step", make)
        # The forward that comes now is counted or is not; either way none came before the first.
        return self._variants.choose(recording.due, later=not recording.first_batch)

    def _attempted(self, function: Any, recording: Recording, args: Any, kwargs: Any) -> Any:
        """Call the second function; return what it returned, or what TensorFlow raised meanwhile.

        Raises:
            Exception: it could not be traced; then nothing has run.
        """
        traced = self._choose(function, recording)
        try:
            attempt: Any = traced.run(args, kwargs)
        except tf.errors.OpError as error:
            attempt = error
        if complaint := traced.complaint():
            self._session.shield.report(complaint)
        return attempt

    def _kept(self, recording: Recording, tensors: dict[str, Any], steps: int) -> None:
        keeping = self._watched[0].keeping
        for name, value in tensors.items():
            if steps or not name.startswith(OF_UPDATES):
                keeping.keep(recording, name, value, recording.weight())

    def _made(self) -> int | None:
        return None if self._lead is None else updates_made(self._lead[1])

    def _tell(self) -> None:
        """Say what cannot be captured of it, now that it is known."""
        self._new = False
        report = self._session.shield.report
        if self._lead is None and self.calls and self._recorder.explicit_mode is None:
            report(
                "a tf.function of your own calls the watched model and updates nothing: what it "
                "computes is captured inside of `with hook.mode('eval'):` only"
            )

    def _end_steps(self, steps: int) -> None:
        if steps > 1:
            self._session.shield.report(
                f"a tf.function makes {steps} optimizer steps at a call: all are counted, but "
                "hardly anything of them can be captured"
            )
        if steps > 0 and self._lead is not None and self._lead[0].leads():
            for _ in range(steps):
                self._end_step()
