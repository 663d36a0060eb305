"""The result of a run and of a whole experiment, for tables and summaries."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vinedresser.errors import NotARun, VinedresserError
from vinedresser.explain.verdicts import Verdict, verdict
from vinedresser.infra.services.telemetry import emit_run, start_telemetry
from vinedresser.objects import Location
from vinedresser.plain_logs import plain_logger
from vinedresser.preflight.record import PreflightRecord
from vinedresser.rules.actions.journal import unsent
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    RemedyRecord,
    RestartRecord,
    TrackingRecord,
    describe_changes,
    heartbeats,
    lost_records,
    name_at,
)
from vinedresser.store.status import Status
from vinedresser.store.step_record import Mode

__all__ = [
    "RemedyResult",
    "RunResult",
    "TrainResult",
    "emit_result",
    "result_or_damage",
    "run_result",
]

_LOG = plain_logger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The result of a run: one row of the summary table.

    Attributes:
        directory: run directory, or its URL on an object store.
        losses: last training loss by name.
        metrics: last value of each metric, from an evaluation if there was one.
        mlflow_run: MLflow's run id, "" if there is none.
        seen: whether any of its processes captured something.
        parameters: hyperparameters.
        remedy: the stopped run that it replaces; None if it replaces none.
        restart: the failed run that it begins again; None if it begins none again.
        preflight: result of the checks that preceded it; None if there were none.
        lost: number of step records lost to a full queue or disk.
        problems: one sentence for each damaged file, and for each action that sent no message.
    """

    name: str
    directory: Location
    verdict: Verdict
    losses: dict[str, float]
    metrics: dict[str, float]
    mlflow_run: str
    seen: bool
    parameters: dict[str, Any]
    remedy: RemedyRecord | None
    restart: RestartRecord | None = None
    preflight: PreflightRecord | None = None
    lost: int = 0
    problems: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about lost and damaged data."""
        lost = f"{self.lost} records lost (queue or disk full)" if self.lost else ""
        return (*([lost] if lost else []), *self.problems)

    def to_json(self) -> dict[str, Any]:
        """Return the run and its verdict as JSON types; numbers that are not finite as None."""
        return {
            "name": self.name,
            "run": str(self.directory),
            **self.verdict.to_json(),
            "losses": _finite(self.losses),
            "metrics": _finite(self.metrics),
            "mlflow_run": self.mlflow_run or None,
            "notes": [*self.notes],
        }

    @property
    def status(self) -> Status:
        """Its status; see `Verdict.status`."""
        return self.verdict.status


@dataclass(frozen=True)
class RemedyResult:
    """The result of the attempts that replaced a run that a rule had stopped.

    Attributes:
        first: the run as the user wanted it.
        attempts: the attempts in their order.
        left: why there is no other attempt; "" if the last one finished.
    """

    first: RunResult
    attempts: tuple[RunResult, ...]
    left: str

    @property
    def cure(self) -> RunResult | None:
        """The attempt that finished without being stopped."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.status.state == "finished" else None

    @property
    def change(self) -> str:
        """How the last attempt differs from the first run, in words."""
        changed: dict[str, list[Any]] = {}
        for attempt in self.attempts:
            for name in attempt.remedy.changed if attempt.remedy else ():
                changed[name] = [self.first.parameters[name], attempt.parameters[name]]
        return describe_changes(changed)


@dataclass(frozen=True)
class TrainResult:
    """The result of flow `train`.

    Attributes:
        results: one per run, the additional runs of a script after its first, then the attempts
            that replaced it; without runs that could not be read.
        problems: what went wrong beside the trainings, such as a judge that failed or an MLflow
            that was unavailable; it does not harm the runs.
        remedied: one per run that a rule stopped, if such runs are to be replaced.
        restarted: locations of the runs that failed and were begun again.
    """

    results: tuple[RunResult, ...]
    problems: tuple[str, ...]
    remedied: tuple[RemedyResult, ...] = ()
    restarted: tuple[Location, ...] = ()

    @property
    def lasting(self) -> list[RunResult]:
        """The results without those of runs that were begun again."""
        return [run for run in self.results if run.directory not in self.restarted]


def emit_result(directory: Location) -> None:
    """Send the end of a run to OpenTelemetry's collector, if the environment names one.

    Args:
        directory: run directory, or its URL on an object store.
    """
    try:
        # In a flow that a worker of Prefect runs, nothing has started it before.
        if not start_telemetry():
            return
        info, result = open_run(directory).info, run_result(directory)
    except VinedresserError as error:
        _LOG.warning("OpenTelemetry lacks the end of %s: %s", directory, error)
        return
    status, finding = result.status, result.verdict.finding
    attributes: dict[str, str | int] = {
        "vinedresser.run.id": info.id,
        "vinedresser.run.name": info.name,
        "vinedresser.location": str(directory),
        "vinedresser.state": status.state,
        "vinedresser.verdict": result.verdict.headline,
        "vinedresser.steps": result.verdict.steps,
        "vinedresser.mlflow.run_id": result.mlflow_run,
        "vinedresser.rule": "" if finding is None else finding.rule,
    }
    if finding is not None:
        attributes |= {"vinedresser.rule.step": finding.step, "vinedresser.rule.seen": finding.seen}
    emit_run(
        info.name,
        info.created,
        status.ended or info.created,
        failed="" if status.state == "finished" else status.words,
        attributes=attributes,
    )


def run_result(directory: Location) -> RunResult:
    """Read the result of a run.

    Args:
        directory: run directory, or its URL on an object store.

    Raises:
        NotARun: there is no run.
        CorruptData: its run.json is damaged; other damage is in the problems.
        StoreError: the store refused a request.
    """
    run = open_run(directory)
    faults: list[str] = []
    tracking = read_record_or_none(run.storage, TrackingRecord, TrackingRecord.KEY, faults)
    checked = read_record_or_none(run.storage, PreflightRecord, PreflightRecord.KEY, faults)
    judged = verdict(run, faults)
    losses = _last(run, "losses", ("train",))
    metrics = _last(run, "metrics", ("train", "predict", "eval"))
    silent = unsent(run.storage, faults)
    return RunResult(
        name=name_at(run.path),
        directory=directory,
        verdict=judged,
        losses=losses,
        metrics=metrics,
        mlflow_run=tracking.run_id if tracking else "",
        seen=bool(heartbeats(run.storage)),
        parameters=run.info.parameters,
        remedy=RemedyRecord.from_json(run.info.remedy) if run.info.remedy else None,
        restart=RestartRecord.from_json(run.info.restart) if run.info.restart else None,
        preflight=checked,
        lost=lost_records(run.storage),
        # Reading the values above reveals damage.
        problems=tuple(
            _brief(problem, directory)
            for problem in dict.fromkeys((*faults, *run.damage(judged.status), *silent))
        ),
    )


def result_or_damage(directory: Location) -> RunResult:
    """Read the result of a run; of a run that was removed or cannot be read, its name and why.

    One damaged run must not hide the others of its store.

    Args:
        directory: run directory, or its URL on an object store.
    """
    try:
        return run_result(directory)
    except VinedresserError as error:
        gone = isinstance(error, NotARun)
        return RunResult(
            name=directory.name,
            directory=directory,
            verdict=Verdict(
                Status("killed", "its run directory was removed")
                if gone
                else Status("unreadable", _brief(str(error), directory))
            ),
            losses={},
            metrics={},
            mlflow_run="",
            seen=False,
            parameters={},
            remedy=None,
        )


def _brief(problem: str, directory: Location) -> str:
    """Return a sentence about a file of a run without the run's own path."""
    for place in (directory, os.path.abspath(directory)):
        problem = problem.removeprefix(f"{place}/")
    return problem


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _last(run: Run, collection: str, modes: tuple[Mode, ...]) -> dict[str, float]:
    """Return the last value of each scalar of a collection; later modes take precedence."""
    last = {}
    for mode in modes:
        for name, column in run.scalars(collection, mode=mode).items():
            last[name.partition("/")[2]] = float(column.values[-1])
    return last
