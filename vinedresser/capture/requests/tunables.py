"""The parameters that the user declares to be tunable."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.adapters.packages import is_a, needed
from vinedresser.capture.adapters.tunable import Guard, Tunable
from vinedresser.errors import ConfigError

__all__ = ["TUNABLE", "make_tunable"]

# The learning rate, and the maximum total norm of the gradients.
TUNABLE = ("lr", "clip")


def make_tunable(name: str, targets: tuple[Any, ...], guard: Guard) -> Tunable:
    """Return the tunable for a parameter; see `Hook.tunable`.

    Args:
        name: "lr" or "clip".
        targets: optimizers; for "lr" of torch, one optimizer and its schedulers.
        guard: see `Shield.guard`.

    Raises:
        ConfigError: the name is unknown, or a target does not have the parameter.
        MissingDependency: a package of the framework's extra is not installed.
    """
    if name not in TUNABLE:
        raise ConfigError(f"tunable({name!r}): must be one of {', '.join(TUNABLE)}")
    if not targets:
        raise ConfigError(f"tunable({name!r}): pass an optimizer")
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
        f"tunable({name!r}, …): not supported by a {kind}; pass a torch.optim.Optimizer"
        + (" or a keras.optimizers.Optimizer" if name == "lr" else "")
    )
