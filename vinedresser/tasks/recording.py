"""The metrics of a run into MLflow, while it trains or afterwards."""

from __future__ import annotations

from pathlib import Path

from vinedresser.capture.store.reader import open_run
from vinedresser.errors import TrackingError
from vinedresser.infra.run_directory import TrackingRecord, read_record
from vinedresser.infra.storage import LocalStorage
from vinedresser.infra.tracking import MetricNames, MetricSink, thin
from vinedresser.tasks.prepare import find_or_create

__all__ = ["send_metrics"]


# Seconds that MLflow has, once the run is over, to take what still waits.
_LAST_CALL = 60.0


def send_metrics(directory: Path) -> None:
    """Follow a run to its end and send its losses and metrics; sending them twice is harmless.

    Of a long training some steps tell the story (`thin`); evaluations are rare, and each counts.

    Raises:
        TrackingError: MLflow did not take them, even some time after the run had ended; they are
            in the run directory, and `reconcile` sends them.
    """
    storage = LocalStorage(directory)
    run = open_run(directory)
    tracking = read_record(storage, TrackingRecord)
    if tracking is None:
        return
    run_id = tracking.run_id or find_or_create(tracking, directory, run.info)
    names = MetricNames()
    sink = MetricSink(tracking.uri, run_id)
    try:
        for step in run.follow():
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
