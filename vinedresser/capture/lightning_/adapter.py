"""The adapter for Lightning: a torch model that a trainer trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.lightning_.stand_in import StandIn
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.adapter import TorchAdapter
from vinedresser.capture.torch_.method_as_forward import MethodAsForward
from vinedresser.store.collections.modules import ModuleInfo

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")


class LightningAdapter(Adapter):
    """Watches the Lightning module of a trainer.

    The method that the trainer calls in a step (such as ``training_step``) counts as the forward of
    the whole model, with its arguments and return value as inputs and outputs.

    Args:
        session: session of the hook.
        versions: versions of the packages by name.
        log: called with name and value of each logged value.

    Attributes:
        stepped: an optimizer took a step since this was last set to False.
    """

    framework = "torch"

    def __init__(
        self, session: Session, versions: dict[str, str], log: Callable[[str, Any], None]
    ) -> None:
        self.stepped = False
        self._session = session
        self.versions = versions
        self._log = session.shield.guard("a logged value", log, names=0)
        self._taking = session.shield.guard("the loss", self._take_loss)
        self._inner: TorchAdapter | None = None
        self._model: MethodAsForward | None = None
        self._stand_ins: list[StandIn] = []
        self._handles: list[RemovableHandle] = []

    def names(self) -> list[str]:
        """See `Adapter.names`."""
        return [] if self._inner is None else self._inner.names()

    def modules(self) -> dict[str, ModuleInfo]:
        """See `Adapter.modules`."""
        return {} if self._inner is None else self._inner.modules()

    def setup(self) -> TrainingSetup:
        """See `Adapter.setup`."""
        return TrainingSetup() if self._inner is None else self._inner.setup()

    def path_of(self, module: Any) -> str | None:
        """See `Adapter.path_of`."""
        return None if self._inner is None else self._inner.path_of(module)

    def checkpoint(self, directory: Path, step: int) -> None:
        """See `Adapter.checkpoint`."""
        if self._inner is not None:
            self._inner.checkpoint(directory, step)

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `LossTaker.record_loss`."""
        if self._inner is not None:
            self._inner.record_loss(name, value, arguments)

    def record_value(self, name: str, value: Any, batch: Any) -> None:
        """Record the value of a loss without its arguments.

        Args:
            name: name of the loss.
            value: value of the loss, a nesting of tensors.
            batch: batch of the loss, a nesting of tensors [batch, ...].
        """
        if self._inner is not None:
            self._inner.record_value(name, value, batch)

    def attach(self, module: nn.Module, optimizers: Sequence[Optimizer], *, manual: bool) -> None:
        """Watch a module instead of the present one.

        Args:
            module: the user's Lightning module, without the wrappers of a strategy.
            optimizers: optimizers of the module.
            manual: the module calls the optimizers itself; the caller then ends the step after each
                batch in which it did.
        """
        self.detach()
        self._session.leader = self if manual else None
        self._model = MethodAsForward(module)
        given = list(optimizers) if len(optimizers) > 1 else next(iter(optimizers), None)
        self._inner = TorchAdapter(self._session, self._model, None, given)
        self._session.leader = self if manual else self._inner
        self._stand_ins = [StandIn(module, name, self._step) for name in _STEPS]
        self._stand_ins.append(StandIn(module, "log", self._logging))
        self._handles = [one.register_step_post_hook(self._after_update) for one in optimizers]

    def detach(self) -> None:
        """See `Adapter.detach`."""
        while self._stand_ins:
            self._stand_ins.pop().leave()
        while self._handles:
            self._handles.pop().remove()
        if self._inner is not None:
            self._inner.detach()
        self._inner = self._model = None

    def _after_update(self, *_: Any) -> None:
        self.stepped = True

    def _step(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a step of the module as the forward of the whole model."""
        model = self._model
        if model is None or not self._session.shield.ours:
            return method(*args, **kwargs)
        result = model.run(method, args, kwargs)
        if method.__name__ != "predict_step" and self._session.leader is not self:
            self._taking(result, (*args, *kwargs.values()))
        return result

    def _take_loss(self, result: Any, arguments: tuple[Any, ...]) -> None:
        """Record the loss that a step returns, directly or as the mapping's "loss"."""
        loss = result.get("loss") if isinstance(result, dict) else result
        if loss is not None and not self._session.recorder.quiet:
            self.record_value("loss", loss, arguments)

    def _logging(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Log a value and pass it on."""
        result = method(*args, **kwargs)
        both = dict(zip(("name", "value"), args, strict=False)) | kwargs
        self._log(both["name"], both["value"])
        return result
