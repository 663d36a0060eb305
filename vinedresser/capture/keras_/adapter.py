"""The Keras adapter: capture from one model into recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import keras
from keras.src.backend.common.keras_tensor import any_symbolic_tensors
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.losses.losses import LossFunctionWrapper

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.training_setup import (
    TrainingSetup,
    described_function,
    described_optimizer,
    function_setup,
    plain_settings,
    typed,
)
from vinedresser.capture.keras_.loops.builtin_loops import BuiltinLoops
from vinedresser.capture.keras_.loops.custom_loop import CustomLoop
from vinedresser.capture.keras_.observation.comparisons import Comparison, LossFunction
from vinedresser.capture.keras_.observation.interception import current_observer, unwatch, watch
from vinedresser.capture.keras_.observation.loop_losses import Differentiation, LossSource
from vinedresser.capture.keras_.observation.observers import Original, UpdateGuard
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.step_runner import Execution, StepRunner
from vinedresser.capture.recording.session import Session
from vinedresser.errors import ConfigError
from vinedresser.frameworks.keras_.layers import dropout_rates, linear_weights
from vinedresser.frameworks.keras_.model_state import inner_optimizer
from vinedresser.objects.files import replacing
from vinedresser.store.collections.modules import ModuleInfo

# Functions of TensorFlow that compute what those of Keras do with ``from_logits=True``.
_OF_LOGITS = {
    "binary_crossentropy": "sigmoid_cross_entropy_with_logits",
    "categorical_crossentropy": "softmax_cross_entropy_with_logits",
    "sparse_categorical_crossentropy": "sparse_softmax_cross_entropy_with_logits",
}


class KerasAdapter(Adapter):
    """Captures from one Keras model.

    A step in which nothing is due runs the function compiled by Keras. Otherwise a second function
    runs, traced from the model's own step, that also returns the due tensors.

    Args:
        introduce: registers the adapter with the hook; called again when layers were built late.
        model: the model, built or not, compiled or not.
        loss: keras.losses.Loss object of a custom loop; None if Keras computes the loss.
        optimizer: optimizer of a custom loop, or several in the order of their steps; None for the
            first that updates the model.
        name: prefix of the model's tensor names; None for no prefix.

    Raises:
        ConfigError: The backend, the loss or the optimizer is not supported.
        ImportError: The backend's package is not installed.
    """

    framework = "keras"

    def __init__(
        self,
        session: Session,
        introduce: Callable[[Adapter], None],
        model: Any,
        loss: Any = None,
        optimizer: Any = None,
        *,
        name: str | None = None,
    ) -> None:
        optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        _check(loss, optimizers)
        self.model = model
        self.loss = loss
        self._name = name
        last = optimizers[-1] if optimizers else None
        session.losses_reported |= loss is not None
        self._watched = watched = WatchedModel(
            session,
            model,
            optimizer=last,
            name=name,
            adapter=self,
            on_new_layers=partial(introduce, self),
        )
        self._backend = watched.backend
        self.guard = watched.guard = _guard_of(watched)
        self.versions = {"keras": keras.__version__, **self._backend.versions}
        self._names = watched.names
        self._loop = CustomLoop(watched)
        guard = session.shield.guard
        self._before_update = guard("the start of an update", self._loop.before_update)
        self._after_update = guard("the end of an update", self._loop.after_update)
        self._register_optimizer = guard("looking for the optimizer", self._find_optimizer)
        self._record_loss = guard("the loss", self.record_loss)
        self._compared = guard("what a loss compares", self._loop.compared)
        self._differentiated = guard("the loss of a tape", self._loop.differentiated)
        self._execution = _execution_of(watched)
        self.patch_points = self._execution.patch_points
        self._builtin_loops = BuiltinLoops(watched, self._execution.runner)
        self._execution.watch()
        watch(self)

    def names(self) -> list[str]:
        """See `Adapter.names`."""
        return self._names.all()

    def modules(self) -> dict[str, ModuleInfo]:
        """See `Adapter.modules`."""
        return self._names.modules()

    def setup(self) -> TrainingSetup:
        """See `Adapter.setup`."""
        return _training_setup(self._watched, self.loss)

    def path_of(self, module: Any) -> str | None:
        """See `Adapter.path_of`."""
        return next((path for path, one in self._names.layers() if one is module), None)

    def checkpoint(self, directory: Path, step: int) -> None:
        """See `Adapter.checkpoint`.

        ``model.load_weights(path)`` loads it, including the optimizer's state.
        """
        stem = f"step-{step}-{self._name}" if self._name else f"step-{step}"
        with replacing(directory / f"{stem}.weights.h5") as path:
            self.model.save_weights(path, overwrite=True)

    def detach(self) -> None:
        """See `Adapter.detach`."""
        unwatch(self)
        if self.guard is not None:
            self.guard.remove()
        self._execution.unwatch()
        self._builtin_loops.remove()
        self._loop.forget()

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `Adapter.record_loss`."""
        step_observer = current_observer()
        if step_observer is not None:
            step_observer.on_loss(f"{self._names.prefix}{name}", value)
        elif not self._backend.tracing() and not self._watched.busy:
            self._loop.loss(name, value, arguments)

    def call_model(self, original: Original, args: Any, kwargs: Any) -> Any:
        """See `ModelObserver.call_model`."""
        # Keras infers shapes, or makes the model part of another one.
        symbolic = in_symbolic_scope() or any_symbolic_tensors(args, kwargs)
        if self._watched.busy or symbolic:
            return original(self.model, *args, **kwargs)
        if self._backend.tracing():
            self._execution.on_traced_call()
            return original(self.model, *args, **kwargs)
        return self._loop.call(original, args, kwargs)

    def before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """See `ModelObserver.before_update`."""
        if self._watched.busy or self._backend.tracing():
            self._register_optimizer(optimizer, variables)
        else:
            self._before_update(optimizer, gradients, variables)

    def after_update(self, optimizer: Any) -> None:
        """See `ModelObserver.after_update`."""
        if not (self._watched.busy or self._backend.tracing()):
            self._after_update(optimizer)

    def on_loss(self, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `ModelObserver.on_loss`."""
        self._record_loss(str(self.loss.name), value, arguments)

    def on_comparison(self, comparison: Comparison) -> None:
        """See `ModelObserver.on_comparison`."""
        if not (self._watched.busy or self._backend.tracing()):
            self._compared(comparison)

    def on_differentiation(self, differentiation: Differentiation) -> None:
        """See `ModelObserver.on_differentiation`."""
        if not (self._watched.busy or self._backend.tracing()):
            self._differentiated(differentiation)

    def _find_optimizer(self, optimizer: Any, variables: Any) -> None:
        """Register the optimizer of a Keras loop or of a compiled function of the user."""
        if not self._watched.is_updated_by(optimizer, variables):
            return
        self._watched.counter.register(optimizer)
        if not self._watched.busy and current_observer() is None:
            self._execution.on_traced_update(optimizer)


def _execution_of(watched: WatchedModel) -> Execution:
    """Return the execution of a model on the backend in use."""
    if keras.backend.backend() == "tensorflow":
        from vinedresser.capture.keras_.graphs.tensorflow_execution import TensorFlowExecution

        return TensorFlowExecution(watched)
    import torch

    # Calls inside code compiled by torch.compile cannot be observed.
    uncompiled = partial(torch.compiler.set_stance, "force_eager")
    return Execution(StepRunner(watched, uncompiled))


def _guard_of(watched: WatchedModel) -> UpdateGuard | None:
    """Return the guard of a model; None if nobody wants snapshots."""
    taker = watched.session.snapshots
    if taker is None:
        return None
    if keras.backend.backend() == "tensorflow":
        from vinedresser.capture.keras_.guard.tensorflow_guard import TensorFlowGuard

        return TensorFlowGuard(watched, taker)
    from vinedresser.capture.keras_.guard.keras_guard import KerasGuard

    return KerasGuard(watched, taker)


def _check(loss: object, optimizers: list[Any]) -> None:
    """Raise `ConfigError` if the loss or an optimizer has the wrong type."""
    if loss is not None and not isinstance(loss, keras.losses.Loss):
        name = getattr(loss, "__name__", "…")
        raise ConfigError(
            f"loss: {loss!r} is not a keras.losses.Loss; the loss given to compile() is captured "
            f"automatically; in a custom loop wrap the function: `loss_fn = hook.loss({name})`"
        )
    for optimizer in optimizers:
        if optimizer is not None and not isinstance(optimizer, keras.optimizers.Optimizer):
            raise ConfigError(
                f"optimizer: {optimizer!r} is not a keras.optimizers.Optimizer; omit it to use the "
                "one that updates the model"
            )


def _training_setup(watched: WatchedModel, loss: Any) -> TrainingSetup:
    """Return the losses, optimizers, frozen variables and dropout rates known so far.

    Args:
        loss: the loss object of a custom loop; None if there is none.
    """
    prefix, variables = watched.names.prefix, watched.names.variables()
    losses = {f"{prefix}{name}": one for name, one in _compiled_losses(watched.model)}
    if watched.source is not None:
        losses[f"{prefix}loss"] = _described_source(watched.source)
    if loss is not None:
        losses[f"{prefix}{loss.name}"] = _described_loss(loss)
    optimizers = [
        optimizer for optimizer in watched.optimizers() if inner_optimizer(optimizer).built
    ]
    trained = {
        id(variable)
        for each in optimizers
        for variable in inner_optimizer(each)._trainable_variables
    }
    parameters = [variable for variable in variables if variable.kind != "buffers"]
    linear = {id(weight) for weight in linear_weights(watched.model)}
    return TrainingSetup(
        losses,
        {id(optimizer): _described_optimizer(optimizer) for optimizer in optimizers},
        [parameter.name for parameter in parameters if not parameter.value.trainable],
        [
            parameter.name
            for parameter in parameters
            if optimizers and parameter.value.trainable and id(parameter.value) not in trained
        ],
        dropout_rates(watched.names.layers()),
        linear=[parameter.name for parameter in parameters if id(parameter.value) in linear],
    )


def _compiled_losses(model: Any) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the losses given to compile(), by name; none before their first call."""
    flat = getattr(getattr(model, "_compile_loss", None), "_flat_losses", None) or []
    for one in flat:
        yield f"{one.name}_loss" if len(flat) > 1 else "loss", _described_loss(one.loss)


def _described_loss(loss: keras.losses.Loss | LossFunction) -> dict[str, Any]:
    if isinstance(loss, LossFunction):
        return typed(loss.name, dict(loss.settings))
    if type(loss) is LossFunctionWrapper:
        # Made by Keras from a function or its name.
        described = described_function(loss.fn, loss._fn_kwargs)
        described["settings"]["reduction"] = loss.reduction
        return described
    settings = {key: one for key, one in vars(loss).items() if not key.startswith("_")}
    return typed(type(loss).__name__, settings | getattr(loss, "_fn_kwargs", {}), type(loss))


def _described_source(source: LossSource) -> dict[str, Any]:
    described = _described_loss(source.loss)
    if source.negated or source.reduction is None:
        # The values are not those of the loss function.
        return function_setup(_named(source.loss, described["type"]), negated=source.negated)
    if source.reduction:
        described["settings"]["reduction"] = source.reduction
    return described


def _named(loss: keras.losses.Loss | LossFunction, kind: str) -> str:
    """Return the name of a function that says whether it takes logits."""
    takes_logits = isinstance(loss, LossFunction) and dict(loss.settings).get("from_logits")
    return _OF_LOGITS.get(kind, kind) if takes_logits else kind


def _described_optimizer(optimizer: Any) -> dict[str, Any]:
    inner = inner_optimizer(optimizer)
    settings = plain_settings({} if inner is optimizer else optimizer.get_config())
    settings |= plain_settings(inner.get_config())
    rate = inner.get_config()["learning_rate"]
    if isinstance(rate, dict):
        settings["schedule"] = rate["class_name"]
        rate = rate["config"].get("initial_learning_rate", inner.learning_rate)
    # Keras stores the rate as float32.
    settings["lr"] = float(f"{float(rate):.7g}")
    settings.pop("learning_rate", None)
    sizes = [prod(variable.shape) for variable in inner._trainable_variables]
    return described_optimizer(type(inner).__name__, settings, sizes)
