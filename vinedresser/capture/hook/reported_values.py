"""What a training script itself tells its hook: values, losses, metrics, steps, evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

from vinedresser.capture.hook.loop_steps import LoopSteps
from vinedresser.capture.hook.user_values import UserValues
from vinedresser.capture.hook.watched_loss import watched_loss
from vinedresser.capture.recording.session import Session
from vinedresser.capture.requests.control import CaptureControl
from vinedresser.errors import ConfigError
from vinedresser.store.step_record import MODES, Mode

__all__ = ["ReportedValues"]

P = ParamSpec("P")
R = TypeVar("R")


class ReportedValues:
    """The part of a hook that scripts hand values to; `Hook` has what it needs."""

    _session: Session
    _control: CaptureControl
    _values: UserValues
    _steps: LoopSteps
    _closed: bool
    # Guarded: they cannot harm the training.
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
        """Report one step of a loop that nothing can be hooked to, and end it.

        Inside ``with hook.mode("eval")`` (or "predict") it reports a batch of the evaluation.
        Each but the metrics is a value (``inputs/batch``, ``labels/batch``, ``predictions/batch``,
        ``losses/loss``) or a mapping of names to values (``inputs/<name>``). Tensors of torch,
        TensorFlow and whatever numpy takes; they are copied at steps only at which they are due.

        Args:
            inputs: of the model.
            labels: what the outputs are to be.
            outputs: of the model: its predictions.
            loss: a number, or several by name.
            metrics: numbers by name, ``metrics/<name>``.

        Raises:
            ConfigError: the steps are those of a watched model, or metrics is no mapping.
            TrainingStopped: the training was asked to end.
        """
        if self._session.leader is not None or self._control.adapters:
            raise ConfigError("step: the steps are those of the watched model; use save or metric")
        if metrics is not None and not isinstance(metrics, Mapping):
            raise ConfigError(f"metrics = {metrics!r}: must be a mapping of names to numbers")
        if self._closed:
            return
        self._begin()
        self._steps.end(inputs=inputs, labels=labels, outputs=outputs, loss=loss, metrics=metrics)

    def mode(self, mode: Mode) -> AbstractContextManager[None]:
        """Return a context in which all that is seen belongs to one mode, whatever the model says.

        A block of "eval" or "predict" is one evaluation and gives one record.

        Args:
            mode: "train", "eval" or "predict".

        Raises:
            ConfigError: there is no such mode, or another block is open.
        """
        if mode not in MODES:
            raise ConfigError(f"mode {mode!r}: must be one of {', '.join(MODES)}")
        return self._session.recorder.mode(mode)

    def loss(self, function: Callable[P, R], name: str | None = None) -> Callable[P, R]:
        """Return a loss function whose values are captured, as ``losses/<name>``.

            loss_fn = hook.loss(F.cross_entropy)

        Args:
            function: returns a number (a tensor of one element), or a nesting of such.
            name: in the run; None: the function's own.

        Raises:
            ConfigError: the function has no name of its own.
        """
        return watched_loss(function, name, self._take_loss)

    def save(self, name: str, value: Any, collection: str | None = None) -> None:
        """Save a value of one's own in the step or evaluation that is going on.

        Outside of an evaluation that is the train step that the next ``optimizer.step()`` ends. Of
        several tensors of one name in a step, the first is kept; of several scalars, the mean.

        Args:
            name: "latent" is stored as ``saved/latent``; a name with a slash, such as
                "losses/ctc", as it is.
            value: a tensor, an array or a number.
            collection: puts it there instead: "latent" as ``<collection>/latent``.

        Raises:
            ConfigError: an empty name, or there is no such collection.
        """
        full = self._values.full_name(name, collection)
        if not self._closed:
            self._save(full, value)

    def metric(self, name: str, value: Any) -> None:
        """Save a number as ``metrics/<name>``; see `save`.

        Args:
            name: of the metric.
            value: a number, or a tensor or array of one element.

        Raises:
            ConfigError: an empty name.
        """
        self.save(name, value, "metrics")

    def _begin(self, *, describe: bool = True) -> None:
        """Get ready for a training, once."""
        raise NotImplementedError
