"""Detection of the losses of a torch training."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.run.attachment import Attachment
from vinedresser.capture.torch_.losses.backward_losses import (
    BackwardLosses,
    LossRecorder,
)
from vinedresser.capture.torch_.losses.custom_losses import custom_function
from vinedresser.capture.torch_.losses.losses import is_loss
from vinedresser.capture.torch_.setup import described_loss
from vinedresser.frameworks.torch_.module_calls import ModuleHook, Removable

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook


class _LossModule:
    """A module that returned a loss.

    Args:
        module: the module, which is not kept alive.

    Attributes:
        record: records its values; None until it is known whether the module outlives its forward.
        waiting: its values and arguments until then.
        name: name of its loss; "" until it is known.
        calls: number of its recorded values.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = weakref.ref(module)
        self.record: LossRecorder | None = None
        self.waiting: list[tuple[torch.Tensor, tuple[Any, ...]]] = []
        self.name = ""
        self.calls = 0


class TorchLosses(BackwardLosses):
    """Detects loss modules by their output and other losses by their backward pass.

    A module outside the models that returns a scalar with a gradient is a loss module: its values
    are recorded under its class name, also in evaluations. For other losses, see `BackwardLosses`;
    they include those of a module that is made for one forward, as in models of transformers: it
    no longer exists at the backward pass, and those of later steps are not seen. A loop may also
    make a module in each step: then the other losses have the name of the first one.

    Args:
        attachment: provides the shield.

    Attributes:
        hook: records the losses; None if there is no training.
    """

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment.shield)
        self.hook: AttachedHook | None = None
        self._names: set[str] = set()
        self._new: list[_LossModule] = []
        self._decided: list[_LossModule] = []

    def attach(self, hook: AttachedHook) -> None:
        """Begin with a training."""
        self.hook = self.sink = hook

    def forget(self) -> None:
        """See `BackwardLosses.forget`."""
        self.hook = None
        self._names.clear()
        self._new.clear()
        self._decided.clear()
        super().forget()

    def keep(self, handle: Removable) -> None:
        """Remove a hook when the training is released."""
        self._handles.append(handle)

    def consider(self, module: nn.Module) -> None:
        """Check the output of a module's next call for a loss."""

        def look(module: nn.Module, args: Any, output: Any) -> None:
            handle.remove()
            if self.hook is not None and is_loss(output):
                self._watch(module)(module, args, output)

        guarded = self.shield.guard("looking for a loss", look)
        handle = module.register_forward_hook(ModuleHook(guarded, module))

    def backward(self, tensors: Iterable[Any]) -> None:
        """See `BackwardLosses.backward`."""
        self._decide()
        super().backward(tensors)

    def step_begins(
        self, name: Callable[[], str], optimizer: Optimizer | None, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """See `BackwardLosses.step_begins`."""
        self._decide()
        inherited = lambda: self._inherited() or name()  # noqa: E731
        return super().step_begins(inherited, optimizer, args, kwargs)

    def _inherited(self) -> str:
        """Return the name of the only loss module if it was made for one step; "" otherwise."""
        if len(self._decided) != 1:
            return ""
        (first,) = self._decided
        return first.name if first.calls == 1 and first.module() is None else ""

    def _watch(self, module: nn.Module) -> Callable[..., None]:
        """Watch a loss module and return its forward hook."""
        watched = _LossModule(module)
        self._new.append(watched)

        def returned(_: nn.Module, args: Any, output: Any) -> None:
            if watched.record is not None and isinstance(output, torch.Tensor):
                self.reported(output)
                watched.record(output, args)
                watched.calls += 1
            elif watched.record is None and is_loss(output):
                watched.waiting.append((output, args))

        skip = torch.compiler.is_compiling
        guarded = self.shield.guard("the loss", returned, skip=skip)
        self._handles.append(module.register_forward_hook(ModuleHook(guarded, module)))
        return guarded

    def _decide(self) -> None:
        """Record the losses of new modules if the modules still exist."""
        while self._new:
            watched = self._new.pop(0)
            module = watched.module()
            if module is None or self.hook is None:
                continue
            name = type(module).__name__
            while name in self._names:
                name += "'"
            self._names.add(name)
            watched.name = name
            self._decided.append(watched)
            waiting, watched.waiting = watched.waiting, []
            described = described_loss(module)
            if described.get("custom"):
                described |= custom_function(*waiting[0]) or {}
            watched.record = self.hook.loss_recorder(name, described)
            for value, arguments in waiting:
                self.reported(value)
                watched.record(value, arguments)
                watched.calls += 1
