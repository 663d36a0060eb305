"""What a framework's adapter offers to the hook, and the keeper of plain numpy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.hook.recording import Recording
from vinedresser.store.collections.modules import ModuleInfo
from vinedresser.store.dtypes import dtype_name
from vinedresser.store.reductions import channel_axis, compute_statistics
from vinedresser.store.reductions.strided_rows import affordable_rows, some_rows
from vinedresser.store.step_record import HostTensor, StepRecord

__all__ = ["Adapter", "ArrayKeeper", "Keeper", "LossTaker", "TabularAdapter", "Watchful"]


class Keeper(Protocol):
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


class Adapter(Protocol):
    """Ties a hook to one model of a framework."""

    @property
    def framework(self) -> str:
        """The framework's name, such as "torch"."""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the framework and of what it runs on, by name."""

    def names(self) -> list[str]:
        """Return the names of all tensors that are known to be there to capture."""

    def modules(self) -> dict[str, ModuleInfo]:
        """Return what the modules or layers are, by path."""

    def path_of(self, module: Any) -> str | None:
        """Return the path of a module or layer object; None where it is none of the model's."""

    def checkpoint(self, directory: Path, step: int) -> None:
        """Save the model as it is now as ``step-<step>`` in a directory."""

    def detach(self) -> None:
        """Leave the model as it was found."""


@runtime_checkable
class LossTaker(Protocol):
    """An adapter that takes the values of loss functions that the training calls."""

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Take what a loss function has returned.

        Args:
            name: of the loss.
            value: what it returned.
            arguments: what it was called with.
        """


@runtime_checkable
class TabularAdapter(Protocol):
    """An adapter of a model of tables, whose columns and classes have names."""

    def features(self) -> list[str]:
        """Return the names of the input's features, in their order; [] as long as unknown."""

    def classes(self) -> list[str]:
        """Return the classes, in the order of their numbers; [] where there are none."""


@runtime_checkable
class Watchful(Protocol):
    """An adapter that looks now and then whether all is well."""

    def look(self) -> None:
        """Look, and report what is not; called about every second on the writer's thread."""


class ArrayKeeper:
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
        """See `Keeper.keep`.

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
        """See `Keeper.keep_scalar`."""
        recording.add_scalar(name, float(np.asarray(value).item()), weight)

    def finish(self, recording: Recording) -> None:
        """Nothing is ever pending."""

    def release(self, record: StepRecord) -> None:
        """The arrays are the record's own."""
