"""Host memory that copies of tensors are written to, used again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from vinedresser.capture.torch_.copies.device_copies import DeviceCopies
from vinedresser.capture.torch_.copies.some_rows import row_index, some_rows
from vinedresser.store.step_record import HostTensor

__all__ = ["BufferPool"]

# By torch's type: safetensors' name, and a numpy type of the same item size.
_DTYPES: dict[torch.dtype, tuple[str, type[np.generic]]] = {
    torch.bool: ("BOOL", np.uint8),
    torch.uint8: ("U8", np.uint8),
    torch.int8: ("I8", np.int8),
    torch.int16: ("I16", np.int16),
    torch.uint16: ("U16", np.uint16),
    torch.int32: ("I32", np.int32),
    torch.uint32: ("U32", np.uint32),
    torch.int64: ("I64", np.int64),
    torch.uint64: ("U64", np.uint64),
    torch.float16: ("F16", np.float16),
    torch.bfloat16: ("BF16", np.uint16),
    torch.float32: ("F32", np.float32),
    torch.float64: ("F64", np.float64),
    torch.complex64: ("C64", np.complex64),
    torch.float8_e4m3fn: ("F8_E4M3", np.uint8),
    torch.float8_e5m2: ("F8_E5M2", np.uint8),
    torch.float8_e8m0fnu: ("F8_E8M0", np.uint8),
    torch.float8_e4m3fnuz: ("F8_E4M3FNUZ", np.uint8),
    torch.float8_e5m2fnuz: ("F8_E5M2FNUZ", np.uint8),
}

# Those of which torch chooses rows as they are.
_INDEXED = frozenset(
    {
        torch.bool, torch.uint8, torch.int32, torch.int64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
    }
)  # fmt: skip
# Shapes of which it is remembered which rows are taken.
_MOST_SHAPES = 64

_Kind = tuple[torch.dtype, torch.Size, bool]


class _Buffer(NamedTuple):
    """Host memory for tensors of one kind, as readers see it and as it is written to."""

    kind: _Kind
    host: HostTensor
    target: torch.Tensor


class BufferPool:
    """Copies tensors to host memory, which is taken back when the copies are stored.

    Fresh memory costs a page fault for every 4 KiB, about as much as the copy itself; memory that
    was used before does not. A buffer serves tensors of one dtype and shape, and keeps the numpy
    view of itself, so that a copy of a small tensor costs little more than the call. A copy leaves
    no new container behind either: Python's garbage collector walks over those that have come,
    thousands while a segment comes together, which would cost several times the call.

    Args:
        most_idle: bytes kept for later use at the most; beyond, the kinds not used for longest go.
        copies: copies from CUDA devices.
    """

    def __init__(self, most_idle: int = 512 << 20, copies: DeviceCopies | None = None) -> None:
        self._most_idle = most_idle
        self._copies = DeviceCopies() if copies is None else copies
        self._idle: OrderedDict[_Kind, list[_Buffer]] = OrderedDict()
        self._idle_bytes = 0
        # Those that are out, by identity of their view.
        self._out: dict[int, _Buffer] = {}
        # By dtype, shape and number of rows: the kind of a copy, and which rows are in it.
        self._rows: dict[Any, tuple[_Kind, torch.Tensor]] = {}
        self._lock = threading.Lock()

    def copy(self, tensor: torch.Tensor) -> HostTensor:
        """Return a copy of a detached, dense tensor, in row-major order.

        From a CUDA device the copy is only begun: see `DeviceCopies`.

        Raises:
            TypeError: safetensors has no such dtype.
        """
        buffer = self._take((tensor.dtype, tensor.shape, tensor.is_cuda))
        if tensor.is_cuda:
            self._copies.begin(tensor, buffer.target)
        else:
            buffer.target.copy_(tensor)
        return buffer.host

    def copy_rows(self, tensor: torch.Tensor, most: int | None) -> HostTensor:
        """Return a copy of evenly strided rows of such a tensor; see `copy`.

        Args:
            tensor: detached and dense; [N, ...], or without dimensions.
            most: how many rows may be taken; None: all.
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
        # At once to where they belong, without memory in between.
        torch.index_select(tensor, 0, index, out=buffer.target)
        return buffer.host

    def _take(self, kind: _Kind) -> _Buffer:
        """Return a buffer that nobody has."""
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
        """Take buffers back that nobody reads any more; those that are not ours are passed over."""
        with self._lock:
            for host in hosts:
                # A tensor of two names is one buffer, and comes back once.
                buffer = self._out.pop(id(host.data), None)
                if buffer is None:
                    continue
                self._idle.setdefault(buffer.kind, []).append(buffer)
                self._idle.move_to_end(buffer.kind)
                self._idle_bytes += host.data.nbytes
            self._shrink()

    def _shrink(self) -> None:
        """Let go of idle buffers beyond the limit."""
        while self._idle_bytes > self._most_idle:
            kind, buffers = next(iter(self._idle.items()))
            if not buffers:
                del self._idle[kind]
                continue
            self._idle_bytes -= buffers.pop().host.data.nbytes


def _fresh(kind: _Kind) -> _Buffer:
    """Make a buffer."""
    dtype, shape, pinned = kind
    if dtype not in _DTYPES:
        raise TypeError(f"a tensor of {dtype} cannot be stored; safetensors has no such type")
    name, numpy_type = _DTYPES[dtype]
    # A buffer made in inference mode could not be written to outside of it.
    with torch.inference_mode(False):
        size = shape.numel() * dtype.itemsize
        memory = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        target = memory.view(dtype).view(shape)
    data = memory.numpy().view(numpy_type).reshape(shape)
    return _Buffer(kind, HostTensor(name, tuple(shape), data), target)
