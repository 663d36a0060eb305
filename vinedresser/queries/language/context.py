"""What an expression sees of one event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import QueryError
from vinedresser.queries.language.budget import Budget
from vinedresser.queries.language.values import Array, ByLabel, Tensors
from vinedresser.queries.naming import label_of, path_of
from vinedresser.queries.observables import Observables
from vinedresser.store.reductions import channel_axis

__all__ = ["MOST_LABELS", "Context", "Piece"]

MOST_LABELS = 1_000
# Tensors of the model, which have no axis of samples.
_OF_THE_MODEL = ("weights/", "biases/", "gradients/", "updates/", "optimizer_state/", "buffers/",
                 "weight_taylor/")  # fmt: skip


class Piece:
    """Rows of one tensor that belong to some labels.

    Attributes:
        labels: a label for each row; (None,) without grouping.
        rows: [labels, elements].
        size: number of elements of a row.
        name: name of the tensor.
    """

    def __init__(self, labels: tuple[str | None, ...], rows: Array, size: int, name: str) -> None:
        self.labels = labels
        self.rows = rows
        self.size = size
        self.name = name


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
        first = self._observables.read(names[0])
        if isinstance(first, str):
            return first
        if isinstance(first, bool | int | float):
            if len(names) == 1:
                return float(first)
            return ByLabel({path_of(one): float(self._observables.read(one)) for one in names})
        return Tensors(names, self._read)

    def _read(self, name: str) -> Array:
        value = self._observables.read(name)
        if isinstance(value, bool | int | float | str):
            raise QueryError(f"{name} is not a tensor, but others of the same query are")
        if self.mask is None or name.startswith(_OF_THE_MODEL) or not self.numeric.shape(value):
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
        values = np.unique(self.fetch(labels))
        if len(values) > MOST_LABELS:
            raise QueryError(f"{len(values):,} classes: at most {MOST_LABELS:,} labels")
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
            labels = self.numeric.argmax(labels, 1)
        elif len(shape) == 2:
            labels = self.numeric.rows(labels, 0)[:, 0]
        elif len(shape) != 1:
            raise QueryError(f"labels have the shape {list(shape)}: by class needs one per sample")
        return labels

    def fetch(self, array: Array) -> NDArray[np.float64]:
        """Return an array in host memory at once."""
        return self.numeric.fetch([array])[0]

    def pieces(self, tensors: Tensors) -> Iterator[Piece]:
        """Yield the rows to reduce, one tensor at a time; its memory is then released.

        Raises:
            QueryError: there are too many labels, or the grouping does not fit the tensors.
        """
        count = 0
        for name in tensors.names:
            value = tensors.read(name)
            for piece in self._grouped(name, value, len(tensors.names) > 1):
                count += len(piece.labels)
                if count > MOST_LABELS and self.by is not None:
                    raise QueryError(f"by {self.by}: more than {MOST_LABELS:,} labels")
                yield piece
            self.budget.release()

    def _grouped(self, name: str, value: Array, several: bool) -> Iterator[Piece]:
        shape = self.numeric.shape(value)
        if self.by == "class":
            for label, mask in self.classes:
                chosen = self.select(name, value, mask)
                yield self._whole(label, chosen, name)
        elif self.by in ("unit", "channel"):
            axis = channel_axis(name, len(shape), last=self.numeric.channels_last)
            count = 1 if axis is None else shape[axis]
            if axis:
                self.budget.charge(prod(shape) * self.numeric.widening(value)[0])
            units = self._unit_labels(name, count, several)
            size = prod(shape) // count if count else 0
            yield Piece(units, self.numeric.rows(value, axis), size, name)
        else:
            whole = None if self.by is None else label_of(name, self.by)
            yield self._whole(whole, value, name)

    def _whole(self, label: str | None, value: Array, name: str) -> Piece:
        size = prod(self.numeric.shape(value))
        octets, converts = self.numeric.widening(value)
        self.budget.charge(octets * converts * size)
        return Piece((label,), self.numeric.rows(value, None), size, name)

    def _unit_labels(self, name: str, count: int, several: bool) -> tuple[str, ...]:
        if count > MOST_LABELS:
            raise QueryError(f"{name} has {count:,} units: at most {MOST_LABELS:,} labels")
        path = path_of(name)
        return tuple(f"{path}[{place}]" if several else str(place) for place in range(count))
