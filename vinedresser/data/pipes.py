"""Pipes: an epoch of a channel as one stream, as SageMaker's Pipe mode feeds it.

The epoch N of a channel is the FIFO ``{folder}/{channel}_{N}``
(https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html).
"""

from __future__ import annotations

import itertools
import os
import select
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.feed import Feed, check_positive, check_same
from vinedresser.data.formats.framed import Framed, Stretch
from vinedresser.data.formats.registry import format_of, open_format
from vinedresser.data.order import permutation
from vinedresser.data.records import Batch, Origins
from vinedresser.data.sources.base import DataObject
from vinedresser.data.sources.finding import find_objects
from vinedresser.errors import ConfigError, DamagedData, StoreError
from vinedresser.objects.retrying import attempts

__all__ = ["PipeDataset", "feed_pipe"]

_STATE_VERSION = 1
# Seconds between two looks whether a pipe is there.
_LOOK = 0.1
_READ = 1 << 20
_CONNECTIONS = 16
_STREAMED = ("tfrecord", "length_prefixed", "jsonl")


class PipeDataset(Feed):
    """Records from a pipe for each epoch, in the order in which they are fed.

    A pipe can be read once, from its beginning: there is no index and no length, workers and ranks
    cannot share it, and the order is the feeder's. After `load_state_dict`, and after an iteration
    that was broken off, the records before the position are read and dropped. The next one is the
    exact successor if the feeder feeds the same epoch in the same order again.

    Args:
        path: folder and channel, such as ``/opt/ml/input/data/train``; epoch 0 is read from
            ``/opt/ml/input/data/train_0``.
        batch_size: records per batch.
        format: "tfrecord", "length_prefixed" or "jsonl".
        decode: see `Dataset`.
        skip_damaged: see `Dataset`.
        patience: seconds without any byte after which it fails.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        batch_size: int,
        format: str = "tfrecord",  # noqa: A002 (the word of the field)
        decode: Callable[[Any], Any] | None = None,
        skip_damaged: int = 0,
        patience: float = 600.0,
    ) -> None:
        check_positive(batch_size=batch_size)
        super().__init__(skip_damaged)
        self._path = os.fspath(path)
        self._batch_size = batch_size
        self._format = _streamed(format)
        self._kind = format
        self._decode = decode
        self._patience = patience
        self._epoch = self._next = 0

    @property
    def epoch(self) -> int:
        """Number of the epoch of the next batch, from 0."""
        return self._epoch

    @property
    def epoch_length(self) -> None:
        """See `Feed.epoch_length`."""
        return

    def __len__(self) -> int:
        """Raise TypeError: nobody knows what else a pipe will bring."""
        raise TypeError("a pipe has no length")

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches up to the end of the epoch.

        Raises:
            ConfigError: there is a folder or a file in place of the pipe.
            DamagedData: more records are damaged than may be left out.
            StoreError: there is no pipe, or nothing arrives.
        """
        yield from super().__iter__()
        self._epoch, self._next = self._epoch + 1, 0

    def share(self, worker: int, workers: int) -> Iterator[Batch]:
        """See `Feed.share`.

        Raises:
            ConfigError: there are several workers.
        """
        if (worker, workers) != (0, 1):
            _refuse_workers()
        path, size = f"{self._path}_{self._epoch}", self._batch_size
        values: list[Any] = []
        offsets: list[int] = []
        flaws: dict[int, str] = {}
        first, skip = 0, self._next
        for records in self._stretches(path):
            values += records.values
            offsets += records.offsets.tolist()
            flaws |= {flaw.record: flaw.reason for flaw in records.flaws}
            done = min(max(skip - first, 0), len(values))
            while first + done >= skip and len(values) - done >= size:
                end = done + size
                yield self._batch(path, first + done, values[done:end], offsets[done:end], flaws)
                done = end
            del values[:done], offsets[:done]
            first += done
        if first < skip:
            raise ConfigError(f"{path}: has {first} records, and the position is behind {skip}")
        if values:
            yield self._batch(path, first, values, offsets, flaws)

    def state_dict(self) -> dict[str, Any]:
        """See `Feed.state_dict`."""
        return {
            "version": _STATE_VERSION,
            "format": self._kind,
            "batch_size": self._batch_size,
            "epoch": self._epoch,
            "record": self._next,
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        # The records before the position are read again.
        check_same(state, self.state_dict(), "epoch", "record")
        self._epoch, self._next = state["epoch"], state["record"]

    def board(self, ahead: int) -> NoReturn:  # noqa: ARG002 (of the interface)
        """Refuse workers."""
        _refuse_workers()

    def publish(self, board: NDArray[np.float64], ahead: int) -> NoReturn:  # noqa: ARG002
        """Refuse workers."""
        _refuse_workers()

    def follow(self, board: NDArray[np.float64]) -> NoReturn:  # noqa: ARG002
        """Refuse workers."""
        _refuse_workers()

    def _advance(self, batch: Batch) -> None:
        self._next += len(batch.origins) + len(batch.damaged)

    def _batch(
        self,
        path: str,
        first: int,
        values: list[Any],
        offsets: list[int],
        flaws: Mapping[int, str],
    ) -> Batch:
        """Return a batch of the records from number ``first`` on."""
        kept = [at for at in range(len(values)) if first + at not in flaws]
        batch = Batch(
            [values[at] for at in kept],
            Origins(
                [path],
                np.zeros(len(kept), np.int64),
                np.array([offsets[at] for at in kept], np.int64),
                np.array([first + at for at in kept], np.int64),
            ),
            first // self._batch_size,
            [
                DamagedData(path, offsets[at], first + at, flaws[first + at])
                for at in range(len(values))
                if first + at in flaws
            ],
        )
        return batch if self._decode is None else self._decoded(batch, self._decode)

    def _stretches(self, path: str) -> Iterator[Stretch]:
        """Yield the records of a pipe as they arrive."""
        statistics = self.statistics
        with statistics.timed("waiting"):
            descriptor = self._opened(path)
        stretches = self._format.stream(self._blocks(path, descriptor))
        while True:
            begun, waited = time.perf_counter(), statistics.waiting
            records = next(stretches, None)
            statistics.parsing += time.perf_counter() - begun - (statistics.waiting - waited)
            if records is None:
                return
            yield records

    def _blocks(self, path: str, descriptor: int) -> Iterator[bytes]:
        """Yield what arrives in a pipe, and close it."""
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            while True:
                with self.statistics.timed("waiting"):
                    if not poll.poll(1000 * self._patience):
                        raise StoreError(f"{path}: nothing arrived for {self._patience:g} s")
                    block = os.read(descriptor, _READ)
                if not block:
                    return
                self.statistics.bytes += len(block)
                yield block
        finally:
            os.close(descriptor)

    def _opened(self, path: str) -> int:
        """Return the descriptor of a pipe, once it is there."""
        for _ in attempts(itertools.repeat(_LOOK), timeout=self._patience):
            if os.path.isdir(self._path):
                raise ConfigError(
                    f"{self._path}: a folder, not a pipe: the channel is in File mode, for Dataset"
                )
            with suppress(FileNotFoundError):
                # Opened without waiting for the feeder, which may never come.
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    return descriptor
                os.close(descriptor)
                raise ConfigError(f"{path}: not a pipe")
        raise StoreError(f"{path}: no such pipe, after {self._patience:g} s; does its feeder run?")


def feed_pipe(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 (the word of the field)
    epochs: int = 1,
    first: int = 0,
    seed: int | None = None,
) -> None:
    """Feed epochs of sources into pipes, for a `PipeDataset` or any other reader.

    An epoch whose reader goes away is fed again from its beginning, unless the rest of it was in
    the pipe already (64 KiB); then it takes another call, with that epoch as the first one.

    Args:
        sources: see `Dataset`; compressed objects are decompressed.
        path: folder and channel; see `PipeDataset`.
        format: "tfrecord", "length_prefixed" or "jsonl"; None: by the ending of the first object.
        epochs: number of epochs.
        first: number of the first one.
        seed: shuffles the objects, differently in each epoch; None: in the order of the sources.

    Raises:
        ConfigError: an argument is invalid, or something else is in place of a pipe.
        StoreError: an object cannot be read.
    """
    check_positive(epochs=epochs)
    if first < 0 or (seed is not None and seed < 0):
        raise ConfigError(f"first = {first}, seed = {seed}: must not be negative")
    objects = find_objects(sources)
    kind = format_of(objects, format)
    opened = _streamed(kind)
    for epoch in range(first, first + epochs):
        order = range(len(objects))
        if seed is not None:
            order = permutation((seed, epoch), len(objects)).tolist()
        name = f"{os.fspath(path)}_{epoch}"
        while not _fed(name, opened, [objects[one] for one in order], kind):
            pass


def _fed(name: str, opened: Framed, objects: list[DataObject], kind: str) -> bool:
    """Feed objects into a pipe once somebody reads it; return False if the reader goes away."""
    _make_pipe(name)
    try:
        # Waits for the reader.
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
    finally:
        # Another reader would get the middle of the stream.
        os.unlink(name)
    try:
        for found in objects:
            last = b""
            for block in opened.content(found, max_concurrent=_CONNECTIONS):
                _write_all(descriptor, block)
                last = block[-1:]
            if kind == "jsonl" and last not in (b"", b"\n"):
                _write_all(descriptor, b"\n")
    except BrokenPipeError:
        return False
    finally:
        os.close(descriptor)
    return True


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _make_pipe(name: str) -> None:
    """Make a pipe, unless it is left over from a feeder that was killed."""
    try:
        os.mkfifo(name, 0o600)
    except FileExistsError:
        if not stat.S_ISFIFO(os.lstat(name).st_mode):
            raise ConfigError(f"{name}: exists, and is not a pipe") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be made: {error.strerror}") from error


def _streamed(kind: str) -> Framed:
    """Return a format whose objects can be one behind the other in a stream."""
    if kind not in _STREAMED:
        raise ConfigError(f"format = {kind!r}: a pipe can have {', '.join(_STREAMED)}")
    opened = open_format(kind)
    assert isinstance(opened, Framed)
    return opened


def _refuse_workers() -> NoReturn:
    raise ConfigError("workers cannot share a pipe; iterate over the PipeDataset itself")
