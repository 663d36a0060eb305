"""Send the metrics of a run to MLflow, while it trains or afterwards."""

from __future__ import annotations

from vinedresser.errors import TrackingError
from vinedresser.infra.tracking import MetricNames, MetricSink, thin
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import TrackingRecord
from vinedresser.store.storage import LocalStorage, Location
from vinedresser.tasks.known_tracking import read_tracking
from vinedresser.tasks.lifecycle.mlflow_run import RuleTags, find_or_create
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.retry_outages import retry_outages

__all__ = ["record_metrics", "send_metrics"]


# Seconds that MLflow has to accept the remaining metrics once the run is over.
_LAST_CALL = 60.0


def record_metrics(place: RunPlace) -> None:
    """Follow a run to its end, send its metrics, and mark the place as recorded.

    Raises:
        TrackingError: see `send_metrics`.
        StoreError: see `send_metrics`.
    """
    # On an object store the record may not have arrived yet.
    tracking = read_tracking(place.location, LocalStorage(place.directory))
    if place.appear():
        send_metrics(place.location, tracking)
        place.recorded = True


def send_metrics(location: Location, tracking: TrackingRecord | None = None) -> None:
    """Follow a run to its end and send its losses, metrics and tags; repeating this is harmless.

    Train steps are thinned out (`thin`); every evaluation is sent.

    Args:
        location: location of the run.
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
    tracking = tracking or read_tracking(location, run.storage)
    if tracking is None:
        return
    run_id = tracking.run_id or find_or_create(tracking, location, run.info)
    names = MetricNames()
    sink = MetricSink(tracking.uri, run_id)
    tags = RuleTags(run.storage, tracking.uri, run_id)
    try:
        for step in run.follow():
            tags.update()
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
            f"{tracking.uri}: {sink.waiting + sink.lost} metrics of {run.info.name} not accepted; "
            "`vinedresser reconcile` sends them again"
        )
