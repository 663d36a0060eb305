"""Leaving the statistics of small tensors in host memory to the writer's thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.torch_.copies.host_view import host_view
from vinedresser.store.reductions import Statistics, compute_statistics

__all__ = ["Copies", "LaterStatistics"]

_Layout = tuple[tuple[torch.dtype, torch.Size], ...]
_DTYPES = (torch.float32, torch.float64)
_ORDINARY = (Tensor, torch.nn.Parameter)


class Copies:
    """Copies of some tensors, in memory that goes back when all of them have been read.

    Attributes:
        tensors: the copies.
    """

    def __init__(self, memory: _Memory, layout: _Layout, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self._memory = memory
        self._layout = layout
        self._unread = len(tensors)

    def statistics(self, place: int, words: frozenset[str], axis: int | None) -> Statistics:
        """Return statistics of a copy, which are computed when they are settled, once.

        Args:
            place: of the copy.
            words: which; see `vinedresser.store.reductions`.
            axis: of its channels; see `channel_axis`.
        """
        # No closure: Python's garbage collector would walk over each of its cells.
        return Statistics(True, pending=partial(self._take, place, words, axis))

    def _take(self, place: int, words: frozenset[str], axis: int | None) -> Statistics:
        try:
            return compute_statistics(host_view(self.tensors[place]), words, axis)
        finally:
            self._unread -= 1
            if not self._unread:
                self._memory.give_back(self._layout, self.tensors)


class _Memory:
    """Memory for copies, used again and again: fresh memory costs about as much as a copy.

    Args:
        most: bytes kept for later use at the most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._idle: dict[_Layout, list[list[Tensor]]] = {}
        self._lock = threading.Lock()

    def take(self, layout: _Layout) -> list[Tensor]:
        """Return tensors of some dtypes and shapes; what is in them is of no meaning."""
        with self._lock:
            ready = self._idle.get(layout)
            if ready:
                tensors = ready.pop()
                self._bytes -= _bytes(tensors)
                return tensors
        # What is made in inference mode could not be written to outside of it.
        with torch.inference_mode(False):
            return [torch.empty(shape, dtype=dtype) for dtype, shape in layout]

    def give_back(self, layout: _Layout, tensors: list[Tensor]) -> None:
        """Take back what nobody reads any more."""
        size = _bytes(tensors)
        with self._lock:
            if self._bytes + size > self._most:
                # Batches and models change: what was of use is not for ever.
                self._idle.clear()
                self._bytes = 0
            if size <= self._most:
                self._idle.setdefault(layout, []).append(tensors)
                self._bytes += size


class LaterStatistics:
    """Copies tensors whose statistics the writer's thread is to take.

    To copy a tensor costs the training less than a look at all its elements. Many are copied by one
    call, since every call from Python costs more than the copy of a small tensor.

    Args:
        most: bytes that a step may have copied at the most; what goes beyond is not for later.
    """

    def __init__(self, most: int = 64 << 20) -> None:
        self._most = most
        self._memory = _Memory(2 * most)

    def fits(self, recording: Recording, tensors: Sequence[Tensor]) -> bool:
        """Return whether statistics of tensors can be left for later.

        Args:
            recording: that they belong to.
            tensors: any.
        """
        return (
            all(
                type(one) in _ORDINARY
                and one.dtype in _DTYPES
                and one.layout is torch.strided
                and one.device.type == "cpu"
                for one in tensors
            )
            and recording.arriving_bytes + _bytes(tensors) <= self._most
        )

    def copy(self, recording: Recording, tensors: Sequence[Tensor]) -> Copies:
        """Copy tensors that fit, as they are now.

        Args:
            recording: is to hold statistics of each of the copies.
            tensors: at least one.
        """
        layout = tuple([(one.dtype, one.shape) for one in tensors])
        copies = self._memory.take(layout)
        with torch.no_grad():
            torch._foreach_copy_(copies, list(tensors))
        recording.arriving_bytes += _bytes(copies)
        return Copies(self._memory, layout, copies)


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum([one.nbytes for one in tensors])
