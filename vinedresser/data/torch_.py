"""Data sets under PyTorch's DataLoader: any number of workers yields the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from vinedresser.data.delivered import Iteration, Provider
from vinedresser.data.feed import Feed
from vinedresser.data.records import Batch

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
    """

    def __init__(
        self,
        dataset: Feed,
        *,
        collate: Callable[[list[Any]], Any] = default_collate,
        **options: Any,
    ) -> None:
        self._data = dataset
        workers = options.get("num_workers", 0)
        # By default, torch has each worker prefetch two batches.
        self._shares = _Shares(dataset, collate, workers * (options.get("prefetch_factor") or 2))
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
        try:
            with Iteration() as iteration:
                for batch in super().__iter__():
                    self._data.deliver(batch)
                    iteration.deliver(batch.origins)
                    yield batch
        finally:
            self._data.withdraw()

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
        ahead: see `Feed.board`.
    """

    def __init__(self, dataset: Feed, collate: Callable[[list[Any]], Any], ahead: int) -> None:
        self._dataset = dataset
        self._collate = collate
        self._ahead = ahead
        self._board = torch.from_numpy(dataset.board(ahead)).share_memory_()

    def begin(self) -> None:
        """Have all workers begin at the position of this process's data set."""
        self._dataset.publish(self._board.numpy(), self._ahead)

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if info is not None:
            self._dataset.follow(self._board.numpy())
        for share in self._dataset.share(worker, workers):
            with self._dataset.statistics.timed("decoding"):
                values = self._collate(share.values)
            yield share._replace(values=values)


def _unchanged(batch: Any) -> Any:
    return batch
