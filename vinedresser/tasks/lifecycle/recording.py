"""The metrics of a run into MLflow, while it trains or afterwards."""

from __future__ import annotations

from vinedresser.errors import TrackingError
from vinedresser.infra.tracking import MetricNames, MetricSink, thin
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import TrackingRecord, read_record
from vinedresser.store.storage import LocalStorage, Location
from vinedresser.tasks.lifecycle.prepare import find_or_create
from vinedresser.tasks.lifecycle.tagging import RuleTags
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.retry_outages import retry_outages

__all__ = ["record_metrics", "send_metrics"]


# Seconds that MLflow has, once the run is over, to take what still waits.
_LAST_CALL = 60.0


def record_metrics(place: RunPlace) -> None:
    """Follow a run that is being made to its end and send its metrics, and note that they are sent.

    Raises:
        TrackingError: see `send_metrics`.
        StoreError: see there.
    """
    # On an object store the record may not have arrived yet.
    tracking = read_record(LocalStorage(place.directory), TrackingRecord)
    if place.appear():
        send_metrics(place.location, tracking)
        place.recorded = True


def send_metrics(location: Location, tracking: TrackingRecord | None = None) -> None:
    """Follow a run to its end and send its losses, metrics and tags; doing it twice is harmless.

    Of a long training some steps tell the story (`thin`); evaluations are rare, and each counts.

    Args:
        location: of the run.
        tracking: its MLflow run; None: as the run says.

    Raises:
        TrackingError: MLflow did not take them, even some time after the run had ended; they are
            in the run directory, and `reconcile` sends them.
        StoreError: the run cannot be read, and could not for some minutes.
    """
    retry_outages(lambda: _send(location, tracking), location)


def _send(location: Location, tracking: TrackingRecord | None) -> None:
    """Send them once, from the first step on."""
    run = open_run(location)
    tracking = tracking or read_record(run.storage, TrackingRecord)
    if tracking is None:
        return
    run_id = tracking.run_id or find_or_create(tracking, location, run.info)
    names = MetricNames()
    sink = MetricSink(tracking.uri, run_id)
    tags = RuleTags(run.storage, tracking.uri, run_id)
    try:
        for step in run.follow():
            tags.look()
            if step.mode == "train" and not thin(step.step):
                continue
            for name, value in {**step.scalars_of("losses"), **step.scalars_of("metrics")}.items():
                key = names.key(name, step.mode)
                if key is not None:
                    sink.log(key, value, step=step.step, time=step.time)
    finally:
        complete = sink.close(_LAST_CALL)
    if not complete:
        raise TrackingError(
            f"{tracking.uri}: {sink.waiting + sink.lost} metrics of {run.info.name} not taken; "
            "`vinedresser reconcile` sends them again"
        )
