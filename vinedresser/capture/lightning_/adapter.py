"""The adapter for Lightning: a torch model that a trainer trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.adapter import TorchAdapter
from vinedresser.frameworks.torch_.names import MethodAsForward
from vinedresser.frameworks.torch_.optimizer_steps import listen_to_steps
from vinedresser.store.collections.modules import ModuleInfo

__all__ = []

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")
_Call = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class LightningAdapter(Adapter):
    """Watches the Lightning module of a trainer.

    The method that the trainer calls in a step (such as ``training_step``) counts as the forward of
    the whole model. Its inputs and outputs are those of the module's own forward, or of its only
    part with parameters, since the method's arguments hold the labels.

    Args:
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
        self._taking = session.shield.guard("the loss", _StepLosses.step_ended)
        self._losses: _StepLosses | None = None
        # Also that of the last training, if its model is to be kept.
        self._inner: TorchAdapter | None = None
        self._last: TorchAdapter | None = None
        self._model: MethodAsForward | None = None
        self._stand_ins: list[_StandIn] = []
        self._ends: list[Callable[[], None]] = []

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
        if last := self._inner or self._last:
            last.checkpoint(directory, step)

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `LossTaker.record_loss`."""
        if self._inner is not None:
            self._inner.record_loss(name, value, arguments)

    def batch_begins(self) -> None:
        """Note the start of a batch of a manual optimization."""
        if self._losses is not None:
            self._losses.batch_begins()

    def backward(self, loss: Any) -> None:
        """Record a loss [] of a manual optimization."""
        if self._losses is not None:
            self._losses.backward(loss)

    def attach(self, module: nn.Module, optimizers: Sequence[Optimizer], *, manual: bool) -> None:
        """Watch a module instead of the present one.

        Args:
            module: the user's Lightning module, without the wrappers of a strategy.
            manual: the module calls the optimizers itself; the caller then ends the step after each
                batch in which it did.
        """
        self.detach()
        self._session.leader = self if manual else None
        self._model = MethodAsForward(module)
        given = list(optimizers) if len(optimizers) > 1 else next(iter(optimizers), None)
        self._inner = TorchAdapter(self._session, self._model, None, given)
        self._session.leader = self if manual else self._inner
        self._losses = _StepLosses(
            self._session, self._inner, manual=manual, adversaries=manual and len(optimizers) > 1
        )
        self._inner.find_losses(None, self._losses)
        self._stand_ins = [_StandIn(module, name, self._step) for name in _STEPS]
        self._stand_ins.append(_StandIn(module, "log", self._logging))
        self._ends = [
            listen_to_steps(optimizer, after=self._after_update) for optimizer in optimizers
        ]

    def detach(self) -> None:
        """See `Adapter.detach`."""
        while self._stand_ins:
            self._stand_ins.pop().leave()
        while self._ends:
            self._ends.pop()()
        if self._inner is not None:
            self._inner.detach()
            self._last = self._inner if self._session.keeps_model else None
        self._inner = self._model = self._losses = None

    def _after_update(self, *_: Any) -> None:
        self.stepped = True

    def _step(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a step of the module as the forward of the whole model."""
        model = self._model
        if model is None or not self._session.shield.ours:
            return method(*args, **kwargs)
        losses = None if method.__name__ == "predict_step" else self._losses
        if losses is not None:
            losses.step_begins()
        result = model.run(method, args, kwargs)
        if losses is not None:
            self._taking(losses, result, (*args, *kwargs.values()))
        return result

    def _logging(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Log a value and pass it on."""
        result = method(*args, **kwargs)
        both = dict(zip(("name", "value"), args, strict=False)) | kwargs
        self._log(both["name"], both["value"])
        return result


class _StandIn:
    """A callable that replaces a method of one object until `leave`.

    Its signature is that of the method. Copies and pickles of the object have the original method.

    Args:
        call: called instead of the method, with the method, its args and its kwargs.
    """

    def __init__(self, owner: Any, name: str, call: _Call) -> None:
        self._owner = owner
        self._name = name
        self._call = call
        self._method = getattr(owner, name)
        # An earlier replacement, such as a compiled method, is restored by `leave`.
        self._before = vars(owner).get(name)
        self.__doc__ = self._method.__doc__
        self.__name__ = name
        # Lightning unwraps one decorator to inspect the signature.
        self.__wrapped__ = getattr(self._method, "__wrapped__", self._method)
        setattr(owner, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the replacement."""
        return self._call(self._method, args, kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str]]:
        return getattr, (self._owner, self._name)

    def leave(self) -> None:
        """Restore the method, unless it was replaced again since."""
        if vars(self._owner).get(self._name) is not self:
            return
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


class _StepLosses:
    """Records the losses of a module's steps, and what functions inside the steps compared.

    It is the `InputTaker` of the losses that are found at backward passes. With automatic
    optimization, their values in training are those that the steps return.

    Args:
        manual: the module calls the optimizers itself.
        adversaries: several optimizers minimize losses of their own. What functions compared is
            then not recorded, since it may belong to any of them.
    """

    def __init__(
        self, session: Session, inner: TorchAdapter, *, manual: bool, adversaries: bool
    ) -> None:
        self._session = session
        self._inner = inner
        self._manual = manual
        self._adversaries = adversaries
        # The losses of functions in the current step of an evaluation, with their arguments.
        self._found: list[tuple[str, Any, tuple[Any, ...]]] = []
        # With manual optimization: the number of losses of the batch; the name of the first one
        # since the latest step of an optimizer; and the name of the one that it minimized.
        self._count = 0
        self._first = ""
        self._minimized = "loss"

    def batch_begins(self) -> None:
        """Count the losses of a manual optimization from 0."""
        self._count = 0
        self._first = ""

    def backward(self, loss: Any) -> None:
        """Record a loss [] of a manual optimization before its backward pass."""
        name = f"loss#{self._count}" if self._count else "loss"
        self._count += 1
        self._first = self._first or name
        self._record(name, loss)

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `LossTaker.record_loss`."""
        if self._session.recorder.explicit_mode == "eval":
            if not self._adversaries:
                self._found.append((name, value, arguments))
        elif self._manual:
            if not self._first:
                # The step calls `loss.backward()` instead of `manual_backward`.
                self.backward(value)
            self._minimized, self._first = self._first, ""

    def inputs_due(self, *, several: bool = False) -> Recording | None:
        """See `InputTaker.inputs_due`."""
        return None if self._adversaries else self._inner.inputs_due(several=several)

    def record_inputs(
        self, recording: Recording, name: str, inputs: tuple[Any, ...], *, paired: bool = True
    ) -> None:
        """See `InputTaker.record_inputs`."""
        name = self._minimized if self._manual else name
        self._inner.record_inputs(recording, name, inputs, paired=paired)

    def step_begins(self) -> None:
        """Forget the losses of a step that raised an error."""
        self._found.clear()

    def step_ended(self, result: Any, arguments: tuple[Any, ...]) -> None:
        """Record the loss that a step returns, directly or as the mapping's "loss".

        A step of an evaluation that returns none has the loss that a function computed in it.

        Args:
            arguments: arguments of the step, a nesting of tensors [batch, ...].
        """
        found = self._found[:]
        self._found.clear()
        loss = result.get("loss") if isinstance(result, dict) else result
        if self._session.recorder.explicit_mode in (None, "train"):
            if loss is not None and not self._manual:
                self._record("loss", loss)
            return
        if self._session.recorder.quiet:
            return
        if loss is not None:
            self._inner.record_value("loss", loss, arguments)
        else:
            for name, value, compared in found:
                self._inner.record_value(name, value, compared)
        if len(found) == 1 and (recording := self._inner.inputs_due()) is not None:
            name, _, compared = found[0]
            self._inner.record_inputs(recording, name, compared)

    def _record(self, name: str, loss: Any) -> None:
        """Record a loss [] of a train step; the guard keeps it, too."""
        if self._inner.guard is not None:
            self._inner.guard.took_loss(name, loss, ())
        if not self._session.recorder.quiet:
            self._inner.record_value(name, loss, ())
