"""Statistics of host tensors that the writer's thread computes from copies."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from vinedresser.capture.recording.recording import Recording
from vinedresser.frameworks.torch_.views import host_view
from vinedresser.store.reductions import Statistics, compute_statistics

__all__ = ["Copies", "LaterStatistics"]

_Layout = tuple[tuple[torch.dtype, torch.Size], ...]
_DTYPES = (torch.float32, torch.float64)
_ORDINARY = (Tensor, torch.nn.Parameter)


class Copies:
    """Copies of tensors, whose memory is reclaimed when the statistics of all are computed.

    Attributes:
        tensors: the copies; float32 or float64, any shape.
    """

    def __init__(self, memory: _Memory, layout: _Layout, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self._memory = memory
        self._layout = layout
        self._unread = len(tensors)

    def statistics(self, place: int, words: frozenset[str], axis: int | None) -> Statistics:
        """Return pending statistics of a copy; to be called once for each copy.

        Args:
            place: index of the copy.
            words: names of reductions; see `vinedresser.store.reductions`.
            axis: channel axis, or None; see `channel_axis`.
        """
        # Not a closure: Python's garbage collector would visit each of its cells.
        return Statistics(True, pending=partial(self._take, place, words, axis))

    def _take(self, place: int, words: frozenset[str], axis: int | None) -> Statistics:
        try:
            return compute_statistics(host_view(self.tensors[place]), words, axis)
        finally:
            self._unread -= 1
            if not self._unread:
                self._memory.give_back(self._layout, self.tensors)


class _Memory:
    """Reusable memory for copies: new memory costs about as much as a copy.

    Args:
        most: maximum size of unused memory, in bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._idle: dict[_Layout, list[list[Tensor]]] = {}
        self._lock = threading.Lock()

    def take(self, layout: _Layout) -> list[Tensor]:
        """Return uninitialized tensors of the given dtypes and shapes."""
        with self._lock:
            ready = self._idle.get(layout)
            if ready:
                tensors = ready.pop()
                self._bytes -= _bytes(tensors)
                return tensors
        # Inference tensors cannot be written to outside of inference mode.
        with torch.inference_mode(False):
            return [torch.empty(shape, dtype=dtype) for dtype, shape in layout]

    def give_back(self, layout: _Layout, tensors: list[Tensor]) -> None:
        """Reclaim tensors."""
        size = _bytes(tensors)
        with self._lock:
            if self._bytes + size > self._most:
                # Batches and models change: drop old layouts.
                self._idle.clear()
                self._bytes = 0
            if size <= self._most:
                self._idle.setdefault(layout, []).append(tensors)
                self._bytes += size


class LaterStatistics:
    """Copies tensors whose statistics the writer's thread computes.

    Copying a tensor costs the training less than computing its statistics. Many tensors are copied
    by one call, since a call from Python costs more than copying a small tensor.

    Args:
        most: maximum size of the copies in a step, in bytes.
    """

    def __init__(self, most: int = 64 << 20) -> None:
        self._most = most
        self._memory = _Memory(2 * most)

    def fits(self, recording: Recording, tensors: Sequence[Tensor]) -> bool:
        """Return whether tensors can be copied for later statistics.

        Args:
            recording: recording they belong to.
            tensors: tensors of any kind.
        """
        return (
            all(
                type(tensor) in _ORDINARY
                and tensor.dtype in _DTYPES
                and tensor.layout is torch.strided
                and tensor.device.type == "cpu"
                for tensor in tensors
            )
            and recording.arriving_bytes + _bytes(tensors) <= self._most
        )

    def copy(self, recording: Recording, tensors: Sequence[Tensor]) -> Copies:
        """Copy tensors that fit.

        Args:
            recording: recording that receives the statistics of each copy.
            tensors: at least one.
        """
        layout = tuple([(tensor.dtype, tensor.shape) for tensor in tensors])
        copies = self._memory.take(layout)
        with torch.no_grad():
            torch._foreach_copy_(copies, list(tensors))
        recording.arriving_bytes += _bytes(copies)
        return Copies(self._memory, layout, copies)


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum([tensor.nbytes for tensor in tensors])
