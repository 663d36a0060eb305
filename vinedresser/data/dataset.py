"""The data set: what is read, in which order, and the position."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.feed import Feed, check_not_negative, check_positive, check_rank, check_same
from vinedresser.data.formats.registry import format_of, open_format
from vinedresser.data.index import Index, make_index
from vinedresser.data.order import Epoch, Settings
from vinedresser.data.reading import Reader
from vinedresser.data.records import Batch
from vinedresser.data.sources.finding import find_objects
from vinedresser.errors import ConfigError, DamagedData, StoreError
from vinedresser.plain_logs import plain_logger

_LOG = plain_logger(__name__)
# Objects that a message names.
_NAMED = 3

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
        refresh: find the objects of the sources again when an epoch begins; if that fails, a
            warning says so, and the epoch has those of the epoch before. With several ranks: a
            function that returns on all of them what rank 0 passes to it, JSON.

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
        refresh: bool | Callable[[dict[str, Any]], dict[str, Any]] = False,
    ) -> None:
        check_positive(
            batch_size=batch_size,
            lanes=lanes,
            ranks=ranks,
            connections=connections,
            chunk_bytes=chunk_bytes,
        )
        check_not_negative(window_bytes=window_bytes, seed=0 if seed is None else seed)
        _check_order(seed=seed, lanes=lanes, rank=rank, ranks=ranks, uneven=uneven)
        if ranks > 1 and refresh is True:
            raise ConfigError(
                f"refresh = True: {ranks} ranks might find different objects; pass a function that "
                "returns what rank 0 passes to it, such as by broadcast_object_list"
            )
        super().__init__(skip_damaged)
        self._sources = sources
        self._refresh = refresh
        objects = find_objects(sources)
        self._kind = format_of(objects, format)
        self._format = open_format(self._kind, columns=columns)
        self._decode = decode
        self._settings = Settings(batch_size, seed, lanes, window_bytes, chunk_bytes, drop_last)
        self._connections = connections
        self._rank, self._ranks, self._uneven = rank, ranks, uneven
        self._next = 0
        # The last epoch that was begun in this process.
        self._begun: int | None = None
        self._use(make_index(objects, self._kind, self._format), 0)

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
    def epoch_length(self) -> int | None:
        """See `Feed.epoch_length`."""
        return None if self._refresh else self._steps_of(self._order.batches)

    @property
    def changes(self) -> bool:
        """See `Feed.changes`."""
        return bool(self._refresh)

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
            **({"objects": self.uris} if self._refresh else {}),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        of_list = ("objects", "data", "records") if self._refresh else ()
        check_same(state, self.state_dict(), "epoch", "batch", *of_list)
        if self._refresh and state["batch"]:
            self._use(self._named(state), state["epoch"])
            self._begun = state["epoch"]
        self._move(state["epoch"], state["batch"])

    def board(self, ahead: int) -> NDArray[np.float64]:  # noqa: ARG002 (nothing changes)
        """See `Feed.board`."""
        return np.zeros(2)

    def publish(self, board: NDArray[np.float64], ahead: int) -> None:  # noqa: ARG002
        """See `Feed.publish`."""
        self._begin()
        board[:] = self.epoch, self._next

    def follow(self, board: NDArray[np.float64]) -> None:
        """See `Feed.follow`."""
        epoch, batch = board.tolist()
        self._move(int(epoch), int(batch))

    def _begin(self) -> None:
        """Find the objects of an epoch that begins."""
        if not self._refresh or self._next or self._begun == self.epoch:
            return
        # Those that the constructor has found are new.
        index = self._index if self._begun is None else self._found()
        self._begun = self.epoch
        if callable(self._refresh):
            index = self._named(self._refresh(_list_of(index)), index)
        if index.objects != self._index.objects:
            before = self.uris
            self._use(index, self.epoch)
            _LOG.warning("epoch %d: %s", self.epoch, _difference(before, self.uris))

    def _found(self) -> Index:
        """Return the index of the present objects; of those of the last epoch if that fails."""
        try:
            objects = find_objects(self._sources)
            if objects == self._index.objects:
                return self._index
            index = make_index(objects, self._kind, self._format)
            self._ordered(index, self.epoch)
        except (ConfigError, DamagedData, StoreError) as error:
            _LOG.warning("epoch %d has the objects of the one before: %s", self.epoch, error)
            return self._index
        return index

    def _named(self, wanted: Mapping[str, Any], known: Index | None = None) -> Index:
        """Return the index of objects by name.

        Args:
            wanted: what `_list_of` returned, in this process or in another one.
            known: an index that may have some of them; None: the present one.

        Raises:
            StoreError: one of them cannot be read.
        """
        known = known or self._index
        uris, digest = wanted["objects"], wanted["data"]
        if digest == known.digest:
            return known
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise ConfigError(f"objects = {uris!r}: must be a list of paths or URLs")
        objects = {found.uri: found for found in known.objects}
        for uri in uris:
            if uri not in objects:
                if self._kind == "augmented":
                    raise ConfigError(f"{uri}: the manifest does not describe it any more")
                (objects[uri],) = find_objects(uri)
        index = make_index([objects[uri] for uri in uris], self._kind, self._format)
        if index.digest != digest:
            raise ConfigError(
                f"the {len(uris)} objects are not those with which the epoch began: at least one "
                "was replaced"
            )
        return index

    def _use(self, index: Index, epoch: int) -> None:
        """Read the objects of an index, from an epoch on."""
        self._order = self._ordered(index, epoch)
        self._index = index
        for found, marks in zip(index.objects, index.marks, strict=True):
            if marks.flaw is not None:
                self._note(DamagedData(found.uri, *marks.flaw))

    def _ordered(self, index: Index, epoch: int) -> Epoch:
        order = Epoch(index, self._settings, epoch)
        if not self._steps_of(order.batches):
            raise ConfigError(
                f"{index.records} records are less than one batch of {self._settings.batch_size} "
                f"for each of {self._ranks} ranks"
            )
        return order

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
    if seed is None and lanes > 1:
        raise ConfigError(f"lanes = {lanes}: lanes are only for shuffled data; set seed, too")
    check_rank(rank, ranks)
    if uneven not in ("pad", "drop"):
        raise ConfigError(f"uneven = {uneven!r}: must be 'pad' or 'drop'")


def _list_of(index: Index) -> dict[str, Any]:
    """Return the objects of an index as JSON, for `Dataset._named`."""
    return {"objects": [found.uri for found in index.objects], "data": index.digest}


def _difference(before: list[str], now: list[str]) -> str:
    """Describe how the objects of an epoch differ from those of the one before."""
    parts = []
    for word, some in (
        ("added", {*now} - {*before}),
        ("removed", {*before} - {*now}),
    ):
        if some:
            others = f" and {len(some) - _NAMED} others" if len(some) > _NAMED else ""
            parts.append(f"{len(some)} {word} ({', '.join(sorted(some)[:_NAMED])}{others})")
    found = ", ".join(parts) or "others of the same names, or in another order"
    return f"the objects have changed: {found}"
