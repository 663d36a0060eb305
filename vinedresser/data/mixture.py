"""Mixtures: records of several classes or sources, drawn by weights that may change meanwhile."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.blend import Blend, Drawn, History
from vinedresser.data.board import MOST_PENDING, Board
from vinedresser.data.class_records import ClassRecords, LaneRecords
from vinedresser.data.feed import (
    Feed,
    check_not_negative,
    check_positive,
    check_rank,
    check_same,
    check_whole,
)
from vinedresser.data.formats.registry import format_of, open_format
from vinedresser.data.index import make_index
from vinedresser.data.order import Settings, permutation
from vinedresser.data.reading import Reader, Rows
from vinedresser.data.records import Batch, Origins
from vinedresser.data.sources.finding import find_objects
from vinedresser.errors import ConfigError, DamagedData, did_you_mean

_STATE_VERSION = 1
# Maximum weight. With larger ones, shares would be rounded away.
_MOST = 1e12
# Bytes that are read ahead, for all classes together.
_AHEAD = 64 << 20

# One of several paths or URLs, or all of them.
_Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Mixture(Feed):
    """Records of several classes or sources, in batches that have of each as its weight says.

    Each class is a shuffled sequence that begins its next epoch when it has ended, so no record is
    repeated before all of its class were drawn. Each batch has of each class the number of records
    that brings it nearest to its share of all records so far, in random order. All of it is a pure
    function of the arguments and of the weights, which may be changed at any time.

    An epoch is as many records as all classes have together, in full batches. An iteration yields
    the rest of the current epoch, and the next iteration the next epoch. With several ranks, the
    batches that some of them need beyond the epoch for an equal number are the first of the next.

    Args:
        sources: by the name of a class or source what `Dataset` takes as ``sources``.
        batch_size: records per batch, over all classes.
        weights: by name the weight of each class: its share is its weight divided by their sum.
            None: the numbers of records, so that all records are equally frequent.
        format: see `Dataset`; all classes have the same.
        columns: see `Dataset`.
        decode: called with the value of each record and the name of its class; returns what stands
            for it in the batch.
        seed: shuffles; not negative.
        window_bytes: bytes of the windows within which records are shuffled, for all classes
            together; as much is in memory. Classes that fit into their part are read only once.
        lanes: see `Dataset`; each lane has its own part of each class.
        chunk_bytes: see `Dataset`.
        connections: number of chunks that are read at a time.
        rank: number of this rank; the ranks take turns at the batches.
        ranks: number of ranks.
        skip_damaged: see `Dataset`.

    Raises:
        ConfigError: an argument is invalid, or a source names nothing.
        DamagedData: an object has another format, or more is damaged than may be left out.
        MissingDependency: S3 or the format needs the extra "data".
        StoreError: an object cannot be read.

    Attributes:
        damaged: the errors of the records that were left out.
        statistics: what reading in this process cost so far.
        fed: by class the number of its records that were delivered in this process so far.
        boosted: by class that had been boosted when the position was loaded, its boost then and how
            often it had been boosted.
    """

    def __init__(
        self,
        sources: Mapping[str, _Sources],
        *,
        batch_size: int,
        weights: Mapping[str, float] | None = None,
        format: str | None = None,  # noqa: A002 (the word of the field)
        columns: Sequence[str] | None = None,
        decode: Callable[[Any, str], Any] | None = None,
        seed: int = 0,
        window_bytes: int = 64 << 20,
        lanes: int = 1,
        chunk_bytes: int = 4 << 20,
        connections: int = 16,
        rank: int = 0,
        ranks: int = 1,
        skip_damaged: int = 0,
    ) -> None:
        check_positive(
            batch_size=batch_size,
            lanes=lanes,
            ranks=ranks,
            connections=connections,
            chunk_bytes=chunk_bytes,
        )
        check_rank(rank, ranks)
        check_not_negative(seed=seed, window_bytes=window_bytes)
        super().__init__(skip_damaged)
        self._names = _checked_names(sources)
        found = [find_objects(source) for source in sources.values()]
        objects = [one for some in found for one in some]
        kind = format_of(objects, format)
        self._format = open_format(kind, columns=columns)
        self._index = make_index(objects, kind, self._format)
        for one, marks in zip(objects, self._index.marks, strict=True):
            if marks.flaw is not None:
                self._note(DamagedData(one.uri, *marks.flaw))
        share = window_bytes // len(found)
        self._classes = [
            ClassRecords(
                self._index,
                Settings(1, _seed(seed, name), lanes, share, chunk_bytes, drop_last=False),
                range(begin, end),
            )
            for name, (begin, end) in zip(
                self._names, pairwise(accumulate(map(len, found), initial=0)), strict=True
            )
        ]
        self._class_of = _class_of(self._names, self._classes, self.uris)
        small = (
            records.objects
            for records in self._classes
            if sum(objects[one].size for one in records.objects) <= share
        )
        self._reader = Reader(
            self._index,
            self._format,
            connections=connections,
            statistics=self.statistics,
            kept=frozenset(one for some in small for one in some),
        )
        for name, records in zip(self._names, self._classes, strict=True):
            if records.records < lanes:
                raise ConfigError(
                    f"class {name!r} has {records.records} records, which is less than one for "
                    f"each of {lanes} lanes"
                )
        self._order = Settings(batch_size, seed, lanes, window_bytes, chunk_bytes, drop_last=False)
        self._decode = decode
        self._connections = connections
        self._rank, self._ranks = rank, ranks
        first = self.records_by_class if weights is None else weights
        self._history = History([(0, self._first_weights(first))])
        self.boosted: dict[str, list[float]] = {}
        self._blend = Blend.begin(batch_size, lanes, len(found))
        self.fed = dict.fromkeys(self._names, 0)
        # Who draws in this process: up to which batch, and in which thread.
        self._drawn, self._drawer = 0, 0
        self._drawing = threading.RLock()
        self._board: Board | None = None
        # Batches of this rank that workers are asked for beyond the one that is delivered next: a
        # fixed number, and one more while this process awaits a batch.
        self._ahead = self._expected = 0

    @property
    def records(self) -> int:
        """Number of records of an epoch, over all ranks, damaged ones included."""
        return self._index.records

    @property
    def records_by_class(self) -> dict[str, int]:
        """By class its number of records, damaged ones included."""
        counts = (class_.records for class_ in self._classes)
        return dict(zip(self._names, counts, strict=True))

    @property
    def uris(self) -> list[str]:
        """Paths and URLs of the objects, in the order of the sources."""
        return [found.uri for found in self._index.objects]

    @property
    def epoch(self) -> int:
        """Number of the epoch of the next batch, from 0."""
        return self._blend.batch // self._epoch_batches

    @property
    def weights(self) -> dict[str, float]:
        """By class its weight, as it was set last."""
        return dict(zip(self._names, self._history.changes[-1][1].tolist(), strict=True))

    @property
    def boosts(self) -> dict[str, float]:
        """By class its weight divided by that of the first batch; 1 if both are 0."""
        first = self._history.changes[0][1].tolist()
        weights = zip(self.weights.items(), first, strict=True)
        return {name: one / begin if begin else 1.0 for (name, one), begin in weights}

    def set_weights(self, weights: Mapping[str, float], *, at: int | None = None) -> int:
        """Change weights of some classes, from a batch on that nobody has begun to read.

        With several ranks, all of them have to make the same change behind the same batch.

        Args:
            weights: by class its new weight.
            at: number of the first batch with them; None: the next one, but for those that workers
                of a `TorchLoader` may have begun.

        Returns:
            The number of the first batch with them.

        Raises:
            ConfigError: a class or weight is invalid, batch ``at`` has been begun, 64 changes are
                pending, or with several ranks another thread reads.
        """
        changed = {self._number(name): _checked(name, one) for name, one in _items(weights)}
        if at is not None:
            check_whole(at=at)
        with self._drawing:
            if self._ranks > 1 and self._drawer not in (0, threading.get_ident()):
                raise ConfigError(
                    "weights cannot be changed while another thread reads (as with tf.data) for "
                    "several ranks, which would change them at different batches"
                )
            ahead = self._ahead + self._expected
            first = max(self._blend.batch + self._ranks * ahead, self._drawn)
            if at is not None and at < first:
                raise ConfigError(f"at = {at}: batches up to {first - 1} have been begun")
            begin = first if at is None else at
            if sum(number > first for number, _ in self._history.changes) >= MOST_PENDING:
                raise ConfigError(f"{MOST_PENDING} changes of weights are pending already")
            self._history.change(begin, changed)
            if self._board is not None:
                needed = max(self._blend.batch - self._ranks * self._ahead, 0)
                self._board.change(self._history, needed)
        return begin

    def boost(self, factors: Mapping[str, float], *, at: int | None = None) -> int:
        """Set weights of some classes to multiples of those of the first batch.

        Args:
            factors: by class the factor; 1 takes a boost back.
            at: see `set_weights`.

        Returns:
            The number of the first batch with them.

        Raises:
            ConfigError: see `set_weights`; or the weight to be multiplied is 0.
        """
        first = dict(zip(self._names, self._history.changes[0][1].tolist(), strict=True))
        for name, _ in _items(factors):
            self._number(name)
            if not first[name]:
                raise ConfigError(f"boost of {name}: its weight in the first batch is 0")
        return self.set_weights(
            {name: first[name] * _checked(name, factor) for name, factor in factors.items()}, at=at
        )

    @property
    def epoch_length(self) -> int:
        """See `Feed.epoch_length`."""
        return math.ceil(self._epoch_batches / self._ranks)

    def __len__(self) -> int:
        """Return the number of batches that this rank gets until the end of the epoch."""
        left = self._epoch_batches - self._blend.batch % self._epoch_batches
        return math.ceil(left / self._ranks)

    def share(self, worker: int, workers: int) -> Iterator[Batch]:
        """See `Feed.share`."""
        blend, first, steps = self._blend.copy(), self._blend.batch, len(self)
        self._drawn = first
        lanes: dict[tuple[int, int], LaneRecords] = {}
        pool = ThreadPoolExecutor(self._connections, thread_name_prefix="read-ahead")
        ended = False
        try:
            for number in range(first, first + steps * self._ranks):
                drawn = self._draw(blend)
                turn, rank = divmod(number - first, self._ranks)
                if rank == self._rank and turn % workers == worker:
                    pieces = self._pieces(drawn, number, lanes, pool)
                    yield self._shuffled(self._reader.batch(number, list(pieces)))
            ended = True
        finally:
            self._drawer = 0
            # Else without waiting, as in `read_ahead`.
            pool.shutdown(wait=ended, cancel_futures=True)

    def state_dict(self) -> dict[str, Any]:
        """See `Feed.state_dict`."""
        with self._drawing:
            return {
                "version": _STATE_VERSION,
                "data": self._index.digest,
                "classes": self.records_by_class,
                **self._order.as_json(),
                "batch": self._blend.batch,
                "counts": self._blend.counts.tolist(),
                "lacking": self._blend.lacking.tolist(),
                "weights": [[begin, one.tolist()] for begin, one in self._history.changes],
            }

    def _load(self, state: Mapping[str, Any]) -> None:
        check_same(state, self.state_dict(), "batch", "counts", "lacking", "weights")
        try:
            counts = np.array(state["counts"], np.int64)
            lacking = np.array(state["lacking"], np.float64)
            changes = [(int(begin), np.array(one, np.float64)) for begin, one in state["weights"]]
            begins = [begin for begin, _ in changes]
            sound = (
                counts.shape == self._blend.counts.shape
                and lacking.shape == self._blend.lacking.shape
                # Else drawing a batch would not end. It is less than two records.
                and bool((np.abs(lacking) <= self._blend.size + 2).all())
                and all(one.shape == lacking.shape[1:] and _sound(one) for _, one in changes)
                and begins[:1] == [0]
                and begins == sorted(set(begins))
                and counts.min() >= 0
                and counts.sum() == state["batch"] * self._blend.size
            )
        except (TypeError, ValueError, OverflowError):
            sound = False
        if not sound:
            raise ConfigError("the position is not one that state_dict() returned")
        with self._drawing:
            self._history = History(changes)
            raised = zip(self.boosts.items(), self._history.raised(), strict=True)
            self.boosted = {name: [boost, times] for (name, boost), times in raised if times}
            self._blend = Blend(self._blend.size, state["batch"], counts, lacking)
            self._drawn = 0

    def board(self, ahead: int) -> NDArray[np.float64]:
        """See `Feed.board`."""
        needed = (2 * ahead + 1) * self._ranks
        return np.zeros(Board.size(len(self._names), self._order.lanes, needed))

    def publish(self, board: NDArray[np.float64], ahead: int) -> None:
        """See `Feed.publish`."""
        with self._drawing:
            self._board = Board(board, len(self._names), self._order.lanes)
            self._board.write(self._blend, self._history)
            self._ahead, self._drawn = ahead, 0

    def follow(self, board: NDArray[np.float64]) -> None:
        """See `Feed.follow`."""
        self._board = Board(board, len(self._names), self._order.lanes)
        self._blend = self._board.blend(self._blend.size)
        # A thread of the training may have held it when this process was forked.
        self._drawing = threading.RLock()

    def expect(self) -> None:
        """See `Feed.expect`."""
        with self._drawing:
            self._drawer, self._expected = threading.get_ident(), 1

    def withdraw(self) -> None:
        """See `Feed.withdraw`."""
        with self._drawing:
            self._board, self._ahead, self._expected, self._drawer = None, 0, 0, 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a worker, which follows the board of its process."""
        return {**vars(self), "_drawing": None, "_board": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the attributes."""
        vars(self).update(state, _drawing=threading.RLock())

    @property
    def _epoch_batches(self) -> int:
        return -(-self.records // self._order.batch_size)

    def _advance(self, batch: Batch) -> None:
        with self._drawing:
            self._expected = 0
            for _ in range(self._ranks):
                self._blend.draw(self._history.at(self._blend.batch))
        places = [self._class_of[uri] for uri in batch.origins.uris]
        for place, count in zip(places, np.bincount(batch.origins.objects).tolist(), strict=True):
            self.fed[self._names[place]] += count

    def _draw(self, blend: Blend) -> Drawn:
        with self._drawing:
            self._drawn = blend.batch + 1
            self._drawer = threading.get_ident()
            weights = self._history if self._board is None else self._board
            return blend.draw(weights.at(blend.batch))

    def _pieces(
        self,
        drawn: Drawn,
        number: int,
        lanes: dict[tuple[int, int], LaneRecords],
        pool: ThreadPoolExecutor,
    ) -> Iterator[tuple[Rows, int, int]]:
        """Yield where the records of a batch are, class after class.

        Args:
            drawn: how many of each class it has.
            lanes: by class and lane its reader, which is added when it is needed first.
        """
        lane = number % self._order.lanes
        for one in np.flatnonzero(drawn.counts).tolist():
            first = int(drawn.first[one])
            if (one, lane) not in lanes:
                lanes[one, lane] = LaneRecords(
                    self._reader,
                    self._classes[one].windows(lane, first),
                    pool=pool,
                    max_bytes=_AHEAD // len(self._classes),
                )
            yield from lanes[one, lane].take(first, int(drawn.counts[one]))

    def _shuffled(self, batch: Batch) -> Batch:
        """Decode a batch, and put its records into a random order."""
        origins = batch.origins
        order = permutation((self._order.seed or 0, _SHUFFLE, batch.number), len(origins))
        uris = [self._names[self._class_of[uri]] for uri in origins.uris]
        classes = [uris[one] for one in origins.objects.tolist()]
        shuffled = batch._replace(
            values=[batch.values[one] for one in order.tolist()],
            origins=Origins(
                origins.uris,
                origins.objects[order],
                origins.offsets[order],
                origins.records[order],
            ),
        )
        if self._decode is None:
            return shuffled
        return self._decoded(shuffled, self._decode, [classes[one] for one in order.tolist()])

    def _first_weights(self, weights: Mapping[str, float]) -> NDArray[np.float64]:
        """Return weights as a vector."""
        vector = np.full(len(self._names), np.nan)
        for name, weight in _items(weights):
            vector[self._number(name)] = _checked(name, weight)
        missing = [name for name, one in zip(self._names, vector, strict=True) if np.isnan(one)]
        if missing:
            raise ConfigError(f"weights: {', '.join(missing)} missing")
        if not vector.any():
            raise ConfigError("the weights of all classes are 0")
        return vector

    def _number(self, name: str) -> int:
        """Return the number of a class."""
        if name not in self._names:
            near = did_you_mean(str(name), self._names) or f"; it has {', '.join(self._names)}"
            raise ConfigError(f"the mixture has no class {name!r}{near}")
        return self._names.index(name)


# Part of the seeds by which batches are shuffled, which no window has: windows have a third one.
_SHUFFLE = 1 << 40


def _seed(seed: int, name: str) -> int:
    """Return the seed of a class, which does not depend on the other classes."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8])


def _checked_names(sources: Mapping[str, _Sources]) -> list[str]:
    if not isinstance(sources, Mapping) or not sources:
        raise ConfigError("sources: must be a mapping of names of classes to their sources")
    for name in sources:
        # `vinedresser set RUN boost.NAME=VALUE` has to name it.
        if not isinstance(name, str) or not name or not name.isprintable() or "=" in name:
            raise ConfigError(f"class {name!r}: the name must be printable, without '='")
    return list(sources)


def _class_of(
    names: Sequence[str], classes: Sequence[ClassRecords], uris: Sequence[str]
) -> dict[str, int]:
    """Return by object the number of its class."""
    found: dict[str, int] = {}
    for number, records in enumerate(classes):
        for one in records.objects:
            other = found.setdefault(uris[one], number)
            if other != number:
                raise ConfigError(f"{uris[one]} is in {names[other]!r} and in {names[number]!r}")
    return found


def _items(weights: Mapping[str, float]) -> Iterable[tuple[str, float]]:
    """Return classes and their weights."""
    if not isinstance(weights, Mapping):
        raise ConfigError(
            f"weights = {weights!r}: must be a mapping of names of classes to numbers"
        )
    return weights.items()


def _checked(name: str, weight: float) -> float:
    """Return a weight, or a factor of one."""
    number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
    if not number or not math.isfinite(weight) or not 0 <= weight <= _MOST:
        raise ConfigError(f"weight of {name} = {weight!r}: must be a number from 0 to {_MOST:g}")
    return float(weight)


def _sound(weights: NDArray[np.float64]) -> bool:
    return bool(weights.min() >= 0 and weights.max() <= _MOST and weights.any())
