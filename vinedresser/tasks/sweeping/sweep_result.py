"""What a sweep came to, and MLflow's run of it."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, replace

from vinedresser.errors import AlreadyARun, ConfigError, TrackingError
from vinedresser.explain.reports.sweep.report import SweepPage, write_sweep_report
from vinedresser.infra.tracking import RUN_TAG, RunStatus, create_run, prepare_tracking
from vinedresser.store.records import TrackingRecord, read_record, write_record
from vinedresser.store.storage import LocalStorage, Location
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.sweeps.trial import Trial
from vinedresser.tasks.config.sweep_file import Sweep
from vinedresser.tasks.interruption import Interruption
from vinedresser.tasks.sweeping.sweep_record import PAGE, end_sweep, go_on_with

__all__ = ["SweepResult", "begin_sweep", "finish_sweep", "has_begun"]


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    Attributes:
        name: of the sweep.
        store: where its trials are.
        trials: all that have begun, by number.
        best: the best one, or the Pareto front; empty where none finished.
        importance: of each hyperparameter, from 0 to 1; see `Study.importance`.
        over: why no further trial began.
        problem: what is wrong with the sweep as a whole; "" for nothing.
        problems: what went wrong beside the trials.
        mlflow_run: MLflow's run of the sweep.
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
    """Say whether the store has this sweep."""
    return LocalStorage(sweep.state).exists(SweepRecord.KEY)


def begin_sweep(sweep: Sweep, *, resume: bool) -> TrackingRecord:
    """Make a sweep's record and MLflow's run of it, or find those that there are.

    Args:
        sweep: what is searched.
        resume: there is such a sweep, and it is to be gone on with.

    Returns:
        MLflow's run, as the trials' parent.

    Raises:
        AlreadyARun: there is such a sweep, and nobody said that it is to be gone on with.
        ConfigError: there is none to go on with, or what is searched is not the same.
        TrackingError: MLflow's database or server refused.
    """
    storage = LocalStorage(sweep.state)
    record = _record(sweep)
    before = read_record(storage, SweepRecord)
    if before is None and resume:
        raise ConfigError(f"{sweep.state}: there is no sweep to go on with; leave out --resume")
    if before is not None:
        _check(before, record, sweep, resume=resume)
        record = before
    else:
        uri = sweep.experiment.tracking_uri
        experiment_id = prepare_tracking(uri, sweep.experiment.tracking_experiment)
        record = replace(record, experiment_id=experiment_id)
        # The intention first, so that a kill in between leaves nothing that is made twice.
        write_record(storage, record)
    if not record.run_id:
        record = replace(record, run_id=_mlflow_run(record, sweep))
    if before is not None:
        go_on_with(record, sweep.state)
    else:
        write_record(storage, record)
    return TrackingRecord(record.tracking_uri, record.experiment_id, "", parent=record.run_id)


def finish_sweep(sweep: Sweep, swept: SweepResult) -> SweepResult:
    """Write the page about a sweep, and give MLflow's run of it its tags, that page and its status.

    Args:
        sweep: what was searched.
        swept: what it came to.

    Returns:
        The same; with one more problem where MLflow took it not.

    Raises:
        StoreError: the page cannot be written.
    """
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
        # Empty, in the place of what was wrong before the sweep was gone on with.
        "sweep.problem": swept.problem,
        **{f"sweep.{state}": count for state, count in ends.items()},
        "sweep.best": best.name if best else None,
        "sweep.best.value": best.result[0] if best else None,
        "sweep.best.parameters": json.dumps(best.parameters) if best else None,
    }
    status: RunStatus = "FAILED" if swept.problem else "FINISHED"
    if Interruption.is_reason(swept.over):
        status = "KILLED"
    try:
        end_sweep(sweep.state, status, tags)
    except TrackingError as error:
        told = f"{error}; `vinedresser reconcile` tells MLflow how the sweep ended"
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
    """Refuse to begin a sweep twice, or to go on with another one."""
    if not resume:
        raise AlreadyARun(
            f"{sweep.state}: holds this sweep; --resume goes on with it, another run.name begins "
            "another"
        )
    if differences := before.differences(record):
        lines = "".join(f"\n  {line}" for line in differences)
        raise ConfigError(
            f"{sweep.experiment.path}: the sweep in {sweep.state} is another one:{lines}\n"
            "set it back, or begin another sweep by another run.name"
        )


def _mlflow_run(record: SweepRecord, sweep: Sweep) -> str:
    """Return the id of MLflow's run of a sweep, which is made unless it was made before."""
    parameters = {
        "sampler": sweep.settings.sampler_name,
        "pruner": sweep.settings.pruner_name,
        "trials": sweep.settings.trials,
        **{f"space.{name}": json.dumps(entry) for name, entry in record.space.items()},
    }
    tags = {RUN_TAG: record.id, "vinedresser.directory": str(sweep.experiment.store)}
    return create_run(
        record.tracking_uri,
        record.experiment_id,
        name=record.name,
        parameters=parameters,
        tags=tags,
        started=record.created,
    )
