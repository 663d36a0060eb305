"""The weights of a mixture's classes as parameters that may be changed, and the shares it feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from vinedresser.capture.adapters.adapter import Change, Changed
from vinedresser.capture.requests.tunables import Declared
from vinedresser.errors import ConfigError

__all__ = ["FedShares", "Mixed", "class_order", "declare_boosts"]

# Upper bound of boosts, unless the script gives another one.
_MOST_BOOST = 100.0
# Steps between two shares, and the maximum number of classes that have them.
_INTERVAL = 50
_MOST_CLASSES = 100


@runtime_checkable
class Mixed(Protocol):
    """A `vinedresser.data.Mixture`, as far as a hook knows it."""

    @property
    def boosts(self) -> Mapping[str, float]:
        """By class its weight divided by the first one."""

    @property
    def fed(self) -> Mapping[str, int]:
        """By class the number of its records so far."""

    @property
    def boosted(self) -> Mapping[str, list[float]]:
        """By class that was boosted before a resumption, its boost and how often."""

    def boost(self, factors: Mapping[str, float]) -> int:
        """Set weights to multiples of the first ones."""


class _Boost:
    """The boost of a class."""

    def __init__(self, mixture: Mixed, name: str) -> None:
        self._mixture = mixture
        self._name = name

    def change(self, change: Change) -> Changed:
        """See `Tunable.change`."""
        old = self._mixture.boosts[self._name]
        self._mixture.boost({self._name: change(old)})
        return Changed([old], [self._mixture.boosts[self._name]])


def declare_boosts(mixture: object, low: float | None, high: float | None) -> list[Declared]:
    """Return the boosts of all classes of a mixture as parameters ``boost.<class>``.

    Args:
        low: smallest value; None: 0.
        high: largest value; None: 100.

    Raises:
        ConfigError: the object is not a mixture, or the bounds are not in order.
    """
    if not isinstance(mixture, Mixed):
        kind = f"{type(mixture).__module__}.{type(mixture).__qualname__}"
        raise ConfigError(
            f"tunable('boost', …): not supported by a {kind}; pass a vinedresser.data.Mixture"
        )
    least, most = 0.0 if low is None else low, _MOST_BOOST if high is None else high
    if not 0 <= least <= most:
        raise ConfigError(f"tunable('boost', …): min = {least:g} and max = {most:g} are no bounds")
    return [
        Declared(f"boost.{name}", _Boost(mixture, name), least, most) for name in mixture.boosts
    ]


def class_order(mixture: Mixed) -> list[str]:
    """Return the names of a mixture's classes in the order of the labels.

    That is their order in the mixture, or that of their numbers if they are named 0, 1, 2 and so
    on.
    """
    names = list(mixture.boosts)
    numbers = [str(number) for number in range(len(names))]
    return numbers if {*names} == {*numbers} else names


class FedShares:
    """Saves the share of each class in the records of the last 50 steps.

    Args:
        save: saves a number under its full name in the current step.
    """

    def __init__(self, mixture: Mixed, save: Callable[[str, float], object]) -> None:
        self._mixture = mixture
        self._save = save
        self._before = dict(mixture.fed)

    def step_ended(self, steps: int) -> None:
        """Save the shares if their time has come."""
        if steps % _INTERVAL:
            return
        counts = dict(self._mixture.fed)
        more = {name: count - self._before.get(name, 0) for name, count in counts.items()}
        total = sum(more.values())
        if total:
            self._before = counts
            for name in list(more)[:_MOST_CLASSES]:
                self._save(f"saved/fed/{name}", more[name] / total)
