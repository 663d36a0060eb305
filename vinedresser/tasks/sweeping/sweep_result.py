"""The result of a sweep, and MLflow's run of it."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial

from vinedresser.errors import AlreadyARun, ConfigError, TrackingError
from vinedresser.explain.reports.sweep.report import SweepPage, write_sweep_report
from vinedresser.infra.tracking import (
    DIRECTORY_TAG,
    RUN_TAG,
    RunStatus,
    create_run,
    prepare_tracking,
)
from vinedresser.store.records import TrackingRecord, read_record, write_record
from vinedresser.store.storage import LocalStorage, Location
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Trial
from vinedresser.tasks.config.sweep_file import Sweep
from vinedresser.tasks.interruption import Interruption
from vinedresser.tasks.known_tracking import remember_tracking, require_known
from vinedresser.tasks.sweeping.sweep_notes import end_removed_sweep, is_removed, note_sweep
from vinedresser.tasks.sweeping.sweep_record import PAGE, end_sweep, resume_sweep
from vinedresser.tasks.sweeping.sweep_runner import SweepRunner

__all__ = ["SweepResult", "begin_sweep", "finish_sweep", "has_begun", "sweep_result"]


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        name: name of the sweep.
        store: store of its trials.
        trials: trials that have begun, by number.
        best: the best trial, or the Pareto front; empty if none finished.
        importance: importance of each hyperparameter, from 0 to 1; see `Study.importance`.
        over: why no other trial began.
        problem: what is wrong with the sweep as a whole; "" for nothing.
        problems: what went wrong beside the trials.
        mlflow_run: id of MLflow's run of the sweep.
    """

    name: str
    store: Location
    trials: tuple[Trial, ...]
    best: tuple[Trial, ...]
    importance: dict[str, float]
    over: str
    problem: str
    problems: tuple[str, ...]
    mlflow_run: str


def has_begun(sweep: Sweep) -> bool:
    """Return whether the store has this sweep."""
    return LocalStorage(sweep.state).exists(SweepRecord.KEY)


def begin_sweep(sweep: Sweep, *, resume: bool) -> TrackingRecord:
    """Make a sweep's record and MLflow's run of it, or find the existing ones.

    Args:
        sweep: the sweep.
        resume: the sweep exists and is to be resumed.

    Returns:
        MLflow's run, as the trials' parent.

    Raises:
        AlreadyARun: the sweep exists, and `resume` is not set.
        ConfigError: there is none to resume, or it differs from this one.
        TrackingError: MLflow's database or server refused.
    """
    storage = LocalStorage(sweep.state)
    store, uri = sweep.experiment.store, sweep.experiment.tracking_uri
    record = _record(sweep)
    before = read_record(storage, SweepRecord)
    if before is None and resume:
        raise ConfigError(f"{sweep.state}: no sweep to resume; omit --resume")
    remember_tracking(store, uri)
    if before is not None:
        _check(before, record, sweep, resume=resume)
        record = replace(before, tracking_uri=require_known(store, before.tracking_uri))
    else:
        experiment_id = prepare_tracking(uri, sweep.experiment.tracking_experiment)
        record = replace(record, experiment_id=experiment_id)
        # The intention first, so that nothing is made twice after a kill in between.
        write_record(storage, record)
    if not record.run_id:
        record = replace(record, run_id=_mlflow_run(record, sweep))
    if before is not None:
        resume_sweep(record, sweep.state)
    else:
        write_record(storage, record)
    note_sweep(store, record)
    return TrackingRecord(record.tracking_uri, record.experiment_id, "", parent=record.run_id)


def sweep_result(
    runner: SweepRunner, study: Study, tracking: TrackingRecord, problems: Iterable[str]
) -> SweepResult:
    """Return the result of a sweep that is over.

    Args:
        runner: runner of the sweep.
        study: its study.
        tracking: MLflow's run of it, as the trials' parent.
        problems: what went wrong beside the trials.
    """
    return SweepResult(
        name=runner.sweep.name,
        store=runner.sweep.experiment.store,
        trials=tuple(runner.trials()),
        best=tuple(runner.best()),
        importance=study.importance(),
        over=runner.over,
        problem=runner.problem,
        problems=tuple(problems),
        mlflow_run=tracking.parent,
    )


def finish_sweep(sweep: Sweep, swept: SweepResult, tracking: TrackingRecord) -> SweepResult:
    """Write the page about a sweep, and give MLflow's run of it its tags, that page and its status.

    Of a sweep whose folder was removed, MLflow is told the end.

    Args:
        sweep: the sweep.
        swept: its result.
        tracking: MLflow's run of it, as the trials' parent.

    Returns:
        The result, with another problem if MLflow did not accept it.

    Raises:
        StoreError: the page cannot be written.
    """
    if is_removed(sweep.state):
        return _told(swept, partial(end_removed_sweep, sweep.experiment.store, tracking))
    page = SweepPage(
        name=swept.name,
        settings=sweep.settings,
        space=sweep.space,
        trials=swept.trials,
        best=swept.best,
        importance=swept.importance,
        over=swept.over,
    )
    write_sweep_report(page, sweep.state / PAGE)
    ends = Counter(trial.ending.state for trial in swept.trials)
    best = swept.best[0] if len(swept.best) == 1 else None
    tags = {
        "sweep.over": swept.over,
        # "" replaces the problem from before the sweep was resumed.
        "sweep.problem": swept.problem,
        **{f"sweep.{state}": count for state, count in ends.items()},
        "sweep.best": best.name if best else None,
        "sweep.best.value": best.result[0] if best else None,
        "sweep.best.parameters": json.dumps(best.parameters) if best else None,
    }
    status: RunStatus = "FAILED" if swept.problem else "FINISHED"
    if Interruption.is_reason(swept.over):
        status = "KILLED"
    return _told(swept, partial(end_sweep, sweep.experiment.store, status, tags))


def _told(swept: SweepResult, tell: Callable[[], None]) -> SweepResult:
    """Tell MLflow the end of a sweep; return its result, with a problem if that failed."""
    try:
        tell()
    except TrackingError as error:
        told = f"{error}; `vinedresser reconcile` sends MLflow the end of the sweep"
        return replace(swept, problems=(*swept.problems, told))
    return swept


def _record(sweep: Sweep) -> SweepRecord:
    spec = sweep.experiment.specs[0]
    program = ["python" if one == sys.executable else one for one in spec.program]
    return SweepRecord(
        name=sweep.name,
        space=sweep.space.to_json(),
        command=program,
        parameters=dict(spec.parameters),
        objectives=[asdict(goal) for goal in sweep.settings.goals],
        epochs=sweep.settings.epochs,
        created=time.time(),
        tracking_uri=sweep.experiment.tracking_uri,
        experiment_id="",
        id=uuid.uuid4().hex,
    )


def _check(before: SweepRecord, record: SweepRecord, sweep: Sweep, *, resume: bool) -> None:
    """Refuse to begin a sweep twice, or to resume another one."""
    if not resume:
        raise AlreadyARun(
            f"{sweep.state}: already holds this sweep; resume it with --resume, or choose another "
            "run.name"
        )
    if differences := before.differences(record):
        lines = "".join(f"\n  {line}" for line in differences)
        raise ConfigError(
            f"{sweep.experiment.path}: differs from the sweep in {sweep.state}:{lines}\n"
            "undo the change, or begin another sweep under another run.name"
        )


def _mlflow_run(record: SweepRecord, sweep: Sweep) -> str:
    """Return the id of MLflow's run of a sweep; create the run unless it exists."""
    parameters = {
        "sampler": sweep.settings.sampler_name,
        "pruner": sweep.settings.pruner_name,
        "trials": sweep.settings.trials,
        **{f"space.{name}": json.dumps(entry) for name, entry in record.space.items()},
    }
    tags = {RUN_TAG: record.id, DIRECTORY_TAG: str(sweep.experiment.store)}
    return create_run(
        record.tracking_uri,
        record.experiment_id,
        name=record.name,
        parameters=parameters,
        tags=tags,
        started=record.created,
    )
