"""The configurations that the trials of a sweep have, each with its number of trials."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.space import Space


class Tried:
    """Configurations that were tried, in the order of their first trials."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._counts: dict[object, int] = {}
        self._first: dict[object, Mapping[str, Choice]] = {}

    def __len__(self) -> int:
        """Return the number of different configurations."""
        return len(self._counts)

    def __contains__(self, configuration: Mapping[str, Choice]) -> bool:
        """Return whether a configuration was tried."""
        return self._space.key(configuration) in self._counts

    def clear(self) -> None:
        """Forget all configurations."""
        self._counts.clear()
        self._first.clear()

    def add(self, configuration: Mapping[str, Choice]) -> int:
        """Add a trial; return the number of earlier ones with the same configuration."""
        key = self._space.key(configuration)
        before = self._counts.get(key, 0)
        self._counts[key] = before + 1
        self._first.setdefault(key, configuration)
        return before

    def fewer_than(self, repeats: int) -> Mapping[str, Choice] | None:
        """Return the first configuration that was tried less often; None if there is none."""
        return next((self._first[key] for key, n in self._counts.items() if n < repeats), None)

    def another(self, fixed: Mapping[str, Choice]) -> dict[str, Choice] | None:
        """Return a configuration of the space that was not tried; None if there is none.

        Args:
            fixed: values of some hyperparameters.
        """
        # Of one more different ones than were tried, one was not.
        some = islice(self._space.configurations(fixed), len(self) + 1)
        return next((one for one in some if one not in self), None)
