"""Copying from CUDA devices to pinned host memory, beside the computation."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import torch

__all__ = ["Arrival", "DeviceCopies"]


class Arrival(NamedTuple):
    """What stands for the end of copies that were begun.

    Attributes:
        events: one for each device.
    """

    events: tuple[Any, ...]

    def wait(self) -> None:
        """Wait until all copies are there; on any thread."""
        for event in self.events:
            event.synchronize()


class _Staged(NamedTuple):
    """A copy of a tensor on its device, which lives until it is copied from there."""

    copied: Any
    size: int


class DeviceCopies:
    """Begins copies that the training's thread never waits for, and its device as little as may be.

    What is copied may be written to right afterwards: by the optimizer, or by a layer in place. So
    a tensor is first copied on its device, at the speed of its memory, and from there to the host,
    which takes some forty times as long, while the computation goes on. When more than
    `most_staged` bytes are on their way so, or the device has no room, a tensor is copied directly,
    and the device's computation, not the host, waits for it.

    Args:
        most_staged: bytes on a device, at the most, of which it has a second copy.
        cuda: what is known of devices and streams as `torch.cuda`.
    """

    def __init__(self, most_staged: int = 256 << 20, cuda: Any = torch.cuda) -> None:
        self._most_staged = most_staged
        self._cuda = cuda
        self._sides: dict[torch.device, Any] = {}
        self._staged: dict[torch.device, deque[_Staged]] = {}

    def begin(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Begin to copy a tensor as it is now.

        Args:
            source: detached and dense, on a CUDA device.
            target: of its dtype and shape, in pinned host memory; not to be read before `arrival`.

        Raises:
            TypeError: the device is recording a CUDA graph, into which the copy would go.
        """
        device = source.device
        if self._cuda.is_current_stream_capturing():
            raise TypeError("nothing can be copied while a CUDA graph is recorded")
        side = self._side(device)
        compute = self._cuda.current_stream(device)
        staged = self._stage(source)
        side.wait_stream(compute)
        with self._cuda.stream(side):
            target.copy_(source if staged is None else staged, non_blocking=True)
        if staged is None:
            compute.wait_stream(side)
            return
        # Its memory is not used again before the side stream is done with it.
        staged.record_stream(side)
        copied = self._cuda.Event()
        copied.record(side)
        self._staged[device].append(_Staged(copied, staged.nbytes))

    def began(self, device: torch.device) -> None:
        """Note that a copy was begun on the current stream of a device, for `arrival`."""
        self._side(device)

    @property
    def busy(self) -> bool:
        """Whether any copy was ever begun."""
        return bool(self._sides)

    def arrival(self) -> Arrival | None:
        """Return the end of all that was begun so far; None where nothing ever was."""
        events = []
        for device, side in self._sides.items():
            side.wait_stream(self._cuda.current_stream(device))
            # Who waits for it shall not keep a core busy meanwhile.
            event = self._cuda.Event(blocking=True)
            event.record(side)
            events.append(event)
        return Arrival(tuple(events)) if events else None

    def _side(self, device: torch.device) -> Any:
        if device not in self._sides:
            self._sides[device] = self._cuda.Stream(device)
            self._staged[device] = deque()
        return self._sides[device]

    def _stage(self, source: torch.Tensor) -> torch.Tensor | None:
        """Return a second copy of a tensor on its device; None where there is no room for one."""
        waiting = self._staged[source.device]
        while waiting and waiting[0].copied.query():
            waiting.popleft()
        if sum(one.size for one in waiting) + source.nbytes > self._most_staged:
            return None
        try:
            return source.clone(memory_format=torch.contiguous_format)
        except torch.OutOfMemoryError:
            return None
