"""The side of a pre-flight check in the process of a script that trains with Keras."""

from __future__ import annotations

import atexit
import inspect
import math
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Any

import keras

from vinedresser.capture.attach import keras_training
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.capture.run.attachment import ATTACHMENT, Attached
from vinedresser.frameworks.methods import wrap
from vinedresser.preflight.settings import PreflightSettings, write_result
from vinedresser.preflight.verdict import Verdict, fine, suspicious, unchecked
from vinedresser.rules.shield import shielded
from vinedresser.store.records import PREFLIGHT_VARIABLE

_STEPS, _ENOUGH = 300, 100
# Share of the time for the checks that one run on a batch may take.
_SHARE = 0.3
_ADAM = 1e-2
_BATCH = 32

# Inputs, labels and weights.
_Batch = tuple[Any, Any, Any]


@dataclass(frozen=True)
class _Fit:
    """The first `fit` of a script.

    Attributes:
        given: arguments of the call by name.
        weights: its weights before; None if it was not built yet.
    """

    model: keras.Model
    given: dict[str, Any]
    weights: list[Any] | None

    def copy(self, optimizer: keras.Optimizer | None = None) -> keras.Model:
        """Return a compiled copy of the model with the weights before the training.

        Args:
            optimizer: optimizer of the copy; None: that of the model.

        Raises:
            ValueError: the model cannot be copied, or is compiled with objects that cannot.
        """
        copied = keras.models.clone_model(self.model)
        if self.weights is not None:
            copied.set_weights(self.weights)
        config = self.model.get_compile_config()
        if optimizer is not None:
            config = {**config, "optimizer": keras.optimizers.serialize(optimizer)}
        copied.compile_from_config(config)
        if copied.optimizer is None:
            raise ValueError("the model cannot be compiled again")
        return copied

    def batch(self) -> _Batch:
        """Return inputs, labels and weights of a batch of the data."""
        x: Any = self.given.get("x")
        y, weights = self.given.get("y"), self.given.get("sample_weight")
        if y is None and not keras.ops.is_tensor(x) and not hasattr(x, "dtype"):
            data = x[0] if isinstance(x, keras.utils.PyDataset) else next(iter(x))
            found: _Batch = keras.utils.unpack_x_y_sample_weight(data)
            return found
        rows = int(self.given.get("batch_size") or _BATCH)
        first, labels, weighted = keras.tree.map_structure(
            lambda values: None if values is None else values[:rows], (x, y, weights)
        )
        return first, labels, weighted


class _KerasTrial:
    """Ends a training after its first steps, and checks it.

    Args:
        settings: limits of the checks, and where their result goes.
    """

    def __init__(self, settings: PreflightSettings) -> None:
        self._settings = settings
        self._process = os.getpid()
        self._began = self._last = 0.0
        self._seconds: list[float] = []
        # Of all trainings, and of the current one.
        self._steps = self._own = 0
        self._fit: _Fit | None = None
        self._ended = False

    def start(self) -> None:
        """Wait for a training."""
        ATTACHMENT.opened.append(self._opened)
        wrap(keras.Model, "fit", self._around)
        keras_training.attach()
        atexit.register(self._end)

    def _around(self, model: Any, fit: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._fit is None:
                given = inspect.signature(fit).bind(*args, **kwargs).arguments
                self._fit = _Fit(model, given, model.get_weights() if model.built else None)
            return fit(*args, **kwargs)

        return call

    def _opened(self, hook: Attached) -> None:
        self._last, self._own = time.process_time(), 0
        self._began = self._began or self._last
        hook.after_each_step(self._stepped)

    def _stepped(self, steps: int) -> None:
        now = time.process_time()
        self._seconds.append((now - self._last) / max(1, steps - self._own))
        self._steps += steps - self._own
        self._own, self._last = steps, now
        over = now - self._began > self._settings.watching
        rows = self._fit.given.get("batch_size") if self._fit is not None else None
        enough = self._settings.enough(rows if isinstance(rows, int) else None)
        if not self._ended and (self._steps >= enough or over):
            self._end(cut=True)
            raise TrainingStopped(0)

    def _end(self, *, cut: bool = False) -> None:
        """Write the result, unless that has happened or this process trains nothing with Keras."""
        if self._ended or not self._steps or os.getpid() != self._process:
            return
        self._ended = True
        # The steps of copies are not those of the training.
        ATTACHMENT.retire()
        checks = {"updates": self._updates, "overfit": self._overfit, "cost": self._cost}
        skip = self._settings.skip
        found = [Verdict(name, *check()) for name, check in checks.items() if name not in skip]
        write_result(self._settings, self._steps, cut=cut, verdicts=found)

    def _updates(self) -> tuple[str, str]:
        return fine(f"{self._steps} steps of an optimizer")

    def _cost(self) -> tuple[str, str]:
        if len(self._seconds) < 2:
            return unchecked("only one step was seen")
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return fine(
            f"{median(self._seconds[1:]) * 1e3:.3g} ms of CPU per step while watched, "
            f"{kibibytes / 1024:.0f} MiB of memory in all"
        )

    def _overfit(self) -> tuple[str, str]:
        """Train a copy on one batch, with the optimizer of the script and with Adam."""
        if self._fit is None:
            return unchecked("the script does not call fit")
        # A copy of a user's model, and data of the user's, may raise anything.
        return shielded(partial(self._train_again, self._fit), _cannot_be_trained)

    def _train_again(self, fit: _Fit) -> tuple[str, str]:
        batch = fit.batch()
        losses = self._train(fit.copy(), batch)
        if not all(map(math.isfinite, losses)):
            return suspicious(f"the loss is {losses[-1]} after {len(losses)} steps on one batch")
        return self._judged(fit, losses, batch)

    def _judged(self, fit: _Fit, losses: list[float], batch: _Batch) -> tuple[str, str]:
        """Judge the losses of the optimizer of the script."""
        if len(losses) < 2 or min(losses) < 0:
            return unchecked("the loss is negative, or there is no time left")
        start, end = losses[0], _level(losses)
        change = (
            f"after {len(losses)} steps on one batch, the loss went from {start:.4g} to {end:.4g}"
        )
        if end < 0.9 * start:
            return fine(change)
        if len(losses) < _ENOUGH:
            return unchecked(f"{change}; too few steps in the time")
        if callable(getattr(fit.model.optimizer, "_learning_rate", None)):
            return unchecked(f"{change}; the learning rate follows a schedule")
        best = self._train(fit.copy(keras.optimizers.Adam(_ADAM)), batch)
        if all(map(math.isfinite, best)) and _level(best) < 0.5 * start and end > 0.998 * start:
            return suspicious(f"{change}; Adam at {_ADAM:g} learns it, to {_level(best):.4g}")
        return unchecked(f"{change}; with Adam at {_ADAM:g}, to {_level(best):.4g}")

    def _train(self, model: keras.Model, batch: _Batch) -> list[float]:
        """Train on a batch; return the losses, until one is not finite."""
        x, y, weights = batch
        until = time.process_time() + _SHARE * self._settings.seconds
        losses: list[float] = []
        for _ in range(_STEPS):
            # Otherwise it returns means since the first step.
            model.reset_metrics()
            logs: Any = model.train_on_batch(x, y, weights, return_dict=True)
            losses.append(float(logs["loss"]))
            if not math.isfinite(losses[-1]) or time.process_time() > until:
                break
        return losses


def _cannot_be_trained(error: Exception) -> tuple[str, str]:
    told = f"{type(error).__name__}: {error}".splitlines()[0]
    return unchecked(f"the model cannot be trained again: {told}")


def _level(losses: list[float]) -> float:
    """Return the mean of the last losses."""
    return fmean(losses[-max(1, len(losses) // 20) :])


def attach() -> None:
    """Start to watch the training of this process; the script has just imported Keras."""
    _KerasTrial(PreflightSettings.from_text(os.environ[PREFLIGHT_VARIABLE])).start()
