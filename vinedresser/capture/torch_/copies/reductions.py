"""Statistics of torch tensors, on the CPU or on their device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vinedresser.capture.torch_.copies.device_statistics import device_statistics
from vinedresser.capture.torch_.copies.host_statistics import host_statistics
from vinedresser.frameworks.torch_.views import chosen, host_view, some_rows
from vinedresser.store.reductions import Statistics, compute_statistics, plan_reductions
from vinedresser.store.reductions.alone import UNITS, fingerprint
from vinedresser.store.reductions.sampling import place_count, places

__all__ = [
    "Pending",
    "begin_transfers",
    "channel_rows",
    "octets",
    "sampled_rows",
    "take_later",
    "take_now",
]


def take_now(tensor: Tensor, words: frozenset[str], axis: int | None) -> Statistics:
    """Return the statistics of a tensor in host memory.

    Args:
        tensor: detached, dense, on the CPU; any shape and dtype.
        words: names of reductions; see `vinedresser.store.reductions`.
        axis: channel axis, or None; see `channel_axis`.
    """
    if tensor.is_floating_point() and tensor.itemsize < 4:
        wanted = plan_reductions(words)
        if wanted.bits:
            found = take_now(tensor, words - {word.text for word in wanted.bits}, axis)
            bits = fingerprint(host_view(octets(tensor)))
            found.scalars.update((word.text, bits) for word in wanted.bits)
            return found
        # numpy lacks some of these dtypes and is slow with the others.
        tensor = tensor.float()
    if not tensor.is_floating_point() or not tensor.numel():
        return compute_statistics(host_view(tensor.resolve_conj()), words, axis)
    wanted = plan_reductions(words)
    found = Statistics()
    if wanted.late:
        found = compute_statistics(host_view(tensor), wanted.late, axis)
    if wanted.elementwise:
        values = host_statistics(tensor.reshape(-1), wanted.elementwise_names)
        for word in wanted.elementwise:
            found.scalars[word.text] = values[word.canonical]
    return found


class Pending(NamedTuple):
    """Values that are still on a device.

    Attributes:
        values: float64 [n], on the device.
        take: called once with the values on the host, float64 [n].
    """

    values: Tensor
    take: Callable[[NDArray[np.float64]], None]


def take_later(
    tensor: Tensor, words: frozenset[str], axis: int | None
) -> tuple[Statistics, Pending | None]:
    """Start to compute the statistics of a tensor on its device, without waiting.

    Args:
        tensor: detached, dense, on a device with float64; any shape and dtype.
        words: names of reductions; see `vinedresser.store.reductions`.
        axis: channel axis, or None; see `channel_axis`.

    Returns:
        The statistics, whose scalars and vectors are missing and whose samples are still being
        copied, so synchronize with the device before reading; and the missing values, or None if
        there are none.
    """
    wanted = plan_reductions(words)
    found = Statistics(bool(wanted.late))
    whole = tensor.reshape(1, -1)
    rows = channel_rows(tensor, axis) if wanted.by_channel else whole
    for sampled, of in ((wanted.sampled, whole), (wanted.channels_sampled, rows)):
        if sampled:
            found.samples.append((sampled, _to_host(sampled_rows(of))))
    if wanted.units:
        found.samples.append((wanted.units, _to_host(sampled_rows(some_rows(rows, UNITS)))))
    if wanted.bits:
        found.samples.append((wanted.bits, _to_host(octets(tensor))))
    scalars = device_statistics(whole, wanted.elementwise_names) if wanted.elementwise else []
    vectors = device_statistics(rows, wanted.channel_names) if wanted.channels else []
    if not (scalars or vectors):
        return found, None

    # `take` must not keep the tensor alive.
    numbers, shape = len(scalars), (len(vectors), rows.shape[0])

    def take(here: NDArray[np.float64]) -> None:
        texts = (word.text for word in wanted.elementwise)
        found.scalars.update(zip(texts, here[:numbers].tolist(), strict=True))
        for word, part in zip(wanted.channels, here[numbers:].reshape(shape), strict=True):
            found.vectors[word.text] = part.copy()

    return found, Pending(torch.cat([*scalars, *vectors]), take)


def octets(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor's elements in row-major order; uint8 [n]."""
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def channel_rows(tensor: Tensor, axis: int | None) -> Tensor:
    """Return a tensor as [channels, m]; [1, n] without an axis.

    Args:
        tensor: any shape and dtype.
        axis: channel axis, or None; see `channel_axis`.
    """
    if axis is None:
        return tensor.reshape(1, -1)
    moved = tensor.movedim(axis, 0)
    channels = len(moved)
    return moved.reshape(channels, moved.numel() // channels if channels else 0)


def sampled_rows(rows: Tensor) -> Tensor:
    """Return the sampled elements of each row; [C, k], in a dtype that numpy has.

    Args:
        rows: [C, m], any dtype; detached and dense.
    """
    rows = rows.resolve_conj()
    channels, size = rows.shape
    count = place_count(channels, size)
    if count < size:
        rows = chosen(rows.contiguous(), 1, _index(size, count, rows.device))
    return rows.float() if rows.is_floating_point() and rows.itemsize < 4 else rows


@lru_cache(maxsize=64)
def _index(size: int, count: int, device: torch.device) -> Tensor:
    """Return the indices of the sampled elements, int64 [count]; cached on the device.

    A copy to the device would wait for its pending work.
    """
    return torch.from_numpy(places(size, count).copy()).to(device)


def _to_host(sample: Tensor) -> NDArray[np.generic]:
    """Start to copy a sample to the host, and return the array that receives it."""
    with torch.inference_mode(False):
        host = torch.empty(sample.shape, dtype=sample.dtype, pin_memory=sample.is_cuda)
    host.copy_(sample, non_blocking=True)
    array: NDArray[np.generic] = host.numpy()
    return array


class _Transfer:
    """One asynchronous copy of pending values from one device, on its current stream.

    Args:
        pending: at least one; all on the same device.
    """

    def __init__(self, pending: list[Pending]) -> None:
        self._pending = pending
        here = torch.cat([one.values for one in pending])
        with torch.inference_mode(False):
            self._host = torch.empty(here.shape, dtype=here.dtype, pin_memory=here.is_cuda)
        self._host.copy_(here, non_blocking=True)

    def take(self) -> None:
        """Pass on the values, which must have arrived."""
        array = self._host.numpy()
        sizes = [len(one.values) for one in self._pending]
        for one, size, end in zip(self._pending, sizes, accumulate(sizes), strict=True):
            one.take(array[end - size : end])


def begin_transfers(pending: Iterable[Pending]) -> list[_Transfer]:
    """Start one transfer per device."""
    by_device: dict[torch.device, list[Pending]] = {}
    for one in pending:
        by_device.setdefault(one.values.device, []).append(one)
    return [_Transfer(some) for some in by_device.values()]
