"""Data sets under PyTorch's DataLoader: any number of workers yields the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from vinedresser.data.delivered import Iteration, Provider
from vinedresser.data.feed import Feed
from vinedresser.data.records import Batch
from vinedresser.errors import ConfigError

__all__ = ["TorchLoader"]


class TorchLoader(DataLoader[Batch]):
    """A DataLoader of the batches of a data set.

    The workers take turns at the batches, so order and contents do not depend on their number. The
    position is that behind the last batch that was yielded, whatever the workers have prefetched.
    An iteration yields the rest of the current epoch, as that of a `Dataset` does.

    Args:
        dataset: the data set; with ranks, that of this rank.
        collate: called with the list of a batch's values in the worker; by default, they become
            tensors as in torch (``torch.utils.data.default_collate``).
        options: other arguments of DataLoader, such as ``num_workers`` and ``pin_memory``. The
            batches are those of the data set: it takes no ``batch_size``, ``shuffle`` or
            ``sampler``.

    Raises:
        ConfigError: an option would change the order.
    """

    def __init__(
        self,
        dataset: Feed,
        *,
        collate: Callable[[list[Any]], Any] = default_collate,
        **options: Any,
    ) -> None:
        if options.get("in_order") is False:
            raise ConfigError("in_order = False: the position needs the order of the batches")
        if options.get("persistent_workers") and dataset.changes:
            raise ConfigError(
                "persistent_workers = True: these workers would keep the objects of the first "
                "epoch; leave it out, or refresh"
            )
        self._data = dataset
        # By default, torch has each worker prefetch two batches.
        ahead = options.get("prefetch_factor") or 2
        self._shares = _Shares(dataset, collate, options.get("num_workers", 0), ahead)
        super().__init__(self._shares, batch_size=None, collate_fn=_unchanged, **options)

    @property
    def data(self) -> Feed:
        """The data set."""
        return self._data

    def __len__(self) -> int:
        """Return the number of batches until the end of the epoch."""
        return len(self._data)

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """Yield the batches up to the end of the epoch.

        Raises:
            DamagedData: more records are damaged than may be left out.
            StoreError: an object cannot be read.
        """
        self._shares.begin()
        slots: dict[tuple[int, int], memoryview] = {}
        try:
            with Iteration(self._data.delivered) as iteration:
                for batch in self._awaited(super().__iter__()):
                    self._data.deliver(batch)
                    if isinstance(batch.values, _Packed):
                        batch.values.unpack(slots)
                        batch = batch._replace(values=[*batch.values])  # noqa: PLW2901
                    iteration.deliver(batch.origins)
                    yield batch
        finally:
            self._data.withdraw()

    def _awaited(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches, and measure how long those of workers are waited for."""
        statistics = self._data.statistics
        while True:
            with statistics.timed("queued") if self.num_workers else nullcontext():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """See `Feed.state_dict`."""
        return self._data.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Feed.load_state_dict`."""
        self._data.load_state_dict(state)


class _Shares(IterableDataset[Batch], Provider):
    """The batches of one worker.

    Persistent workers have their own copy of the data set, from when they were started: the
    position at the beginning of an epoch reaches them in shared memory.

    Args:
        dataset: the data set.
        collate: see `TorchLoader`.
        workers: number of workers.
        ahead: number of batches that each of them prefetches.
    """

    def __init__(
        self, dataset: Feed, collate: Callable[[list[Any]], Any], workers: int, ahead: int
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._all_ahead = workers * ahead
        # One more is being written, and one being read.
        self._slots = ahead + 2
        self._board = torch.from_numpy(dataset.board(self._all_ahead)).share_memory_()

    def begin(self) -> None:
        """Have all workers begin at the position of this process's data set."""
        self._dataset.publish(self._board.numpy(), self._all_ahead)

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        packer = None
        if info is not None:
            self._dataset.follow(self._board.numpy())
            packer = _Packer(worker, self._slots)
        statistics = self._dataset.statistics
        before = statistics.stages
        for share in self._dataset.share(worker, workers):
            with statistics.timed("decoding"):
                values = self._collate(share.values)
            if packer is None:
                yield share._replace(values=values)
                continue
            now = statistics.stages
            seconds = tuple(new - old for new, old in zip(now[:3], before[:3], strict=True))
            before = now
            yield share._replace(values=packer.packed(values), seconds=seconds)


class _Packed(list[bytes]):
    """Values of a batch in memory that is shared with a worker; an empty list until it is unpacked.

    Who notes a batch as the DataLoader returns it has the values, too, once they are unpacked.

    Args:
        slot: number of the worker and of one of its slots.
        ends: the end of each value in the slot.
        memory: the slot, uint8, (bytes,), where it is a new one.
    """

    def __init__(self, slot: tuple[int, int], ends: list[int], memory: torch.Tensor | None) -> None:
        super().__init__()
        self._slot = slot
        self._ends = ends
        self._memory = memory

    def unpack(self, slots: dict[tuple[int, int], memoryview]) -> None:
        """Add the values.

        Args:
            slots: the slots of all workers so far; a new one is added.
        """
        if self._memory is not None:
            slots[self._slot] = self._memory.numpy().data
        view = slots[self._slot]
        self.extend(view[begin:end].tobytes() for begin, end in pairwise([0, *self._ends]))


class _Packer:
    """Packs lists of `bytes`, which torch would send through a pipe, in pieces of 64 KiB.

    Slots are used in turn. There are more of them than batches that a worker may have sent and the
    caller not yet received.

    Args:
        worker: number of the worker.
        slots: number of slots.
    """

    def __init__(self, worker: int, slots: int) -> None:
        self._worker = worker
        self._slots = [torch.empty(0, dtype=torch.uint8)] * slots
        self._next = 0

    def packed(self, values: Any) -> Any:
        """Return values packed, or as they are if they are something else."""
        if type(values) is not list or any(type(value) is not bytes for value in values):
            return values
        ends = [*accumulate(map(len, values))]
        slot, new = self._next, None
        self._next = (slot + 1) % len(self._slots)
        size = ends[-1] if ends else 0
        if size > len(self._slots[slot]) or not len(self._slots[slot]):
            # Sharing takes a millisecond: the next one may be larger.
            new = torch.empty(size + size // 4 + 1, dtype=torch.uint8).share_memory_()
            self._slots[slot] = new
        view = self._slots[slot].numpy().data
        for value, (begin, end) in zip(values, pairwise([0, *ends]), strict=True):
            view[begin:end] = value
        return _Packed((self._worker, slot), ends, new)


def _unchanged(batch: Any) -> Any:
    return batch
