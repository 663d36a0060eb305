"""MLflow's run of a sweep or pruning: it gets the end even if the process that saw it dies."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from vinedresser.errors import NotAFile, TrackingError
from vinedresser.explain.reports.sweep import without_links
from vinedresser.infra.catalog.known_tracking import require_known
from vinedresser.infra.catalog.stores import local_state
from vinedresser.infra.services.tracking import (
    RUN_TAG,
    RunStatus,
    create_run,
    finish,
    register_model,
)
from vinedresser.objects import LocalStorage, Location
from vinedresser.plain_logs import plain_logger
from vinedresser.pruning.folders import ResultRecord
from vinedresser.pruning.spec import MODEL, PruningRecord
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import ParentRecord, TrackingRecord, read_record, write_record
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.lifecycle.mlflow_run import original_of
from vinedresser.tasks.parents.kinds import is_held, is_removed
from vinedresser.tasks.parents.parent_notes import end_removed_parent, forget_parent

__all__ = ["settle_parent", "tell_end"]

_log = plain_logger(__name__)

# Of the registered model's version that the last pruning made.
_ALIAS = "pruned"
_GONE = "the process that ran it is gone"


def tell_end(
    store: Location,
    kind: type[ParentRecord],
    tracking: TrackingRecord,
    status: RunStatus,
    tags: Mapping[str, object],
    *,
    metrics: Mapping[str, Sequence[tuple[int, float]]] | None = None,
) -> list[str]:
    """Give MLflow's run of a sweep or pruning its tags, metrics, the page about it, and its status.

    They are on disk first: if MLflow fails, `reconcile` sends them. Of one whose folder was
    removed, MLflow is told only that.

    Args:
        kind: whether it is a sweep or a pruning.
        tracking: its MLflow run, as its runs' parent.
        status: final status of the run.
        tags: values by name; None is left out.
        metrics: step and value of each point by key.

    Returns:
        A sentence if MLflow did not accept it.

    Raises:
        StoreError: the folder cannot be written.
    """
    if is_removed(local_state(store), kind):
        tell = partial(end_removed_parent, store, kind, tracking)
    else:
        tell = partial(_end, store, kind, status, tags, metrics or {})
    try:
        tell()
    except TrackingError as error:
        return [f"{error}; `vinedresser reconcile` sends MLflow the end of the {kind.WORD}"]
    return []


def _end(
    store: Location,
    kind: type[ParentRecord],
    status: RunStatus,
    tags: Mapping[str, object],
    metrics: Mapping[str, Sequence[tuple[int, float]]],
) -> None:
    storage = LocalStorage(local_state(store))
    record = read_record(storage, kind)
    assert record is not None, "it has begun"
    record = replace(record, tracking_uri=require_known(store, record.tracking_uri))
    end = {"status": status, "tags": dict(tags), "metrics": dict(metrics), "time": time.time()}
    record = replace(record, end=end)
    write_record(storage, record)
    _tell(record, store)


def settle_parent(store: Location, kind: type[ParentRecord]) -> str:
    """Give MLflow's run of a sweep or pruning that no process runs its end; idempotent.

    Args:
        store: a store that may be one's.
        kind: whether it is a sweep's or a pruning's.

    Returns:
        One sentence about what was done; "" for nothing.

    Raises:
        UntrustedTracking: its tracking URI is none of this user's; nothing was changed.
        TrackingError: MLflow's database or server refused or is unavailable.
        CorruptData: its record cannot be read.
        StoreError: the folder cannot be read or written.
    """
    state = local_state(store)
    record = read_record(LocalStorage(state), kind)
    if record is None or record.settled or is_held(state, kind):
        return ""
    record = replace(record, tracking_uri=require_known(store, record.tracking_uri))
    tracking = TrackingRecord(record.tracking_uri, record.experiment_id, record.run_id)
    if (original := original_of(store, kind, record.id, tracking)) is not None:
        write_record(LocalStorage(state), replace(record, settled=True))
        return f"left alone: MLflow's run is that of {original}, of which this is a copy"
    if not record.end:
        tags: dict[str, object] = {f"{kind.WORD}.over": _GONE}
        if kind is SweepRecord:
            tags["sweep.running"] = 0
        record = replace(record, end={"status": "KILLED", "tags": tags, "time": time.time()})
    _tell(record, store)
    return f"{record.end['status'].lower()}; MLflow brought up to date"


def _tell(record: ParentRecord, store: Location) -> None:
    state = local_state(store)
    # If its process was killed before it recorded the run, that is found or created by its tag.
    run_id = record.run_id or create_run(
        record.tracking_uri, record.experiment_id, record.name, {}, {RUN_TAG: record.id}
    )
    storage = LocalStorage(state)
    with _copies(record, storage) as artifacts:
        finish(
            record.tracking_uri,
            run_id,
            record.end["status"],
            record.end["tags"],
            artifacts,
            metrics=record.end.get("metrics"),
            ended=record.end.get("time", time.time()),
        )
    if isinstance(record, PruningRecord) and record.register:
        result = read_record_or_none(storage, ResultRecord, ResultRecord.KEY, [])
        if result is not None and result.round > 0:
            register_model(record.tracking_uri, run_id, MODEL, record.register, alias=_ALIAS)
    write_record(storage, replace(record, run_id=run_id, settled=True))
    forget_parent(store, replace(record, run_id=run_id))


@contextmanager
def _copies(record: ParentRecord, storage: LocalStorage) -> Iterator[dict[str, Path]]:
    """Yield copies of the artifacts: MLflow's client would follow a link, which may lead anywhere.

    What is not a file is logged and left out.
    """
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as folder:
        copies = LocalStorage(folder)
        found: dict[str, Path] = {}
        for name, key in record.artifacts(storage).items():
            try:
                copies.put(name, [_copied(key, storage.get(key))])
            except NotAFile as error:
                _log.warning("%s", error)
            else:
                found[name] = Path(folder, name)
        yield found


def _copied(key: str, content: bytes) -> bytes:
    """Return what MLflow gets of an artifact: the reports of trials are not beside its pages."""
    if key != SweepRecord.PAGE:
        return content
    return without_links(content.decode(errors="surrogateescape")).encode(errors="surrogateescape")
