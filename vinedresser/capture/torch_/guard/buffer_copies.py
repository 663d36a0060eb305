"""Copies of a model's buffers as they were before the forward, which may change them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vinedresser.frameworks.torch_.names import Names

# Train steps between two lists of the buffers; a model rarely gets new ones.
_LIST_AGAIN = 1000
# Elements up to which a buffer is copied at every step: batch normalization changes its statistics
# without counting up their version. Larger ones, such as masks and tables, rarely change.
_SMALL = 1 << 16
# Of the statistics and counters of normalizations.
_VIEWED = (torch.float32, torch.float64, torch.int64)


class _Kept(NamedTuple):
    """A buffer and its copy.

    Attributes:
        version: its version when it was copied.
        place: address of the elements that `views` shows.
        views: numpy views of the buffer and of the copy, whose assignment takes a third of the time
            of torch's between two steps; None if the buffer is large or has no such view.
    """

    buffer: Tensor
    version: int
    copy: Tensor
    place: int
    views: tuple[Any, Any] | None


class BufferCopies:
    """Copies the buffers at the start of each train step, large ones only after a change.

    Args:
        names: names of the model's buffers.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._listed: list[tuple[str, nn.Module, str]] = []
        # By place in the list.
        self._copies: list[_Kept | None] = []
        self._age = _LIST_AGAIN

    def take(self) -> None:
        """Copy the buffers at the start of a train step."""
        self._age += 1
        if self._age > _LIST_AGAIN:
            self._age = 0
            self._list()
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for place, (_, module, key) in enumerate(self._listed):
            buffer = module._buffers.get(key)
            if buffer is None:
                self._copies[place] = None
                continue
            kept = self._copies[place]
            if kept is None or kept.buffer is not buffer:
                self._copies[place] = _kept(buffer)
                continue
            # A view of memory that the buffer has left would show old values.
            if kept.views is not None and buffer.data_ptr() == kept.place:
                kept.views[1][...] = kept.views[0]
                continue
            version = 0 if buffer.is_inference() else buffer._version
            if kept.version != version or buffer.numel() <= _SMALL or buffer.is_inference():
                self._copies[place] = kept._replace(version=version, views=None)
                targets.append(kept.copy)
                sources.append(buffer)
        if targets:
            with torch.no_grad():
                torch._foreach_copy_(targets, sources)

    def values(self) -> dict[str, Tensor]:
        """Return the buffers before the forward, by name; such as were added since, as they are."""
        found = dict(self._names.buffers())
        for (name, _, _), kept in zip(self._listed, self._copies, strict=True):
            if kept is not None and name in found:
                found[name] = kept.copy
        return found

    def _list(self) -> None:
        known = {id(kept.buffer): kept for kept in self._copies if kept is not None}
        self._listed = self._names.buffer_places()
        buffers = (module._buffers.get(key) for _, module, key in self._listed)
        self._copies = [known.get(id(buffer)) for buffer in buffers]


def _kept(buffer: Tensor) -> _Kept:
    """Copy a buffer for the first time."""
    version = 0 if buffer.is_inference() else buffer._version
    copy = buffer.detach().clone()
    plain = type(buffer) is Tensor and buffer.is_cpu and buffer.layout is torch.strided
    if not plain or buffer.numel() > _SMALL or buffer.dtype not in _VIEWED:
        return _Kept(buffer, version, copy, 0, None)
    views = buffer.detach().numpy(), copy.numpy()
    return _Kept(buffer, version, copy, buffer.data_ptr(), views)
