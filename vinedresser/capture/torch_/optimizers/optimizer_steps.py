"""Finding the optimizers of a torch model and hooking their steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.shield import Shield

__all__ = ["OptimizerHooks", "has_closure", "updated", "with_closure"]

_Hook = Callable[[Optimizer, Any, Any], None]


class OptimizerHooks:
    """Hooks on the steps of all optimizers that update a model.

    They run after the user's earlier hooks, which may change gradients. The step of one optimizer
    ends the model's step: the last one given, or else the first one seen. When it is garbage
    collected, the next optimizer replaces it; if there were several, the next one that updates the
    same parameters or takes two steps.

    Args:
        model: the user's model.
        given: optimizers known from the start, in the order of their steps.
        before: called before each step of an optimizer.
        after: called after each step of an optimizer.
        found: called once with each optimizer.
        shield: guards the search for other optimizers.
        skip: the search is skipped while this returns True.
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
        # Weak, so as not to keep optimizers alive.
        self._known: list[weakref.ref[Optimizer]] = []
        self._several = False
        self._others: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._last: weakref.ref[Optimizer] | None = None
        self._updated_by_last: set[int] = set()
        # Optimizers that have taken a step since the last one was garbage collected.
        self._since: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        look = shield.guard("looking for the optimizer", self._look, skip=skip)
        self._handles: list[RemovableHandle] = [register_optimizer_step_pre_hook(look)]
        for optimizer in dict.fromkeys(given):
            self._know(optimizer)
        if given:
            self.end_with(given[-1])

    def known(self) -> list[Optimizer]:
        """Return the optimizers of the model in the order they were found."""
        found = (reference() for reference in self._known)
        return [optimizer for optimizer in found if optimizer is not None]

    def groups_before(self, optimizer: Optimizer) -> int:
        """Return the number of parameter groups of the optimizers before one."""
        known = self.known()
        before = known[: known.index(optimizer)] if optimizer in known else known
        return sum(len(one.param_groups) for one in before)

    def parameters(self) -> list[nn.Parameter]:
        """Return the model's parameters that the optimizer updates whose steps end its steps."""
        ids = updated([] if self.last is None else [self.last])
        return [one for one in self._model.parameters() if id(one) in ids]

    def ends_step(self, optimizer: Optimizer) -> bool:
        """Return whether the step of an optimizer ends the model's step."""
        return self._last is not None and self._last() is optimizer

    @property
    def last(self) -> Optimizer | None:
        """The optimizer whose step ends the model's step, or None."""
        return None if self._last is None else self._last()

    def remove(self) -> None:
        """Remove all hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _know(self, optimizer: Optimizer) -> None:
        """Hook the steps of an optimizer."""
        self._known = [one for one in self._known if one() is not None]
        self._known.append(weakref.ref(optimizer))
        self._several |= len(self._known) > 1
        self._handles.append(optimizer.register_step_pre_hook(self._before))
        self._handles.append(optimizer.register_step_post_hook(self._after))
        self._found(optimizer)

    def end_with(self, optimizer: Optimizer) -> None:
        """Let the steps of an optimizer end the model's steps."""
        self._last = weakref.ref(optimizer)
        self._updated_by_last = updated([optimizer])
        self._since.clear()

    def _look(self, optimizer: Optimizer, *_: Any) -> None:
        """Check whether an optimizer that is about to step updates the model."""
        last = self.last
        if last is optimizer or optimizer in self._others:
            return
        alone = last is None
        if optimizer not in self.known():
            ours = {id(parameter) for parameter in self._model.parameters()}
            if ours.isdisjoint(updated([optimizer])):
                self._others.add(optimizer)
                return
            # Torch has not yet called the optimizer's own hooks, so they see this step, too.
            self._know(optimizer)
            if not alone and not self._told:
                self._shield.report(
                    f"a second optimizer, {type(optimizer).__name__}, updates the watched model; "
                    "the first one's steps end the step: choose another by watch(…, optimizer=…)"
                )
        if alone:
            waits = self._several and optimizer not in self._since
            if waits and not self._succeeds(optimizer):
                self._since.add(optimizer)
            else:
                self.end_with(optimizer)

    def _succeeds(self, optimizer: Optimizer) -> bool:
        """Return whether an optimizer updates parameters of the garbage-collected last one."""
        return not self._updated_by_last.isdisjoint(updated([optimizer]))


def updated(optimizers: Iterable[Optimizer]) -> set[int]:
    """Return the ids of the parameters that some optimizers update."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return {id(parameter) for group in groups for parameter in group["params"]}


def has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an optimizer's step has a closure; args[0] is the optimizer."""
    return kwargs.get("closure") is not None or (len(args) > 1 and callable(args[1]))


def with_closure(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wrapped: Callable[[Callable[[], Any]], Callable[[], Any]],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an optimizer's step with another closure.

    Args:
        args: positional arguments of a step with a closure; args[0] is the optimizer.
        kwargs: its keyword arguments.
        wrapped: returns the closure for the present one.
    """
    if kwargs.get("closure") is not None:
        return args, kwargs | {"closure": wrapped(kwargs["closure"])}
    return (args[0], wrapped(args[1]), *args[2:]), kwargs
