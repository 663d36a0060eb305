"""The batches that data loaders return to the training."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

__all__ = ["LoadedBatches"]


class LoadedBatches:
    """Keeps the latest batch that a data loader returned in this thread.

    Attributes:
        latest: the batch; None before the first, or after `forget`.
    """

    def __init__(self) -> None:
        self.latest: Any = None
        self._thread = threading.get_ident()

    def begin(self) -> None:
        """Begin to listen."""
        _listening.append(self)
        _patch()

    def forget(self) -> None:
        """Release the batch."""
        self.latest = None

    def end(self) -> None:
        """Stop to listen."""
        self.forget()
        if self in _listening:
            _listening.remove(self)
            _restore()

    def returned(self, batch: Any) -> None:
        """Keep a batch, unless another thread evaluates beside the training."""
        if threading.get_ident() == self._thread:
            self.latest = batch


# Global, since the method is.
_listening: list[LoadedBatches] = []
_originals: list[Callable[..., Any]] = []


def _patch() -> None:
    if _originals:
        return
    # Perhaps a descriptor that has listeners.
    original = _BaseDataLoaderIter.__dict__["__next__"]

    @functools.wraps(_BaseDataLoaderIter.__next__)
    def following(self: Any) -> Any:
        batch = original.__get__(self)()
        for one in _listening:
            one.returned(batch)
        return batch

    _originals.append(original)
    _BaseDataLoaderIter.__next__ = following  # type: ignore[method-assign]


def _restore() -> None:
    if not _listening and _originals:
        _BaseDataLoaderIter.__next__ = _originals.pop()  # type: ignore[method-assign]
