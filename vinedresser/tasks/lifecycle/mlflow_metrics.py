"""The metrics of a run in MLflow, sent while it trains."""

from __future__ import annotations

import time

from vinedresser.errors import TrackingError
from vinedresser.infra.catalog.run_notes import tracking_or_note
from vinedresser.infra.services.tracking import MetricSink, set_tags, thin
from vinedresser.objects import LocalStorage, Location, Storage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import SystemRecord, TrackingRecord, read_journal
from vinedresser.tasks.lifecycle.end_tags import rule_tags
from vinedresser.tasks.lifecycle.metric_points import MetricPoints, system_points
from vinedresser.tasks.lifecycle.mlflow_run import find_or_create
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.retry_outages import retry_outages

__all__ = ["record_metrics", "send_metrics"]

# Seconds between two updates of the tags of a run that trains.
_EVERY = 5.0
# Seconds that MLflow has to accept the remaining metrics once the run is over.
_LAST_CALL = 60.0


class _Companions:
    """Sends the tags of a run while it trains, and the load of its machine.

    Settling the run sends the tags again.
    """

    def __init__(self, storage: Storage, uri: str, run_id: str, sink: MetricSink) -> None:
        self._storage = storage
        self._uri = uri
        self._run_id = run_id
        self._sink = sink
        self._sent: dict[str, str] = {}
        # Number of records of the load of its machine that were sent.
        self._records = 0
        self._updated = -float("inf")

    def update(self) -> None:
        """Send what has changed, at most every five seconds.

        Raises:
            StoreError: the storage refused a request.
        """
        now = time.monotonic()
        if now < self._updated + _EVERY:
            return
        self._updated = now
        self.send_system()
        # Damage is named once, when the run is settled.
        tags = rule_tags(self._storage, [])
        if tags == self._sent:
            return
        try:
            set_tags(self._uri, self._run_id, tags, timeout=None)
        except TrackingError:
            # Retried with the next update; the sink reports that the server is unavailable.
            return
        self._sent = tags

    def send_system(self) -> None:
        """Send the new records of the load of the machine.

        Raises:
            StoreError: the storage refused a request.
        """
        records = read_journal(self._storage, SystemRecord, [])
        for record in records[self._records :]:
            for key, value in system_points(record).items():
                self._sink.log(key, value, step=record.step, time=record.time)
        self._records = len(records)


def record_metrics(place: RunPlace) -> None:
    """Follow a run to its end, send its metrics, and mark the place as recorded.

    Raises:
        TrackingError: see `send_metrics`.
        StoreError: see `send_metrics`.
    """
    # On an object store the record may not have arrived yet.
    tracking = tracking_or_note(place.location, LocalStorage(place.directory))
    if place.appear():
        send_metrics(place.location, tracking)
        place.recorded = True


def send_metrics(location: Location, tracking: TrackingRecord | None = None) -> None:
    """Follow a run to its end; send its losses, metrics, tags and load; repeating this is harmless.

    Train steps are thinned out (`thin`); every evaluation is sent.

    Args:
        tracking: its MLflow run; None: read from the run.

    Raises:
        TrackingError: MLflow did not accept them, even some time after the end of the run; they
            remain in the run directory, and `reconcile` sends them.
        StoreError: the run could not be read for some minutes.
    """
    retry_outages(lambda: _send(location, tracking), location)


def _send(location: Location, tracking: TrackingRecord | None) -> None:
    """Send them once, from the first step on."""
    run = open_run(location)
    tracking = tracking or tracking_or_note(location, run.storage)
    if tracking is None:
        return
    run_id = tracking.run_id or find_or_create(tracking, location, run.info)
    sink = MetricSink(tracking.uri, run_id)
    points = MetricPoints(sink.log)
    companions = _Companions(run.storage, tracking.uri, run_id, sink)
    skipped: Step | None = None
    try:
        for step in run.follow():
            companions.update()
            if step.mode == "train" and not thin(step.step):
                skipped = step
                continue
            if step.mode == "train":
                skipped = None
            points.add(step)
        if skipped is not None:
            # The last step is always sent.
            points.add(skipped)
        points.close()
        companions.send_system()
    finally:
        complete = sink.close(_LAST_CALL)
    if not complete:
        raise TrackingError(
            f"{tracking.uri}: {sink.waiting + sink.lost} metrics of {run.info.name} not accepted; "
            "`vinedresser reconcile` sends them again"
        )
    if points.bounded:
        set_tags(tracking.uri, run_id, points.bounded)
