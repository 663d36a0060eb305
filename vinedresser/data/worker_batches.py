"""Batches from the workers of a DataLoader, through memory that is shared with them.

By itself, torch makes new shared memory for each tensor, which takes twenty times as long as
copying it, and sends `bytes` through a pipe, in pieces of 64 KiB. Here, each worker has a few
slots, which it uses in turn; a batch is copied into one of them, and out of it when it arrives.
Lists of `bytes` are not pickled, which would copy them once more.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from contextlib import suppress
from itertools import count, pairwise
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.multiprocessing.reductions import reduce_tensor

from vinedresser.data.records import Batch

__all__ = ["Receiver", "Sender", "keep_freed_memory"]

# Beginnings of tensors in a slot are multiples of it.
_ALIGNMENT = 64
# Parameters of glibc's `mallopt`, as in malloc.h, and their values: one arena at most; no separate
# mapping for less than 32 MiB, the largest value that is allowed; up to 64 MiB are kept.
_ALLOCATOR = {-8: 1, -3: 32 << 20, -1: 64 << 20}

_Memory: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""A slot: what is pickled, and contents of tensors and arrays, uint8, (bytes,)."""


class Receiver:
    """Slots of the workers of a loader; a context, which is entered for each of its iterations.

    Attributes:
        number: number of the receiver in its process.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        _RECEIVERS[self.number] = self
        self._slots: dict[tuple[int, int], _Memory] = {}
        self._iterations = 0

    def __enter__(self) -> None:
        self._iterations += 1

    def __exit__(self, *_: object) -> None:
        self._iterations -= 1
        if not self._iterations:
            self._slots.clear()

    def batch(self, sent: _Sent) -> Batch | None:
        """Return a batch that was sent; None if its iteration was broken off."""
        slot = (sent.worker, sent.slot)
        if sent.memory is not None:
            self._slots[slot] = sent.memory
        memory = self._slots.get(slot)
        if memory is None:
            return None
        pickled, contents = (one.numpy() for one in memory)
        buffers = []
        for begin, end in sent.buffers:
            buffers.append(torch.empty(end - begin, dtype=torch.uint8).numpy())
            # Not by torch, which would divide it among threads.
            buffers[-1][:] = contents[begin:end]
        batch: Batch = pickle.loads(pickled[: sent.pickled].data, buffers=buffers)  # noqa: S301 (ours)
        if not sent.packed:
            return batch
        places = pairwise(batch.values.tolist())
        return batch._replace(values=[contents.data[begin:end].tobytes() for begin, end in places])


_numbers = count()
_RECEIVERS: WeakValueDictionary[int, Receiver] = WeakValueDictionary()


class _Sent(NamedTuple):
    """Where a batch is; what arrives is the batch.

    Attributes:
        receiver: number of the receiver.
        worker: process of the worker.
        slot: number of one of its slots.
        memory: the slot if it is new.
        pickled: number of bytes that are pickled.
        buffers: where the contents of tensors and arrays begin and end.
        packed: the values are `bytes`; an array instead of them has their boundaries.
    """

    receiver: int
    worker: int
    slot: int
    memory: _Memory | None
    pickled: int
    buffers: list[tuple[int, int]]
    packed: bool

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, tuple(self)


def _received(*sent: Any) -> Batch | None:
    found = _Sent(*sent)
    receiver = _RECEIVERS.get(found.receiver)
    return None if receiver is None else receiver.batch(found)


class Sender:
    """Sends batches from a worker.

    Args:
        receiver: number of the receiver in the process of the loader.
        slots: number of slots, more than batches that may be sent and not yet received.
    """

    def __init__(self, receiver: int, slots: int) -> None:
        self._receiver = receiver
        self._slots = [(_Shared(), _Shared()) for _ in range(slots)]
        self._next = 0

    def sent(self, batch: Batch) -> _Sent:
        """Return what stands for a batch in the queue of the DataLoader."""
        number = self._next
        self._next = (number + 1) % len(self._slots)
        pickled, contents = self._slots[number]
        pickled.end = contents.end = 0
        before = pickled.memory, contents.memory
        places: list[tuple[int, int]] = []
        packed = type(batch.values) is list and {*map(type, batch.values)} == {bytes}
        if packed:
            boundaries = [0]
            for value in batch.values:
                contents.write(value)
                boundaries.append(contents.end)
            batch = batch._replace(values=np.array(boundaries))

        def keep(buffer: pickle.PickleBuffer) -> None:
            places.append(contents.add(buffer.raw()))

        _Pickler(pickled, pickle.HIGHEST_PROTOCOL, True, keep).dump(batch)
        after = pickled.memory, contents.memory
        grown = any(one is not other for one, other in zip(before, after, strict=True))
        new = after if grown else None
        return _Sent(self._receiver, os.getpid(), number, new, pickled.end, places, packed)


def keep_freed_memory() -> None:
    """Have the allocator of this process, a worker, keep what it frees between batches.

    Else glibc returns the memory of each chunk to the system, and each chunk that is read costs a
    page fault for each of its pages: more than half of the processor time of a worker. Settings of
    the environment have precedence.
    """
    chosen = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if chosen or os.name != "posix":
        return
    # Other C libraries have no such function, or one that does nothing.
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _ALLOCATOR.items():
            mallopt(parameter, value)


class _Shared:
    """Shared memory that is written from its beginning, and grows.

    Attributes:
        memory: the memory, uint8, (bytes,).
        end: the number of bytes that were written.
    """

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        self.end = 0
        self._view = self.memory.numpy().data

    def write(self, content: Any) -> None:
        """Append bytes."""
        begin, self.end = self.end, self.end + len(content)
        if self.end > len(self._view):
            # Sharing takes a millisecond: there will be more, of this batch or a later one.
            more = max(min(self.end, 1 << 20), self.end // 4)
            grown = torch.empty(self.end + more, dtype=torch.uint8).share_memory_()
            view = grown.numpy().data
            view[: len(self._view)] = self._view
            self.memory, self._view = grown, view
        self._view[begin : self.end] = content

    def add(self, content: memoryview) -> tuple[int, int]:
        """Append the content of a tensor; return where it begins and ends."""
        self.end = -(-self.end // _ALIGNMENT) * _ALIGNMENT
        begin = self.end
        self.write(content)
        return begin, self.end


class _Pickler(ForkingPickler):
    """Keeps the contents of tensors apart, as NumPy does those of arrays."""

    def reducer_override(self, value: Any) -> Any:
        """See `pickle.Pickler.reducer_override`; other tensors are sent as by torch."""
        if type(value) is not torch.Tensor or value.device.type != "cpu" or value.requires_grad:
            return NotImplemented
        value = value.resolve_conj().resolve_neg()
        flat = value.layout is torch.strided and value.is_contiguous() and not value.is_quantized
        if flat and value.numel():
            content: Any = value.flatten().view(torch.uint8).numpy()
            return _tensor, (pickle.PickleBuffer(content), value.dtype, value.shape)
        # Torch moves the memory of what it sends, from under arrays and PickleBuffers.
        return reduce_tensor(value.clone())


def _tensor(content: Any, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return torch.from_numpy(content).view(dtype).view(shape)
