"""The parameters of a training that may be changed while it goes on, as the user has declared."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.adapters.packages import is_a, needed
from vinedresser.capture.adapters.tunable import Guard, Tunable
from vinedresser.errors import ConfigError

__all__ = ["TUNABLE", "make_tunable"]

# The learning rate, and the norm to which the gradients of all parameters together are clipped.
TUNABLE = ("lr", "clip")


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
            from vinedresser.capture.torch_.optimizers.tuning import GradientClip, TorchLearningRate
        if name == "lr":
            return TorchLearningRate(targets[0], targets[1:])
        return GradientClip(targets, guard)
    if is_a(targets[0], "keras", "optimizers.Optimizer") and name == "lr":
        with needed("a Keras optimizer", "tensorflow"):
            from vinedresser.capture.keras_.tuning import KerasLearningRate
        return KerasLearningRate(targets)
    kind = f"{type(targets[0]).__module__}.{type(targets[0]).__qualname__}"
    raise ConfigError(
        f"tunable({name!r}, …): cannot be changed in a {kind}; give a torch.optim.Optimizer"
        + (" or a keras.optimizers.Optimizer" if name == "lr" else "")
    )
