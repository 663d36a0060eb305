"""Sends metrics to MLflow in the background, and selects the steps whose metrics are sent."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from vinedresser.errors import TrackingAway, TrackingError
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.services.tracking.patience import tracking_pauses
from vinedresser.plain_logs import plain_logger

__all__ = ["MetricSink", "thin"]

_LOG = plain_logger(__name__)

# MLflow's limit for one request.
_MOST_PER_BATCH = 1000

# Metrics of all steps below this one are sent.
_ALL_BELOW = 1000


class _Point(NamedTuple):
    key: str
    value: float
    milliseconds: int
    step: int


class MetricSink:
    """Sends the metrics of one MLflow run in batches, from a thread of its own.

    `log` never blocks: it appends to a queue and returns. While the server is unavailable or its
    database locked, points stay in the queue and are retried without limit; when the queue is
    full, new points are dropped, counted and reported. Each point has the time of its capture, and
    MLflow stores equal points once, so sending a run again from its start, as after a restart,
    creates no duplicates.

    Args:
        capacity: maximum number of queued points; 200,000 take about 40 MB.
        interval: seconds between batches; a full batch is sent at once.
        on_problem: called once when the server becomes unavailable, once when it is back, and once
            when points are lost, on the sink's thread or in `log`; None: log a warning.
    """

    def __init__(
        self,
        uri: str,
        run_id: str,
        *,
        capacity: int = 200_000,
        interval: float = 1.0,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self._uri = absolute_uri(uri)
        self._run_id = run_id
        self._capacity = capacity
        self._interval = interval
        self._tell = on_problem or _LOG.warning
        # Guards all attributes below; notified when the thread or a waiter has something to do.
        self._changed = threading.Condition()
        self._queue: deque[_Point] = deque()
        self._accepted = 0
        self._settled = 0
        self._lost = 0
        self._flushing = 0
        self._give_up_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="metric-sink", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of points that are not sent yet."""
        return len(self._queue)

    @property
    def lost(self) -> int:
        """Number of points dropped from a full queue or refused by MLflow."""
        return self._lost

    def log(self, key: str, value: float, *, step: int, time: float) -> bool:
        """Queue one point.

        Args:
            key: metric key, from `MetricNames`.
            value: finite, NaN or infinite.
            step: training step, an axis shared by all modes.
            time: time of capture in seconds since the epoch.

        Returns:
            Whether the point was queued; False if the queue is full or the sink closed.
        """
        point = _Point(key, float(value), round(time * 1000), int(step))
        with self._changed:
            if self._give_up_at is None and len(self._queue) < self._capacity:
                self._queue.append(point)
                self._accepted += 1
                # Waking the thread for every point would cost more than the point itself.
                if len(self._queue) in (1, _MOST_PER_BATCH):
                    self._changed.notify_all()
                return True
        self._lose(1, f"the queue is full ({len(self._queue)} points)")
        return False

    def flush(self, timeout: float) -> bool:
        """Wait until all points queued so far have been sent.

        Returns:
            Whether they were sent within ``timeout`` seconds.
        """
        with self._changed:
            goal = self._accepted
            self._flushing += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: self._settled >= goal, timeout)
            finally:
                self._flushing -= 1

    def close(self, timeout: float) -> bool:
        """Send the queued points, then end the thread.

        Returns:
            Whether every point ever logged is in MLflow. If not, some were lost, or not sent within
            ``timeout`` seconds; all of them are still in the run directory.
        """
        with self._changed:
            if self._give_up_at is None:
                self._give_up_at = time.monotonic() + timeout
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._queue and not self._lost

    def _run(self) -> None:
        pauses = tracking_pauses()
        away = False
        while batch := self._next_batch():
            try:
                self._send(batch)
            except TrackingAway as error:
                if not away:
                    away = True
                    self._tell(f"{error}; metrics are queued and retried")
                self._pause(next(pauses))
                continue
            except TrackingError as error:
                self._lose(len(batch), str(error))
            if away:
                away = False
                pauses = tracking_pauses()
                self._tell(f"{self._uri}: available again; sending {self.waiting} queued metrics")
            self._settle(len(batch))

    def _next_batch(self) -> list[_Point]:
        """Wait for a full batch, the interval, a flush or the end; return [] to end the thread."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._give_up_at is not None)
            self._changed.wait_for(self._is_due, self._interval)
            if self._give_up_at is not None and time.monotonic() > self._give_up_at:
                return []
            return list(islice(self._queue, _MOST_PER_BATCH))

    def _is_due(self) -> bool:
        return (
            len(self._queue) >= _MOST_PER_BATCH
            or self._flushing > 0
            or self._give_up_at is not None
        )

    def _send(self, batch: Sequence[_Point]) -> None:
        with connected(self._uri) as client:
            from mlflow.entities import Metric

            client.log_batch(self._run_id, metrics=[Metric(*point) for point in batch])

    def _settle(self, count: int) -> None:
        with self._changed:
            for _ in range(count):
                self._queue.popleft()
            self._settled += count
            self._changed.notify_all()

    def _lose(self, count: int, reason: str) -> None:
        with self._changed:
            first = self._lost == 0
            self._lost += count
        if first:
            self._tell(f"{self._uri}: metrics of run {self._run_id} are lost: {reason}")

    def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, but not beyond the deadline of `close`."""
        end = time.monotonic() + seconds
        with self._changed:
            while (left := min(end, self._give_up_at or end) - time.monotonic()) > 0:
                self._changed.wait(left)


def thin(step: int) -> bool:
    """Return whether the metrics of a step are sent to MLflow.

    All steps below 1,000 are, then every 10th below 10,000, every 100th below 100,000, and so on:
    900 points per decade, so 3,700 points for a million steps. The choice depends only on the step
    and is the same when a run is sent again.
    """
    stride = 1
    while step >= _ALL_BELOW * stride:
        stride *= 10
    return step % stride == 0
