"""What a flow does for a run that has ended: its metrics go to MLflow, then the run is settled."""

from __future__ import annotations

import shutil
from pathlib import Path

from vinedresser.errors import VinedresserError
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.objects import LocalStorage
from vinedresser.store.records import TrackingRecord, write_record
from vinedresser.tasks.lifecycle.mlflow_metrics import record_metrics
from vinedresser.tasks.lifecycle.settle import settle_place
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.testing.runs import make_run, step_record

__all__ = ["DATABASE", "LOSSES", "RUN", "prepare", "record"]

LOSSES = (4.0, 2.0, 1.0)
RUN, DATABASE = "run-1", "mlflow.db"


def prepare(folder: Path) -> None:
    """Make the store with MLflow's database, a copy of the one beside it, and the run."""
    folder.mkdir()
    shutil.copyfile(folder.with_name(DATABASE), folder / DATABASE)
    uri = f"sqlite:///{folder / DATABASE}"
    experiment = prepare_tracking(uri, "trials")
    remember_tracking(folder, uri)
    losses = enumerate(LOSSES)
    steps = [step_record(step, scalars={"losses/loss": loss}, at=1e9) for step, loss in losses]
    make_run(folder / RUN, steps)
    write_record(LocalStorage(folder / RUN), TrackingRecord(uri, experiment, run_id=""))


def record(folder: Path) -> str:
    """Send the metrics and settle the run, like the flow's tasks; return what failed at last."""
    place = RunPlace(folder / RUN)
    failure = ""
    for stage in (record_metrics, settle_place):
        try:
            stage(place)
        except VinedresserError as error:
            failure = str(error)
        else:
            failure = ""
    return failure
