"""The attempts that replace a run that a rule stopped: its parameters, corrected."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vinedresser.plain_logs import plain_logger
from vinedresser.rules.causes.root_cause import onset
from vinedresser.rules.standing import hangs
from vinedresser.snapshots.replay_options import script_of
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.series import Column
from vinedresser.store.records import RemedyRecord, RestartRecord, TrackingRecord
from vinedresser.store.status import Status
from vinedresser.tasks.config.remedy_settings import RemedySettings
from vinedresser.tasks.config.run_spec import RunSpec, RunTable
from vinedresser.tasks.places.checkpoints import (
    SavedCheckpoint,
    last_of_runs,
    usable_checkpoints,
)
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.fatal_finding import is_same, runs_of, stopping_finding
from vinedresser.tasks.remedy.fewer_ranks import FailingRank, failing_rank, room_for_ranks
from vinedresser.tasks.remedy.trials import Trials, TrialSource, run_trials

__all__ = ["Attempt", "RemedyAttempts", "healthy_checkpoint"]

_log = plain_logger(__name__)

# A loss is taken as the median of this number of steps.
_STEPS = 5
# Seconds before the second restart, twice as many before each later one, and at most.
_PAUSE, _LONGEST_PAUSE = 2.0, 60.0


class Attempt(NamedTuple):
    """A run to be made to replace one that was stopped or failed.

    Attributes:
        spec: the run to make.
        remedy: how it differs, and why; None for the same again, after a failure.
        restart: the run that failed; None if a rule stopped it.
    """

    spec: RunSpec
    remedy: RemedyRecord | None
    restart: RestartRecord | None = None


class RemedyAttempts:
    """A run, and the attempts that replace it.

    Args:
        spec: specification from which it was made.
        settings: maximum number of attempts, and where they begin.
        tracking: its MLflow run.
        cwd: directory in which trainings start.
        table: the ranks and hosts of the file; None: each run has those of its specification.

    Attributes:
        places: places of the run and of the attempts so far.
        tracking: the run's MLflow run.
        late: finding that would have stopped the last run if it had trained longer; None: the last
            run counts if it finished.
        left: why there is no other attempt; "" while the last run trains and if it needs none.
        restarted: places of the runs that failed and were begun again.
        pause: seconds until the last run begins: what ended it may need time to pass.
    """

    def __init__(
        self,
        place: RunPlace,
        spec: RunSpec,
        settings: RemedySettings,
        tracking: TrackingRecord,
        cwd: Path = Path(),
        *,
        table: RunTable | None = None,
    ) -> None:
        self.places = [place]
        self.tracking = tracking
        self.late: Finding | None = None
        self.left = ""
        self.restarted: list[RunPlace] = []
        self.pause = 0.0
        self._specs = [spec]
        self._settings = settings
        self._cwd = cwd
        self._table = table
        # Ranks without which it begins again, and the runs in which they failed.
        self._failing: set[FailingRank] = set()
        self._failed_by_rank: set[str] = set()

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.places[0].name

    @property
    def asked_for(self) -> bool:
        """Whether attempts that correct something are enabled."""
        return self._settings.times > 0

    @property
    def may_follow(self) -> bool:
        """Whether another run may replace the last one, which is over."""
        return self.asked_for or self._settings.restarts > 0

    @property
    def _corrections(self) -> int:
        """Number of attempts so far, without restarts."""
        return len(self.places) - 1 - len(self.restarted)

    def begun(self, place: RunPlace, attempt: Attempt) -> None:
        """Add an attempt that was made."""
        self.pause = 0.0
        if attempt.remedy is None:
            self.restarted.append(self.places[-1])
            if (repeated := len(self.restarted) - 2) >= 0:
                self.pause = min(_PAUSE * 2**repeated, _LONGEST_PAUSE)
        self.places.append(place)
        self._specs.append(attempt.spec)
        self.late = None
        self.left = ""

    def next(self) -> Attempt | None:
        """Return the attempt after the last run, which is over; None if there is none.

        Raises:
            VinedresserError: the last run cannot be read.
        """
        # Replaced once the attempt is made.
        self.left = "the next attempt could not be made"
        runs = runs_of(self.places[-1])
        run = runs[0]
        found = self.late or stopping_finding(runs)
        failed = found is None and run.status.state in ("crashed", "killed")
        if failed or (found is not None and hangs(found)):
            restart = self._restart()
            if restart is not None:
                return restart
        if found is None:
            self.left = _unstopped(run.status)
            return None
        done = self._corrections
        if done >= self._settings.times:
            self.left = f"{found.rule} again, after {done} attempt{'s' if done > 1 else ''}"
            return None
        trials = self._trials(runs, found)
        found = replace(found, correction=_agreed(found.correction, trials))
        if why_not := self._why_not(found):
            self.left = f"{why_not}; tried {trials.words}" if trials.words else why_not
            return None
        return self._attempt(run, found, trials.words)

    def _restart(self) -> Attempt | None:
        """Return a run that failed again, from its last checkpoint; None after too many."""
        number = len(self.restarted) + 1
        if number > self._settings.restarts:
            return None
        spec, fewer = self._with_ranks(self._specs[-1])
        spec = replace(spec, name=f"{self.name}-restart-{number}")
        if self._settings.resume is None:
            spec = replace(spec, total_steps=self._specs[0].total_steps)
            begins = "from the start"
        else:
            spec, begins = self._resumed(spec, self._settings.resume)
        if fewer:
            # How many steps are left is for the script to say.
            spec = replace(spec, total_steps=None)
            _log.warning(f"{self.places[-1].name} begins again with {fewer}")
        restart = RestartRecord(self.name, number, self.places[-1].name, begins, fewer)
        return Attempt(spec, None, restart)

    def _with_ranks(self, spec: RunSpec) -> tuple[RunSpec, str]:
        """Return a run with the ranks for which there is room, and why they are fewer, or ""."""
        table = self._table
        if table is None or table.min_ranks is None:
            return spec, ""
        rank = failing_rank([open_run(place.location) for place in self.places])
        ranks, hosts = (spec.launch.get(one, getattr(table, one)) for one in ("ranks", "hosts"))
        if rank is not None and rank < ranks:
            host = "" if isinstance(hosts, int) else hosts[rank * len(hosts) // ranks]
            self._failing.add(FailingRank(rank, ranks, host))
            self._failed_by_rank |= {place.name for place in self.places[-2:]}
        room = room_for_ranks(table, self._failing)
        if room.ranks >= table.ranks:
            return spec.on(table.ranks, table.hosts), ""
        if room.ranks >= table.min_ranks:
            fewer = f"{room.ranks} of {table.ranks} ranks: {room.why}"
            return spec.on(room.ranks, room.hosts), fewer
        _log.warning(
            f"{self.places[-1].name} begins again with all {table.ranks} ranks, though there is "
            f"room for {room.ranks}, fewer than min_ranks = {table.min_ranks}: {room.why}"
        )
        return spec.on(table.ranks, table.hosts), ""

    def _resumed(self, spec: RunSpec, resume: str) -> tuple[RunSpec, str]:
        """Return a run that resumes from the last checkpoint, and what it begins from.

        Args:
            resume: the script's parameter for the path of a checkpoint.
        """
        runs = {place.name: place.location for place in self.places}
        specs = dict(zip(runs, self._specs, strict=True))
        origins: dict[str, SavedCheckpoint | None] = {}
        for name, one in specs.items():
            saved = SavedCheckpoint.at(str(one.parameters.get(resume, "")))
            origins[name] = saved if saved is not None and saved.run in origins else None
        ranks, first = spec.launch.get("ranks"), self.places[-1].name
        again = {new.name for old, new in pairwise(self.places) if old in self.restarted}
        while True:
            found = last_of_runs(
                runs,
                origins,
                ranks=ranks,
                other_cause=self._failed_by_rank,
                report=_log.warning,
            )
            while (origin := origins[first]) is not None:
                first = origin.run
            if found is not None or first not in again:
                break
            # It began from the start: no checkpoint was of its number of ranks.
            earlier = [*runs][: [*runs].index(first)]
            runs, first = {name: runs[name] for name in earlier}, earlier[-1]
        if found is not None:
            total = specs[found.run].total_steps
            path = str(Path(str(runs[found.run]), found.key).absolute())
            total = total and max(total - found.steps, 1)
            spec = replace(spec, parameters={**spec.parameters, resume: path}, total_steps=total)
            return spec, f"from {found.key} of {found.run}"
        own = {key: value for key, value in specs[first].parameters.items() if key == resume}
        parameters = self._without_resume(spec) | own
        total = specs[first].total_steps
        return replace(spec, parameters=parameters, total_steps=total), "from the start"

    def _trials(self, runs: list[Run], finding: Finding) -> Trials:
        """Try changes on a snapshot, with the factory, or else in the script that trained."""
        spec = self._specs[-1]
        # A script that several processes ran trains in one only with another batch.
        script = script_of(spec.argv) if runs[0].info.world_size == 1 else []
        source = TrialSource(self._settings.factory or "", script)
        if not source:
            return Trials()
        # That of the model that failed, if the script trained several.
        own = [run for run in runs if any(is_same(finding, one) for one in run.findings())]
        return run_trials(
            (own or runs)[0],
            finding.since,
            spec.parameters,
            source,
            seconds=self._settings.seconds,
            cwd=self._cwd,
            environment=spec.environment,
        )

    def _why_not(self, finding: Finding) -> str:
        """Return why a finding leads to no attempt; "" if it does."""
        rule, stopped = finding.rule, self._specs[-1].parameters
        if not finding.correction:
            return f"{rule} proposes no other value of a parameter"
        proposal = ", ".join(f"{name} = {value}" for name, value in finding.correction.items())
        for name in finding.correction:
            if name not in stopped:
                known = ", ".join(stopped) or "none"
                return (
                    f"{rule} proposes {proposal}, but {name} is not a parameter of the experiment "
                    f"file (they are: {known})"
                )
        if self._settled(finding) in [self._without_resume(spec) for spec in self._specs]:
            return f"{rule} proposes {proposal}, which was tried before"
        return ""

    def _attempt(self, run: Run, finding: Finding, tried: str) -> Attempt:
        stopped, first = self._specs[-1], self._specs[0]
        number = self._corrections + 1
        parameters = self._settled(finding)
        changed = {
            name: [stopped.parameters[name], parameters[name]] for name in finding.correction
        }
        checkpoint = self._checkpoint(run, finding)
        ranks = None if self._table is None else self._table.ranks
        # Of fewer ranks it is for the script to say.
        total = first.total_steps if stopped.launch.get("ranks", ranks) == ranks else None
        if checkpoint is not None:
            assert self._settings.resume is not None, "else no checkpoint is searched"
            parameters[self._settings.resume] = str(Path(run.path, checkpoint.key).absolute())
            # The remaining steps of the stopped run, which may itself have begun from a checkpoint.
            total = stopped.total_steps and max(stopped.total_steps - checkpoint.steps, 1)
        elif self._settings.resume in first.parameters:
            parameters[self._settings.resume] = first.parameters[self._settings.resume]
        name = f"{self.name}-remedy-{number}"
        spec = replace(stopped, name=name, parameters=parameters, total_steps=total)
        remedy = RemedyRecord(
            first=self.name,
            attempt=number,
            stopped=self.places[-1].name,
            finding=finding.to_json(),
            changed=changed,
            checkpoint=checkpoint.key if checkpoint else "",
            tried=tried,
        )
        return Attempt(spec, remedy)

    def _checkpoint(self, run: Run, finding: Finding) -> SavedCheckpoint | None:
        """Return the checkpoint from which an attempt begins; None for the start."""
        # A finding in an additional run of the script has other steps than this run.
        findings = run.findings()
        own = next((one for one in findings if is_same(finding, one)), None)
        location = self.places[-1].location
        if self._settings.resume is None or own is None or not isinstance(location, Path):
            return None
        return healthy_checkpoint(run, onset(own, findings))

    def _settled(self, finding: Finding) -> dict[str, Any]:
        """Return the parameters of the last run, corrected."""
        parameters = self._without_resume(self._specs[-1])
        for name, value in finding.correction.items():
            parameters[name] = _like(value, parameters[name])
        return parameters

    def _without_resume(self, spec: RunSpec) -> dict[str, Any]:
        """Return parameters without the one that takes a checkpoint."""
        return {
            name: value for name, value in spec.parameters.items() if name != self._settings.resume
        }


def _agreed(proposed: dict[str, Any], trials: Trials) -> dict[str, Any]:
    """Return the correction: one that trials prove, the proposed one if they prove none.

    Args:
        proposed: the correction that a rule proposes.
    """
    proved = trials.corrections
    # The rule and the experiment agree on what is wrong; the value is that of the experiment.
    same = (one for one in proved if one.keys() == proposed.keys())
    return next(same, proved[0] if proved else proposed)


def _unstopped(status: Status) -> str:
    """Return why a run that no rule stopped is not replaced; "" if it finished."""
    if status.state == "stopped":
        by = {"person": "on request", "rule": f"by {status.rule}"}
        return f"stopped {by.get(status.by, 'by the end of its flow')}"
    return "" if status.state == "finished" else f"{status.state}: {status.reason}"


def _like(value: object, old: object) -> object:
    """Return a new value of the old one's type: an integer stays an integer."""
    whole = isinstance(value, float) and value.is_integer() and type(old) is int
    return int(value) if whole else value  # type: ignore[call-overload]


def healthy_checkpoint(run: Run, since: int) -> SavedCheckpoint | None:
    """Return the last checkpoint of a run while it was healthy; None if there is none.

    All its steps came before the fault, and no loss was then higher than at the beginning: a rule
    may fire long after the fault began.

    Args:
        run: a run in a directory.
        since: first step at which something was wrong.
    """
    losses = [column.of("train") for column in run.scalars("losses").values()]
    for checkpoint in usable_checkpoints(run, below=since + 1, report=_log.warning):
        if all(_not_risen(loss, checkpoint.steps) for loss in losses):
            return checkpoint
    return None


def _not_risen(loss: Column, steps: int) -> bool:
    """Return whether a loss was not higher after this number of steps than at the beginning."""
    until = loss.values[loss.steps < steps]
    return not len(until) or bool(np.median(until[-_STEPS:]) <= np.median(until[:_STEPS]))
