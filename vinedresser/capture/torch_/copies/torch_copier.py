"""Copying torch tensors and their statistics into recordings."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.torch_.copies.buffers import BufferPool
from vinedresser.capture.torch_.copies.device_copies import DeviceCopies
from vinedresser.capture.torch_.copies.later_statistics import Copies, LaterStatistics
from vinedresser.capture.torch_.copies.live_tensors import LiveTensors
from vinedresser.capture.torch_.copies.reductions import (
    Pending,
    begin_transfers,
    octets,
    take_later,
    take_now,
)
from vinedresser.frameworks.torch_.modes import WithoutModes, modes_are_active
from vinedresser.frameworks.torch_.views import host_view, plain_tensor
from vinedresser.store.reductions import Statistics, channel_axis
from vinedresser.store.reductions.alone import fingerprint
from vinedresser.store.reductions.sampling import affordable_rows
from vinedresser.store.step_record import StepRecord

__all__ = ["Keep", "TorchCopier"]

# `TorchCopier.keep`, shielded.
Keep = Callable[[Recording, str, torch.Tensor, Ask], object]

_FINGERPRINT = frozenset({"fingerprint"})
_ORDINARY = (torch.Tensor, torch.nn.Parameter)


class TorchCopier:
    """The `TensorCopier` of torch tensors.

    An unchanged tensor that appears in the same step under another name, such as a child's output
    that a module returns, is not processed again. On a CUDA device, copies and statistics are only
    started; the writer's thread waits for them.

    Attributes:
        channels_last: channels are the last axis (see `channel_axis`).
        live: keeps tensors for standing queries.
    """

    channels_last = False

    def __init__(self) -> None:
        self.live = LiveTensors()
        self._copies = DeviceCopies()
        self._pool = BufferPool(copies=self._copies)
        self._for_later = LaterStatistics()
        # Values that are still on a device, by recording.
        self._later: dict[Recording, list[Pending]] = {}

    def is_scalar(self, value: torch.Tensor) -> bool:
        """See `TensorCopier.is_scalar`."""
        return value.numel() == 1 and not value.is_complex()

    def keep(self, recording: Recording, name: str, value: torch.Tensor, ask: Ask) -> None:
        """See `TensorCopier.keep`."""
        if not modes_are_active():
            self._keep(recording, name, value, ask, self._seen(recording, value))
            return
        with WithoutModes():
            self._keep(recording, name, value, ask, self._seen(recording, value))

    def keep_parameter(
        self, recording: Recording, name: str, value: torch.Tensor, ask: Ask
    ) -> None:
        """Do the same as `keep`, for a parameter or gradient, which has no other name."""
        if not modes_are_active():
            self._keep(recording, name, value, ask, {})
            return
        with WithoutModes():
            self._keep(recording, name, value, ask, {})

    def keep_parameters(
        self, recording: Recording, named: list[tuple[str, torch.Tensor, Ask]]
    ) -> None:
        """Do the same as `keep_parameter`, for several tensors of which only statistics are due.

        Args:
            recording: receives the statistics.
            named: full name, tensor, and what to keep, without the tensor itself.
        """
        if recording.due.asked is not None:
            with WithoutModes():
                for name, value, ask in named:
                    if ask.live:
                        self.live.keep(recording.live, name, plain_tensor(value))
        fresh = [one for one in named if one[2].reductions and not recording.has_statistics(one[0])]
        fresh = [one for one in fresh if not _took_fingerprint(recording, *one)]
        tensors = [value for _, value, _ in fresh]
        if not fresh:
            return
        if not self._for_later.fits(recording, tensors):
            for name, value, ask in named:
                self.keep_parameter(recording, name, value, ask)
        else:
            with WithoutModes():
                copies = self._for_later.copy(recording, tensors)
            self.keep_copies(recording, [(name, ask) for name, _, ask in fresh], copies)
            for value, copied in zip(tensors, copies.tensors, strict=True):
                if type(value) is torch.nn.Parameter and not value.is_inference():
                    recording.kept[id(value)] = (weakref.ref(value), value._version, copied)

    def keep_copies(
        self, recording: Recording, named: list[tuple[str, Ask]], copies: Copies
    ) -> None:
        """Add pending statistics of copies.

        Args:
            recording: receives the statistics.
            named: full name of each copy, and what to keep, without the tensor itself.
            copies: the copies, which must not change any more.
        """
        for place, (name, ask) in enumerate(named):
            axis = channel_axis(name, copies.tensors[place].dim(), last=self.channels_last)
            recording.add_statistics(name, copies.statistics(place, ask.reductions, axis))

    def copy_of(self, recording: Recording, value: torch.Tensor) -> torch.Tensor | None:
        """Return the copy that `keep_parameters` made of a tensor, or None.

        The copy is read-only and valid until the recording is delivered.

        Args:
            value: the tensor; if it has changed since, there is no copy.
        """
        found = recording.kept.get(id(value))
        if found is None or found[0]() is not value or found[1] != value._version:
            return None
        copied: torch.Tensor = found[2]
        return copied

    def copied_for_later(self, recording: Recording, tensors: list[torch.Tensor]) -> Copies | None:
        """Copy tensors for `keep_copies`; return None if this is not possible."""
        if not self._for_later.fits(recording, tensors):
            return None
        return self._for_later.copy(recording, tensors)

    def _keep(
        self, recording: Recording, name: str, value: torch.Tensor, ask: Ask, seen: dict[Any, Any]
    ) -> None:
        """Keep a tensor, reusing what was computed of the same elements before (`seen`)."""
        plain: torch.Tensor | None = None
        if ask.live:
            self.live.keep(recording.live, name, plain_tensor(value))
        if ask.tensor and name not in recording.tensors:
            host = seen.get(ask.rows)
            most = affordable_rows(ask.rows, value.shape, value.itemsize)
            if host is None and most != 0:
                plain = plain_tensor(value)
                host = seen[ask.rows] = self._pool.copy_rows(plain, most)
            if host is not None:
                recording.tensors[name] = host
        if ask.reductions and not recording.has_statistics(name):
            axis = channel_axis(name, value.dim(), last=self.channels_last)
            # Computed now or later; shared by all names of the tensor.
            key = (ask.reductions, axis)
            if key not in seen:
                plain = plain_tensor(value) if plain is None else plain
                seen[key] = self._reduce(recording, plain, ask.reductions, axis)
            recording.add_statistics(name, seen[key])

    def keep_scalar(
        self, recording: Recording, name: str, value: torch.Tensor, weight: float
    ) -> None:
        """See `TensorCopier.keep_scalar`."""
        if not value.is_cuda:
            recording.add_scalar(name, float(value.item()), weight)
            return
        if recording.due.ask(name).live:
            self.live.add(recording.live, name, plain_tensor(value), weight)

        def take(values: NDArray[np.float64]) -> None:
            recording.add_scalar(name, float(values[0]), weight)

        # A copy, since a loss is often divided in place afterwards.
        number = plain_tensor(value).reshape(1).to(torch.float64, copy=True)
        self._later.setdefault(recording, []).append(Pending(number, take))
        self._copies.began(number.device)
        recording.awaited.add(name)

    def finish(self, recording: Recording) -> None:
        """See `TensorCopier.finish`."""
        recording.kept.clear()
        if not self._copies.busy:
            return
        transfers = begin_transfers(self._later.pop(recording, ()))
        events = self._copies.arrival()

        def complete(record: StepRecord) -> None:
            for event in events:
                event.synchronize()
            for transfer in transfers:
                transfer.take()
            record.scalars = recording.scalars()

        recording.arriving.append(complete)

    def release(self, record: StepRecord) -> None:
        """See `TensorCopier.release`."""
        self._pool.release(record.tensors.values())

    def _seen(self, recording: Recording, value: torch.Tensor) -> dict[Any, Any]:
        """Return the results for the same elements in this step, to be extended."""
        if type(value) not in _ORDINARY or value.is_inference() or value.is_sparse:
            # Without an address or a version counter, changes cannot be detected.
            return {}
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype, value._version)
        known = recording.kept.get(key)
        # Once the tensor is freed, another may have its address.
        if known is not None and known[0]() is not None:
            taken: dict[Any, Any] = known[1]
            return taken
        taken = {}
        recording.kept[key] = (weakref.ref(value), taken)
        return taken

    def _reduce(
        self, recording: Recording, plain: torch.Tensor, words: frozenset[str], axis: int | None
    ) -> Statistics:
        if not plain.is_cuda:
            if self._for_later.fits(recording, (plain,)):
                return self._for_later.copy(recording, (plain,)).statistics(0, words, axis)
            return take_now(plain.cpu(), words, axis)
        statistics, later = take_later(plain, words, axis)
        self._copies.began(plain.device)
        if later is not None:
            self._later.setdefault(recording, []).append(later)
        return statistics


def _took_fingerprint(recording: Recording, name: str, value: torch.Tensor, ask: Ask) -> bool:
    """Take a fingerprint at once, which is faster than a copy, if nothing else is due."""
    if ask.reductions != _FINGERPRINT or value.device.type != "cpu":
        return False
    bits = fingerprint(host_view(octets(plain_tensor(value))))
    recording.reductions[name] = {"fingerprint": bits}
    return True
