"""Finding the optimizer that updates a torch model, and seeing its steps begin and end."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.shield import Shield

__all__ = ["OptimizerHooks"]

_Hook = Callable[[Optimizer, Any, Any], None]


class OptimizerHooks:
    """Hooks on the steps of the one optimizer that counts.

    They stand behind those that the user has set on it before, which may still change gradients.
    When that optimizer is gone, the next one that updates the model takes its place.

    Args:
        model: the user's own model.
        optimizer: the one that counts; None: the first that is seen to update the model.
        before: called before each of its steps.
        after: called after each of its steps.
        shield: around the search for it.
        skip: nothing is done while this returns True.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        before: _Hook,
        after: _Hook,
        *,
        shield: Shield,
        skip: Callable[[], bool],
    ) -> None:
        self._model = model
        self._told = optimizer is not None
        self._before = before
        self._after = after
        self._shield = shield
        # None is kept alive by us.
        self._counted: weakref.ref[Optimizer] | None = None
        self._others: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        look = shield.guard("looking for the optimizer", self._look, skip=skip)
        self._handles: list[RemovableHandle] = [register_optimizer_step_pre_hook(look)]
        if optimizer is not None:
            self._count(optimizer)

    def remove(self) -> None:
        """Take all hooks away."""
        while self._handles:
            self._handles.pop().remove()

    def _count(self, optimizer: Optimizer) -> None:
        """Count the steps of an optimizer from now on."""
        self._counted = weakref.ref(optimizer)
        self._handles.append(optimizer.register_step_pre_hook(self._before))
        self._handles.append(optimizer.register_step_post_hook(self._after))

    def _look(self, optimizer: Optimizer, *_: Any) -> None:
        """Look at whichever optimizer is about to take a step."""
        counted = None if self._counted is None else self._counted()
        if counted is optimizer or optimizer in self._others:
            return
        ours = {id(parameter) for parameter in self._model.parameters()}
        groups = optimizer.param_groups
        if any(id(parameter) in ours for group in groups for parameter in group["params"]):
            if counted is None:
                # Torch has not come to the optimizer's own hooks yet, so they see this step too.
                self._count(optimizer)
                return
            if not self._told:
                self._shield.report(
                    f"a second optimizer, {type(optimizer).__name__}, updates the watched model; "
                    "steps are those of the first: say which by watch(…, optimizer=…)"
                )
        self._others.add(optimizer)
