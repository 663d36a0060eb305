"""What became of a run, read from its directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vinedresser.capture.finding import Finding
from vinedresser.capture.store.reader import Run, open_run
from vinedresser.capture.store.status import Status
from vinedresser.capture.store.step_record import Mode
from vinedresser.infra.run_directory import TrackingRecord, heartbeats, read_record

__all__ = ["Outcome", "Trained", "outcome"]


@dataclass(frozen=True)
class Outcome:
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
    """

    name: str
    directory: Path | str
    status: Status
    steps: int
    total_steps: int | None
    losses: dict[str, float]
    metrics: dict[str, float]
    findings: tuple[Finding, ...]
    mlflow_run: str
    seen: bool

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
class Trained:
    """What a flow that trained came to.

    Attributes:
        outcomes: one per run, the further trainings of a script after its first; none of a run
            on an object store that could not be read there.
        problems: what went wrong beside the trainings, such as a judge that failed or an MLflow
            that was away; the runs themselves are not harmed by it.
    """

    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]


def outcome(directory: Path | str) -> Outcome:
    """Read what became of a run.

    Args:
        directory: where it is; a URL for a run on an object store.

    Raises:
        NotARun: there is no run.
        Damaged: one of its records is not readable.
    """
    run = open_run(directory)
    tracking = read_record(run.storage, TrackingRecord)
    status = run.status
    return Outcome(
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
    )


def _last(run: Run, collection: str, modes: tuple[Mode, ...]) -> dict[str, float]:
    """Return the last value of each scalar of a collection; later modes take precedence."""
    last = {}
    for mode in modes:
        for name, column in run.scalars(collection, mode=mode).items():
            last[name.partition("/")[2]] = float(column.values[-1])
    return last
