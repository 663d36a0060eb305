"""The search space of a sweep: its hyperparameters in order of their conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.sweeps.dimension import Choice, Dimension, Suggester, parse_dimension


class Space:
    """A search space.

    Args:
        dimensions: its hyperparameters, each after those in its condition.
    """

    def __init__(self, dimensions: tuple[Dimension, ...]) -> None:
        self.dimensions = dimensions

    @classmethod
    def parse(cls, table: object, where: str) -> Self:
        """Read the table ``[space]``.

        Args:
            table: range or choices by hyperparameter name.
            where: prefix of messages, such as ``sweep.toml: space``.

        Raises:
            ConfigError: the table is invalid.
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

    @classmethod
    def from_json(cls, document: object, where: str) -> Self:
        """Read a space as `to_json` returns it.

        Args:
            document: JSON types.
            where: prefix of messages.

        Raises:
            ConfigError: it is something else.
        """
        if not isinstance(document, Mapping):
            raise ConfigError(f"{where}: must be a table, not {document!r}")
        entries = {
            # No step is stored as 0.
            name: {key: one for key, one in entry.items() if key != "step" or one}
            if isinstance(entry, Mapping)
            else entry
            for name, entry in document.items()
        }
        return cls.parse(entries, where)

    def widens(self, other: Space) -> bool:
        """Return whether it has the hyperparameters of another space, with at least their values.

        See `Dimension.widens`.
        """
        known = {one.name: one for one in other.dimensions}
        return len(known) == len(self.dimensions) and all(
            one.name in known and one.widens(known[one.name]) for one in self.dimensions
        )

    def suggest(self, suggester: Suggester) -> dict[str, Choice]:
        """Return proposed values of the hyperparameters whose conditions are met."""
        chosen: dict[str, Choice] = {}
        for dimension in self.dimensions:
            if dimension.applies(chosen):
                chosen[dimension.name] = dimension.suggest(suggester)
        return chosen

    def grid(self) -> list[dict[str, Choice]]:
        """Return every combination of all values, the last hyperparameter changing fastest.

        Raises:
            ConfigError: a range of real numbers has neither ``grid`` nor ``step``.
        """
        return list(_combinations(self.dimensions, {}, Dimension.values))

    def configurations(self, fixed: Mapping[str, Choice]) -> Iterator[dict[str, Choice]]:
        """Yield all configurations, each once; without end if real numbers are among them.

        Args:
            fixed: values of some hyperparameters.
        """

        def values(dimension: Dimension) -> Iterable[Choice]:
            return (fixed[dimension.name],) if dimension.name in fixed else dimension.every()

        return _combinations(self.dimensions, {}, values)

    def key(self, configuration: Mapping[str, Choice]) -> tuple[tuple[str, Choice], ...]:
        """Return a value that is equal for equal configurations.

        Args:
            configuration: values by name; those whose condition is not met do not count.
        """
        chosen = self._chosen(configuration)
        known = {dimension.name: dimension for dimension in self.dimensions}
        return tuple((name, known[name].key(value)) for name, value in chosen.items())

    def is_whole(self, point: Mapping[str, Choice]) -> bool:
        """Return whether a point leaves no hyperparameter to be proposed."""
        chosen = self._chosen(point)
        return all(
            dimension.name in chosen or not dimension.applies(chosen)
            for dimension in self.dimensions
        )

    def point(self, given: object, where: str) -> dict[str, Choice]:
        """Return a point given by the user; missing hyperparameters will be proposed.

        Raises:
            ConfigError: an unknown hyperparameter, or a value outside its range or choices.
        """
        if not isinstance(given, Mapping):
            raise ConfigError(f"{where}: must be a table of hyperparameters, not {given!r}")
        known = {dimension.name: dimension for dimension in self.dimensions}
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

    def decoded(self, configuration: Mapping[str, Choice]) -> dict[str, Any]:
        """Return a configuration as a trial is passed it, with lists for choices that are lists."""
        known = {dimension.name: dimension for dimension in self.dimensions}
        return {name: known[name].decoded(value) for name, value in configuration.items()}

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types, equal for equal spaces."""
        return {
            dimension.name: dimension.to_json()
            for dimension in sorted(self.dimensions, key=lambda d: d.name)
        }

    def _chosen(self, point: Mapping[str, Choice]) -> dict[str, Choice]:
        """Return the values of a point whose conditions are met, in the order of the space."""
        chosen: dict[str, Choice] = {}
        for dimension in self.dimensions:
            if dimension.name in point and dimension.applies(chosen):
                chosen[dimension.name] = point[dimension.name]
        return chosen


def _check_condition(dimension: Dimension, known: Mapping[str, Dimension], where: str) -> None:
    """Reject a condition that can never be met."""
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
    """Yield hyperparameters in the order of the file, but after those in their conditions."""
    waiting = dict(known)
    done: set[str] = set()
    while waiting:
        ready = next((one for one in waiting.values() if done.issuperset(one.when)), None)
        if ready is None:
            raise ConfigError(f"{where}: circular conditions of {', '.join(waiting)}")
        done.add(ready.name)
        yield waiting.pop(ready.name)


def _combinations(
    dimensions: tuple[Dimension, ...],
    chosen: dict[str, Choice],
    values: Callable[[Dimension], Iterable[Choice]],
) -> Iterator[dict[str, Choice]]:
    if not dimensions:
        yield chosen
        return
    first, *rest = dimensions
    if not first.applies(chosen):
        yield from _combinations(tuple(rest), chosen, values)
        return
    for value in values(first):
        yield from _combinations(tuple(rest), {**chosen, first.name: value}, values)
