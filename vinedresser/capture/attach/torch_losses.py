"""The losses of a torch training whose script says nothing of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.run.attachment import Attachment
from vinedresser.capture.torch_.forward.module_hook import ModuleHook
from vinedresser.capture.torch_.setup import described_loss

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook

__all__ = ["TorchLosses"]


class TorchLosses:
    """Finds loss modules by what they return, and all other losses by their backward.

    A module outside of the models that returns one number with a gradient is a loss module: its
    values are losses under its class's name, also in evaluations. Of what is not the value of such
    a module, but has its backward taken all the same, the sum since the last step is a loss: it is
    that of which the optimizer gets the gradient. A `torch.amp.GradScaler`'s factor is divided out.

    Args:
        attachment: whose shield stands around all of it.

    Attributes:
        hook: takes the losses; None as long as there is no training.
    """

    def __init__(self, attachment: Attachment) -> None:
        self.hook: AttachedHook | None = None
        self._attachment = attachment
        self._handles: list[RemovableHandle] = []
        self._names: set[str] = set()
        self._recorders: dict[str, Callable[[Any, tuple[Any, ...]], None]] = {}
        # What loss modules have returned last, and of what the backward was taken last.
        self._values: list[weakref.ref[torch.Tensor]] = []
        self._last: list[weakref.ref[torch.Tensor]] = []
        self._scaled = False
        # The sum of what is not recorded yet.
        self._pending: torch.Tensor | None = None
        self._name: Callable[[], str] = str
        self._total: torch.Tensor | None = None
        # An optimizer's step takes the backward itself, perhaps several times: the first counts.
        self._awaited = self._over = False

    def forget(self) -> None:
        """Let go of the training."""
        self.hook = None
        while self._handles:
            self._handles.pop().remove()
        self._names.clear()
        self._values.clear()
        self._recorders.clear()
        self._pending = self._total = None

    def consider(self, module: nn.Module) -> None:
        """Look whether a module that is about to be called returns a loss."""

        def look(module: nn.Module, args: Any, output: Any) -> None:
            handle.remove()
            if self.hook is not None and _is_loss(output):
                self._watch(module)(module, args, output)

        guarded = self._attachment.shield.guard("looking for a loss", look)
        handle = module.register_forward_hook(ModuleHook(guarded, module))

    def scaled(self, _: torch.amp.GradScaler) -> None:
        """Note that a loss is about to be scaled."""
        self._scaled = True

    def backward(self, tensors: Iterable[Any]) -> None:
        """Take tensors whose backward is about to be taken."""
        scaled, self._scaled = self._scaled, False
        losses = [one for one in tensors if _is_loss(one)]
        fresh = [one for one in losses if not any(last() is one for last in self._last)]
        if not fresh:
            return
        self._last = [weakref.ref(one) for one in losses]
        if self._over:
            return
        for loss in fresh:
            self._add(loss, scaled=scaled)
        if self._awaited and self._pending is not None:
            self._awaited, self._over = False, True
            self._record()

    def _add(self, loss: torch.Tensor, *, scaled: bool) -> None:
        """Add a loss to what is pending, unless it is a loss module's."""
        values = [reference() for reference in self._values]
        if any(one is loss for one in values):
            return
        value, origin = loss.detach().reshape(()), loss.grad_fn
        factor = getattr(origin, "_saved_other", None) if scaled else None
        if origin is not None and factor is not None and factor.numel() == 1:
            # As the scaler has multiplied it.
            value, origin = value / factor.reshape(()), origin.next_functions[0][0]
            if any(one is not None and one.grad_fn is origin for one in values):
                return
        before = self._pending
        self._pending = value if before is None else before + value.to(before.device)

    def step_begins(self, name: Callable[[], str], *, closure: bool) -> None:
        """Record the losses of the step that an optimizer is about to take.

        Args:
            name: returns that of the loss that it brings down.
            closure: the backward is taken inside of the step.
        """
        self._name = name
        self._awaited = closure
        if not closure:
            self._record()

    def step_ended(self) -> torch.Tensor | None:
        """Return the sum of what the backward was taken of in the step that has ended, if any."""
        self._awaited = self._over = False
        total, self._total = self._total, None
        return total

    def _record(self) -> None:
        """Record what is pending."""
        total, self._pending = self._pending, None
        if total is None or self.hook is None:
            return
        self._total = total
        name = self._name()
        if name not in self._recorders:
            self._recorders[name] = self.hook.loss_recorder(name)
        self._recorders[name](total, ())

    def _watch(self, module: nn.Module) -> Callable[..., None]:
        """Watch a loss module from now on; return the hook for it."""
        name = type(module).__name__
        while name in self._names:
            name += "'"
        self._names.add(name)
        assert self.hook is not None, "a loss is looked for in a training"
        record = self.hook.loss_recorder(name, described_loss(module))

        def returned(_: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                self._values = [*self._values[-3:], weakref.ref(output)]
                record(output, args)

        skip = torch.compiler.is_compiling
        guarded = self._attachment.shield.guard("the loss", returned, skip=skip)
        self._handles.append(module.register_forward_hook(ModuleHook(guarded, module)))
        return guarded


def _is_loss(value: Any) -> bool:
    """Say whether a value is one real number with a gradient."""
    return (
        isinstance(value, torch.Tensor)
        and value.numel() == 1
        and value.is_floating_point()
        and value.requires_grad
    )
