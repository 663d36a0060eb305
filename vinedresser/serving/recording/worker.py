"""The thread that describes and writes requests."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vinedresser.columns.values import joined
from vinedresser.errors import CorruptData, RunRemoved, StoreError
from vinedresser.objects.location import is_remote
from vinedresser.objects.retrying import backoff
from vinedresser.processes import this_process
from vinedresser.serving.recording.alert_watch import AlertWatch
from vinedresser.serving.recording.describing import Described, Describer
from vinedresser.serving.recording.faults import Faults
from vinedresser.serving.recording.input_ring import InputRing
from vinedresser.serving.recording.items import Item
from vinedresser.serving.recording.sampling import Sampling
from vinedresser.serving.recording.settings import Settings
from vinedresser.serving.storing.encoding import (
    PROBABILITIES,
    encode_columns,
    request_step,
    tensor_of,
)
from vinedresser.serving.storing.layout import REQUESTS, process_name
from vinedresser.serving.storing.request_log import RequestLog
from vinedresser.serving.storing.retention import enforce_limits
from vinedresser.store.step_record import StepRecord

# A run directory is closed at this share of the limits of the store, so that removing the oldest
# one never removes much.
_RUNS = 32
# Seconds to the first write: it shows what recording costs.
_FIRST = 0.1


class _Pace(NamedTuple):
    """Seconds between certain actions.

    Attributes:
        flush: between two writes.
        look: between two looks for alerts.
        check: between two checks of the limits of the store.
        beat: between two heartbeats.
    """

    flush: float
    look: float
    check: float
    beat: float


class Worker:
    """Describes and writes the requests of one process, on its own thread.

    It works in one go and then rests until the next write, so that few requests meet it: a thread
    of Python keeps the interpreter for milliseconds, and a model that computes outside of it needs
    it again many times.

    Args:
        settings: what to record and where.
        faults: reports problems.
        token: eight hexadecimal digits that distinguish this process.
    """

    def __init__(self, settings: Settings, faults: Faults, token: str) -> None:
        limits = settings.limits
        remote = is_remote(str(settings.folder.location))
        flush = limits.flush_seconds or (10.0 if remote else 5.0)
        self.inbox = _Inbox(limits.queue_bytes)
        self.sampling = Sampling(settings.sample, limits.rate, limits.cost)
        self._settings = settings
        self._faults = faults
        # Each request to an object store costs money.
        slow, fast = _Pace(flush, 10.0, 600.0, 20.0), _Pace(flush, flush, 60.0, 2.0)
        self._pace = slow if remote else fast
        self._process = this_process()
        self._label = process_name(self._process, token)
        self._log = self._new_log(REQUESTS)
        self._backlog = _Backlog(self._log, limits.queue_bytes)
        self._describer = Describer(settings, faults)
        self._ring = InputRing(limits.input_bytes)
        self._alerts = AlertWatch(
            settings.folder,
            self._ring,
            (self._process, self._label),
            self._new_log,
            most_bytes=limits.input_bytes,
            faults=faults,
        )
        self._ready = self._stopping = self._flushing = False
        self._turning = threading.Condition()
        self._begun = self._ended = 0
        self._looked = self._checked = -float("inf")
        self._updated = time.monotonic()
        # Seconds of describing, and number of described requests.
        self._busy, self._described = 0.0, 0
        self._before = (self.inbox.counts, 0, 0.0)
        self._thread = threading.Thread(target=self._run, name="vinedresser-serving", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Number of chosen requests that were lost."""
        counts = self.inbox.counts
        return counts.refused + counts.failed + self._describer.lost + self._backlog.lost

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
            self._flushing = True
            self.inbox.wake.set()
            done = self._turning.wait_for(
                lambda: self._ended >= target or not self._thread.is_alive(), timeout
            )
        return done and not self._backlog

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
        if self._thread is threading.current_thread():
            # The garbage collector found the recorder on this thread, which ends after this turn.
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # The methods below run on the worker's thread.

    def _run(self) -> None:
        turn = self._faults.guard("recording requests", self._turn)
        pauses = backoff(min(_FIRST, self._pace.flush), self._pace.flush)
        last = False
        while not last:
            self.inbox.wake.wait(next(pauses))
            with self._turning:
                self.inbox.wake.clear()
                self._begun += 1
                flushing, self._flushing = self._flushing, False
                # Read before the requests are taken: none can arrive later that is not taken below.
                last = self._stopping
            turn(flushing or last)
            with self._turning:
                self._ended = self._begun
                self._turning.notify_all()
        self._guarded("writing requests", self._alerts.close)
        self._guarded("writing requests", self._log.close)

    def _turn(self, flushing: bool) -> None:
        items = self.inbox.take()
        try:
            began = time.thread_time()
            described = self._describer.describe(items)
            self._busy += time.thread_time() - began
            self._described += sum(len(one.batch.ids) for one in described)
            self._guarded("writing requests", lambda: self._write(described, flushing))
            self._guarded("limiting the store", self._check)
            self._guarded("looking for alerts", lambda: self._look(described))
        finally:
            self.inbox.settle(items)
        self._adapt()

    def _guarded(self, doing: str, action: Callable[[], None]) -> None:
        self._faults.guard(doing, action)()

    def _write(self, described: Sequence[Described], flushing: bool) -> None:
        self._backlog.add(described)
        self._log.seen, self._log.dropped = self.inbox.counts.seen, self.dropped
        if not self._ready:
            self._settings.folder.ensure()
            self._ready = True
        self._backlog.write()
        self._log.beat(now=flushing)

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

    def _look(self, described: Sequence[Described]) -> None:
        for kept in [self._ring.add(one.batch) for one in described]:
            self._alerts.offer(kept)
        now = time.monotonic()
        if self._ready and now >= self._looked + self._pace.look:
            self._looked = now
            self._alerts.poll()

    def _adapt(self) -> None:
        now = time.monotonic()
        counts, done, spent = self._before
        present = self.inbox.counts
        if present.refused > counts.refused:
            self._faults.report(
                "dropped",
                "requests arrive faster than they are written; some are dropped and counted",
            )
        if now - self._updated < min(_FIRST, self._pace.flush):
            return
        self.sampling.update(
            now - self._updated,
            present.seen - counts.seen,
            self._described - done,
            present.busy - counts.busy + self._busy - spent,
        )
        self._before = (present, self._described, self._busy)
        self._updated = now

    def _new_log(self, kind: str) -> RequestLog:
        limits = self._settings.limits
        return RequestLog(
            *(self._settings.folder, kind, self._process, self._label),
            most_bytes=max(limits.store_bytes // _RUNS, 1),
            most_seconds=limits.store_seconds / _RUNS,
            beat_seconds=self._pace.beat,
        )


class _Counts(NamedTuple):
    """What happened since a recorder began in this process.

    Attributes:
        seen: number of requests, recorded or not.
        refused: number of chosen requests that found the queue full.
        failed: number of requests that could not be copied.
        busy: seconds of processor time that recording took in the callers' threads, an estimate.
    """

    seen: int
    refused: int
    failed: int
    busy: float


class _Inbox:
    """A queue that never makes a caller wait for the worker.

    Args:
        most_bytes: bytes of waiting items, above which new ones are refused.
    """

    def __init__(self, most_bytes: int) -> None:
        self.wake = threading.Event()
        self._most_bytes = most_bytes
        self._items: deque[Item] = deque()
        # Among callers only: the worker, which may lose the interpreter at any point, never has it.
        self._lock = threading.Lock()
        self._put_bytes = 0
        self._taken_bytes = 0
        self._seen = 0
        self._refused = self._failed = 0
        self._busy = 0.0

    @property
    def counts(self) -> _Counts:
        """What happened so far."""
        return _Counts(self._seen, self._refused, self._failed, self._busy)

    def count(self, seen: int) -> None:
        """Count requests, recorded or not."""
        with self._lock:
            self._seen += seen

    def fail(self, requests: int) -> None:
        """Count requests that could not be copied."""
        with self._lock:
            self._failed += requests

    def count_busy(self, seconds: float) -> None:
        """Count processor time of a caller's thread."""
        with self._lock:
            self._busy += seconds

    def put(self, item: Item) -> bool:
        """Add an item, measured; return False if there is no room for it."""
        with self._lock:
            waiting = self._put_bytes - self._taken_bytes
            if waiting and waiting + item.size > self._most_bytes:
                self._refused += len(item.ids)
                return False
            self._put_bytes += item.size
            self._items.append(item)
        return True

    def take(self) -> list[Item]:
        """Return all waiting items."""
        items = []
        while self._items:
            items.append(self._items.popleft())
        return items

    def settle(self, items: list[Item]) -> None:
        """Count taken items as no longer in memory."""
        self._taken_bytes += sum(item.size for item in items)


class _Backlog:
    """Keeps described requests while the store refuses them, within a limit.

    Args:
        log: writes them.
        most_bytes: maximum size; the oldest are dropped.

    Attributes:
        lost: number of dropped requests.
    """

    def __init__(self, log: RequestLog, most_bytes: int) -> None:
        self.lost = 0
        self._log = log
        self._most_bytes = most_bytes
        self._steps: list[tuple[StepRecord, int]] = []

    def __len__(self) -> int:
        """Return the number of steps that are not committed."""
        return len(self._steps)

    def add(self, described: Sequence[Described]) -> None:
        """Add requests; those with the same columns become one step."""
        forms: dict[tuple[Any, ...], list[Described]] = {}
        for one in described:
            form = tuple((name, values.shape[1:]) for name, values in one.columns.items())
            forms.setdefault(form, []).append(one)
        for group in forms.values():
            counts = [len(one.batch.ids) for one in group]
            names = group[0].columns
            columns = {name: joined([one.columns[name] for one in group], counts) for name in names}
            tensors = encode_columns(columns)
            probabilities = np.concatenate([one.batch.probabilities for one in group])
            tensors[PROBABILITIES] = tensor_of(probabilities)
            ids = [identity for one in group for identity in one.batch.ids]
            times = np.concatenate([one.batch.times for one in group])
            self._steps.append((request_step(0, ids, times, tensors), len(ids)))

    def write(self) -> None:
        """Commit all steps.

        Raises:
            StoreError: the store refused; they are kept for the next attempt, within the limit.
                If the folder of the service was removed, they are dropped.
            CorruptData, MemoryError, TypeError, ValueError: a step is invalid; they are dropped.
        """
        if not self._steps:
            return
        first = self._log.next_step
        numbered = [
            replace(step, step=first + place) for place, (step, _) in enumerate(self._steps)
        ]
        try:
            self._log.append(numbered, sum(requests for _, requests in self._steps))
        except StoreError as error:
            self._shorten(0 if isinstance(error, RunRemoved) else self._most_bytes)
            raise
        except (CorruptData, MemoryError, TypeError, ValueError):
            # They would fail again.
            self._shorten(0)
            raise
        self._steps.clear()

    def _shorten(self, most_bytes: int) -> None:
        """Drop the oldest steps until the others have at most this size."""
        size = sum(step.nbytes() for step, _ in self._steps)
        while self._steps and size > most_bytes:
            step, requests = self._steps.pop(0)
            size -= step.nbytes()
            self.lost += requests
