"""What data sets have in common: batches with a position, in this process or divided on workers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.delivered import Iteration
from vinedresser.data.fed import Fed
from vinedresser.data.records import Batch
from vinedresser.data.statistics import Statistics
from vinedresser.errors import ConfigError, DamagedData

__all__ = [
    "Feed",
    "check_not_negative",
    "check_positive",
    "check_rank",
    "check_same",
    "check_whole",
]


class Feed(ABC):
    """Batches of records, in an order with a position.

    An iteration yields the rest of the current epoch, and the next iteration the next epoch. It may
    be broken off at any batch. All iterations move the one position: once another one has begun,
    an earlier one cannot continue.

    Args:
        skip_damaged: maximum number of damaged records that are left out.

    Raises:
        ConfigError: that is not a number.

    Attributes:
        damaged: the errors of the records that were left out.
        statistics: what reading in this process cost so far.
        delivered: what was delivered in this process, by object.
    """

    def __init__(self, skip_damaged: int) -> None:
        if type(skip_damaged) is not int or skip_damaged < 0:
            raise ConfigError(
                f"skip_damaged = {skip_damaged!r}: must be a number of records, such as 10"
            )
        self.damaged: list[DamagedData] = []
        self.statistics = Statistics()
        self.delivered = Fed(self.statistics, self.damaged)
        self._skip_damaged = skip_damaged

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Number of the epoch of the next batch, from 0."""

    @property
    @abstractmethod
    def epoch_length(self) -> int | None:
        """Number of batches that this rank gets of a whole epoch, at most; None if unknown."""

    @property
    def changes(self) -> bool:
        """Whether epochs may have different records."""
        return False

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches that this rank gets until the end of the epoch."""

    def __iter__(self) -> Iterator[Batch]:
        """Yield this rank's batches up to the end of the epoch.

        Raises:
            ConfigError: another iteration has begun since.
            DamagedData: more records are damaged than may be left out.
            StoreError: an object cannot be read.
        """
        self._begin()
        with Iteration(self.delivered) as iteration:
            # Nothing that the workers of an earlier iteration still do will be delivered.
            self.withdraw()
            for batch in iteration.draw(self.share(0, 1)):
                self.deliver(batch)
                iteration.deliver(batch.origins)
                self.statistics.consuming -= time.perf_counter()
                yield batch
                self.statistics.consuming += time.perf_counter()

    @abstractmethod
    def share(self, worker: int, workers: int) -> Iterator[Batch]:
        """Yield a worker's batches up to the end of the epoch; the position stays.

        Worker w of W gets this rank's batches w, w + W, and so on.

        Args:
            worker: number of the worker, from 0.

        Raises:
            StoreError: an object cannot be read.
        """

    def deliver(self, batch: Batch) -> None:
        """Move the position behind a batch, the next one of this rank.

        Raises:
            DamagedData: more records are damaged than may be left out.
        """
        for error in batch.damaged:
            self._note(error)
        self.statistics.batches += 1
        self.statistics.records += len(batch.origins)
        if batch.seconds:
            self.statistics.add_stages(*batch.seconds)
        self._advance(batch)

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the position as JSON: the next batch is the one behind the last that was yielded.

        The position of all ranks is the same, and can be loaded with another number of ranks.
        """

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a position, with the next iteration; one that is running raises.

        Args:
            state: what `state_dict` returned, in this process or another one.

        Raises:
            ConfigError: it belongs to other data, or to another order.
        """
        self._load(state)
        self.delivered.running = None
        self.withdraw()

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None:
        """Move to a position; see `load_state_dict`."""

    @abstractmethod
    def board(self, ahead: int) -> NDArray[np.float64]:
        """Return an array for `publish`, to be put into memory that is shared with workers.

        Args:
            ahead: maximum number of this rank's batches that workers have begun and that are not
                delivered.
        """

    @abstractmethod
    def publish(self, board: NDArray[np.float64], ahead: int) -> None:
        """Write the position for workers that begin here; called before each iteration.

        Args:
            board: array of the size of `board`.
            ahead: see `board`.
        """

    @abstractmethod
    def follow(self, board: NDArray[np.float64]) -> None:
        """Continue, in a worker, at the position that was published."""

    def expect(self) -> None:  # noqa: B027 (optional)
        """Note that a batch is awaited from workers, and that they are then asked for another."""

    def withdraw(self) -> None:  # noqa: B027 (optional)
        """Note that the workers of the last `publish` have ended their iteration."""

    def _begin(self) -> None:  # noqa: B027 (optional)
        """Note that an iteration begins in this process; workers are not asked."""

    @abstractmethod
    def _advance(self, batch: Batch) -> None:
        """Move the position behind a batch."""

    def _decoded(
        self, batch: Batch, decode: Callable[..., Any], *arguments: Sequence[Any]
    ) -> Batch:
        """Return a batch of decoded values.

        Args:
            decode: called with each value, and with its entry of each of the arguments.
            arguments: see ``decode``, (records,).
        """
        with self.statistics.timed("decoding"):
            values = []
            try:
                for value in zip(batch.values, *arguments, strict=True):
                    values.append(decode(*value))  # noqa: PERF401 (their number is needed below)
            except Exception as error:
                error.add_note(f"while decoding {batch.origins[len(values)]}")
                raise
        return batch._replace(values=values)

    def _note(self, error: DamagedData) -> None:
        """Note a damaged record, once.

        Raises:
            DamagedData: there are more than may be left out.
        """
        if any((one.uri, one.record) == (error.uri, error.record) for one in self.damaged):
            return
        if len(self.damaged) >= self._skip_damaged:
            raise error
        self.damaged.append(error)


def check_same(state: Mapping[str, Any], expected: Mapping[str, Any], *moving: str) -> None:
    """Check that a position was saved with the same data and order as those of a data set.

    Args:
        expected: the present position of the data set.
        moving: names of entries that differ between positions; numbers are not negative.

    Raises:
        ConfigError: it was not; the message has the first difference.
    """
    if not isinstance(state, Mapping) or state.keys() != expected.keys():
        raise ConfigError("the position is not one that state_dict() returned")
    for name, value in expected.items():
        if name in moving:
            if isinstance(value, int) and (type(state[name]) is not int or state[name] < 0):
                raise ConfigError(f"the position has {name} = {state[name]!r}")
        elif state[name] != value:
            raise ConfigError(
                f"the position was saved with {name} = {state[name]!r}, and this data set has "
                f"{value!r}"
            )


def check_whole(**numbers: object) -> None:
    """Check that numbers are whole, and not strings as from the environment.

    Raises:
        ConfigError: one is not; the message has its name.
    """
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Integral):
            raise ConfigError(f"{name} = {number!r}: must be a whole number")


def check_positive(**numbers: int) -> None:
    """Check that numbers are whole and at least 1.

    Raises:
        ConfigError: one is not; the message has its name.
    """
    check_whole(**numbers)
    for name, number in numbers.items():
        if number < 1:
            raise ConfigError(f"{name} = {number}: must be at least 1")


def check_not_negative(**numbers: int) -> None:
    """Check that numbers are whole and at least 0.

    Raises:
        ConfigError: one is not; the message has its name.
    """
    check_whole(**numbers)
    for name, number in numbers.items():
        if number < 0:
            raise ConfigError(f"{name} = {number}: must not be negative")


def check_rank(rank: int, ranks: int) -> None:
    """Check the number of a rank.

    Raises:
        ConfigError: it is not below the number of ranks.
    """
    check_whole(rank=rank)
    if not 0 <= rank < ranks:
        raise ConfigError(f"rank = {rank}: must be at least 0 and below ranks = {ranks}")
