"""The adapter for Keras: from its functions, layers and optimizers to recordings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
from keras.src.backend.common.keras_tensor import any_symbolic_tensors
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.keras_.calls.fitting import Fitting
from vinedresser.capture.keras_.calls.interception import (
    Original,
    Place,
    current,
    unwatch,
    watch_all,
)
from vinedresser.capture.keras_.calls.loops import Loop
from vinedresser.capture.keras_.checkpoint import save_checkpoint
from vinedresser.capture.keras_.setup import training_setup
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.session import Session
from vinedresser.errors import ConfigError
from vinedresser.store.collections.modules import ModuleInfo

__all__ = ["KerasAdapter"]


class KerasAdapter:
    """Watches one Keras model.

    A step in which nothing is due runs the function that Keras has compiled, as it is. One in which
    something is due runs a second one, traced from the model's own step, that returns it as well.

    Args:
        session: takes what is seen.
        introduce: makes the adapter known to the hook; called when layers were built late.
        model: built or not, compiled or not.
        loss: a keras.losses.Loss that a loop of the user's own calls; None where Keras computes it.
        optimizer: that of such a loop, or several in the order of their steps; None: the first that
            updates the model.
        name: comes before the names of all that belongs to the model; None: nothing does.

    Raises:
        ConfigError: the backend, the loss or the optimizer cannot be watched.
        ImportError: the backend's package is not installed.
    """

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
        grown = partial(introduce, self)
        watched = Watched(session, model, optimizer=last, name=name, adapter=self, grown=grown)
        self._watched = watched
        self._backend = watched.backend
        self._names = watched.names
        self._loop = Loop(watched)
        guard = session.shield.guard
        self._before_update = guard("the start of an update", self._loop.before_update)
        self._after_update = guard("the end of an update", self._loop.after_update)
        self._notice = guard("looking for the optimizer", self._noticed)
        self._loss_computed = guard("the loss", self.record_loss)
        self._fitting = Fitting(watched)
        self._backend.watch(watched)
        watch_all(self)

    @property
    def framework(self) -> str:
        """See `Adapter.framework`."""
        return "keras"

    @property
    def places(self) -> tuple[Place, ...]:
        """See `Observer.places`."""
        return self._backend.places

    @property
    def versions(self) -> dict[str, str]:
        """See `Adapter.versions`."""
        return {"keras": keras.__version__, **self._backend.versions}

    def names(self) -> list[str]:
        """See `Adapter.names`."""
        return self._names.all()

    def modules(self) -> dict[str, ModuleInfo]:
        """See `Adapter.modules`."""
        return self._names.modules()

    def setup(self) -> TrainingSetup:
        """See `SetUp.setup`."""
        return training_setup(self._watched, self.loss)

    def path_of(self, module: Any) -> str | None:
        """See `Adapter.path_of`."""
        return next((path for path, one in self._names.layers() if one is module), None)

    def checkpoint(self, directory: Path, step: int) -> None:
        """See `Adapter.checkpoint`."""
        save_checkpoint(self.model, directory, step, self._name)

    def detach(self) -> None:
        """See `Adapter.detach`."""
        unwatch(self)
        self._backend.leave(self._watched)
        self._fitting.remove()

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `Adapter.record_loss`."""
        sight = current()
        if sight is not None:
            sight.see_loss(f"{self._names.prefix}{name}", value)
        elif not self._backend.tracing() and not self._watched.busy:
            self._loop.loss(name, value, arguments)

    def model_called(self, original: Original, args: Any, kwargs: Any) -> Any:
        """See `Observer.model_called`."""
        # Keras only asks for shapes, or makes it a part of another model.
        shapes = in_symbolic_scope() or any_symbolic_tensors(args, kwargs)
        if self._watched.busy or shapes:
            return original(self.model, *args, **kwargs)
        if self._backend.tracing():
            self._backend.traced_call()
            return original(self.model, *args, **kwargs)
        return self._loop.call(original, args, kwargs)

    def before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """See `Observer.before_update`."""
        if self._watched.busy or self._backend.tracing():
            self._notice(optimizer, variables)
        else:
            self._before_update(optimizer, gradients, variables)

    def after_update(self, optimizer: Any) -> None:
        """See `Observer.after_update`."""
        if not (self._watched.busy or self._backend.tracing()):
            self._after_update(optimizer)

    def loss_computed(self, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `Observer.loss_computed`."""
        self._loss_computed(str(self.loss.name), value, arguments)

    def _noticed(self, optimizer: Any, variables: Any) -> None:
        """See which optimizer a loop of Keras's, or a function of the user's, applies."""
        if not self._watched.updated_by(optimizer, variables):
            return
        self._watched.count.saw(optimizer)
        if not self._watched.busy and current() is None:
            self._backend.traced_update(self._watched, optimizer)


def _check(loss: object, optimizers: list[Any]) -> None:
    """Raise `ConfigError` where loss or optimizer cannot be watched."""
    if loss is not None and not isinstance(loss, keras.losses.Loss):
        name = getattr(loss, "__name__", "…")
        raise ConfigError(
            f"loss: {loss!r} is no keras.losses.Loss; the loss given to compile() is captured "
            f"without being named here; in a loop of your own wrap the function, `loss_fn = "
            f"hook.loss({name})`"
        )
    for optimizer in optimizers:
        if optimizer is not None and not isinstance(optimizer, keras.optimizers.Optimizer):
            raise ConfigError(
                f"optimizer: {optimizer!r} is no keras.optimizers.Optimizer; leave it out, and the "
                "one that updates the model is found"
            )
