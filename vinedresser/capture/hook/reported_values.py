"""The methods of a hook to which scripts pass values: losses, metrics, steps, evaluations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

from vinedresser.capture.hook.user_values import LoopSteps, UserValues
from vinedresser.capture.recording.session import Session
from vinedresser.capture.requests.control import CaptureControl
from vinedresser.capture.run.printed_lines import PRINTED
from vinedresser.errors import ConfigError
from vinedresser.store.collections.collection import TERMS
from vinedresser.store.step_record import MODES, Mode

P = ParamSpec("P")
R = TypeVar("R")


class ReportedValues:
    """The part of `Hook` to which scripts pass values."""

    _session: Session
    _control: CaptureControl
    _values: UserValues
    _steps: LoopSteps
    _closed: bool
    _begun: bool
    # Number of printed lines with metrics before a training was found.
    _lines = 0
    # Shielded callbacks.
    _save: Callable[[str, Any], None]
    _take_loss: Callable[..., object]

    def step(
        self,
        *,
        inputs: Any = None,
        labels: Any = None,
        outputs: Any = None,
        loss: Any = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        """Report one step of a loop without a watched model, and end it.

        Inside ``with hook.mode("eval")`` (or "predict"), report a batch of the evaluation.

        All arguments except metrics are a single value (stored as ``inputs/batch``,
        ``labels/batch``, ``predictions/batch``, ``losses/loss``) or a mapping of names to values
        (``inputs/<name>``). Values are torch or TensorFlow tensors, or anything numpy accepts, of
        any shape. They are copied only at steps at which they are due.

        Args:
            labels: targets.
            outputs: model outputs (predictions).
            loss: a number, or numbers by name.
            metrics: numbers by name, stored as ``metrics/<name>``.

        Raises:
            ConfigError: a model is watched, whose optimizer ends the steps, or metrics is not a
                mapping.
            TrainingStopped: the training was asked to stop.
        """
        if self._session.leader is not None or self._control.adapters:
            raise ConfigError("step: the watched model defines the steps; use save or metric")
        if metrics is not None and not isinstance(metrics, Mapping):
            raise ConfigError(f"metrics = {metrics!r}: must be a mapping of names to numbers")
        if self._closed:
            return
        self._begin()
        self._steps.end(inputs=inputs, labels=labels, outputs=outputs, loss=loss, metrics=metrics)

    def mode(self, mode: Mode) -> AbstractContextManager[None]:
        """Return a context that sets the mode, regardless of the model's mode.

        A block of mode "eval" or "predict" is one evaluation and produces one record.

        Args:
            mode: "train", "eval" or "predict".

        Raises:
            ConfigError: the mode is unknown, or another block is open.
        """
        if mode not in MODES:
            raise ConfigError(f"mode {mode!r}: must be one of {', '.join(MODES)}")
        return self._session.recorder.mode(mode)

    def loss(self, function: Callable[P, R], name: str | None = None) -> Callable[P, R]:
        """Return a wrapper of a loss function that captures its values as ``losses/<name>``.

            loss_fn = hook.loss(F.cross_entropy)

        Args:
            function: loss function that returns a tensor of one element, or a nesting of such.
            name: name of the loss; None: name of the function.

        Raises:
            ConfigError: the function has no name, and none is given.
        """
        inner = getattr(function, "func", function)
        known = str(name or getattr(inner, "__name__", "<no name>"))
        if "<" in known:
            raise ConfigError("loss: the function has no name; pass name=…")
        self._session.losses_reported = True

        @functools.wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            value = function(*args, **kwargs)
            self._take_loss(known, function, value, args, kwargs)
            return value

        return watched

    def save(self, name: str, value: Any, collection: str | None = None) -> None:
        """Save a value in the current step or evaluation.

        Outside an evaluation, this is the train step that the next ``optimizer.step()`` ends. If a
        name is saved several times in a step, the first tensor or the mean of the scalars is kept.

        Args:
            name: name of the value; "latent" is stored as ``saved/latent``, a name with a slash,
                such as "losses/ctc", unchanged.
            value: tensor or array of any shape, or a number.
            collection: collection to use instead of ``saved``: ``<collection>/latent``.

        Raises:
            ConfigError: the name is empty, or the collection does not exist.
        """
        full = self._values.full_name(name, collection)
        self._session.losses_reported |= full.startswith("losses/")
        if not self._closed:
            self._save(full, value)

    def metric(self, name: str, value: Any) -> None:
        """Save a number as ``metrics/<name>``; see `save`.

        Args:
            value: a number, or a tensor or array of one element.

        Raises:
            ConfigError: the name is empty.
        """
        self.save(name, value, "metrics")

    def terms(self, /, **terms: Any) -> None:
        """Name the terms of which the loss of this step is the sum.

            hook.terms(reconstruction=error, kl=beta * divergence)

        They are stored as ``saved/terms/<name>``, and judged by the rules `idle_term` and
        `unbounded_loss`. Pass them as they are added, with their weights. Anything else than one
        number is reported once and not saved.

        Args:
            terms: numbers, or tensors or arrays of one element.
        """
        for name, value in terms.items():
            self.save(f"{TERMS}{name}", value)

    def expect(self, *lines: str) -> None:
        """State what is expected of the training, which the rule `expectation` judges.

            hook.expect("eval/accuracy > 0.9 by epoch 3, else stop", "encoder frozen")

        Call it before the first step. The names are those of what is captured.

        Args:
            lines: expectations (docs/expectations.md).

        Raises:
            ConfigError: a line is not an expectation.
        """
        from vinedresser.queries.expectation import Expectation

        for line in lines:
            Expectation.parse(line)
        if not self._closed:
            self._control.expect(lines)

    def _search_output(self) -> None:
        """Search the output of this process for metrics, if the run has such ones."""
        guard = self._session.shield.guard
        PRINTED.sink = guard("a printed metric", self._printed, skip=lambda: self._closed)
        PRINTED.begin()

    def _printed(self, metrics: Mapping[str, float]) -> None:
        """Save metrics of a printed line; if nothing reports steps, each line is one."""
        if not self._begun:
            if self._lines:
                # These are no steps whose times mean anything.
                self._session.recorder.timing = None
                self._session.recorder.end_train_step()
            else:
                # Readers would wait for the other ranks, which capture nothing.
                self._control.world_size = 1
                self._control.describe()
            self._lines += 1
        self._evaluated(metrics)

    def _evaluated(self, metrics: Mapping[str, Any]) -> None:
        """Save metrics in the open evaluation, or else as one of their own."""
        recorder = self._session.recorder
        begun = recorder.implicit_evaluation or recorder.explicit_mode is not None
        with nullcontext() if begun else recorder.mode("eval"):
            for name, value in metrics.items():
                self.metric(name, value)

    def _begin(self, *, describe: bool = True) -> None:
        """Prepare for a training, once."""
        raise NotImplementedError
