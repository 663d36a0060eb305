"""Takes copies and statistics of torch tensors into recordings."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from vinedresser.capture.config import Ask
from vinedresser.capture.recording import Recording
from vinedresser.capture.store.step_record import StepRecord
from vinedresser.capture.torch_.buffers import BufferPool
from vinedresser.capture.torch_.reductions import reduce_later, reduce_now

__all__ = ["TorchKeeper"]

_ORDINARY = (torch.Tensor, torch.nn.Parameter)


class TorchKeeper:
    """The `Keeper` of torch tensors.

    A tensor that comes again in the same step under another name, unchanged (what a module returns
    that hands its child's output on), is neither copied nor reduced again. On a CUDA device copies
    and statistics are only begun, and waited for once, when the step ends.
    """

    def __init__(self) -> None:
        self._pool = BufferPool()
        # Figures still on a device, and what takes them once they are here.
        self._pending: list[tuple[list[torch.Tensor], Callable[[list[float]], None]]] = []
        self._copying: set[torch.device] = set()

    def is_scalar(self, value: torch.Tensor) -> bool:
        """Say whether a tensor is one real number."""
        return value.numel() == 1 and not value.is_complex()

    def keep(self, recording: Recording, name: str, value: torch.Tensor, ask: Ask) -> None:
        """See `Keeper.keep`.

        Raises:
            TypeError: its dtype cannot be stored.
        """
        self._keep(recording, name, value, ask, self._seen(recording, value))

    def keep_parameter(
        self, recording: Recording, name: str, value: torch.Tensor, ask: Ask
    ) -> None:
        """Do as `keep` does with a parameter or a gradient, which comes under no other name."""
        self._keep(recording, name, value, ask, {})

    def _keep(
        self, recording: Recording, name: str, value: torch.Tensor, ask: Ask, seen: dict[str, Any]
    ) -> None:
        """Take what is asked of a tensor, but for what was taken of it before."""
        plain: torch.Tensor | None = None
        if ask.tensor and name not in recording.tensors:
            host = seen.get("")
            if host is None:
                plain = _plain(value)
                if plain.is_cuda:
                    self._copying.add(plain.device)
                host = seen[""] = self._pool.copy(plain)
            recording.tensors[name] = host
        if ask.reductions and name not in recording.reductions:
            # Filled in now, or when the step ends; shared by all names of this tensor.
            key = ",".join(sorted(ask.reductions))
            if key not in seen:
                plain = _plain(value) if plain is None else plain
                seen[key] = self._reduce(plain, ask.reductions)
            recording.reductions[name] = seen[key]

    def keep_scalar(
        self, recording: Recording, name: str, value: torch.Tensor, weight: float
    ) -> None:
        """See `Keeper.keep_scalar`."""
        if not value.is_cuda:
            recording.add_scalar(name, float(value.item()), weight)
            return

        def take(figures: list[float]) -> None:
            recording.add_scalar(name, figures[0], weight)

        # A copy, since a loss is often divided in place afterwards.
        self._pending.append(([_plain(value).reshape(()).to(torch.float64, copy=True)], take))

    def finish(self, recording: Recording) -> None:
        """See `Keeper.finish`."""
        recording.kept.clear()
        if self._pending:
            pending, self._pending = self._pending, []
            figures = iter(torch.stack([one for some, _ in pending for one in some]).tolist())
            for some, take in pending:
                take([next(figures) for _ in some])
        while self._copying:
            torch.cuda.synchronize(self._copying.pop())

    def release(self, record: StepRecord) -> None:
        """See `Keeper.release`."""
        self._pool.release(record.tensors.values())

    def _seen(self, recording: Recording, value: torch.Tensor) -> dict[str, Any]:
        """Return what was taken of these very elements in this step already, to be added to."""
        if type(value) not in _ORDINARY or value.is_inference() or value.is_sparse:
            # No address, or no version counter that tells whether it was written to in between.
            return {}
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype, value._version)
        known = recording.kept.get(key)
        # Once the tensor is gone, another may lie at its address.
        if known is not None and known[0]() is not None:
            taken: dict[str, Any] = known[1]
            return taken
        taken = {}
        recording.kept[key] = (weakref.ref(value), taken)
        return taken

    def _reduce(self, plain: torch.Tensor, names: frozenset[str]) -> dict[str, float]:
        if not plain.is_cuda:
            return reduce_now(plain.cpu(), names)
        result: dict[str, float] = {}
        order = sorted(names)

        def take(figures: list[float]) -> None:
            result.update(zip(order, figures, strict=True))

        self._pending.append((reduce_later(plain, order), take))
        return result


def _plain(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor as an ordinary one: without graph, dense, this process's part of it."""
    plain = value.detach()
    if type(plain) is not torch.Tensor and hasattr(plain, "to_local"):
        plain = plain.to_local()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    return plain.resolve_conj().resolve_neg() if plain.is_complex() else plain
