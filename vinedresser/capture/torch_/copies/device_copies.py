"""Copying from CUDA devices to pinned host memory, in parallel with the computation."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import torch


class _Staged(NamedTuple):
    """A copy of a tensor on its device, until it is copied to the host."""

    copied: Any
    size: int


class DeviceCopies:
    """Starts copies for which the training's thread never waits, and its device rarely.

    The training may overwrite a tensor right after. So it is first copied on its device, and from
    there to the host, about forty times slower, while the computation continues. If more than
    `most_staged` bytes are in transit, or the device has no memory left, the tensor is copied
    directly, and the device (not the host) waits for it.

    Args:
        most_staged: maximum size of copies on a device, in bytes.
        cuda: `torch.cuda`, or a substitute.
    """

    def __init__(self, most_staged: int = 256 << 20, cuda: Any = torch.cuda) -> None:
        self._most_staged = most_staged
        self._cuda = cuda
        self._sides: dict[torch.device, Any] = {}
        self._staged: dict[torch.device, deque[_Staged]] = {}

    def begin(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Start to copy a tensor's current elements.

        Args:
            source: detached and dense, on a CUDA device; any shape and dtype.
            target: same shape and dtype, in pinned host memory; not readable before `arrival`.

        Raises:
            TypeError: the device is capturing a CUDA graph, which would include the copy.
        """
        device = source.device
        if self._cuda.is_current_stream_capturing():
            raise TypeError("cannot copy while a CUDA graph is being captured")
        side = self._side(device)
        compute = self._cuda.current_stream(device)
        staged = self._stage(source)
        side.wait_stream(compute)
        with self._cuda.stream(side):
            target.copy_(source if staged is None else staged, non_blocking=True)
        if staged is None:
            compute.wait_stream(side)
            return
        # Keep its memory until the side stream has finished with it.
        staged.record_stream(side)
        copied = self._cuda.Event()
        copied.record(side)
        self._staged[device].append(_Staged(copied, staged.nbytes))

    def began(self, device: torch.device) -> None:
        """Note that a copy was started on the current stream of a device, for `arrival`."""
        self._side(device)

    @property
    def busy(self) -> bool:
        """Whether any copy was ever started."""
        return bool(self._sides)

    def arrival(self) -> list[Any]:
        """Return CUDA events, one per device, for the end of all copies started so far."""
        events = []
        for device, side in self._sides.items():
            side.wait_stream(self._cuda.current_stream(device))
            # Wait without busy-waiting.
            event = self._cuda.Event(blocking=True)
            event.record(side)
            events.append(event)
        return events

    def _side(self, device: torch.device) -> Any:
        if device not in self._sides:
            self._sides[device] = self._cuda.Stream(device)
            self._staged[device] = deque()
        return self._sides[device]

    def _stage(self, source: torch.Tensor) -> torch.Tensor | None:
        """Return a copy of a tensor on its device, or None if the device is out of memory."""
        waiting = self._staged[source.device]
        while waiting and waiting[0].copied.query():
            waiting.popleft()
        if sum(one.size for one in waiting) + source.nbytes > self._most_staged:
            return None
        try:
            return source.clone(memory_format=torch.contiguous_format)
        except torch.OutOfMemoryError:
            return None
