"""The parameters of a training that its script allows to be changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vinedresser.capture.adapters.adapter import Change, Changed, Guard, Tunable
from vinedresser.capture.adapters.packages import is_a, needed
from vinedresser.errors import ConfigError, did_you_mean

__all__ = ["Declared", "declare", "find_declared"]

# The learning rate, and the maximum total norm of the gradients.
_OF_OPTIMIZERS = ("lr", "clip")


class Declared(NamedTuple):
    """A parameter that may be changed, and its bounds.

    Attributes:
        low: smallest value.
        high: largest value.
    """

    name: str
    tunable: Tunable
    low: float
    high: float

    def checked(self, value: float | None) -> float:
        """Return a new value.

        Raises:
            ConfigError: it is not a number within the bounds.
        """
        if value is None or not math.isfinite(value):
            raise ConfigError(f"{self.name}: cannot be set to {value}")
        if not self.low <= value <= self.high:
            raise ConfigError(
                f"{self.name}: cannot be set to {value:g}, which is not within "
                f"{self.low:g} and {self.high:g}"
            )
        return value


class _Value:
    """A number that functions of the script get and set.

    Args:
        set_to: set a value; integers stay integers.

    Raises:
        ConfigError: `get` does not return a number.
    """

    def __init__(
        self, name: str, get: Callable[[], float], set_to: Callable[[Any], object]
    ) -> None:
        self._name = name
        self._get = get
        self._set = set_to
        self._value()

    def change(self, change: Change) -> Changed:
        """See `Tunable.change`."""
        old = self._value()
        new = change(float(old))
        if isinstance(old, int):
            if new != int(new):
                raise ConfigError(f"{self._name}: must be an integer, not {new:g}")
            new = int(new)
        self._set(new)
        return Changed([float(old)], [float(self._value())])

    def _value(self) -> float:
        value = self._get()
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise ConfigError(f"tunable({self._name!r}): get returns {value!r}, not a number")
        return value if isinstance(value, int) else float(value)


def find_declared(tunables: Mapping[str, Declared], name: str) -> Declared:
    """Return a declared parameter.

    Raises:
        ConfigError: it is not declared; the message has similar names.
    """
    found = tunables.get(name)
    if found is None:
        known = did_you_mean(name, tunables) or (
            f"; declared: {', '.join(tunables)}" if tunables else ""
        )
        raise ConfigError(f"{name} is not declared by hook.tunable({name!r}, …){known}")
    return found


def declare(
    name: str,
    targets: tuple[Any, ...],
    guard: Guard,
    *,
    get: Callable[[], float] | None,
    set_to: Callable[[Any], object] | None,
    low: float | None,
    high: float | None,
) -> Declared:
    """Return a declared parameter; see `Hook.tunable`.

    Args:
        name: "lr" or "clip" of optimizers, or any name of a number with `get` and `set_to`.
        targets: optimizers; for "lr" of torch, one optimizer and its schedulers.
        guard: see `Shield.guard`.
        get: return the number.
        set_to: set the number.
        low: smallest value; None: 0 for parameters of optimizers, else unbounded.
        high: largest value; None: unbounded.

    Raises:
        ConfigError: the arguments do not describe a parameter.
        MissingDependency: a package of the framework's extra is not installed.
    """
    if get is None or set_to is None:
        if get is not None or set_to is not None:
            raise ConfigError(f"tunable({name!r}): pass both get and set")
        tunable = _of_optimizers(name, targets, guard)
        low = 0.0 if low is None else low
    else:
        if targets:
            raise ConfigError(f"tunable({name!r}): pass either optimizers or get and set")
        if not isinstance(name, str) or not name.replace(".", "_").isidentifier():
            raise ConfigError(f"tunable({name!r}): the name must be a word")
        tunable = _Value(name, get, set_to)
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    if not bounds[0] <= bounds[1]:
        raise ConfigError(f"tunable({name!r}): min = {low!r} is above max = {high!r}")
    return Declared(name, tunable, *bounds)


def _of_optimizers(name: str, targets: tuple[Any, ...], guard: Guard) -> Tunable:
    """Return the tunable for a parameter of optimizers.

    Raises:
        MissingDependency: a package of the framework's extra is not installed.
    """
    if name not in _OF_OPTIMIZERS:
        raise ConfigError(
            f"tunable({name!r}): must be one of {', '.join(_OF_OPTIMIZERS)}, boost, or have get=… "
            "and set=…"
        )
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
