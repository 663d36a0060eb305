"""Finding the optimizers that update a torch model, and seeing their steps begin and end."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.shield import Shield

__all__ = ["OptimizerHooks", "updated"]

_Hook = Callable[[Optimizer, Any, Any], None]


class OptimizerHooks:
    """Hooks on the steps of all optimizers that update a model.

    They stand behind those that the user has set on it before, which may still change gradients.
    One optimizer is the last of a step: the one that was given last, or else the first that is
    seen. When it is gone, its place is taken by the next one; where there were several, by the next
    one that updates what it has updated, or that has taken two steps since.

    Args:
        model: the user's own model.
        given: those that are known from the beginning, in the order of their steps.
        before: called before each of their steps.
        after: called after each of their steps.
        found: called with each of them once, when it is first known.
        shield: around the search for others.
        skip: nothing is done while this returns True.
    """

    def __init__(
        self,
        model: nn.Module,
        given: Sequence[Optimizer],
        before: _Hook,
        after: _Hook,
        *,
        found: Callable[[Optimizer], object],
        shield: Shield,
        skip: Callable[[], bool],
    ) -> None:
        self._model = model
        self._told = bool(given)
        self._before = before
        self._after = after
        self._found = found
        self._shield = shield
        # None is kept alive by us.
        self._known: list[weakref.ref[Optimizer]] = []
        self._several = False
        self._others: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._last: weakref.ref[Optimizer] | None = None
        self._updated_by_last: set[int] = set()
        # Those that have taken a step since the last one is gone.
        self._since: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        look = shield.guard("looking for the optimizer", self._look, skip=skip)
        self._handles: list[RemovableHandle] = [register_optimizer_step_pre_hook(look)]
        for optimizer in dict.fromkeys(given):
            self._know(optimizer)
        if given:
            self.end_with(given[-1])

    def known(self) -> list[Optimizer]:
        """Return the optimizers that update the model, in the order in which they came."""
        found = (reference() for reference in self._known)
        return [optimizer for optimizer in found if optimizer is not None]

    def ends_step(self, optimizer: Optimizer) -> bool:
        """Return whether a step of the model ends with that of an optimizer."""
        return self._last is not None and self._last() is optimizer

    @property
    def last(self) -> Optimizer | None:
        """The one with whose steps those of the model end; None where none is known."""
        return None if self._last is None else self._last()

    def remove(self) -> None:
        """Take all hooks away."""
        while self._handles:
            self._handles.pop().remove()

    def _know(self, optimizer: Optimizer) -> None:
        """See the steps of an optimizer from now on."""
        self._known = [one for one in self._known if one() is not None]
        self._known.append(weakref.ref(optimizer))
        self._several |= len(self._known) > 1
        self._handles.append(optimizer.register_step_pre_hook(self._before))
        self._handles.append(optimizer.register_step_post_hook(self._after))
        self._found(optimizer)

    def end_with(self, optimizer: Optimizer) -> None:
        """Have steps end with those of an optimizer."""
        self._last = weakref.ref(optimizer)
        self._updated_by_last = updated([optimizer])
        self._since.clear()

    def _look(self, optimizer: Optimizer, *_: Any) -> None:
        """Look at whichever optimizer is about to take a step."""
        last = self.last
        if last is optimizer or optimizer in self._others:
            return
        alone = last is None
        if optimizer not in self.known():
            ours = {id(parameter) for parameter in self._model.parameters()}
            if ours.isdisjoint(updated([optimizer])):
                self._others.add(optimizer)
                return
            # Torch has not come to the optimizer's own hooks yet, so they see this step too.
            self._know(optimizer)
            if not alone and not self._told:
                self._shield.report(
                    f"a second optimizer, {type(optimizer).__name__}, updates the watched model; "
                    "steps end with those of the first: say which by watch(…, optimizer=…)"
                )
        if alone:
            waits = self._several and optimizer not in self._since
            if waits and not self._succeeds(optimizer):
                self._since.add(optimizer)
            else:
                self.end_with(optimizer)

    def _succeeds(self, optimizer: Optimizer) -> bool:
        """Return whether an optimizer updates what was updated by the last one, which is gone."""
        return not self._updated_by_last.isdisjoint(updated([optimizer]))


def updated(optimizers: Iterable[Optimizer]) -> set[int]:
    """Return the identities of the parameters that some optimizers update."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return {id(parameter) for group in groups for parameter in group["params"]}
