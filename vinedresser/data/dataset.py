"""The data set: what is read, in which order, and the position."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.feed import Feed, check_positive, check_rank, check_same
from vinedresser.data.formats.registry import format_of, open_format
from vinedresser.data.index import make_index
from vinedresser.data.order import Epoch, Settings
from vinedresser.data.reading import Reader
from vinedresser.data.records import Batch
from vinedresser.data.sources.finding import find_objects
from vinedresser.errors import ConfigError, DamagedData

__all__ = ["Dataset"]

_STATE_VERSION = 1


class Dataset(Feed):
    """Records from files or S3, in batches, in an order that is a pure function of its arguments.

    An iteration yields the rest of the current epoch, and the next iteration the next epoch. It may
    be broken off at any batch.

    Args:
        sources: files, folders, prefixes, globs or manifests, local or on S3.
        batch_size: records per batch.
        format: "tfrecord", "length_prefixed", "tar", "jsonl", "npy", "safetensors" or "parquet";
            None: by the ending of the first object.
        columns: columns to read, of Parquet only; None: all.
        decode: called with the value of each record; returns what stands for it in the batch.
        drop_last: leave out the last batch of an epoch if it is smaller.
        seed: shuffles, differently in each epoch; not negative. None: the order of the sources.
        window_bytes: bytes of the windows within which records are shuffled; as much is in memory.
        lanes: number of parts of an epoch whose batches alternate. If it is a multiple of ranks
            times workers, each of them reads its own parts only; the order depends on it.
        chunk_bytes: about how many bytes are read at a time, more if a record is longer.
        connections: number of chunks that are read at a time.
        rank: number of this rank; the ranks take turns at the batches.
        ranks: number of ranks.
        uneven: how all ranks get the same number of batches: "pad" repeats the first batches of the
            epoch at its end, "drop" leaves out the last ones.
        skip_damaged: maximum number of damaged records that are left out, and listed in
            ``damaged``; one more raises `DamagedData`.

    Raises:
        ConfigError: an argument is invalid, or a source names nothing.
        DamagedData: an object has another format, or more is damaged than may be left out.
        MissingDependency: S3 or the format needs the extra "data".
        StoreError: an object cannot be read.

    Attributes:
        damaged: the errors of the records that were left out.
        statistics: what reading in this process cost so far.
    """

    def __init__(
        self,
        sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        batch_size: int,
        format: str | None = None,  # noqa: A002 (the word of the field)
        columns: Sequence[str] | None = None,
        decode: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        window_bytes: int = 64 << 20,
        lanes: int = 1,
        chunk_bytes: int = 4 << 20,
        connections: int = 16,
        rank: int = 0,
        ranks: int = 1,
        uneven: Literal["pad", "drop"] = "pad",
        skip_damaged: int = 0,
    ) -> None:
        check_positive(
            batch_size=batch_size,
            lanes=lanes,
            ranks=ranks,
            connections=connections,
            chunk_bytes=chunk_bytes,
        )
        _check_order(seed=seed, lanes=lanes, rank=rank, ranks=ranks, uneven=uneven)
        super().__init__(skip_damaged)
        objects = find_objects(sources)
        self._kind = format_of(objects, format)
        self._format = open_format(self._kind, columns=columns)
        self._decode = decode
        self._settings = Settings(batch_size, seed, lanes, window_bytes, chunk_bytes, drop_last)
        self._connections = connections
        self._rank, self._ranks, self._uneven = rank, ranks, uneven
        self._index = make_index(objects, self._kind, self._format)
        for found, marks in zip(objects, self._index.marks, strict=True):
            if marks.flaw is not None:
                self._note(DamagedData(found.uri, *marks.flaw))
        self._order = Epoch(self._index, self._settings, 0)
        self._next = 0
        if not self._steps():
            raise ConfigError(
                f"{self.records} records are less than one batch of {batch_size} for each of "
                f"{ranks} ranks"
            )

    @property
    def records(self) -> int:
        """Number of records of an epoch, over all ranks, damaged ones included."""
        return self._index.records

    @property
    def format(self) -> str:
        """Name of the format."""
        return self._kind

    @property
    def uris(self) -> list[str]:
        """Paths and URLs of the objects, in the order of the sources."""
        return [found.uri for found in self._index.objects]

    @property
    def epoch(self) -> int:
        """Number of the epoch of the next batch, from 0."""
        return self._order.number

    @property
    def epoch_length(self) -> int:
        """See `Feed.epoch_length`."""
        return self._steps_of(self._order.batches)

    def __len__(self) -> int:
        """Return the number of batches that this rank gets until the end of the epoch."""
        return self._steps()

    def share(self, worker: int, workers: int) -> Iterator[Batch]:
        """See `Feed.share`."""
        reader = Reader(
            self._index,
            self._format,
            connections=self._connections,
            statistics=self.statistics,
        )
        for batch in reader.batches(self._order, self._numbers()[worker::workers]):
            yield batch if self._decode is None else self._decoded(batch, self._decode)

    def _advance(self, batch: Batch) -> None:  # noqa: ARG002 (they come in order)
        self._next += self._ranks
        if not self._steps():
            self._move(self.epoch + 1, 0)

    def state_dict(self) -> dict[str, Any]:
        """See `Feed.state_dict`."""
        return {
            "version": _STATE_VERSION,
            "data": self._index.digest,
            "records": self.records,
            **self._settings.as_json(),
            "epoch": self.epoch,
            "batch": self._next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Feed.load_state_dict`."""
        check_same(state, self.state_dict(), "epoch", "batch")
        for name in ("epoch", "batch"):
            if not isinstance(state[name], int) or state[name] < 0:
                raise ConfigError(f"the position has {name} = {state[name]!r}")
        self._move(state["epoch"], state["batch"])

    def board(self, ahead: int) -> NDArray[np.float64]:  # noqa: ARG002 (nothing changes)
        """See `Feed.board`."""
        return np.zeros(2)

    def publish(self, board: NDArray[np.float64], ahead: int) -> None:  # noqa: ARG002
        """See `Feed.publish`."""
        board[:] = self.epoch, self._next

    def follow(self, board: NDArray[np.float64]) -> None:
        """See `Feed.follow`."""
        epoch, batch = board.tolist()
        self._move(int(epoch), int(batch))

    def _move(self, epoch: int, batch: int) -> None:
        if epoch != self.epoch:
            self._order = Epoch(self._index, self._settings, epoch)
        self._next = batch
        if not self._steps():
            # With fewer ranks there were batches left that are not enough for these.
            self._move(epoch + 1, 0)

    def _steps(self) -> int:
        """Return the number of batches of each rank up to the end of the epoch."""
        return self._steps_of(max(self._order.batches - self._next, 0))

    def _steps_of(self, left: int) -> int:
        return left // self._ranks if self._uneven == "drop" else -(-left // self._ranks)

    def _numbers(self) -> list[int]:
        """Return the numbers of this rank's batches up to the end of the epoch."""
        first, total = self._next + self._rank, self._order.batches
        end = first + self._steps() * self._ranks
        return [number % total for number in range(first, end, self._ranks)]


def _check_order(*, seed: int | None, lanes: int, rank: int, ranks: int, uneven: str) -> None:
    if seed is not None and seed < 0:
        raise ConfigError(f"seed = {seed}: must not be negative")
    if seed is None and lanes > 1:
        raise ConfigError(f"lanes = {lanes}: lanes are only for shuffled data; set seed, too")
    check_rank(rank, ranks)
    if uneven not in ("pad", "drop"):
        raise ConfigError(f"uneven = {uneven!r}: must be 'pad' or 'drop'")
