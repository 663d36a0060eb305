"""Tensors that depend on the model's input, known by the memory that they show."""

from __future__ import annotations

import torch

from vinedresser.explain.saliency.axes import Axes

__all__ = ["Followed"]

_Place = tuple[int, torch.Size, tuple[int, ...]]


class Followed:
    """Axes of tensors by storage, offset, shape and strides.

    Autograd returns a view as another object than the mode below it has seen.
    """

    def __init__(self) -> None:
        self._known: dict[int, dict[_Place, Axes]] = {}

    def put(self, tensor: torch.Tensor, axes: Axes, *, fresh: bool) -> None:
        """Note the axes of a tensor.

        Args:
            tensor: the tensor.
            axes: its axes.
            fresh: whether its storage is new, perhaps in the place of another one.
        """
        if fresh:
            self.forget(tensor)
        self._known.setdefault(_storage(tensor), {})[_place(tensor)] = axes

    def forget(self, tensor: torch.Tensor) -> None:
        """Forget everything in the storage of a tensor."""
        self._known.pop(_storage(tensor), None)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Return whether something in the storage of a tensor depends on the input."""
        return _storage(tensor) in self._known

    def axes(self, tensor: torch.Tensor) -> Axes:
        """Return the axes of a tensor; none if they are unknown."""
        return self._known.get(_storage(tensor), {}).get(_place(tensor), {})


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _place(tensor: torch.Tensor) -> _Place:
    return int(tensor.storage_offset()), tensor.shape, tensor.stride()
