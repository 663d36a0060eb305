"""Takes TensorFlow's tensors into recordings, without a copy where nobody can change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from vinedresser.capture.config import Ask
from vinedresser.capture.keeper import ArrayKeeper
from vinedresser.capture.recording import Recording
from vinedresser.capture.reductions import Statistics, channel_axis, take_statistics
from vinedresser.capture.store.dtypes import dtype_name
from vinedresser.capture.store.step_record import HostTensor

__all__ = ["TensorFlowKeeper"]

# A tensor (held, else another could take its id), its elements, and its statistics by what they
# are and the axis of the channels.
_Known = tuple[Any, HostTensor, dict[tuple[frozenset[str], int | None], Statistics]]


class TensorFlowKeeper(ArrayKeeper):
    """The `Keeper` of tensors that are no variables.

    A tensor in host memory is never changed once it is there (a variable that is written to while
    a tensor read from it is still in use gets memory of its own), so a view of it is kept, which
    keeps it alive. A tensor that comes under several names is kept once.
    """

    channels_last = True

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """See `Keeper.keep`.

        Raises:
            TypeError: its elements cannot be stored.
        """
        if not isinstance(value, tf.Tensor):
            super().keep(recording, name, value, ask)
            return
        known: _Known | None = recording.kept.get(id(value))
        if known is None:
            known = recording.kept[id(value)] = (value, _view(name, value), {})
        _, host, statistics = known
        if ask.tensor:
            recording.tensors.setdefault(name, host)
        if ask.reductions and not recording.has_statistics(name):
            axis = channel_axis(name, host.data.ndim, last=self.channels_last)
            key = (ask.reductions, axis)
            if key not in statistics:
                statistics[key] = take_statistics(host.data, ask.reductions, axis)
            recording.add_statistics(name, statistics[key])

    def finish(self, recording: Recording) -> None:
        """See `Keeper.finish`."""
        recording.kept.clear()


def _view(name: str, value: Any) -> HostTensor:
    """Return a tensor's elements, in the memory in which they are where that is the host's."""
    array = np.asarray(value)
    try:
        return HostTensor(dtype_name(array.dtype), array.shape, array)
    except KeyError:
        raise TypeError(f"{name}: a tensor of {value.dtype.name} cannot be stored") from None
