"""Changing the learning rate or the clipping of a torch training between two steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from vinedresser.capture.adapters.tunable import Change, Changed, Guard
from vinedresser.errors import ConfigError

__all__ = ["GradientClip", "TorchLearningRate"]


class TorchLearningRate:
    """The learning rates of an optimizer's parameter groups.

    Args:
        optimizer: whose.
        schedulers: that compute them; what they start from (``base_lrs``) changes in proportion.

    Raises:
        ConfigError: a scheduler is none, or of another optimizer.
    """

    def __init__(self, optimizer: Optimizer, schedulers: Iterable[Any]) -> None:
        self._optimizer = optimizer
        self._schedulers = list(schedulers)
        for one in self._schedulers:
            if getattr(one, "optimizer", None) is not optimizer:
                raise ConfigError(f"tunable('lr', …): {one!r} is no scheduler of this optimizer")

    def change(self, change: Change) -> Changed:
        """See `Tunable.change`."""
        groups = self._optimizer.param_groups
        old = [float(group["lr"]) for group in groups]
        new = [change(rate) for rate in old]
        for group, rate in zip(groups, new, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                # A graph of CUDA, or a compiled step, reads this very tensor.
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
    """The norm to which all gradients of some optimizers together are clipped; none at first.

    As long as it is not set, nothing is hooked to the optimizers.

    Args:
        optimizers: whose; each clips the gradients of its own parameters.

        guard: has a callback do no harm to the training.

    Raises:
        ConfigError: one is no optimizer.
    """

    def __init__(self, optimizers: Iterable[Any], guard: Guard) -> None:
        self._optimizers = list(optimizers)
        self._hook = guard("clipping the gradients", self._clip)
        self._norm: float | None = None
        for one in self._optimizers:
            if not isinstance(one, Optimizer):
                raise ConfigError(f"tunable('clip', …): {one!r} is no torch.optim.Optimizer")

    def change(self, change: Change) -> Changed:
        """See `Tunable.change`."""
        old = [] if self._norm is None else [self._norm]
        norm = change(self._norm or 0.0)
        if not norm:
            raise ConfigError("clip: a norm of 0 leaves nothing of the gradients")
        if self._norm is None:
            for optimizer in self._optimizers:
                optimizer.register_step_pre_hook(self._hook)
                # The gradients that are recorded are those that the optimizer consumes.
                hooks = optimizer._optimizer_step_pre_hooks
                hooks.move_to_end(next(reversed(hooks)), last=False)
        self._norm = norm
        return Changed(old, [norm])

    def _clip(self, optimizer: Optimizer, *_: Any) -> None:
        assert self._norm is not None
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        # A fused optimizer takes gradients that are still scaled, and this.
        scale = getattr(optimizer, "grad_scale", None)
        clip_grad_norm_(parameters, self._norm * (1.0 if scale is None else float(scale)))
