"""Finding the optimizers of a torch model and hooking their steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.shield import Shield
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.optimizer_steps import Arguments, listen_to_steps
from vinedresser.frameworks.torch_.optimizers import updated

_Before = Callable[[Optimizer, Any, Any], Arguments | None]
_After = Callable[[Optimizer, Any, Any], None]


class OptimizerHooks(LoopListener):
    """Hooks on the steps of all optimizers that update a model.

    They run after the user's earlier hooks, which may change gradients. The step of one optimizer
    ends the model's step: the last one given, or else the first one seen. When it is garbage
    collected, the next optimizer replaces it; if there were several, the next one that updates the
    same parameters or takes two steps.

    Args:
        given: optimizers known from the start, in the order of their steps.
        before: called before each step of an optimizer; may return other arguments for it.
        after: called after each step of an optimizer.
        found: called once with each optimizer.
        shield: guards the search for other optimizers.
    """

    def __init__(
        self,
        model: nn.Module,
        given: Sequence[Optimizer],
        before: _Before,
        after: _After,
        *,
        found: Callable[[Optimizer], object],
        shield: Shield,
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
        self._ends = [listen_to_loop(self, shield.guard)]
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
        return [parameter for parameter in self._model.parameters() if id(parameter) in ids]

    def ends_step(self, optimizer: Optimizer) -> bool:
        """Return whether the step of an optimizer ends the model's step."""
        return self._last is not None and self._last() is optimizer

    @property
    def last(self) -> Optimizer | None:
        """The optimizer whose step ends the model's step, or None."""
        return None if self._last is None else self._last()

    def remove(self) -> None:
        """Remove all hooks."""
        while self._ends:
            self._ends.pop()()

    def _know(self, optimizer: Optimizer) -> None:
        """Hook the steps of an optimizer."""
        self._known = [one for one in self._known if one() is not None]
        self._known.append(weakref.ref(optimizer))
        self._several |= len(self._known) > 1
        self._ends.append(listen_to_steps(optimizer, self._before, self._after))
        self._found(optimizer)

    def end_with(self, optimizer: Optimizer) -> None:
        """Let the steps of an optimizer end the model's steps."""
        self._last = weakref.ref(optimizer)
        self._updated_by_last = updated([optimizer])
        self._since.clear()

    def step_begins(self, optimizer: Optimizer, *_: Any) -> None:
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
