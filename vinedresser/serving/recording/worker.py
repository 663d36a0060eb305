"""The thread that describes and writes requests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData, RunRemoved, StoreError
from vinedresser.processes import this_process
from vinedresser.serving.columns.describing import describe
from vinedresser.serving.columns.outputs import Classify
from vinedresser.serving.columns.values import joined
from vinedresser.serving.recording.alert_watch import AlertWatch
from vinedresser.serving.recording.faults import Faults
from vinedresser.serving.recording.inbox import Inbox
from vinedresser.serving.recording.input_ring import InputRing
from vinedresser.serving.recording.items import Batch, Item, batches, host_item
from vinedresser.serving.recording.limits import Limits
from vinedresser.serving.recording.sampling import Sampling
from vinedresser.serving.storing.encoding import (
    PROBABILITIES,
    encode_columns,
    request_step,
    tensor_of,
)
from vinedresser.serving.storing.layout import REQUESTS, ServiceFolder, process_name
from vinedresser.serving.storing.request_log import RequestLog
from vinedresser.serving.storing.retention import enforce_limits
from vinedresser.store.step_record import StepRecord
from vinedresser.store.storage.location import is_remote

__all__ = ["Settings", "Worker"]

# A run directory is closed at this share of the limits of the store, so that removing the oldest
# one never removes much.
_RUNS = 32


@dataclass(frozen=True)
class Settings:
    """What to record and where.

    Attributes:
        folder: folder of the service.
        features: names of features; see `describe`.
        classify: how to read predictions; see `describe`.
        sample: share of the requests to record.
        limits: the limits.
    """

    folder: ServiceFolder
    features: tuple[str, ...] | None
    classify: Classify | None
    sample: float
    limits: Limits


class _Described(NamedTuple):
    """Requests and the columns that describe them."""

    batch: Batch
    columns: dict[str, NDArray[Any]]


class _Pace(NamedTuple):
    """Seconds between writes, between looks for alerts, and between checks of the limits."""

    flush: float
    look: float
    check: float


class Worker:
    """Describes and writes the requests of one process, on its own thread.

    Args:
        settings: what to record and where.
        faults: reports problems.
        token: eight hexadecimal digits that distinguish this process.
    """

    def __init__(self, settings: Settings, faults: Faults, token: str) -> None:
        limits = settings.limits
        remote = is_remote(str(settings.folder.location))
        flush = limits.flush_seconds or (10.0 if remote else 1.0)
        self.inbox = Inbox(limits.queue_bytes)
        self.sampling = Sampling(settings.sample, limits.rate, limits.cost)
        self._settings = settings
        self._faults = faults
        self._pace = _Pace(flush, *((10.0, 600.0) if remote else (flush, 60.0)))
        self._remote = remote
        self._process = this_process()
        self._label = process_name(self._process, token)
        self._log = self._new_log(REQUESTS)
        self._ring = InputRing(limits.input_bytes)
        self._alerts = AlertWatch(
            settings.folder,
            self._ring,
            (self._process, self._label),
            self._new_log,
            most_bytes=limits.input_bytes,
            faults=faults,
        )
        self._unwritten: list[tuple[StepRecord, int]] = []
        self._lost = 0
        self._ready = False
        self._stopping = False
        self._turning = threading.Condition()
        self._begun = self._ended = 0
        self._looked = self._checked = -float("inf")
        self._updated = time.monotonic()
        self._before = (self.inbox.counts, 0, 0.0)
        self._written = 0
        self._thread = threading.Thread(target=self._run, name="vinedresser-serving", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Number of chosen requests that were lost."""
        return self.inbox.counts.refused + self._lost

    @property
    def written(self) -> int:
        """Number of committed requests."""
        return self._written

    def flush(self, timeout: float) -> bool:
        """Wait until all requests recorded so far are committed or lost; return False on timeout.

        Args:
            timeout: maximum seconds to wait.
        """
        if os.getpid() != self._process.pid:
            return False
        with self._turning:
            # A turn that has begun may have taken its requests already.
            target = self._begun + 1
            self.inbox.wake.set()
            done = self._turning.wait_for(
                lambda: self._ended >= target or not self._thread.is_alive(), timeout
            )
        return done and not self._unwritten

    def close(self, timeout: float) -> bool:
        """Write what is left and end the thread; return False on timeout.

        Args:
            timeout: maximum seconds to wait.
        """
        if os.getpid() != self._process.pid:
            return False
        with self._turning:
            self._stopping = True
            self.inbox.wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # The methods below run on the worker's thread.

    def _run(self) -> None:
        turn = self._faults.guard("recording requests", self._turn)
        last = False
        while not last:
            self.inbox.wake.wait(self._pace.flush)
            with self._turning:
                self.inbox.wake.clear()
                self._begun += 1
                # Read before the requests are taken: none can arrive later that is not taken below.
                last = self._stopping
            turn(last)
            with self._turning:
                self._ended = self._begun
                self._turning.notify_all()

    def _turn(self, last: bool) -> None:
        items = self.inbox.take()
        described: list[_Described] = []
        try:
            described = self._described(items)
            self._keep(described)
        finally:
            self.inbox.settle(items)
        self._guarded("writing requests", self._write)
        self._guarded("limiting the store", self._check)
        self._guarded("looking for alerts", lambda: self._look(described))
        self._adapt()
        if last:
            self._guarded("writing requests", self._alerts.close)
            self._guarded("writing requests", self._log.close)

    def _guarded(self, doing: str, action: Callable[[], None]) -> None:
        self._faults.guard(doing, action)()

    def _described(self, items: Sequence[Item]) -> list[_Described]:
        host = self._faults.guard("reading a request", host_item)
        read = [(item, host(item)) for item in items]
        self._lost += sum(len(item.ids) for item, plain in read if plain is None)
        found = []
        columns_of = self._faults.guard("describing requests", self._columns)
        for batch in batches(plain for _, plain in read if plain is not None):
            columns = columns_of(batch)
            if columns is None:
                self._lost += len(batch.ids)
            else:
                found.append(_Described(batch, columns))
            # Let a thread that serves a request have the interpreter.
            time.sleep(0)
        return found

    def _columns(self, batch: Batch) -> dict[str, NDArray[Any]]:
        settings = self._settings
        return describe(
            batch.inputs,
            batch.outputs,
            settings.features,
            batch.embedding,
            classify=settings.classify,
        )

    def _keep(self, described: Sequence[_Described]) -> None:
        """Keep described requests for the next write."""
        forms: dict[tuple[Any, ...], list[_Described]] = {}
        for one in described:
            form = tuple((name, values.shape[1:]) for name, values in one.columns.items())
            forms.setdefault(form, []).append(one)
        for group in forms.values():
            counts = [len(one.batch.ids) for one in group]
            names = group[0].columns
            columns = {name: joined([one.columns[name] for one in group], counts) for name in names}
            tensors = encode_columns(columns)
            probabilities = np.concatenate([one.batch.probabilities for one in group])
            ids = [identity for one in group for identity in one.batch.ids]
            times = np.concatenate([one.batch.times for one in group])
            tensors[PROBABILITIES] = tensor_of(probabilities)
            self._unwritten.append((request_step(0, ids, times, tensors), len(ids)))

    def _write(self) -> None:
        """Commit what is unwritten; if the store refuses, keep it for later, within the limit."""
        self._log.dropped = self.dropped
        if self._unwritten:
            self._prepare()
            first = self._log.next_step
            records = [
                replace(record, step=first + place)
                for place, (record, _) in enumerate(self._unwritten)
            ]
            count = sum(requests for _, requests in self._unwritten)
            try:
                self._log.append(records, count)
            except StoreError as error:
                self._shorten(0 if isinstance(error, RunRemoved) else None)
                raise
            except (CorruptData, MemoryError, TypeError, ValueError):
                # They would fail again.
                self._shorten(0)
                raise
            self._written += count
            self._unwritten.clear()
        self._log.beat()

    def _prepare(self) -> None:
        if not self._ready:
            self._settings.folder.ensure()
            self._ready = True

    def _shorten(self, most: int | None) -> None:
        """Drop the oldest unwritten requests, those above a number of bytes."""
        limit = self._settings.limits.queue_bytes if most is None else most
        size = sum(record.nbytes() for record, _ in self._unwritten)
        while self._unwritten and size > limit:
            record, requests = self._unwritten.pop(0)
            size -= record.nbytes()
            self._lost += requests

    def _check(self) -> None:
        limits = self._settings.limits
        now = time.monotonic()
        if not self._ready or now < self._checked + self._pace.check:
            return
        self._checked = now
        enforce_limits(
            self._settings.folder,
            most_bytes=limits.store_bytes,
            most_seconds=limits.store_seconds,
            each_bytes=limits.store_bytes // _RUNS,
            own={self._log.run, *self._alerts.runs},
        )

    def _look(self, described: Sequence[_Described]) -> None:
        kept = [self._ring.add(one.batch) for one in described]
        for one in kept:
            self._alerts.offer(one)
        now = time.monotonic()
        if self._ready and now >= self._looked + self._pace.look:
            self._looked = now
            self._alerts.poll()

    def _adapt(self) -> None:
        now, used = time.monotonic(), time.thread_time()
        counts, done, spent = self._before
        present = self.inbox.counts
        if present.refused > counts.refused:
            self._faults.report(
                "dropped",
                "requests arrive faster than they are written; some are dropped and counted",
            )
        if now - self._updated < min(1.0, self._pace.flush):
            return
        self.sampling.update(
            now - self._updated,
            present.seen - counts.seen,
            self._written - done,
            present.busy - counts.busy + used - spent,
        )
        self._before = (present, self._written, used)
        self._updated = now

    def _new_log(self, kind: str) -> RequestLog:
        limits = self._settings.limits
        return RequestLog(
            *(self._settings.folder, kind, self._process, self._label),
            most_bytes=max(limits.store_bytes // _RUNS, 1),
            most_seconds=limits.store_seconds / _RUNS,
            beat_seconds=20.0 if self._remote else 2.0,
        )
