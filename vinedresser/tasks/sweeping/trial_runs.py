"""A trial of a sweep in progress: its runs, their reported values, and how it is to end."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath

from vinedresser.errors import CorruptData
from vinedresser.explain.verdicts import Verdict, verdict
from vinedresser.infra.catalog.run_notes import stored_tracking
from vinedresser.infra.supervise.launcher import adopt
from vinedresser.objects import Location, open_storage
from vinedresser.objects.files import folder_below
from vinedresser.plain_logs import plain_logger
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import ExitRecord
from vinedresser.sweeps.objective_history import ObjectiveHistory
from vinedresser.sweeps.trial import Proposal, TrialEnd, TrialState, trial_name
from vinedresser.tasks.config.run_spec import RunSpec
from vinedresser.tasks.config.sweep_file import Sweep
from vinedresser.tasks.interruption import Interruption
from vinedresser.tasks.lifecycle.earlier_runs import bring_to_end, runs_of_trial
from vinedresser.tasks.places.checkpoints import (
    SavedCheckpoint,
    copy_checkpoint,
    fetch_checkpoint,
    last_checkpoint,
    last_of_runs,
)
from vinedresser.tasks.places.run_place import AdoptedPlace, RunPlace

_log = plain_logger(__name__)

# Beside the journal, a folder for each run: checkpoints fetched from an object store, and copies of
# those of other trials.
_FETCHED = "fetched"


class TrialRuns:
    """A trial: one run, or several if one crashed or was interrupted.

    Args:
        proposal: its configuration.
        earlier: an earlier process of the sweep began it.

    Attributes:
        earlier: an earlier process of the sweep began it, and it is not yet restored.
        adopted: its last run, which an earlier process of the sweep started, continues.
        places: places of its runs that this process made or adopted.
        followed: whether all steps of its last run are read.
        cut: how the study wants it to end; None if it does not.
        crashes: number of its runs that crashed.
    """

    def __init__(self, sweep: Sweep, proposal: Proposal, *, earlier: bool = False) -> None:
        self.proposal = proposal
        self.earlier = earlier
        self.adopted = False
        self.places: list[RunPlace] = []
        self.followed = False
        self.cut: TrialEnd | None = None
        self.crashes = 0
        self._sweep = sweep
        self._history = ObjectiveHistory(sweep.settings.watched)
        # All of its runs by name: their location, the checkpoint from which each began, and the
        # number of steps that the trial had done then.
        self._runs: dict[str, Location] = {}
        self._origins: dict[str, SavedCheckpoint | None] = {}
        self._taken: dict[str, int] = {}
        self._next_origin: SavedCheckpoint | None = None
        self._told: set[str] = set()
        self._seen, self._last_step = 0, -1

    @property
    def number(self) -> int:
        """Number of the trial."""
        return self.proposal.number

    @property
    def name(self) -> str:
        """Name of its run directories; those after the first have a number appended."""
        return trial_name(self.number)

    @property
    def history(self) -> ObjectiveHistory:
        """The values that it has reported."""
        return self._history

    def begins(self, place: RunPlace) -> None:
        """Add a run that was made from the last specification."""
        self.places.append(place)
        self._begin(place.location, self._next_origin)

    def restore(self) -> bool:
        """Restore the runs that an earlier process of the sweep made.

        A run that still trains is adopted. The others are over or end by themselves without their
        owner, which is awaited; then they are settled.

        Returns:
            Whether the trial is over, though no process recorded it.

        Raises:
            VinedresserError: a run cannot be read or does not end.
        """
        self.earlier = False
        locations = runs_of_trial(self._sweep.experiment.store, self.name)
        last = locations[-1] if locations else None
        # Before anything else: it continues without an owner for a limited time.
        self.adopted = isinstance(last, Path) and adopt(last)
        for location in locations[:-1] if self.adopted else locations:
            bring_to_end(location, self._sweep.experiment.run.grace)
        for location in locations:
            run = open_run(location)
            self._begin(location, self._origin(run))
            if not (self.adopted and location == last):
                for step in self.unseen():
                    self._history.add(step)
                self.followed = True
        if isinstance(last, Path) and self.adopted:
            self.places.append(AdoptedPlace(last))
            self.places[-1].tracking = stored_tracking(last, open_storage(last))
        return bool(locations) and not self.adopted and self.ending() is not None

    def unseen(self) -> Iterator[Step]:
        """Yield the steps of its last run as they come, without those yielded before.

        Raises:
            StoreError: the run cannot be read.
        """
        # Reading is repeatable: the order is always the same.
        for step in itertools.islice(open_run(self._last).follow(), self._seen, None):
            self._seen += 1
            self._last_step = max(self._last_step, step.step)
            yield step

    def catch_up(self) -> None:
        """Make sure that all of its last run, which is over, is read.

        On an object store a run with late heartbeats looks dead for a while, and readers stop.

        Raises:
            StoreError: the run cannot be read.
        """
        end = self._exit_record()
        known = -1 if end is None or end.last_step is None else end.last_step
        if self.followed and (end is None or end.cause != "finished" or self._last_step >= known):
            return
        self._begin(self._last, self._origins[PurePath(self._last).name])
        for step in self.unseen():
            self._history.add(step)
        self.followed = True

    def next_spec(self) -> RunSpec:
        """Return its next run: from the last checkpoint of earlier runs, or from its beginning.

        In a population that is a copy of the last checkpoint of the trial that it continues.

        Values reported after that checkpoint are forgotten: they will be reported again.

        Raises:
            VinedresserError: a run of it cannot be read, or its checkpoint cannot be fetched.
        """
        spec = self._sweep.run_spec(self.proposal)
        found = self._checkpoint() if self._sweep.settings.resume else None
        self._next_origin = found
        if found is None:
            line = self.proposal.line
            parent = None if line is None else line.parent
            return spec if parent is None else self._resumed(spec, self._copy(parent))
        storage = open_storage(self._runs[found.run])
        path = fetch_checkpoint(storage, found, self._sweep.state / _FETCHED)
        taken = self._taken[found.run] + found.steps
        total_steps = spec.total_steps and max(spec.total_steps - taken, 1)
        return replace(self._resumed(spec, path), total_steps=total_steps)

    def _resumed(self, spec: RunSpec, path: Path) -> RunSpec:
        """Return a run that is passed the path of a checkpoint."""
        resume = str(self._sweep.settings.resume)
        return replace(spec, parameters={**spec.parameters, resume: str(path)})

    def _copy(self, parent: int) -> Path:
        """Return the path of a copy of the last checkpoint of another trial, which is over."""
        name = trial_name(parent)
        for location in reversed(runs_of_trial(self._sweep.experiment.store, name)):
            run = open_run(location)
            if saved := last_checkpoint(run):
                return copy_checkpoint(run.storage, saved, self._sweep.state / _FETCHED / self.name)
        raise CorruptData(f"{name} has no checkpoint any more, from which {self.name} continues")

    def ending(self) -> TrialEnd | None:
        """Return how it ended, its last run being over; None if that was only interrupted.

        A trial that was to end early has ended, even if it crashed or was killed meanwhile. A
        pruned one in which a rule found a reason to stop it has that, too.

        Raises:
            VinedresserError: the run cannot be read.
        """
        run = open_run(self._last)
        ending = self._ending(run)
        if ending is None or ending.state != "pruned" or ending.rule:
            return ending
        fatal = [cause.finding for cause in root_causes(run.findings())]
        found = next((one for one in fatal if one.severity == "stop"), None)
        if found is None:
            return ending
        return replace(ending, rule=found.rule, fault=found.fault, remedy=found.remedy)

    def _ending(self, run: Run) -> TrialEnd | None:
        """Return how it ended, apart from what rules found in a pruned trial."""
        judged = verdict(run)
        if judged.status.state == "stopped":
            return self._stopped(judged)
        if judged.status.state == "finished":
            missing = self._history.missing()
            if not missing and self.proposal.line is not None and self._checkpoint() is None:
                missing = (
                    "it saved no complete checkpoint (checkpoints/step-N), from which trials of a "
                    "population continue"
                )
            return TrialEnd("failed", missing) if missing else TrialEnd("finished")
        return self.cut

    def broken_off(self) -> bool:
        """Return whether its last run was only stopped because the sweep was interrupted.

        Raises:
            VinedresserError: the run cannot be read.
        """
        if self.places and self.places[-1].elsewhere:
            # Its worker was; the next worker may end the same way.
            return False
        return open_run(self._last).status.state == "stopped"

    def crash(self) -> str:
        """Return why its last run crashed or was killed."""
        end = self._exit_record()
        return end.reason if end else "no process recorded how it ended"

    def _exit_record(self) -> ExitRecord | None:
        """Return how its last run ended; None if that is unknown, as after damage."""
        return read_record_or_none(open_storage(self._last), ExitRecord, ExitRecord.KEY, [])

    def clean_up(self, *, finished: bool) -> None:
        """Remove the fetched checkpoints of its runs, as it has ended.

        Args:
            finished: keep the result of its pruning, if it is one.
        """
        for name in self._runs:
            fetched = folder_below(self._sweep.state, f"{_FETCHED}/{name}")
            shutil.rmtree(fetched, ignore_errors=True)
        if self._sweep.table is not None and not finished:
            shutil.rmtree(self._sweep.models(self.number), ignore_errors=True)

    @property
    def _last(self) -> Location:
        return [*self._runs.values()][-1]

    def _begin(self, location: Location, origin: SavedCheckpoint | None) -> None:
        """Begin a run from a checkpoint or from the start."""
        name = PurePath(location).name
        self._seen, self._last_step, self.followed = 0, -1, False
        self._runs[name] = location
        self._origins[name] = origin
        self._taken[name] = 0
        if origin is None:
            self._history = ObjectiveHistory(self._sweep.settings.watched)
        else:
            self._taken[name] = self._taken[origin.run] + origin.steps
            self._history.go_on(self._taken[name])

    def _origin(self, run: Run) -> SavedCheckpoint | None:
        """Return the checkpoint of an earlier run of the trial from which a run began."""
        given = run.info.parameters.get(self._sweep.settings.resume or "")
        saved = SavedCheckpoint.at(given) if isinstance(given, str) else None
        return saved if saved is not None and saved.run in self._runs else None

    def _checkpoint(self) -> SavedCheckpoint | None:
        """Return the last checkpoint of the last run, or else of the runs from which it began."""
        return last_of_runs(self._runs, self._origins, report=self._reported)

    def _reported(self, sentence: str) -> None:
        """Warn of a checkpoint that is not used, once."""
        if sentence not in self._told:
            self._told.add(sentence)
            _log.warning(sentence)

    def _stopped(self, judged: Verdict) -> TrialEnd | None:
        """Return how a stopped run ended; None if only the sweep was interrupted."""
        status = judged.status
        if status.by == "sweep":
            # A rule suspected it, and the comparison confirmed it.
            state: TrialState = "stopped" if status.rule else "pruned"
            return self.cut or TrialEnd(state, status.reason, status.rule)
        if status.by == "owner" or Interruption.is_reason(status.reason):
            return self.cut
        found = judged.stopping
        fault, remedy = (found.fault, found.remedy) if found else ("", "")
        if status.by == "limit":
            fault = "limit"
        return TrialEnd("stopped", status.reason, status.rule, fault, remedy)
