"""Statistics of torch tensors, cheap enough to be taken while a training runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vinedresser.capture.torch_.copies.device_statistics import device_statistics
from vinedresser.capture.torch_.copies.host_statistics import host_statistics
from vinedresser.capture.torch_.copies.host_view import host_view
from vinedresser.capture.torch_.copies.some_rows import chosen, some_rows
from vinedresser.store.reductions import Statistics, compute_statistics, plan_reductions
from vinedresser.store.reductions.fingerprint import fingerprint
from vinedresser.store.reductions.sampling import place_count, places
from vinedresser.store.reductions.unit_similarity import UNITS

__all__ = ["Pending", "take_later", "take_now"]


def take_now(tensor: Tensor, words: frozenset[str], axis: int | None) -> Statistics:
    """Take statistics of a tensor in host memory, which may change afterwards.

    Args:
        tensor: detached, dense, on the CPU; any shape and dtype.
        words: which; see `vinedresser.store.reductions`.
        axis: of its channels; see `channel_axis`.
    """
    if tensor.is_floating_point() and tensor.itemsize < 4:
        wanted = plan_reductions(words)
        if wanted.bits:
            found = take_now(tensor, words - {word.text for word in wanted.bits}, axis)
            bits = fingerprint(host_view(_octets(tensor)))
            found.scalars.update((word.text, bits) for word in wanted.bits)
            return found
        # Numpy has not all of them, and is slow with the others.
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
    """Figures on their way from a device.

    Attributes:
        figures: on the device; float64, [n].
        take: is to be given them, when they are here, once.
    """

    figures: Tensor
    take: Callable[[NDArray[np.float64]], None]


def take_later(
    tensor: Tensor, words: frozenset[str], axis: int | None
) -> tuple[Statistics, Pending | None]:
    """Begin to take statistics of a tensor on a device, waiting for nothing.

    Args:
        tensor: detached and dense; on a device that has float64.
        words: which; see `vinedresser.store.reductions`.
        axis: of its channels; see `channel_axis`.

    Returns:
        The statistics, in which the figures are still missing and the samples are still being
        copied: synchronize with the device before they are read. And the figures; None where none
        is asked for.
    """
    wanted = plan_reductions(words)
    found = Statistics(bool(wanted.late))
    whole = tensor.reshape(1, -1)
    rows = _channel_rows(tensor, axis) if wanted.by_channel else whole
    for sampled, of in ((wanted.sampled, whole), (wanted.channels_sampled, rows)):
        if sampled:
            found.samples.append((sampled, _to_host(_sample(of))))
    if wanted.units:
        found.samples.append((wanted.units, _to_host(_sample(some_rows(rows, UNITS)))))
    if wanted.bits:
        found.samples.append((wanted.bits, _to_host(_octets(tensor))))
    figures = device_statistics(whole, wanted.elementwise_names) if wanted.elementwise else []
    vectors = device_statistics(rows, wanted.channel_names) if wanted.channels else []
    if not (figures or vectors):
        return found, None

    # Nothing of the tensor itself may be held on to.
    numbers, shape = len(figures), (len(vectors), rows.shape[0])

    def take(here: NDArray[np.float64]) -> None:
        texts = (word.text for word in wanted.elementwise)
        found.scalars.update(zip(texts, here[:numbers].tolist(), strict=True))
        for word, part in zip(wanted.channels, here[numbers:].reshape(shape), strict=True):
            found.vectors[word.text] = part.copy()

    return found, Pending(torch.cat([*figures, *vectors]), take)


def _octets(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor's elements, in row-major order; uint8, [n]."""
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def _channel_rows(tensor: Tensor, axis: int | None) -> Tensor:
    """Return a tensor as [C, m], a row for each channel; see `channels.channel_rows`."""
    if axis is None:
        return tensor.reshape(1, -1)
    moved = tensor.movedim(axis, 0)
    channels = len(moved)
    return moved.reshape(channels, moved.numel() // channels if channels else 0)


def _sample(rows: Tensor) -> Tensor:
    """Return the sampled elements of each row, [C, k], as numpy knows them."""
    rows = rows.resolve_conj()
    channels, size = rows.shape
    count = place_count(channels, size)
    if count < size:
        rows = chosen(rows.contiguous(), 1, _index(size, count, rows.device))
    return rows.float() if rows.is_floating_point() and rows.itemsize < 4 else rows


@lru_cache(maxsize=64)
def _index(size: int, count: int, device: torch.device) -> Tensor:
    """Return which elements are sampled, on a device: getting it there would wait for its work."""
    return torch.from_numpy(places(size, count).copy()).to(device)


def _to_host(sample: Tensor) -> NDArray[np.generic]:
    """Begin to copy a sample to the host."""
    with torch.inference_mode(False):
        host = torch.empty(sample.shape, dtype=sample.dtype, pin_memory=sample.is_cuda)
    host.copy_(sample, non_blocking=True)
    array: NDArray[np.generic] = host.numpy()
    return array
