"""Which rows a data loader has returned: those of the training, or others."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

from torch.utils.data import RandomSampler, SequentialSampler

from vinedresser.capture.shield import Shield
from vinedresser.data.delivered import BatchInUse, Provider
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop

__all__ = ["LoadedRows"]


class _Rows(NamedTuple):
    """The rows that an iterator of a data loader returns.

    Attributes:
        dataset: the data set.
        sampler: what selects a part of its rows; None if all of them are returned.
    """

    dataset: weakref.ref[Any]
    sampler: weakref.ref[Any] | None

    def same(self, other: _Rows) -> bool:
        """Return whether these are the rows that another iterator returns."""
        if (self.sampler is None) != (other.sampler is None):
            return False
        pairs = [(self.dataset(), other.dataset())]
        if self.sampler is not None and other.sampler is not None:
            pairs.append((self.sampler(), other.sampler()))
        return all(one is not None and one is another for one, another in pairs)


class LoadedRows(LoopListener):
    """Compares the data loader that this thread used last with that of the training.

    The rows are the same if the data set is, and if either all of it is loaded or the sampler is
    the same object.

    Args:
        shield: guards the look at data loaders.
        batch: the batch in use, which is forgotten when another data loader returns one.
    """

    def __init__(self, shield: Shield, batch: BatchInUse) -> None:
        self._batch = batch
        self._latest: _Rows | None = None
        self._trained: _Rows | None = None
        # An iterator has the same rows all the time.
        self._iterator: weakref.ref[Any] | None = None
        self._thread = threading.get_ident()
        self.end = listen_to_loop(self, shield.guard)

    @property
    def of_training(self) -> bool:
        """Whether the latest rows are those that the latest update was made with."""
        latest, trained = self._latest, self._trained
        return latest is not None and trained is not None and latest.same(trained)

    def trained(self) -> None:
        """Note that the latest rows are those of the training."""
        self._trained = self._latest

    def batch_awaited(self, iterator: Any) -> None:
        """See `LoopListener.batch_awaited`."""
        if not isinstance(iterator._dataset, Provider):
            self._batch.forget()
        known = self._iterator is not None and self._iterator() is iterator
        if not known and threading.get_ident() == self._thread:
            self._iterator = weakref.ref(iterator)
            self._latest = _rows_of(iterator)


def _rows_of(iterator: Any) -> _Rows | None:
    """Return the rows that an iterator returns; None if they cannot be known again."""
    indices = iterator._index_sampler
    sampler = getattr(indices, "sampler", indices)
    whole = type(sampler) in (SequentialSampler, RandomSampler)
    try:
        return _Rows(weakref.ref(iterator._dataset), None if whole else weakref.ref(sampler))
    except TypeError:
        # Such as a list.
        return None
