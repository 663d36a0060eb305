"""Recording the requests of a served model."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from vinedresser.columns.outputs import Classify, check_classify
from vinedresser.columns.rows import copied, fetched, row_count
from vinedresser.errors import ConfigError
from vinedresser.serving.recording.faults import Faults
from vinedresser.serving.recording.items import Item
from vinedresser.serving.recording.limits import Limits
from vinedresser.serving.recording.sampling import position
from vinedresser.serving.recording.settings import Settings
from vinedresser.serving.recording.worker import Worker
from vinedresser.serving.storing.encoding import stored_id
from vinedresser.serving.storing.layout import ServiceFolder

__all__ = ["RequestRecorder", "request_ids"]

# One call in so many is timed, since reading the clock of a thread takes a microsecond; not the
# first one, which starts the worker.
_TIMED = 16
# Seconds to write what is left when the process ends.
_AT_EXIT = 5.0

# Ids of the requests of the call that is being made; see `request_ids`.
_ids: ContextVar[object | None] = ContextVar("request ids", default=None)
_recorders: weakref.WeakSet[RequestRecorder] = weakref.WeakSet()


class RequestRecorder:
    """Records requests of a served model in a store, without ever failing or delaying one.

    Columns that describe each request (see `describe`) are written, not the inputs: those of the
    last requests are kept in memory, and written if an alert asks for them. Nothing is raised into
    the service: a problem is logged once as a warning, and requests that cannot be recorded are
    counted. Each process writes into a run directory of its own, also after a fork. Thread-safe.

    Args:
        store: directory or URL of the store.
        name: name of the service, a folder in the store.
        features: names of the features of an array, or the columns to use of named inputs; None:
            see `describe`.
        sample: share of the requests to record, from 0 to 1, chosen by a hash of their ids. Under
            load it falls by itself to what the limits allow; the probability of each request is
            recorded with it.
        classify: how to read predictions from the outputs; see `describe`.
        limits: what recording may cost, keep and write.

    Raises:
        ConfigError: an argument is invalid.
        MissingDependency: the store is on S3, and the extra "s3" is not installed.
        StoreError: the configuration for S3 is invalid.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        name: str,
        *,
        features: Sequence[str] | None = None,
        sample: float = 1.0,
        classify: Classify | None = None,
        limits: Limits | None = None,
    ) -> None:
        if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1:
            raise ConfigError(f"sample: {sample!r} is not a share above 0 and up to 1")
        if isinstance(features, str) or not all(
            isinstance(feature, str) for feature in features or ()
        ):
            raise ConfigError(f"features: {features!r} is not a list of names")
        check_classify(classify)
        self._settings = Settings(
            ServiceFolder(store, name),
            None if features is None else tuple(features),
            classify,
            float(sample),
            limits or Limits(),
        )
        self.faults = Faults(name)
        self._closed = False
        self._worker: Worker | None = None
        self._lock = threading.Lock()
        self._token = b""
        self._numbers = self._calls = itertools.count()
        self._begin_process()
        _recorders.add(self)
        # An ordinary method call would go through the wrapper at every request.
        self.begin = self.faults.guard("recording a request", self._begin)
        self.finish = self.faults.guard("recording a request", self._finish)
        self.record_later = self.faults.guard("recording a request", self._record_later)

    @property
    def location(self) -> str:
        """Directory or URL of the service, for `RequestStore`."""
        return str(self._settings.folder.location)

    @property
    def problems(self) -> list[str]:
        """The first message of each kind of problem in this process."""
        return [*self.faults.sentences.values()]

    @property
    def dropped(self) -> int:
        """Number of requests of this process that were to be recorded, and were lost."""
        return self._worker.dropped if self._worker is not None else 0

    @property
    def share(self) -> float:
        """Share of the requests that is being recorded."""
        worker = self._worker
        return worker.sampling.share if worker is not None else self._settings.sample

    def record(self, inputs: Any, outputs: Any = None, ids: object = None) -> None:
        """Record the requests of one call of the model; never raises.

        Args:
            inputs: inputs [requests, ...], or a single record; see `describe`. They are copied.
            outputs: outputs of the model, likewise; None: there are none.
            ids: ids of the requests, text or numbers: a list with one for each, or a single one for
                a single request. None: those of `request_ids`, or new ones.
        """
        item = self.begin(inputs, ids)
        if item is not None:
            self.finish(item, outputs)

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all requests recorded so far are committed or lost; return False on timeout.

        Args:
            timeout: maximum seconds to wait.
        """
        worker = self._worker
        return worker is None or worker.flush(timeout)

    def close(self, timeout: float = 30.0) -> bool:
        """Write what is left, and record nothing more; return False on timeout.

        Args:
            timeout: maximum seconds to wait.
        """
        self._closed = True
        worker = self._worker
        return worker is None or worker.close(timeout)

    def _begin(self, inputs: Any, ids: object = None) -> Item | None:
        """Decide whether to record requests; copy their inputs before the model can change them.

        Args:
            inputs: see `record`.
            ids: see `record`.

        Returns:
            An item for `finish`; None: nothing is to be recorded, such as of a call without rows.
        """
        if self._closed:
            return None
        timed = next(self._calls) % _TIMED == _TIMED - 1
        began = time.thread_time() if timed else 0.0
        worker = self._working()
        # At least one, if they cannot be counted.
        count, recordable = 1, False
        try:
            count = row_count(inputs)
            item = self._chosen(worker, count, ids) if count else None
            if item is not None:
                item.inputs = copied(inputs, item.rows)
                item.timed = timed
                if timed:
                    worker.inbox.count_busy(_TIMED * (time.thread_time() - began))
            recordable = True
            return item
        finally:
            worker.inbox.count(count)
            if not recordable:
                worker.inbox.fail(count)

    def _finish(self, item: Item, outputs: Any, embedding: Any = None) -> None:
        """Record requests, once the model has answered.

        Args:
            item: the result of `begin`.
            outputs: see `record`.
            embedding: output of a layer, [requests of the call, dimensions], or None.
        """
        worker = self._worker
        if worker is None or self._closed:
            return
        began = time.thread_time() if item.timed else 0.0
        recordable = False
        try:
            if outputs is not None:
                item.outputs = fetched(copied(outputs, item.rows))
            if embedding is not None:
                item.embedding = fetched(copied(embedding, item.rows))
            # Not before the model has answered, so that its device need not wait.
            item.inputs = fetched(item.inputs)
            item.measure()
            recordable = True
        finally:
            if not recordable:
                worker.inbox.fail(len(item.ids))
        worker.inbox.put(item)
        if item.timed:
            worker.inbox.count_busy(_TIMED * (time.thread_time() - began))

    def _record_later(self, item: Item) -> None:
        """Record the requests of an item that reads its messages on the worker's thread."""
        worker = self._worker
        if worker is not None and not self._closed:
            worker.inbox.put(item)

    def choose(self, ids: object = None) -> Item | None:
        """Decide whether to record a call whose inputs are not known yet; never raises.

        Args:
            ids: id of the call; None: a new one.

        Returns:
            An item without inputs for `record_later`; None: nothing is to be recorded.
        """
        return self.faults.guard("recording a request", self._choose)(ids)

    def _choose(self, ids: object) -> Item | None:
        if self._closed:
            return None
        worker = self._working()
        worker.inbox.count(1)
        return self._chosen(worker, 1, ids)

    def _chosen(self, worker: Worker, count: int, ids: object = None) -> Item | None:
        share = worker.sampling.share
        if ids is None:
            ids = _ids.get()
        # A new id is made for a recorded request only: its hash would be a random number as well.
        if ids is None and count == 1 and share < 1.0:
            if self._random.random() >= share:
                return None
            return Item(self._named(1, None), time.time(), share, None)
        names = self._named(count, ids)
        if share >= 1.0:
            return Item(names, time.time(), 1.0, None)
        rows = [row for row, name in enumerate(names) if position(name) < share]
        if not rows:
            return None
        chosen = None if len(rows) == count else rows
        return Item([names[row] for row in rows], time.time(), share, None, rows=chosen)

    def _named(self, count: int, ids: object) -> list[bytes]:
        if ids is None:
            return [b"%s%x" % (self._token, next(self._numbers)) for _ in range(count)]
        several = isinstance(ids, Iterable) and not isinstance(ids, str | bytes)
        given: Iterable[object] = cast("Iterable[object]", ids) if several else (ids,)
        names = [stored_id(one) for one in given]
        if len(names) != count:
            raise ValueError(f"{len(names)} ids for {count} requests")
        return names

    def _working(self) -> Worker:
        """Return the worker of this process; the first request starts it."""
        if self._worker is not None:
            return self._worker
        with self._lock:
            if self._worker is None:
                self._worker = Worker(self._settings, self.faults, self._token.decode()[:8])
                # Also when the recorder is garbage; daemon threads still run at that point.
                weakref.finalize(self, self._worker.close, _AT_EXIT)
            return self._worker

    def _begin_process(self) -> None:
        """Begin anew in this process, with nothing that a thread of another process may hold."""
        self._worker = None
        self._lock = threading.Lock()
        self._token = os.urandom(4).hex().encode() + b"-"
        self._numbers = itertools.count()
        self._calls = itertools.count()
        # The service's own sequence of random numbers stays as it is.
        self._random = random.Random()  # noqa: S311 (nothing secret)
        self.faults.begin_process()


@contextmanager
def request_ids(ids: object) -> Iterator[None]:
    """Set the ids of the requests of the calls of watched models in this block.

    Args:
        ids: see `RequestRecorder.record`.
    """
    token = _ids.set(ids)
    try:
        yield
    finally:
        _ids.reset(token)


def _forked() -> None:
    for recorder in [*_recorders]:
        recorder._begin_process()


os.register_at_fork(after_in_child=_forked)
