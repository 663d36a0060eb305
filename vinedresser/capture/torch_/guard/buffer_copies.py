"""Copies of a model's buffers as they were before the forward, which may change them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vinedresser.capture.torch_.names import Names

__all__ = ["BufferCopies"]

# Train steps between two lists of the buffers; a model rarely gets new ones.
_LIST_AGAIN = 1000
# Elements up to which a buffer is copied at every step: batch normalization changes its statistics
# without counting up their version. Larger ones, such as masks and tables, rarely change.
_SMALL = 1 << 16


class BufferCopies:
    """Copies the buffers at the start of each train step, large ones only after a change.

    Args:
        names: names of the model's buffers.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._listed: list[tuple[str, nn.Module, str]] = []
        # By place in the list: the buffer, its version when it was copied, and the copy.
        self._copies: list[tuple[Tensor, int, Tensor] | None] = []
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
            version = 0 if buffer.is_inference() else buffer._version
            if kept is not None and kept[0] is buffer:
                if kept[1] != version or buffer.numel() <= _SMALL or buffer.is_inference():
                    self._copies[place] = (buffer, version, kept[2])
                    targets.append(kept[2])
                    sources.append(buffer)
            else:
                self._copies[place] = (buffer, version, buffer.detach().clone())
        if targets:
            with torch.no_grad():
                torch._foreach_copy_(targets, sources)

    def values(self) -> dict[str, Tensor]:
        """Return the buffers before the forward, by name; such as were added since, as they are."""
        found = dict(self._names.buffers())
        for (name, _, _), kept in zip(self._listed, self._copies, strict=True):
            if kept is not None and name in found:
                found[name] = kept[2]
        return found

    def _list(self) -> None:
        known = {id(kept[0]): kept for kept in self._copies if kept is not None}
        self._listed = self._names.buffer_places()
        buffers = (module._buffers.get(key) for _, module, key in self._listed)
        self._copies = [known.get(id(one)) for one in buffers]
