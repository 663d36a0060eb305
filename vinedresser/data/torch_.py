"""Data sets under PyTorch's DataLoader: any number of workers yields the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info
from torch.utils.data._utils.collate import collate as collate_by_map
from torch.utils.data._utils.collate import default_collate_fn_map

from vinedresser.data.delivered import Iteration, Provider
from vinedresser.data.feed import Feed
from vinedresser.data.records import Batch
from vinedresser.data.worker_batches import Receiver, Sender, keep_freed_memory
from vinedresser.errors import ConfigError


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
        self._receiver = Receiver()
        self._shares = _Shares(
            dataset, collate, options.get("num_workers", 0), ahead, self._receiver.number
        )
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
            ConfigError: another iteration has begun since, or a position was loaded.
            DamagedData: more records are damaged than may be left out.
            StoreError: an object cannot be read.
        """
        self._shares.begin()
        with self._receiver, Iteration(self._data.delivered) as iteration:
            try:
                for batch in iteration.draw(self._awaited(super().__iter__())):
                    self._data.deliver(batch)
                    iteration.deliver(batch.origins)
                    yield batch
            finally:
                # Another iteration has workers of its own.
                if iteration.latest:
                    self._data.withdraw()

    def _awaited(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches, and measure how long those of workers are waited for."""
        statistics = self._data.statistics
        while True:
            if self.num_workers:
                self._data.expect()
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


class _Shares(IterableDataset[Any], Provider):
    """The batches of one worker.

    Persistent workers have their own copy of the data set, from when they were started: the
    position at the beginning of an epoch reaches them in shared memory.

    Args:
        collate: see `TorchLoader`.
        workers: number of workers.
        ahead: number of batches that each of them prefetches.
        receiver: number of the loader's `Receiver`.
    """

    def __init__(
        self,
        dataset: Feed,
        collate: Callable[[list[Any]], Any],
        workers: int,
        ahead: int,
        receiver: int,
    ) -> None:
        self._dataset = dataset
        self._collate = _collated if collate is default_collate else collate
        self._receiver = receiver
        self._all_ahead = workers * ahead
        # One more is being written, and one being read.
        self._slots = ahead + 2
        self._board = torch.from_numpy(dataset.board(self._all_ahead)).share_memory_()

    def begin(self) -> None:
        """Have all workers begin at the position of this process's data set."""
        self._dataset.publish(self._board.numpy(), self._all_ahead)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        sender = None
        if info is not None:
            self._dataset.follow(self._board.numpy())
            sender = Sender(self._receiver, self._slots)
            keep_freed_memory()
        statistics = self._dataset.statistics
        before = statistics.stages
        for share in self._dataset.share(worker, workers):
            with statistics.timed("decoding"):
                values = self._collate(share.values)
            if sender is None:
                yield share._replace(values=values)
                continue
            now = statistics.stages
            seconds = tuple(new - old for new, old in zip(now[:3], before[:3], strict=True))
            before = now
            yield sender.sent(share._replace(values=values, seconds=seconds))


def _collated(values: list[Any]) -> Any:
    """Return what `default_collate` returns, but no tensors in shared memory of their own."""
    return collate_by_map(values, collate_fn_map={**default_collate_fn_map, torch.Tensor: _stacked})


def _stacked(tensors: list[torch.Tensor], **_: Any) -> torch.Tensor:
    return torch.stack(tensors)


def _unchanged(batch: Any) -> Any:
    return batch
