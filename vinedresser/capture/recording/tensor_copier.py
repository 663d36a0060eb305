"""The interface for copying a framework's tensors, and the copier of numpy arrays."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.recording.recording import Recording
from vinedresser.store.dtypes import dtype_name
from vinedresser.store.reductions import channel_axis, compute_statistics
from vinedresser.store.reductions.strided_rows import affordable_rows, some_rows
from vinedresser.store.step_record import HostTensor, StepRecord

__all__ = ["ArrayCopier", "TensorCopier"]


class TensorCopier(Protocol):
    """Copies tensors of one framework into recordings."""

    def is_scalar(self, value: Any) -> bool:
        """Say whether a tensor is one real number."""

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """Take what is asked of a tensor, as it is now."""

    def keep_scalar(self, recording: Recording, name: str, value: Any, weight: float) -> None:
        """Take a tensor of one number into the mean of its name."""

    def finish(self, recording: Recording) -> None:
        """Wait for what is still being copied or computed, and complete the recording."""

    def release(self, record: StepRecord) -> None:
        """Take back the buffers of a record that is stored; called on the writer's thread."""


class ArrayCopier:
    """Keeps numpy arrays, and whatever numpy makes an array of.

    Attributes:
        channels_last: in what it is given, channels are the last axis (`channel_axis`).
    """

    channels_last = False

    def is_scalar(self, value: Any) -> bool:
        """Say whether an array is one real number."""
        array = np.asarray(value)
        return array.size == 1 and array.dtype.kind in "biuf"

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """See `TensorCopier.keep`.

        Raises:
            TypeError: the elements are no numbers.
        """
        array = np.asarray(value)
        try:
            dtype = dtype_name(array.dtype)
        except KeyError:
            raise TypeError(f"{name}: an array of {array.dtype} cannot be stored") from None
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
        """Nothing is ever pending."""

    def release(self, record: StepRecord) -> None:
        """The arrays are the record's own."""
