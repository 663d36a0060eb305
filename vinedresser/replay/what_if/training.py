"""Steps of a training that continue from a recorded state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.names import Names, unwrapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.nonfinite import (
    gradients_of,
    nonfinite_entries,
    scaler_decides,
)
from vinedresser.frameworks.torch_.optimizer_steps import listen_to_all_steps
from vinedresser.frameworks.torch_.optimizers import has_closure, with_closure
from vinedresser.replay.batch import Batch
from vinedresser.replay.factory import Parts
from vinedresser.replay.recorded import RecordedStep
from vinedresser.replay.restoring import restore
from vinedresser.replay.running import Replay, UpdateReached
from vinedresser.replay.what_if.changeable import Changeable
from vinedresser.replay.what_if.results import Course

__all__ = ["Training", "distance", "finite_norm", "optimizers_for"]


class _Broken(BaseException):
    """The gradients of an update are not finite."""


class Training(Changeable):
    """Takes steps from the recorded state, each time from its beginning.

    A step function that updates the weights is a whole step: it clears the gradients, or it does
    not. After one that only computes gradients, the optimizer steps, and the gradients are
    cleared.

    Args:
        again: runs the recorded step.
        batches: the batches of each step; the first are the recorded ones.
    """

    def __init__(self, again: Replay, batches: list[list[Batch]]) -> None:
        super().__init__(next(iter(again.parts.models.values())), again.parts.optimizers)
        self._again = again
        self._batches = batches
        self._updates = True
        self._final = True
        self._steps_itself = False
        self._seen: list[Optimizer] = []
        # The gradients of the latest update that was not made.
        self._held: list[Tensor] = []
        self._course = Course()

    def learn(self, within: AbstractContextManager[object]) -> bool:
        """Take one step, to learn what the step function does by itself.

        Returns:
            Whether gradients of a step are added to those of the step before.

        Raises:
            ConfigError: the optimizer is needed and unknown.
        """
        with within:
            self._restore()
            self._attempt(0)
        self._steps_itself = bool(self._seen)
        recorded = sum(len(model.optimizers) for model in self._again.step.models.values())
        if not self.optimizers and recorded == 1:
            self.optimizers += self._seen or optimizers_for(self._again.parts, self._again.step)
        if not self.optimizers or len(self.optimizers) != recorded:
            raise ConfigError(
                f"{self._again.whose}: the snapshot has {recorded} optimizers, and the factory "
                f"returns {len(self.optimizers)}: return all of them, in the order in which the "
                "training made them"
            )
        if not self._steps_itself or len(self._batches[0]) > 1:
            self.clears = True
            return False
        return self._course.broke is None and self._accumulates()

    def run(
        self,
        steps: int,
        deadline: float,
        within: AbstractContextManager[object] | None = None,
        *,
        first: int = 0,
        updates: bool = True,
    ) -> Course:
        """Take steps from the recorded state.

        Args:
            steps: their number.
            deadline: time of `time.monotonic` at which no other step begins.
            within: context of the steps; entered in the recorded state.
            first: number of the first step, which chooses its batches.
            updates: whether weights are updated.
        """
        self._restore()
        self._updates = updates
        try:
            with within or nullcontext():
                for number in range(first, first + steps):
                    if time.monotonic() > deadline:
                        self._course.out_of_time = True
                        break
                    if not self._attempt(number):
                        break
        finally:
            self._updates = True
        return self._course

    def moved(self) -> float:
        """Return how far the weights are from their recorded values; see `distance`."""
        return distance(self._again.parts, self._again.step)

    def _restore(self) -> None:
        self._course = Course()
        restore(self._again.parts, self._again.step, self._again.whose)

    def _attempt(self, number: int) -> bool:
        """Take a step; return whether another one can follow."""
        end = listen_to_all_steps(before=self._before_update)
        course = self._course
        try:
            loss = self._step(self._batches[number % len(self._batches)])
        except _Broken:
            course.broke = len(course.losses)
            return False
        except (ValueError, RuntimeError, IndexError, ArithmeticError) as error:
            course.failed = f"{error}".strip().split("\n")[0] or type(error).__name__
            return False
        finally:
            end()
        if loss is None:
            raise ConfigError(f"{self._again.whose}: the step returned no loss")
        if not torch.isfinite(torch.tensor(loss)):
            course.broke = len(course.losses)
            return False
        course.losses.append(loss)
        return True

    def _step(self, batches: list[Batch]) -> float | None:
        if self.clears:
            self._clear()
        losses: list[float] = []
        for number, batch in enumerate(batches):
            self._final = number == len(batches) - 1
            value = self._again.run_batch(self.prepare(batch))
            if isinstance(value, float):
                losses.append(value)
            found = [one for _, one in leaves(value) if one.numel() == 1]
            losses += [float(one.detach()) for one in found[:1]]
        if not self._steps_itself and self._updates and self.clears:
            self._own_update()
        return sum(losses) / len(losses) if losses else None

    def _own_update(self) -> None:
        if len(self.optimizers) > 1 or isinstance(self.optimizers[0], torch.optim.LBFGS):
            raise ConfigError(
                f"{self._again.whose}: let the step function update the weights, as in the "
                "training: there are several optimizers, or one that needs a closure"
            )
        self.optimizers[0].step()

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if not any(one is optimizer for one in self._seen):
            self._seen.append(optimizer)
        if has_closure(args, kwargs):
            return with_closure(args, kwargs, partial(self._using, optimizer))
        self._use(optimizer)
        return None

    def _using(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure whose gradients are used as those before an update."""
        first = True

        def computed() -> Any:
            nonlocal first
            loss = closure()
            # A line search may try weights without finite gradients, and take others.
            self._use(optimizer, loss, judged=first)
            first = False
            return loss

        return computed

    def _use(self, optimizer: Optimizer, loss: Any = None, *, judged: bool = True) -> None:
        """Look at complete gradients, and change them.

        Args:
            optimizer: the optimizer that is about to use them.
            loss: what its closure returned.
            judged: whether they must be finite.
        """
        if not self._final:
            raise UpdateReached(loss)
        if not self._updates:
            self._held = gradients_of(optimizer)
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    # Without a gradient, there is no update, and the step can end as usual.
                    parameter.grad = None
            return
        if scaler_decides(optimizer):
            return
        gradients = gradients_of(optimizer)
        norm = finite_norm(gradients) if judged else 0.0
        if norm is None:
            raise _Broken
        self._course.norm = max(self._course.norm, norm)
        for one in self.before_update:
            one(gradients)

    def _clear(self) -> None:
        for parameter in self._parameters():
            parameter.grad = None

    def _parameters(self) -> list[nn.Parameter]:
        return [
            parameter
            for each in self._again.parts.models.values()
            for parameter in each.parameters()
        ]

    def _accumulates(self) -> bool:
        """Return whether the gradients of a whole step are added to those before it."""
        used = [
            one
            for each in self.optimizers
            for group in each.param_groups
            for one in group["params"]
            if one.requires_grad
        ]
        if not any(one.grad is not None and one.grad.any() for one in used):
            return False
        found: list[list[Tensor]] = []
        for value in (0.0, 1.0):
            self._restore()
            for parameter in used:
                parameter.grad = torch.full_like(parameter, value)
            self._updates = False
            self._attempt(0)
            self._updates = True
            found.append(self._held)
        pairs = zip(*found, strict=False)
        return not all(torch.allclose(one, other, rtol=1e-3) for one, other in pairs)


def finite_norm(gradients: Sequence[Tensor]) -> float | None:
    """Return the norm of the dense gradients; None if an entry is not finite.

    Infinite if they are so large that their norm overflows.

    Args:
        gradients: the gradients of an update.
    """
    dense = [gradient for gradient in gradients if not gradient.is_sparse]
    norm = float(torch.nn.utils.get_total_norm(dense)) if dense else 0.0
    sure = norm < math.inf and len(dense) == len(gradients)
    return None if not sure and any(map(nonfinite_entries, gradients)) else norm


def distance(parts: Parts, step: RecordedStep) -> float:
    """Return how far weights are from their recorded values, as a share of the norm of these.

    Infinite if that is 0.

    Args:
        parts: the models.
    """
    moved = size = 0.0
    for name, model in parts.models.items():
        recorded = step.models[name].parameters
        for parameter in Names(unwrapped(model)).parameters():
            if parameter.value.requires_grad:
                before = recorded[parameter.path].to(parameter.value.device)
                size += float(before.norm()) ** 2
                moved += float((parameter.value.detach() - before).norm()) ** 2
    return math.sqrt(moved / size) if size else math.inf


def optimizers_for(parts: Parts, step: RecordedStep) -> list[Optimizer]:
    """Build the recorded optimizer, of a model whose parameters it has in their order.

    Args:
        parts: result of the factory, which returned no optimizer.

    Raises:
        ConfigError: it is not known which parameters the optimizer has.
    """
    found = [
        (name, optimizer) for name, each in step.models.items() for optimizer in each.optimizers
    ]
    advice = "the factory must return the optimizer, after the model"
    if len(found) != 1:
        raise ConfigError(f"{advice}: the snapshot has {len(found)} optimizers")
    name, recorded = found[0]
    made = getattr(torch.optim, str(recorded["type"]), None)
    groups = recorded["state"]["param_groups"]
    parameters = [
        parameter for parameter in parts.models[name].parameters() if parameter.requires_grad
    ]
    if not isinstance(made, type) or not issubclass(made, Optimizer) or made is Optimizer:
        raise ConfigError(f"{advice}: {recorded['type']} is not an optimizer of torch")
    if len(groups) != 1 or len(groups[0]["params"]) != len(parameters):
        raise ConfigError(f"{advice}: it does not have all parameters of the model in one group")
    return [made(parameters, lr=groups[0]["lr"])]  # type: ignore[call-arg]
