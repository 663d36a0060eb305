"""Beginning a life of a monitor, or finding the one that goes on: baseline and MLflow run."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.services.tracking import (
    DIRECTORY_TAG,
    RUN_TAG,
    create_run,
    finish,
    prepare_tracking,
)
from vinedresser.objects import LocalStorage
from vinedresser.objects.files import make_folders
from vinedresser.serving import RequestStore
from vinedresser.store.records import TrackingRecord, read_record, write_record
from vinedresser.tasks.config.monitor_file import Monitor
from vinedresser.tasks.monitoring.model_process import run_with_model
from vinedresser.tasks.monitoring.records import (
    MonitorRecord,
    Progress,
    life_folder,
    lives_in,
)

__all__ = ["Life", "arm", "current_life"]

_BASELINE = "vinedresser.explain.alerts.baseline:main"


@dataclass(frozen=True)
class Life:
    """A life of a monitor."""

    monitor: Monitor
    record: MonitorRecord

    @property
    def folder(self) -> Path:
        """Folder of the life."""
        return life_folder(self.monitor.state, self.record.life)

    @property
    def storage(self) -> LocalStorage:
        """Storage of its folder."""
        return LocalStorage(self.folder)

    @cached_property
    def requests(self) -> RequestStore:
        """The requests of the service."""
        return RequestStore(str(self.monitor.requests))

    @property
    def baseline(self) -> Path:
        """Folder of the baseline."""
        return self.folder / "baseline"


def arm(monitor: Monitor, *, anew: bool = False) -> Life:
    """Begin a life of a monitor, unless one goes on.

    Args:
        anew: begin another life, with a new baseline and a new budget; the last one ends.

    Raises:
        ConfigError: the monitor differs from the one in its folder.
        DriftError: the baseline cannot be used.
        TrackingError: MLflow's database or server refused.
        StoreError: the folder cannot be written.
    """
    life = current_life(monitor)
    if life is None or anew:
        life = _begun(monitor) if life is None else _after(life)
    _refuse_differences(life)
    if not life.baseline.exists():
        _make_baseline(life)
    if not life.record.run_id:
        life = _with_mlflow_run(life)
    return life


def current_life(monitor: Monitor) -> Life | None:
    """Return the last life of a monitor; None if it has none.

    Raises:
        CorruptData: its record cannot be read.
    """
    lives = lives_in(monitor.state)
    if not lives:
        return None
    record = read_record(LocalStorage(life_folder(monitor.state, lives[-1])), MonitorRecord)
    assert record is not None
    return Life(monitor, record)


def _after(life: Life) -> Life:
    """Begin the life after another one, with the requests that it has not judged."""
    before = read_record(life.storage, Progress) or Progress()
    if life.record.run_id:
        finish(life.monitor.tracking_uri, life.record.run_id, "FINISHED", {}, {})
    progress = Progress(cursor=before.cursor, labels=before.labels)
    return _begun(life.monitor, life.record.life + 1, progress)


def _begun(monitor: Monitor, number: int = 1, progress: Progress | None = None) -> Life:
    uri = monitor.tracking_uri
    record = MonitorRecord(
        id=uuid.uuid4().hex,
        name=monitor.name,
        life=number,
        created=time.time(),
        settings=monitor.fixed,
        experiment_id=prepare_tracking(uri, monitor.tracking_experiment),
    )
    life = Life(monitor, record)
    make_folders(life.folder)
    if progress is not None:
        write_record(life.storage, progress)
    write_record(life.storage, record)
    return life


def _refuse_differences(life: Life) -> None:
    """Refuse settings with which windows could not be compared."""
    monitor = life.monitor
    before, now = _flat(life.record.settings), _flat(monitor.fixed)
    lines = [
        f"\n  {key}: was {before.get(key)!r}, is {now.get(key)!r}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]
    if lines:
        raise ConfigError(
            f"{monitor.path}: differs from the monitor in {life.folder}:{''.join(lines)}\n"
            "undo the change, or begin another life with --rearm"
        )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            flat[name] = value
    return flat


def _make_baseline(life: Life) -> None:
    """Have a process with the model make the baseline; it is there when it is complete."""
    monitor = life.monitor
    part = life.folder / "baseline.part"
    shutil.rmtree(part, ignore_errors=True)
    run_with_model(
        _BASELINE,
        monitor,
        {
            "model": asdict(monitor.model),
            "data": monitor.baseline.data,
            "rows": monitor.baseline.rows,
            "in_time_order": monitor.baseline.in_time_order,
            "period": monitor.baseline.length,
            "times": monitor.baseline.times,
            "examples": monitor.explain.examples,
            "destination": str(part),
        },
        "the baseline could not be made",
    )
    part.rename(life.baseline)


def _with_mlflow_run(life: Life) -> Life:
    monitor, record = life.monitor, life.record
    run_id = create_run(
        monitor.tracking_uri,
        record.experiment_id,
        name=record.shown,
        parameters=_flat(record.settings),
        tags={RUN_TAG: record.id, DIRECTORY_TAG: str(life.folder)},
        started=record.created,
    )
    record = replace(record, run_id=run_id)
    # By these, `vinedresser ui` finds MLflow.
    remember_tracking(monitor.state, monitor.tracking_uri)
    tracking = TrackingRecord(monitor.tracking_uri, record.experiment_id, run_id)
    write_record(life.storage, tracking)
    write_record(life.storage, record)
    return Life(monitor, record)
