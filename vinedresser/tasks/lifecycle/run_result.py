"""What became of a run, read from its directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    RemedyRecord,
    TrackingRecord,
    describe_changes,
    heartbeats,
    read_record,
)
from vinedresser.store.status import Status
from vinedresser.store.step_record import Mode
from vinedresser.store.storage import Location

__all__ = ["RunResult", "RemedyResult", "TrainResult", "run_result"]


@dataclass(frozen=True)
class RunResult:
    """One row of the table at the end.

    Attributes:
        name: of the run.
        directory: where it is; a URL for a run on an object store.
        status: how it stands.
        steps: optimizer steps done.
        total_steps: optimizer steps of a whole run, None if unknown.
        losses: the last training loss of each name.
        metrics: the last value of each metric, of an evaluation where there was one.
        findings: what the rules found, in the order of the steps.
        mlflow_run: MLflow's run id, "" when there is none.
        seen: whether a training was seen: any process of it has captured something.
        parameters: hyperparameters.
        remedy: of which stopped run it takes the place; None where it takes no other's.
    """

    name: str
    directory: Location
    status: Status
    steps: int
    total_steps: int | None
    losses: dict[str, float]
    metrics: dict[str, float]
    findings: tuple[Finding, ...]
    mlflow_run: str
    seen: bool
    parameters: dict[str, Any]
    remedy: RemedyRecord | None

    @property
    def steps_saved(self) -> int | None:
        """Steps that were not run because the run was stopped; None if that is unknown."""
        if self.total_steps is None or self.status.state == "running" or not self.seen:
            return None
        return max(self.total_steps - self.steps, 0)

    @property
    def stopping(self) -> Finding | None:
        """The finding for which the run was stopped: the root cause of what was found."""
        if not self.status.rule:
            return None
        return next((entry for entry in self.findings if entry.rule == self.status.rule), None)


@dataclass(frozen=True)
class RemedyResult:
    """What became of a run that a rule had stopped, where it was to be begun again.

    Attributes:
        first: the run as the user wanted it.
        attempts: in its place, in their order.
        left: why there is no further attempt; "" where the last one finished.
    """

    first: RunResult
    attempts: tuple[RunResult, ...]
    left: str

    @property
    def cure(self) -> RunResult | None:
        """The attempt that no rule stopped and that came to its end."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.status.state == "finished" else None

    @property
    def change(self) -> str:
        """What is different between the first run and the last attempt, in words."""
        changed: dict[str, list[Any]] = {}
        for attempt in self.attempts:
            for name in attempt.remedy.changed if attempt.remedy else ():
                changed[name] = [self.first.parameters[name], attempt.parameters[name]]
        return describe_changes(changed)


@dataclass(frozen=True)
class TrainResult:
    """What a flow that trained came to.

    Attributes:
        results: one per run, the further trainings of a script after its first, and behind these
            the attempts in the place of a run; none of a run on an object store that could not be
            read there.
        problems: what went wrong beside the trainings, such as a judge that failed or an MLflow
            that was away; the runs themselves are not harmed by it.
        remedied: one per run that a rule stopped, where such are to be begun again.
    """

    results: tuple[RunResult, ...]
    problems: tuple[str, ...]
    remedied: tuple[RemedyResult, ...] = ()


def run_result(directory: Location) -> RunResult:
    """Read what became of a run.

    Args:
        directory: where it is; a URL for a run on an object store.

    Raises:
        NotARun: there is no run.
        CorruptData: one of its records is not readable.
    """
    run = open_run(directory)
    tracking = read_record(run.storage, TrackingRecord)
    status = run.status
    return RunResult(
        name=run.info.name,
        directory=directory,
        status=status,
        steps=0 if status.step is None else status.step + 1,
        total_steps=run.info.total_steps,
        losses=_last(run, "losses", ("train",)),
        metrics=_last(run, "metrics", ("train", "predict", "eval")),
        findings=tuple(run.findings()),
        mlflow_run=tracking.run_id if tracking else "",
        seen=bool(heartbeats(run.storage)),
        parameters=run.info.parameters,
        remedy=RemedyRecord.from_json(run.info.remedy) if run.info.remedy else None,
    )


def _last(run: Run, collection: str, modes: tuple[Mode, ...]) -> dict[str, float]:
    """Return the last value of each scalar of a collection; later modes take precedence."""
    last = {}
    for mode in modes:
        for name, column in run.scalars(collection, mode=mode).items():
            last[name.partition("/")[2]] = float(column.values[-1])
    return last
