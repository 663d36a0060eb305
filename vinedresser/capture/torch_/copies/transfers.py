"""Figures on their way from a device."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import torch

from vinedresser.capture.torch_.copies.reductions import Pending

__all__ = ["Transfer", "begin_transfers"]


class Transfer:
    """The figures of one device, in one copy that is begun on its current stream.

    Args:
        figures: of one device, at least one.
    """

    def __init__(self, figures: list[Pending]) -> None:
        self._figures = figures
        here = torch.cat([one.figures for one in figures])
        with torch.inference_mode(False):
            self._host = torch.empty(here.shape, dtype=here.dtype, pin_memory=here.is_cuda)
        self._host.copy_(here, non_blocking=True)

    def take(self) -> None:
        """Hand the figures to who waits for them; they must be here."""
        array = self._host.numpy()
        sizes = [len(one.figures) for one in self._figures]
        for one, size, end in zip(self._figures, sizes, accumulate(sizes), strict=True):
            one.take(array[end - size : end])


def begin_transfers(figures: Iterable[Pending]) -> list[Transfer]:
    """Begin to copy figures, of each device at once."""
    by_device: dict[torch.device, list[Pending]] = {}
    for one in figures:
        by_device.setdefault(one.figures.device, []).append(one)
    return [Transfer(some) for some in by_device.values()]
