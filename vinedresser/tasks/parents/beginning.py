"""The record and the MLflow run of a sweep or pruning, made or found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from vinedresser.errors import AlreadyARun, ConfigError
from vinedresser.infra.catalog.known_tracking import remember_tracking, require_known
from vinedresser.infra.catalog.stores import local_state
from vinedresser.infra.services.tracking import (
    DIRECTORY_TAG,
    RUN_TAG,
    create_run,
    prepare_tracking,
    reopen,
)
from vinedresser.objects import LocalStorage, Location, open_storage
from vinedresser.store.records import (
    EXPERIMENT_KEY,
    ParentRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.lifecycle.mlflow_run import original_of
from vinedresser.tasks.parents.parent_notes import note_parent

P = TypeVar("P", bound=ParentRecord)


def begin_parent(
    record: P,
    experiment: Experiment,
    parameters: Mapping[str, object],
    *,
    resume: bool,
    join: bool = False,
) -> TrackingRecord:
    """Make the record of a sweep or pruning and its MLflow run, or find the existing ones.

    Args:
        record: its record, with the id of no experiment and of no run.
        experiment: settings that its runs share.

    Returns:
        The MLflow run, as its runs' parent.

    Raises:
        AlreadyARun: it exists, and `resume` is not set.
        ConfigError: there is none to resume, or it differs from this one.
        TrackingError: MLflow's database or server refused.
    """
    store, uri = experiment.store, experiment.tracking_uri
    state = local_state(store)
    storage = LocalStorage(state)
    before = read_record(storage, type(record))
    if before is None and resume:
        raise ConfigError(f"{state}: no {record.WORD} to resume; omit --resume")
    remember_tracking(store, uri)
    if before is not None:
        _check(before, record, experiment.path, state, resume=resume)
        if join:
            return _joined(before, record, experiment.path)
        if not before.tracking_uri:
            record = _own(before.resumed(record), record, experiment)
            write_record(storage, replace(record, end={}, settled=False))
        else:
            before = before.resumed(record)
            record = replace(before, tracking_uri=require_known(store, before.tracking_uri))
            _refuse_copy(record, store)
    else:
        experiment_id = prepare_tracking(uri, experiment.tracking_experiment)
        record = replace(record, experiment_id=experiment_id)
        # As above: the intention first, so that nothing is made twice after a kill in between.
        write_record(storage, record)
    if not record.run_id:
        record = replace(record, run_id=_mlflow_run(record, store, parameters))
    storage.put(EXPERIMENT_KEY, [experiment.toml.encode()])
    if before is not None:
        # The record first: after a kill in between it is settled again.
        record = replace(record, end={}, settled=False)
        write_record(storage, record)
        reopen(record.tracking_uri, record.run_id)
    else:
        write_record(storage, record)
    note_parent(store, record)
    return TrackingRecord(record.tracking_uri, record.experiment_id, "", parent=record.run_id)


def _own(before: P, record: P, experiment: Experiment) -> P:
    """Return the record of a copy that is resumed: it gets an id and an MLflow run of its own.

    Args:
        before: its record so far.
        record: one as of a new sweep or pruning, with the id of no experiment.
    """
    if not isinstance(experiment.store, Path):
        # The copy on the object store, which other machines may copy, is no longer complete.
        open_storage(experiment.store).delete(record.KEY)
    uri = experiment.tracking_uri
    made = prepare_tracking(uri, experiment.tracking_experiment)
    return replace(before, id=record.id, tracking_uri=uri, experiment_id=made)


def _refuse_copy(record: P, store: Location) -> None:
    """Refuse to resume what another program has copied: MLflow's run would be that of two."""
    tracking = TrackingRecord(record.tracking_uri, record.experiment_id, record.run_id)
    original = original_of(store, type(record), record.id, tracking)
    if original is not None:
        raise ConfigError(
            f"{store}: a copy of {original}, whose MLflow run it would continue; resume that one, "
            "or make the copy with `vinedresser copy`, after which each has its own"
        )


def _joined(before: P, record: P, path: Path) -> TrackingRecord:
    """Return the MLflow run of one that another process runs, with the same settings."""
    if before.resumed(record) != before:
        raise ConfigError(f"{path}: differs from the {record.WORD} that runs; undo the change")
    if not before.run_id:
        raise ConfigError(f"{path}: the {record.WORD} has not begun yet; try again")
    return TrackingRecord(before.tracking_uri, before.experiment_id, "", parent=before.run_id)


def _check(before: P, record: P, path: Path, state: Path, *, resume: bool) -> None:
    """Refuse to begin the same twice, or to resume another one."""
    word = record.WORD
    if not resume:
        raise AlreadyARun(
            f"{state}: already holds this {word}; resume it with --resume, or choose another "
            "run.name"
        )
    if differences := before.differences(record):
        lines = "".join(f"\n  {line}" for line in differences)
        raise ConfigError(
            f"{path}: differs from the {word} in {state}:{lines}\n"
            f"undo the change, or begin another {word} under another run.name"
        )


def _mlflow_run(record: ParentRecord, store: Location, parameters: Mapping[str, object]) -> str:
    """Return the id of an MLflow run; create the run unless it exists."""
    return create_run(
        record.tracking_uri,
        record.experiment_id,
        name=record.name,
        parameters=parameters,
        tags={RUN_TAG: record.id, DIRECTORY_TAG: str(store)},
        started=record.created,
    )
