"""Optimizer steps that are missing: overdue, or taken where they cannot be seen."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.shield import Shield
from vinedresser.frameworks.torch_.names import own_class
from vinedresser.frameworks.torch_.optimizers import updated

__all__ = ["Overdue", "UnseenSteps", "share"]

# Maximum number of steps of another optimizer meanwhile. The critic of the original Wasserstein GAN
# takes 100 steps per generator step.
_PATIENCE = 200
# The same while it is only assumed which optimizer ends steps. Critics usually take up to 5.
_ASSUMED_PATIENCE = 5


A = TypeVar("A")


class Overdue(Generic[A]):
    """Counts the steps of other optimizers since the last step of the one that ends steps.

    The type parameter is the adapter's.

    Attributes:
        others: class names of the other optimizers.
    """

    def __init__(self) -> None:
        self.others: set[str] = set()
        # Description of the overdue optimizer.
        self._awaited = ""
        # The optimizer that was assumed to end steps before the present one.
        self._replaced: weakref.ref[Optimizer] | None = None
        # Optimizers that have ended a step.
        self._active: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._counts: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._latest: tuple[weakref.ref[Optimizer], A] | None = None

    def ended(self, optimizer: Optimizer | None = None) -> None:
        """Note the end of a step, by the step of an optimizer."""
        if optimizer is not None:
            self._active.add(optimizer)
        if self._latest is not None:
            self.others.clear()
            self._counts.clear()
            self._latest = None

    def replaces(self, optimizer: Optimizer) -> None:
        """Note that the present optimizer ends steps until another one takes a step."""
        self._replaced = weakref.ref(optimizer)

    def returns(self, optimizer: Optimizer) -> bool:
        """Return whether an optimizer was replaced until it takes a step."""
        return self._replaced is not None and self._replaced() is optimizer

    def report(self, shield: Shield, instead: Optimizer | None = None) -> None:
        """Report the overdue optimizer, if any, and the one that ends steps instead."""
        then = "" if instead is None else f"; from now on steps end with those of {_class(instead)}"
        if self.others and self._awaited:
            shield.report(
                f"{self._awaited}, whose steps end the train steps, takes none, while "
                f"{', '.join(sorted(self.others))} does, so no step is captured{then}; pass "
                "watch(..., optimizer=...) only optimizers that take steps, in the order of their "
                "steps"
            )

    def stepped(
        self,
        optimizer: Optimizer,
        adapter: A,
        awaited: Optimizer | None,
        model: nn.Module,
        *,
        assumed: bool,
    ) -> tuple[Optimizer, A] | None:
        """Note the step of another optimizer.

        Args:
            adapter: adapter of its model.
            awaited: the optimizer that ends steps; None if it is gone.
            assumed: whether it is only assumed to.

        Returns:
            The optimizer that should end steps instead (the last one of a round), and the adapter
            of its model; None while waiting is worthwhile.
        """
        if not self.others:
            self._awaited = "" if awaited is None else _described(awaited, model)
        self.others.add(_class(optimizer))
        count = self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        before, self._latest = self._latest, (weakref.ref(optimizer), adapter)
        idle = awaited is None or awaited not in self._active or share(awaited, optimizer)
        if count <= (_ASSUMED_PATIENCE if assumed and idle else _PATIENCE):
            return None
        latest = None if before is None else before[0]()
        return (optimizer, adapter) if before is None or latest is None else (latest, before[1])


def share(one: Optimizer, other: Optimizer) -> bool:
    """Return whether two optimizers update the same parameter."""
    return not updated([one]).isdisjoint(updated([other]))


def _described(optimizer: Optimizer, model: nn.Module) -> str:
    """Return class and first parameter of an optimizer, such as ``Adam (of conv1.weight)``."""
    updates = updated([optimizer])
    named = model.named_parameters()
    of = next((name for name, one in named if id(one) in updates), "nothing of the model")
    return f"{_class(optimizer)} (of {of})"


def _class(optimizer: Optimizer) -> str:
    return type(optimizer).__name__


# Number of writes to a parameter that exceeds initialization and loading a checkpoint.
_WRITES = 3


class UnseenSteps:
    """Detects a model that is trained while no optimizer step is seen.

    Torch counts the writes to a tensor, also in compiled code.

    Args:
        shield: reports the problem.

    Attributes:
        any_seen: whether an optimizer's step has begun; with a closure, it writes many times.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, shield: Shield) -> None:
        self.any_seen = False
        self._model = model
        self._recorder = recorder
        self._shield = shield
        self._before = self._writes()
        self._told = False

    def look(self) -> None:
        """Check the model and report it once; callable from any thread."""
        if self._told or self.any_seen or self._recorder.steps or not self._model.training:
            return
        before = self._before
        if any(
            count - before.get(name, count) >= _WRITES for name, count in self._writes().items()
        ):
            self._told = True
            name = own_class(self._model).__name__
            self._shield.report(
                f"the weights of the {name} change, but no optimizer step is seen, so no train "
                "step is captured; steps in a compiled function cannot be seen: call "
                "optimizer.step() outside of it"
            )

    def _writes(self) -> dict[str, int]:
        return {
            name: parameter._version
            for name, parameter in self._model.named_parameters()
            if not is_lazy(parameter) and not parameter.is_inference()
        }
