"""The parameters of a training that may be changed while it goes on, as the user has declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from vinedresser.capture.adapters.frameworks import is_a, needed
from vinedresser.errors import ConfigError

__all__ = ["TUNABLE", "Change", "Changed", "Guard", "Tunable", "make_tunable"]

# The learning rate, and the norm to which the gradients of all parameters together are clipped.
TUNABLE = ("lr", "clip")

# From an old value to the new one.
Change = Callable[[float], float]


# `Shield.guard`.
Guard = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Changed(NamedTuple):
    """What became of a parameter: a number for each group of the optimizer.

    Attributes:
        old: what it was; [] where it was not set.
        new: what it is.
    """

    old: list[float]
    new: list[float]


class Tunable(Protocol):
    """A parameter that may be changed between two steps."""

    def change(self, change: Change) -> Changed:
        """Change it in all groups, or, where the change of one raises an error, in none."""


def make_tunable(name: str, targets: tuple[Any, ...], guard: Guard) -> Tunable:
    """Return how a parameter is changed.

    Args:
        name: "lr" or "clip".
        targets: the optimizer that has it; for "lr" of torch also the schedulers that compute it.
        guard: has a callback do no harm to the training.

    Raises:
        ConfigError: there is no such parameter, or nothing that has it.
        MissingDependency: a package of the framework's extra is not installed.
    """
    if name not in TUNABLE:
        raise ConfigError(f"tunable({name!r}): must be one of {', '.join(TUNABLE)}")
    if not targets:
        raise ConfigError(f"tunable({name!r}): needs the optimizer that has it")
    if is_a(targets[0], "torch", "optim.Optimizer"):
        with needed("a torch optimizer", "torch"):
            from vinedresser.capture.torch_.optimizers.tuning import GradientClip, LearningRate
        if name == "lr":
            return LearningRate(targets[0], targets[1:])
        return GradientClip(targets, guard)
    if is_a(targets[0], "keras", "optimizers.Optimizer") and name == "lr":
        with needed("a Keras optimizer", "tensorflow"):
            from vinedresser.capture.keras_.tuning import LearningRate as KerasLearningRate
        return KerasLearningRate(targets)
    kind = f"{type(targets[0]).__module__}.{type(targets[0]).__qualname__}"
    raise ConfigError(
        f"tunable({name!r}, …): cannot be changed in a {kind}; give a torch.optim.Optimizer"
        + (" or a keras.optimizers.Optimizer" if name == "lr" else "")
    )
