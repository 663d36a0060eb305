"""The tunable parameters of a torch training: learning rate and gradient clipping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from vinedresser.capture.adapters.adapter import Change, Changed, Guard
from vinedresser.errors import ConfigError

__all__ = ["GradientClip", "TorchLearningRate"]


class TorchLearningRate:
    """The learning rates of an optimizer's parameter groups.

    Args:
        schedulers: its schedulers; their ``base_lrs`` change in proportion.

    Raises:
        ConfigError: an object is not a scheduler of the optimizer.
    """

    def __init__(self, optimizer: Optimizer, schedulers: Iterable[Any]) -> None:
        self._optimizer = optimizer
        self._schedulers = list(schedulers)
        for scheduler in self._schedulers:
            if getattr(scheduler, "optimizer", None) is not optimizer:
                raise ConfigError(
                    f"tunable('lr', …): {scheduler!r} is not a scheduler of the optimizer"
                )

    def change(self, change: Change) -> Changed:
        """See `Tunable.change`."""
        groups = self._optimizer.param_groups
        old = [float(group["lr"]) for group in groups]
        new = [change(rate) for rate in old]
        for group, rate in zip(groups, new, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                # A CUDA graph or compiled step reads this tensor.
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        for scheduler in self._schedulers:
            bases = getattr(scheduler, "base_lrs", None)
            if bases is not None:
                scheduler.base_lrs = [
                    base * after / before if before else change(float(base))
                    for base, before, after in zip(bases, old, new, strict=True)
                ]
        return Changed(old, new)


class GradientClip:
    """The maximum norm of an optimizer's gradients, initially unset.

    Args:
        optimizers: optimizers; the gradients of each are clipped separately.
        guard: see `Shield.guard`.

    Raises:
        ConfigError: an object is not an optimizer.
    """

    def __init__(self, optimizers: Iterable[Any], guard: Guard) -> None:
        self._optimizers = list(optimizers)
        self._hook = guard("clipping the gradients", self._clip)
        self._norm: float | None = None
        for optimizer in self._optimizers:
            if not isinstance(optimizer, Optimizer):
                raise ConfigError(
                    f"tunable('clip', …): {optimizer!r} is not a torch.optim.Optimizer"
                )

    def change(self, change: Change) -> Changed:
        """See `Tunable.change`."""
        old = [] if self._norm is None else [self._norm]
        norm = change(self._norm or 0.0)
        if not norm:
            raise ConfigError("clip: the norm must be positive")
        if self._norm is None:
            for optimizer in self._optimizers:
                optimizer.register_step_pre_hook(self._hook)
                # Clip first, since the hooks capture gradients as the optimizer consumes them.
                hooks = optimizer._optimizer_step_pre_hooks
                hooks.move_to_end(next(reversed(hooks)), last=False)
        self._norm = norm
        return Changed(old, [norm])

    def _clip(self, optimizer: Optimizer, *_: Any) -> None:
        assert self._norm is not None
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        # A fused optimizer receives scaled gradients and unscales them itself.
        scale = getattr(optimizer, "grad_scale", None)
        clip_grad_norm_(parameters, self._norm * (1.0 if scale is None else float(scale)))
