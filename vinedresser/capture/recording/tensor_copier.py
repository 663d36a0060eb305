"""The interface for copying tensors into recordings, and its implementation for numpy arrays."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.recording.recording import Recording
from vinedresser.store.dtypes import dtype_name
from vinedresser.store.reductions import channel_axis, compute_statistics
from vinedresser.store.reductions.sampling import affordable_rows, some_rows
from vinedresser.store.step_record import HostTensor, StepRecord

__all__ = ["ArrayCopier", "LiveArray", "TensorCopier"]


class TensorCopier(Protocol):
    """Copies tensors of one framework into recordings."""

    def is_scalar(self, value: Any) -> bool:
        """Return whether a tensor is one real number."""

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """Copy a tensor's current elements, compute its statistics, or both.

        Args:
            recording: receives the copy and the statistics.
            name: full name.
            value: tensor of the framework, any shape.

        Raises:
            TypeError: the dtype cannot be stored.
        """

    def keep_scalar(self, recording: Recording, name: str, value: Any, weight: float) -> None:
        """Add a tensor of one element to the weighted mean of its name."""

    def finish(self, recording: Recording) -> None:
        """Complete the recording, or let it await pending copies on the writer's thread."""

    def release(self, record: StepRecord) -> None:
        """Reclaim the buffers of a stored record; called on the writer's thread."""


class LiveArray:
    """A copy of an array for standing queries."""

    changed = False

    def __init__(self, array: NDArray[np.generic]) -> None:
        self.described = f"{array.dtype} {list(array.shape)}"
        self._array = np.array(array)

    def read(self) -> NDArray[np.generic]:
        """See `LiveValue.read`."""
        return self._array


class ArrayCopier:
    """The `TensorCopier` of numpy arrays and everything that `numpy.asarray` accepts.

    Attributes:
        channels_last: channels are the last axis (see `channel_axis`).
    """

    channels_last = False

    def is_scalar(self, value: Any) -> bool:
        """See `TensorCopier.is_scalar`."""
        array = np.asarray(value)
        return array.size == 1 and array.dtype.kind in "biuf"

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """See `TensorCopier.keep`."""
        array = np.asarray(value)
        try:
            dtype = dtype_name(array.dtype)
        except KeyError:
            raise TypeError(f"{name}: an array of {array.dtype} cannot be stored") from None
        if ask.live and name not in recording.live:
            recording.live[name] = LiveArray(array)
        if ask.tensor and name not in recording.tensors:
            most = affordable_rows(ask.rows, array.shape, array.itemsize)
            if most != 0:
                some = some_rows(array, most)
                native = np.array(some, dtype=array.dtype.newbyteorder("="), order="C")
                recording.tensors[name] = HostTensor(dtype, some.shape, native)
        if ask.reductions and not recording.has_statistics(name):
            axis = channel_axis(name, array.ndim, last=self.channels_last)
            recording.add_statistics(name, compute_statistics(array, ask.reductions, axis))

    def keep_scalar(self, recording: Recording, name: str, value: Any, weight: float) -> None:
        """See `TensorCopier.keep_scalar`."""
        recording.add_scalar(name, float(np.asarray(value).item()), weight)

    def finish(self, recording: Recording) -> None:
        """Do nothing: copies are never pending."""

    def release(self, record: StepRecord) -> None:
        """Do nothing: the arrays belong to the record."""
