"""A pool of reusable host memory for copies of tensors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from vinedresser.capture.torch_.copies.device_copies import DeviceCopies
from vinedresser.frameworks.torch_.views import row_index, some_rows
from vinedresser.store.dtypes import SPELLINGS, host_dtype
from vinedresser.store.step_record import HostTensor

# By torch dtype: the safetensors name, and a numpy dtype of the same item size.
_DTYPES: dict[torch.dtype, tuple[str, np.dtype[np.generic]]] = {
    getattr(torch, word): (name, host_dtype(name)) for word, name in SPELLINGS.items()
}

# Dtypes that torch.index_select supports.
_INDEXED = frozenset(
    {
        torch.bool, torch.uint8, torch.int32, torch.int64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
    }
)  # fmt: skip
# Maximum number of cached row selections.
_MOST_SHAPES = 64

_Kind = tuple[torch.dtype, torch.Size, bool]


class _Buffer(NamedTuple):
    """Host memory for a tensor of one kind, as numpy and as torch view."""

    kind: _Kind
    host: HostTensor
    target: torch.Tensor


class BufferPool:
    """Copies tensors to host memory that is reused when the copies are stored.

    New memory causes a page fault per 4 KiB, which costs as much as the copy. A buffer serves
    tensors of one dtype and shape and includes the numpy view, so copying a small tensor costs
    little more than the call. A copy creates no containers: Python's garbage collector would visit
    thousands of them per segment.

    Args:
        most_idle: maximum size of unused buffers, in bytes; the least recently used are freed.
        copies: copies from CUDA devices.
    """

    def __init__(self, most_idle: int = 512 << 20, copies: DeviceCopies | None = None) -> None:
        self._most_idle = most_idle
        self._copies = DeviceCopies() if copies is None else copies
        self._idle: OrderedDict[_Kind, list[_Buffer]] = OrderedDict()
        self._idle_bytes = 0
        # Buffers in use, by id of their numpy view.
        self._out: dict[int, _Buffer] = {}
        # By dtype, shape and number of rows: the kind of the copy, and the row indices.
        self._rows: dict[Any, tuple[_Kind, torch.Tensor]] = {}
        self._lock = threading.Lock()

    def copy(self, tensor: torch.Tensor) -> HostTensor:
        """Return a row-major copy of a tensor; from a CUDA device, only start it (`DeviceCopies`).

        Args:
            tensor: detached and dense; any shape.

        Raises:
            TypeError: safetensors does not support the dtype.
        """
        buffer = self._take((tensor.dtype, tensor.shape, tensor.is_cuda))
        if tensor.is_cuda:
            self._copies.begin(tensor, buffer.target)
        else:
            buffer.target.copy_(tensor)
        return buffer.host

    def copy_rows(self, tensor: torch.Tensor, most: int | None) -> HostTensor:
        """Return a copy of evenly spaced rows of a tensor; see `copy`.

        Args:
            tensor: detached and dense; [N, ...] or [].
            most: maximum number of rows; None: all.

        Raises:
            TypeError: safetensors does not support the dtype.
        """
        few = most is None or not tensor.dim() or len(tensor) <= most
        if few or tensor.is_cuda or tensor.dtype not in _INDEXED:
            return self.copy(some_rows(tensor, most))
        key = (tensor.dtype, tensor.shape, most)
        found = self._rows.get(key)
        if found is None:
            rows = some_rows(tensor, most)
            index = row_index(len(tensor), len(rows), tensor.device)
            found = (rows.dtype, rows.shape, False), index
            if len(self._rows) >= _MOST_SHAPES:
                self._rows.clear()
            self._rows[key] = found
        kind, index = found
        buffer = self._take(kind)
        # Directly into the buffer.
        torch.index_select(tensor, 0, index, out=buffer.target)
        return buffer.host

    def _take(self, kind: _Kind) -> _Buffer:
        """Return an unused buffer."""
        with self._lock:
            ready = self._idle.get(kind)
            if ready:
                buffer = ready.pop()
                self._idle_bytes -= buffer.host.data.nbytes
            else:
                buffer = _fresh(kind)
            self._out[id(buffer.host.data)] = buffer
        return buffer

    def release(self, hosts: Iterable[HostTensor]) -> None:
        """Reclaim buffers; tensors that are not from this pool are ignored."""
        with self._lock:
            for host in hosts:
                # A tensor with two names has one buffer.
                buffer = self._out.pop(id(host.data), None)
                if buffer is None:
                    continue
                self._idle.setdefault(buffer.kind, []).append(buffer)
                self._idle.move_to_end(buffer.kind)
                self._idle_bytes += host.data.nbytes
            self._shrink()

    def _shrink(self) -> None:
        """Free unused buffers beyond the limit."""
        while self._idle_bytes > self._most_idle:
            kind, buffers = next(iter(self._idle.items()))
            if not buffers:
                del self._idle[kind]
                continue
            self._idle_bytes -= buffers.pop().host.data.nbytes


def _fresh(kind: _Kind) -> _Buffer:
    dtype, shape, pinned = kind
    if dtype not in _DTYPES:
        raise TypeError(f"cannot store a tensor of {dtype}: safetensors does not support it")
    name, numpy_type = _DTYPES[dtype]
    # Inference tensors cannot be written to outside of inference mode.
    with torch.inference_mode(False):
        size = shape.numel() * dtype.itemsize
        memory = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        target = memory.view(dtype).view(shape)
    data = memory.numpy().view(numpy_type).reshape(shape)
    return _Buffer(kind, HostTensor(name, tuple(shape), data), target)
