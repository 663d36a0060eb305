"""The search space of a sweep: its hyperparameters, in an order in which they can be chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.sweeps.dimension import Choice, Dimension, Suggester, parse_dimension

__all__ = ["Space"]


class Space:
    """A search space.

    Args:
        dimensions: its hyperparameters, each after those that it depends on.
    """

    def __init__(self, dimensions: tuple[Dimension, ...]) -> None:
        self.dimensions = dimensions

    @classmethod
    def parse(cls, table: object, where: str) -> Self:
        """Read the table ``[space]``.

        Args:
            table: by the name of each hyperparameter its range or its choices.
            where: what to begin a message with, such as ``sweep.toml: space``.

        Raises:
            ConfigError: what is wrong with it, and what would be right.
        """
        if not isinstance(table, Mapping) or not table:
            raise ConfigError(
                f"{where}: must name at least one hyperparameter, such as lr = "
                "{ log = [1e-4, 1.0] }"
            )
        found = {name: parse_dimension(name, one, f"{where}.{name}") for name, one in table.items()}
        for dimension in found.values():
            _check_condition(dimension, found, where)
        return cls(tuple(_ordered(found, where)))

    def suggest(self, suggester: Suggester) -> dict[str, Choice]:
        """Have a value proposed for each hyperparameter that is there."""
        chosen: dict[str, Choice] = {}
        for dimension in self.dimensions:
            if dimension.applies(chosen):
                chosen[dimension.name] = dimension.suggest(suggester)
        return chosen

    def grid(self) -> list[dict[str, Choice]]:
        """Return every combination of all values, the last hyperparameter changing fastest.

        Raises:
            ConfigError: a range of real numbers says not into how many values it is to be cut.
        """
        return list(_combinations(self.dimensions, {}))

    def point(self, given: object, where: str) -> dict[str, Choice]:
        """Return a point of the user's own; what is left out is to be proposed.

        Raises:
            ConfigError: a hyperparameter that is not in the space, or a value outside of it.
        """
        if not isinstance(given, Mapping):
            raise ConfigError(f"{where}: must be a table of hyperparameters, not {given!r}")
        known = {one.name: one for one in self.dimensions}
        chosen: dict[str, Choice] = {}
        for name, value in given.items():
            if name not in known:
                near = did_you_mean(str(name), known) or f"; the space has {', '.join(known)}"
                raise ConfigError(f"{where}.{name}: not in the space{near}")
            try:
                chosen[name] = known[name].check(value)
            except ConfigError as error:
                raise ConfigError(f"{where}.{name}: {error}") from error
        return chosen

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, of which equal spaces have equal ones."""
        return {one.name: one.to_json() for one in sorted(self.dimensions, key=lambda d: d.name)}


def _check_condition(dimension: Dimension, known: Mapping[str, Dimension], where: str) -> None:
    """Refuse a condition that can never be met."""
    for name, values in dimension.when.items():
        at = f"{where}.{dimension.name}.when.{name}"
        if name not in known:
            near = did_you_mean(name, known) or f"; the space has {', '.join(known)}"
            raise ConfigError(f"{at}: not in the space{near}")
        for value in values:
            try:
                known[name].check(value)
            except ConfigError as error:
                raise ConfigError(f"{at}: {error}") from error


def _ordered(known: Mapping[str, Dimension], where: str) -> Iterator[Dimension]:
    """Yield each hyperparameter after those that it depends on, else in the order of the file."""
    waiting = dict(known)
    done: set[str] = set()
    while waiting:
        ready = next((one for one in waiting.values() if done.issuperset(one.when)), None)
        if ready is None:
            raise ConfigError(f"{where}: {', '.join(waiting)} depend on one another in a circle")
        done.add(ready.name)
        yield waiting.pop(ready.name)


def _combinations(
    dimensions: tuple[Dimension, ...], chosen: dict[str, Choice]
) -> Iterator[dict[str, Choice]]:
    if not dimensions:
        yield chosen
        return
    first, *rest = dimensions
    if not first.applies(chosen):
        yield from _combinations(tuple(rest), chosen)
        return
    for value in first.values():
        yield from _combinations(tuple(rest), {**chosen, first.name: value})
