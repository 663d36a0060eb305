"""One committed record of a run, as queries see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import QueryError, UnknownTensor
from vinedresser.queries.numeric import Numeric
from vinedresser.queries.observables import Moment, Observables

__all__ = ["ROOTS", "Offer", "Place", "StoredEvent"]

# A variance is also known by its root.
ROOTS = {"variance": "std", "abs_variance": "abs_std"}
# A matrix of the segment, and the position of a value in one of its rows.
Place = tuple[int, tuple[int, ...]]
# The same of several values: a matrix, and the indices of the values in one of its rows.
_Column = tuple[int, tuple[NDArray[np.intp], ...]]


@dataclass(frozen=True, eq=False)
class Offer:
    """What records with the same matrices and tensors offer to a query.

    Attributes:
        names: the names, in order.
        statistics: places of the statistics, by tensor and reduction.
        tensors: names of the tensors stored in full, with the numbers of their elements.
        columns: where the statistic of several tensors is, as far as this was asked for.
    """

    names: tuple[str, ...] = ()
    scalars: Mapping[str, Place] = field(default_factory=dict)
    statistics: Mapping[tuple[str, str], Place] = field(default_factory=dict)
    tensors: Mapping[str, int] = field(default_factory=dict)
    columns: dict[tuple[tuple[str, ...], str], _Column | None] = field(default_factory=dict)

    def column(self, names: tuple[str, ...], reduction: str) -> _Column | None:
        """Return where a statistic of tensors is; None unless all of it is in one matrix."""
        key = names, reduction
        if key not in self.columns:
            places = [self.statistics.get((name, reduction)) for name in names]
            found = [place for place in places if place is not None]
            alone = len(found) == len(names) and len({matrix for matrix, _ in found}) == 1
            at = tuple(np.array([at for _, at in found], np.intp).T) if alone else ()
            self.columns[key] = (found[0][0], at) if alone else None
        return self.columns[key]


class StoredEvent(Observables):
    """A committed record: its values are read from the store when the query needs them.

    Args:
        moment: when it was captured; the event is "step" or "evaluation".
        numeric: computes with numpy arrays.
        numbers: the names that are numbers of the record itself, such as its step.
        row: returns the row of a matrix.
        sizes: numbers of elements of the run's tensors, as far as they are known.
    """

    knows_statistics = True

    def __init__(
        self,
        *,
        moment: Moment,
        numeric: Numeric,
        offer: Offer,
        numbers: Mapping[str, float],
        row: Callable[[int], NDArray[np.float64]],
        tensor: Callable[[str], NDArray[Any]],
        sizes: Mapping[str, int],
    ) -> None:
        super().__init__(moment, {}, numeric)
        self._offer = offer
        self._numbers = numbers
        self._row = row
        self._tensor = tensor
        self._sizes = sizes
        self._lists: dict[int, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the query may mean."""
        return self._offer.names

    def surely_tensor(self, name: str) -> bool:
        """See `Observables.surely_tensor`."""
        return name not in self._offer.scalars and name not in self._numbers

    def known(self, name: str, reduction: str) -> float | None:
        """See `Observables.known`."""
        place = self._offer.statistics.get((name, reduction))
        if place is not None:
            return self._value(place)
        root = self._offer.statistics.get((name, ROOTS[reduction])) if reduction in ROOTS else None
        return None if root is None else self._value(root) ** 2

    def known_of_each(self, names: tuple[str, ...], reduction: str) -> list[float] | None:
        """See `Observables.known_of_each`."""
        column = self._offer.column(names, reduction)
        if column is None:
            return None
        matrix, at = column
        found: list[float] = self._row(matrix)[at].tolist()
        return found

    def size(self, name: str) -> int | None:
        """See `Observables.size`."""
        return self._offer.tensors.get(name, self._sizes.get(name))

    def read(self, name: str) -> Any:
        """Return the value of a name.

        Raises:
            UnknownTensor: the record does not have it.
            QueryError: only statistics of it were stored.
            CorruptData: the stored bytes do not match their checksum.
        """
        if name not in self._read:
            self._read[name] = self._found(name)
        return self._read[name]

    def _found(self, name: str) -> Any:
        if name in self._offer.scalars:
            return self._value(self._offer.scalars[name])
        if name in self._numbers:
            return self._numbers[name]
        if name in self._offer.tensors:
            return self._tensor(name)
        if name not in self.names:
            raise UnknownTensor(f"{name}: not stored at {self.mode} step {self.step}")
        words = sorted(word for tensor, word in self._offer.statistics if tensor == name)
        raise QueryError(f"{name}: only {', '.join(words)} were stored at step {self.step}")

    def _value(self, place: Place) -> float:
        matrix, at = place
        if matrix not in self._lists:
            # Faster than an array when most of it is read.
            self._lists[matrix] = self._row(matrix).tolist()
        found = self._lists[matrix]
        for position in at:
            found = found[position]
        return found  # type: ignore[no-any-return]
