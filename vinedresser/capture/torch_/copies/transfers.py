"""Transfers of statistics from a device to the host."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import torch

from vinedresser.capture.torch_.copies.reductions import Pending

__all__ = ["Transfer", "begin_transfers"]


class Transfer:
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


def begin_transfers(pending: Iterable[Pending]) -> list[Transfer]:
    """Start one transfer per device."""
    by_device: dict[torch.device, list[Pending]] = {}
    for one in pending:
        by_device.setdefault(one.values.device, []).append(one)
    return [Transfer(some) for some in by_device.values()]
