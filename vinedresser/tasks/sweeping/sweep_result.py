"""The result of a sweep, and MLflow's run of it."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

from vinedresser.errors import VinedresserError
from vinedresser.explain.reports.sweep import SweepPage, write_sweep_report
from vinedresser.infra.services.tracking import RunStatus
from vinedresser.objects import Location
from vinedresser.store.records import TrackingRecord
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Trial, TrialEnd, TrialState, line_of, results_again, spread
from vinedresser.sweeps.trial_advice import trial_advice
from vinedresser.tasks.config.sweep_file import Sweep
from vinedresser.tasks.interruption import INTERRUPTED, Interruption
from vinedresser.tasks.lifecycle.earlier_runs import runs_of_trial
from vinedresser.tasks.lifecycle.settle import REPORT
from vinedresser.tasks.parents.beginning import begin_parent
from vinedresser.tasks.parents.ending import tell_end
from vinedresser.tasks.parents.kinds import is_removed
from vinedresser.tasks.parents.parent_artifact import leave_parent_artifact
from vinedresser.tasks.sweeping.best_model import best_problems, register_best
from vinedresser.tasks.sweeping.parent_tracking import PARETO_TAG, parent_metrics, tag_front
from vinedresser.tasks.sweeping.sweep_runner import SweepRunner

__all__ = [
    "SweepResult",
    "begin_sweep",
    "finish_sweep",
    "leave_sweep_artifact",
    "sweep_result",
]


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        store: store of its trials.
        trials: trials that have begun, by number.
        best: the best trial, or the Pareto front; empty if none finished.
        importance: importance of each hyperparameter, from 0 to 1; see `Study.importance`.
        over: why no other trial began.
        problem: what is wrong with the sweep as a whole; "" for nothing.
        problems: what went wrong beside the trials.
        mlflow_run: id of MLflow's run of the sweep.
        registered: the model of the best trial that was registered; "" if none was.
        doubts: what rules found in the best trials, a sentence for each with a problem.
        left: another process runs the other trials, and reports on the sweep.
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
    registered: str = ""
    doubts: tuple[str, ...] = ()
    left: bool = False

    @property
    def ends(self) -> Counter[str]:
        """Number of trials by how they ended."""
        return Counter(trial.ending.state for trial in self.trials)

    @property
    def failed(self) -> int:
        """Number of trials that failed and may be tried again, but were not."""
        failed = (trial for trial in self.trials if trial.ending.state == "failed")
        others = (trial for trial in failed if trial.again is None and trial.line is None)
        return sum(trial.retried_as is None for trial in others)

    @property
    def verdict(self) -> str:
        """The result in a few words: the problem, or how the trials ended and which is the best."""
        ends = ", ".join(f"{count} {state}" for state, count in self.ends.items())
        several = any(len(trial.result) > 1 for trial in self.best)
        best = f"; best {self.best[0].name}" if self.best else ""
        if several:
            best = f"; {len(self.best)} on the Pareto front"
        return self.problem or f"{ends}{best}"

    @property
    def interrupted(self) -> bool:
        """Whether this process was interrupted, so that the sweep waits to be resumed."""
        left = INTERRUPTED.is_set() and self.ends["interrupted"] > 0
        return left or Interruption.is_reason(self.over)

    def with_problems(self, problems: Iterable[str]) -> SweepResult:
        """Return it with more problems."""
        return replace(self, problems=(*self.problems, *problems))


def begin_sweep(sweep: Sweep, *, resume: bool, join: bool = False) -> TrackingRecord:
    """Make a sweep's record and MLflow's run of it, or find the existing ones.

    Returns:
        MLflow's run, as the trials' parent.

    Raises:
        AlreadyARun: the sweep exists, and `resume` is not set.
        ConfigError: there is none to resume, or it differs from this one.
        TrackingError: MLflow's database or server refused.
    """
    parameters = {
        "sampler": sweep.settings.sampler_name,
        "pruner": sweep.settings.pruner_name,
        "trials": sweep.settings.trials,
        **{f"space.{name}": json.dumps(entry) for name, entry in sweep.space.to_json().items()},
    }
    return begin_parent(_record(sweep), sweep.experiment, parameters, resume=resume, join=join)


def sweep_result(
    runner: SweepRunner, study: Study, tracking: TrackingRecord, problems: Iterable[str]
) -> SweepResult:
    """Return the result of a sweep that is over.

    Args:
        tracking: MLflow's run of it, as the trials' parent.
        problems: what went wrong beside the trials.
    """
    store, best = runner.sweep.experiment.store, tuple(runner.best())
    trials = runner.trials()
    # Those that an interrupted host leaves, too.
    left = bool(study.others()) or not study.hosts()
    return SweepResult(
        name=runner.sweep.name,
        store=store,
        trials=tuple(trials if left else map(_at_the_end, trials)),
        best=best,
        importance=study.importance(),
        over=runner.over,
        problem=runner.problem,
        problems=tuple(problems),
        mlflow_run=tracking.parent,
        doubts=tuple(best_problems(store, best)),
        left=left,
    )


def finish_sweep(sweep: Sweep, swept: SweepResult, tracking: TrackingRecord) -> SweepResult:
    """Write the page about a sweep, and give MLflow's run of it its tags, that page and its status.

    Of a sweep whose folder was removed, MLflow is told the end.

    Args:
        tracking: MLflow's run of it, as the trials' parent.

    Returns:
        The result, with another problem if MLflow did not accept it.

    Raises:
        StoreError: the page cannot be written.
    """
    store, problems = sweep.experiment.store, list(swept.problems)
    unregistered = ""
    if sweep.settings.register is not None and not swept.problem and not swept.interrupted:
        registered, unregistered = register_best(store, sweep.settings, swept.best)
        swept = replace(swept, registered=registered)
        problems += filter(None, [unregistered])
    if not is_removed(sweep.state, SweepRecord):
        page = SweepPage(
            name=swept.name,
            settings=sweep.settings,
            space=sweep.space,
            trials=swept.trials,
            best=swept.best,
            importance=swept.importance,
            over=swept.over,
            doubts=swept.doubts,
            reports=_reports(swept),
        )
        write_sweep_report(page, sweep.page)
    several = len(sweep.settings.goals) > 1
    best = swept.best[0] if swept.best and not several else None
    tags = {
        "verdict": swept.verdict,
        "sweep.over": swept.over,
        # "" replaces the problem from before the sweep was resumed.
        "sweep.problem": swept.problem,
        # 0 replaces the number from before the sweep was resumed.
        **{f"sweep.{state}": swept.ends[state] for state in get_args(TrialState)},
        "sweep.best": best.name if best else None,
        "sweep.best.value": best.result[0] if best else None,
        "sweep.best.again": spread(results_again(swept.trials, swept.best)) if best else None,
        PARETO_TAG: ", ".join(trial.name for trial in swept.best) if several else None,
        "sweep.best.line": " ".join(one.name for one in line_of(best, swept.trials))
        if best and best.line
        else None,
        # "" replaces the problem of another one, from before the sweep was resumed.
        "sweep.best.problem": "\n".join(swept.doubts),
        "sweep.registered": swept.registered or unregistered or None,
        "sweep.best.parameters": json.dumps(sweep.space.decoded(best.parameters)) if best else None,
    }
    status: RunStatus = "FAILED" if swept.problem else "FINISHED"
    if swept.interrupted:
        status = "KILLED"
    try:
        metrics = parent_metrics(store, sweep.settings.goals, swept.trials, swept.best)
    except VinedresserError as error:
        metrics = {}
        problems.append(f"metrics of the best trial are not in MLflow's run of the sweep: {error}")
    if several and swept.best:
        problems += tag_front(store, tracking, swept.best)
    problems += tell_end(store, SweepRecord, tracking, status, tags, metrics=metrics)
    return replace(swept, problems=tuple(problems))


def leave_sweep_artifact(sweep: Sweep, swept: SweepResult, tracking: TrackingRecord) -> None:
    """Leave an artifact on Prefect's pages: the best trials, and those with a fault.

    Args:
        tracking: MLflow's run of it, as the trials' parent.
    """
    broken = [trial for trial in swept.trials if trial.ending.rule and trial not in swept.best]
    rows = [
        (
            trial.name,
            trial.ending.state,
            ", ".join(f"{value:.4g}" for value in trial.result),
            trial.configuration,
            trial.why,
            trial_advice(trial, swept.best),
        )
        for trial in (*swept.best, *broken)
    ]
    header = ("trial", "end", "value", "parameters", "why", "try")
    sentences = (swept.verdict, swept.over, *swept.doubts, swept.registered, *swept.problems)
    leave_parent_artifact(swept.name, sentences, [header, *rows], sweep.page, tracking)


def _at_the_end(trial: Trial) -> Trial:
    """Return a trial as it is when the process of the sweep ends."""
    if trial.ending.state != "running":
        return trial
    return replace(trial, ending=TrialEnd("interrupted", "--resume continues it"))


def _reports(swept: SweepResult) -> dict[str, str]:
    """Return the report of the last run of each trial, relative to the page of the sweep."""
    if not isinstance(swept.store, Path):
        # The page is elsewhere.
        return {}
    last = {trial.name: runs_of_trial(swept.store, trial.name)[-1:] for trial in swept.trials}
    return {name: f"{run.name}/{REPORT}" for name, runs in last.items() for run in runs}


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
        constraints=[asdict(one) for one in sweep.settings.constraints],
        created=time.time(),
        tracking_uri=sweep.experiment.tracking_uri,
        experiment_id="",
        id=uuid.uuid4().hex,
        ranks=sweep.experiment.run.ranks,
        population=sweep.members,
        warm_start=sweep.known.id if sweep.known is not None else "",
    )
