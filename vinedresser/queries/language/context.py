"""What an expression sees of one event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import QueryError
from vinedresser.queries.language.budget import Budget
from vinedresser.queries.language.values import Array, ByLabel, Tensors
from vinedresser.queries.naming import label_of, path_of
from vinedresser.queries.observables import Observables
from vinedresser.store.reductions import channel_axis

__all__ = ["MOST_LABELS", "OF_THE_MODEL", "Context", "KnownPiece", "KnownWholes", "Piece", "Wholes"]

MOST_LABELS = 1_000
# Tensors of the model, which have no axis of samples.
OF_THE_MODEL = ("weights/", "biases/", "gradients/", "updates/", "optimizer_state/", "buffers/",
                 "weight_taylor/")  # fmt: skip


_NO_TENSORS = (bool, int, float, str)
# Groupings that follow from the name of a tensor.
_BY_NAME = (None, "layer", "tensor")
# Elements that are converted at once for a statistic, such as those of half precision to float32.
_SLICE = 1 << 22


class Piece(NamedTuple):
    """Rows of one tensor that belong to some labels.

    Attributes:
        labels: a label for each row; (None,) without grouping.
        rows: [labels, elements].
        size: number of elements of a row.
    """

    labels: tuple[str | None, ...]
    rows: Array
    size: int


class Wholes(NamedTuple):
    """Tensors of the training that are reduced as they are, each as a whole.

    Attributes:
        labels: a label for each tensor; None without grouping.
        sizes: numbers of their elements.
    """

    labels: Sequence[str | None]
    arrays: list[Array]
    sizes: list[int]


class KnownWholes(NamedTuple):
    """Statistics of tensors, each as a whole, that are known without their elements.

    Attributes:
        labels: a label for each tensor; None without grouping.
        sizes: numbers of their elements; None if unknown.
        columns: the values of each statistic.
    """

    labels: Sequence[str | None]
    sizes: list[int | None]
    columns: list[list[float]]


class KnownPiece(NamedTuple):
    """Statistics of one tensor that are known without its elements.

    Attributes:
        size: number of its elements; None if it is unknown.
    """

    label: str | None
    size: int | None
    values: tuple[float, ...]


_Part = TypeVar("_Part", Piece, Piece | KnownPiece)


class Context:
    """One event as an expression sees it.

    Args:
        observables: what the event offers.
        resolved: names of observables by the names in the query.
        by: grouping of the query, or None.
        budget: limits of the evaluation.
    """

    def __init__(
        self,
        observables: Observables,
        resolved: Mapping[str, tuple[str, ...]],
        by: str | None,
        budget: Budget,
    ) -> None:
        self.numeric = observables.numeric
        self.budget = budget
        self.by = by
        # The samples that satisfy the condition of the query.
        self.mask: Array | None = None
        self._observables = observables
        self._resolved = resolved

    def tensors(self, name: str) -> Tensors | ByLabel | float | str:
        """Return what a name of the query stands for.

        A text is only allowed alone; numbers of a collection are results by label.
        """
        names = self._resolved[name]
        if not self._observables.surely_tensor(names[0]):
            first = self._observables.read(names[0])
            if isinstance(first, str):
                return first
            if isinstance(first, bool | int | float):
                if len(names) == 1:
                    return float(first)
                return ByLabel({path_of(one): float(self._observables.read(one)) for one in names})
        return Tensors(names, self._read, self._known, lent=True)

    def _known(self, name: str, reduction: str) -> float | None:
        """Return a statistic of a tensor that is known without reading it."""
        return None if self._masked(name) else self._observables.known(name, reduction)

    def _masked(self, name: str) -> bool:
        return self.mask is not None and not name.startswith(OF_THE_MODEL)

    def _read(self, name: str) -> Array:
        value = self._observables.read(name)
        if isinstance(value, _NO_TENSORS):
            raise QueryError(f"{name} is not a tensor, but others of the same query are")
        if self.mask is None or not self._masked(name) or not self.numeric.shape(value):
            return value
        return self.select(name, value, self.mask)

    def select(self, name: str, value: Array, mask: Array) -> Array:
        """Return the samples of a tensor at which a mask is true.

        Args:
            name: name of the tensor, for the message.
            value: [samples, ...].
            mask: bool [samples].

        Raises:
            QueryError: the tensor has another number of samples.
        """
        shape, samples = self.numeric.shape(value), self.numeric.shape(mask)[0]
        if not shape or shape[0] != samples:
            raise QueryError(f"{name} has the shape {list(shape)}: its first axis is not that of "
                             f"the {samples} samples to choose from")  # fmt: skip
        self.budget.charge(prod(shape) * self.numeric.widening(value)[0])
        return self.numeric.select(value, mask)

    @cached_property
    def classes(self) -> list[tuple[str, Array]]:
        """Each class of the labels and a mask of its samples; bool [samples]."""
        labels = self.class_numbers
        samples = self.numeric.shape(labels)[0]
        # In host memory, and sorted.
        self.budget.charge(16 * samples)
        values = np.unique(self.fetch(labels))
        if len(values) > MOST_LABELS:
            raise QueryError(f"{len(values):,} classes: at most {MOST_LABELS:,} labels")
        self.budget.charge(samples * (len(values) + 8))
        return [(f"{value:g}", self.numeric.binary("==", labels, float(value))) for value in values]

    @cached_property
    def class_numbers(self) -> Array:
        """Labels of the batch as class numbers, [samples]."""
        found = self.tensors("labels")
        if not isinstance(found, Tensors) or len(found.names) != 1:
            raise QueryError("labels: by class needs one tensor of labels")
        labels = found.read(found.names[0])
        shape = self.numeric.shape(labels)
        if len(shape) == 2 and shape[1] > 1:
            labels = self.argmax(labels, 1)
        elif len(shape) == 2:
            labels = self.numeric.rows(labels, 0)[:, 0]
        elif len(shape) != 1:
            raise QueryError(f"labels have the shape {list(shape)}: by class needs one per sample")
        return labels

    def argmax(self, array: Array, axis: int) -> Array:
        """Return the places of the largest elements along an axis; see `Numeric.argmax`.

        Raises:
            QueryError: the evaluation exceeds its budget.
        """
        shape = self.numeric.shape(array)
        octets, converts = self.numeric.widening(array)
        self.budget.charge(octets * converts * prod(shape) + 8 * prod(shape) // shape[axis])
        return self.numeric.argmax(array, axis)

    def fetch(self, array: Array) -> NDArray[np.float64]:
        """Return an array in host memory at once."""
        return self.numeric.fetch([array])[0]

    def wholes(self, tensors: Tensors) -> Wholes | None:
        """Return tensors that can be reduced together, without memory; None if they cannot.

        Raises:
            QueryError: there are too many labels, or one of them is a number.
        """
        if not tensors.lent or self.by not in _BY_NAME or self.mask is not None:
            return None
        if self._observables.knows_statistics:
            return None
        arrays = [self._read(name) for name in tensors.names]
        sizes = self.numeric.sizes(arrays)
        if sizes is None:
            return None
        return Wholes(self._labels(tensors), arrays, sizes)

    def known_wholes(self, tensors: Tensors, needs: tuple[str, ...]) -> KnownWholes | None:
        """Return statistics of tensors if those of all are known without reading them, else None.

        Args:
            needs: names of the statistics.

        Raises:
            QueryError: there are too many labels.
        """
        if not tensors.lent or self.by not in _BY_NAME or self.mask is not None or not needs:
            return None
        columns = []
        for need in needs:
            found = self._observables.known_of_each(tensors.names, need)
            if found is None:
                return None
            columns.append(found)
        sizes = [self._observables.size(name) for name in tensors.names]
        return KnownWholes(self._labels(tensors), sizes, columns)

    def _labels(self, tensors: Tensors) -> tuple[str | None, ...]:
        """Return the label of each tensor as a whole."""
        labels = _labels(tensors.names, self.by)
        if len(labels) > MOST_LABELS and self.by is not None and len({*labels}) > MOST_LABELS:
            raise self._too_many()
        return labels

    def _too_many(self) -> QueryError:
        return QueryError(f"by {self.by}: more than {MOST_LABELS:,} labels")

    def pieces(self, tensors: Tensors, *, sampled: bool = False) -> Iterator[Piece]:
        """Yield the rows to reduce, one tensor at a time; its memory is then released.

        Args:
            sampled: only some elements of the rows are converted.

        Raises:
            QueryError: there are too many labels, or the grouping does not fit the tensors.
        """
        several = len(tensors.names) > 1
        yield from self._each(
            tensors, lambda name: self._grouped(name, tensors.read(name), several, sampled)
        )

    def parts(self, tensors: Tensors, needs: tuple[str, ...]) -> Iterator[Piece | KnownPiece]:
        """Yield the rows of which statistics are computed and joined by label; see `pieces`.

        Tensors are not read if their statistics are known, and yielded in slices if they have to be
        converted.

        Args:
            needs: names of the statistics.

        Raises:
            QueryError: there are too many labels, or the grouping does not fit the tensors.
        """
        if self.by not in _BY_NAME:
            yield from self.pieces(tensors)
            return

        def of(name: str) -> Iterator[Piece | KnownPiece]:
            label = self._label(name)
            known = self._known_part(tensors, name, label, needs)
            if known is not None:
                yield known
                return
            yield from self._slices(label, tensors.read(name))

        yield from self._each(tensors, of)

    def _each(self, tensors: Tensors, of: Callable[[str], Iterator[_Part]]) -> Iterator[_Part]:
        """Yield the pieces of each tensor, release its memory, and count the labels."""
        found: set[str | None] = set()
        if self.by == "class":
            # They are kept.
            _ = self.classes
        for name in tensors.names:
            held = self.budget.held
            for piece in of(name):
                found.update(piece.labels if isinstance(piece, Piece) else (piece.label,))
                if len(found) > MOST_LABELS and self.by is not None:
                    raise self._too_many()
                yield piece
            self.budget.release(held)

    def _known_part(
        self, tensors: Tensors, name: str, label: str | None, needs: tuple[str, ...]
    ) -> KnownPiece | None:
        if not self._observables.knows_statistics:
            return None
        size = self._observables.size(name)
        found = [value for need in needs if (value := tensors.known(name, need)) is not None]
        if len(found) < len(needs):
            return None
        if not needs and (size is None or not tensors.lent or self._masked(name)):
            return None
        return KnownPiece(label, size, tuple(found))

    def _slices(self, label: str | None, value: Array) -> Iterator[Piece]:
        size = prod(self.numeric.shape(value))
        octets, converts = self.numeric.widening(value)
        rows = self.numeric.rows(value, None)
        if not converts:
            yield Piece((label,), rows, size)
            return
        for start in range(0, max(size, 1), _SLICE):
            end, held = min(start + _SLICE, size), self.budget.held
            self.budget.charge(octets * (end - start))
            yield Piece((label,), rows[:, start:end], end - start)
            self.budget.release(held)

    def _grouped(self, name: str, value: Array, several: bool, sampled: bool) -> Iterator[Piece]:
        shape = self.numeric.shape(value)
        if self.by == "class":
            for label, mask in self.classes:
                chosen = self.select(name, value, mask)
                yield self._whole(label, chosen, sampled)
        elif self.by in ("unit", "channel"):
            axis = channel_axis(name, len(shape), last=self.numeric.channels_last)
            count = 1 if axis is None else shape[axis]
            if axis:
                self.budget.charge(prod(shape) * self.numeric.widening(value)[0])
            units = self._unit_labels(name, count, several)
            size = prod(shape) // count if count else 0
            yield Piece(units, self.numeric.rows(value, axis), size)
        else:
            yield self._whole(self._label(name), value, sampled)

    def _label(self, name: str) -> str | None:
        return None if self.by is None else label_of(name, self.by)

    def _whole(self, label: str | None, value: Array, sampled: bool) -> Piece:
        size = prod(self.numeric.shape(value))
        octets, converts = self.numeric.widening(value)
        if converts and not sampled:
            self.budget.charge(octets * size)
        return Piece((label,), self.numeric.rows(value, None), size)

    def _unit_labels(self, name: str, count: int, several: bool) -> tuple[str, ...]:
        if count > MOST_LABELS:
            raise QueryError(f"{name} has {count:,} units: at most {MOST_LABELS:,} labels")
        path = path_of(name)
        return tuple(f"{path}[{place}]" if several else str(place) for place in range(count))


@lru_cache(maxsize=256)
def _labels(names: tuple[str, ...], by: str | None) -> tuple[str | None, ...]:
    return tuple(None if by is None else label_of(name, by) for name in names)
