"""Detection of the losses of a torch training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from vinedresser.capture.run.attachment import Attachment
from vinedresser.capture.torch_.forward.calls import ModuleHook, Removable
from vinedresser.capture.torch_.losses.backward_losses import BackwardLosses, is_loss
from vinedresser.capture.torch_.setup import described_loss

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook

__all__ = ["TorchLosses"]


class TorchLosses(BackwardLosses):
    """Detects loss modules by their output and other losses by their backward pass.

    A module outside the models that returns a scalar with a gradient is a loss module: its values
    are recorded under its class name, also in evaluations. For other losses, see `BackwardLosses`.

    Args:
        attachment: provides the shield.

    Attributes:
        hook: records the losses; None if there is no training.
    """

    def __init__(self, attachment: Attachment) -> None:
        super().__init__(attachment.shield)
        self.hook: AttachedHook | None = None
        self._names: set[str] = set()

    def attach(self, hook: AttachedHook) -> None:
        """Begin with a training."""
        self.hook = self.sink = hook

    def forget(self) -> None:
        """See `BackwardLosses.forget`."""
        self.hook = None
        self._names.clear()
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

    def _watch(self, module: nn.Module) -> Callable[..., None]:
        """Watch a loss module and return its forward hook."""
        name = type(module).__name__
        while name in self._names:
            name += "'"
        self._names.add(name)
        assert self.hook is not None, "losses are detected in trainings only"
        record = self.hook.loss_recorder(name, described_loss(module))

        def returned(_: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                self.reported(output)
                record(output, args)

        skip = torch.compiler.is_compiling
        guarded = self.shield.guard("the loss", returned, skip=skip)
        self._handles.append(module.register_forward_hook(ModuleHook(guarded, module)))
        return guarded
