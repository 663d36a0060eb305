"""Takes TensorFlow's tensors into recordings, without a copy where nobody can change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.keras_.backends.figures import take_now
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.tensor_copier import ArrayCopier
from vinedresser.store.dtypes import dtype_name
from vinedresser.store.reductions import Statistics, channel_axis
from vinedresser.store.reductions.strided_rows import affordable_rows, strided_rows
from vinedresser.store.step_record import HostTensor

__all__ = ["TensorFlowCopier"]


class _Known:
    """What was taken of a tensor.

    Args:
        value: held, else another could take its id.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        # By how many rows were taken; None: all.
        self.hosts: dict[int | None, HostTensor] = {}
        # By what they are and the axis of the channels.
        self.statistics: dict[tuple[frozenset[str], int | None], Statistics] = {}

    def fits(self, rows: int | None) -> bool:
        """Say whether so many rows, or fewer, can be kept (`affordable_rows`)."""
        return rows is None or self._affordable(rows) > 0

    def host(self, name: str, rows: int | None) -> HostTensor:
        """Return the tensor's elements, or those of so many rows."""
        places = None
        if rows is not None and self.value.ndim:
            places = strided_rows(self.value.shape[0], self._affordable(rows))
        key = None if places is None else rows
        if key not in self.hosts:
            self.hosts[key] = _view(name, self.value, places)
        return self.hosts[key]

    def _affordable(self, rows: int) -> int:
        most = affordable_rows(rows, tuple(self.value.shape), self.value.dtype.size)
        assert most is not None, "rows were asked for"
        return most


class TensorFlowCopier(ArrayCopier):
    """The `TensorCopier` of tensors that are no variables.

    A tensor in host memory is never changed once it is there (a variable that is written to while
    a tensor read from it is still in use gets memory of its own), so a view of it is kept, which
    keeps it alive. A tensor that comes under several names is kept once.
    """

    channels_last = True

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """See `TensorCopier.keep`.

        Raises:
            TypeError: its elements cannot be stored.
        """
        if not isinstance(value, tf.Tensor):
            super().keep(recording, name, value, ask)
            return
        known: _Known = recording.kept.get(id(value)) or _Known(value)
        recording.kept[id(value)] = known
        if ask.tensor and name not in recording.tensors and known.fits(ask.rows):
            recording.tensors[name] = known.host(name, ask.rows)
        if ask.reductions and not recording.has_statistics(name):
            axis = channel_axis(name, value.ndim, last=self.channels_last)
            key = (ask.reductions, axis)
            if key not in known.statistics:
                array = known.host(name, None).data
                known.statistics[key] = take_now(array, ask.reductions, axis)
            recording.add_statistics(name, known.statistics[key])

    def finish(self, recording: Recording) -> None:
        """See `TensorCopier.finish`."""
        recording.kept.clear()


def _view(name: str, value: Any, places: NDArray[np.int64] | None) -> HostTensor:
    """Return a tensor's elements, in the memory in which they are where that is the host's.

    Args:
        name: of the tensor.
        value: the tensor.
        places: rows to be copied instead; only these leave a device.
    """
    if places is not None and "CPU" not in value.device:
        value, places = tf.gather(value, places), None
    array = np.asarray(value)
    if places is not None:
        array = array[places]
    try:
        return HostTensor(dtype_name(array.dtype), array.shape, array)
    except KeyError:
        raise TypeError(f"{name}: a tensor of {value.dtype.name} cannot be stored") from None
