"""A trial of a sweep under way: its runs, what they reported, and how it is to end."""

from __future__ import annotations

import itertools
from pathlib import Path

from vinedresser.capture.store.reader import Run, open_run
from vinedresser.capture.store.status import Status
from vinedresser.infra.run_directory import ExitRecord, RunRecord, read_record
from vinedresser.infra.storage import open_storage
from vinedresser.sweeps.course import Course
from vinedresser.sweeps.trial import Ending, Proposal, trial_name
from vinedresser.tasks.experiment import Plan
from vinedresser.tasks.healthy_checkpoint import healthy_checkpoint
from vinedresser.tasks.interruption import INTERRUPTION
from vinedresser.tasks.run_place import RunPlace
from vinedresser.tasks.sweep_file import Sweep

__all__ = ["TrialCourse"]


class TrialCourse:
    """A trial: one run, and more where one crashed.

    Args:
        sweep: to which it belongs.
        proposal: its configuration.
        earlier: an earlier process of the sweep began it.

    Attributes:
        proposal: its configuration.
        earlier: an earlier process of the sweep began it, and nobody has looked what it left.
        places: of its runs.
        cut: how the study wants it to end; None as long as it does not.
        crashes: how many of its runs crashed.
    """

    def __init__(self, sweep: Sweep, proposal: Proposal, *, earlier: bool = False) -> None:
        self.proposal = proposal
        self.earlier = earlier
        self.places: list[RunPlace] = []
        self.cut: Ending | None = None
        self.crashes = 0
        self._sweep = sweep
        self._course = Course(sweep.settings.goals)

    @property
    def number(self) -> int:
        """Of the trial."""
        return self.proposal.number

    @property
    def name(self) -> str:
        """Of its runs' directories, but for a number behind it."""
        return trial_name(self.number)

    @property
    def course(self) -> Course:
        """What it has reported."""
        return self._course

    def begins(self, place: RunPlace) -> None:
        """Take note of a run of it."""
        self.places.append(place)

    def restore(self) -> bool:
        """Take in the runs that an earlier process of the sweep made, all of which are over.

        On an object store there is nothing to go on with: a trial begins again.

        Returns:
            Whether the trial is over, and only nobody took note of it.

        Raises:
            VinedresserError: a run cannot be read.
        """
        self.earlier = False
        store = self._sweep.experiment.store
        if not isinstance(store, Path):
            return False
        for number in itertools.count(1):
            directory = store / (self.name if number == 1 else f"{self.name}-{number}")
            if not (directory / RunRecord.KEY).exists():
                break
            self.places.append(RunPlace(directory))
        if not self.places:
            return False
        for step in open_run(self.places[-1].location).follow():
            self._course.add(step)
        return self.ending() is not None

    def next_plan(self) -> Plan:
        """Return its next run: from the last one's checkpoint, or from the start.

        Without a checkpoint, or a parameter that takes one, what it has reported is forgotten: it
        will be reported again.
        """
        plan = self._sweep.plan(self.proposal)
        resume = self._sweep.settings.resume
        before = self.places[-1].location if self.places else None
        if resume is None or not isinstance(before, Path):
            self._course = Course(self._sweep.settings.goals)
            return plan
        run = open_run(before)
        step = run.status.step
        found = healthy_checkpoint(run, (step or 0) + 1)
        if found is None:
            self._course = Course(self._sweep.settings.goals)
            return plan
        self._course.forget(found.steps)
        plan.parameters[resume] = str(found.path)
        return plan

    def ending(self) -> Ending | None:
        """Return how it ended, whose last run is over; None where that only broke off.

        Raises:
            VinedresserError: the run cannot be read.
        """
        run = open_run(self.places[-1].location)
        status = run.status
        if status.state == "stopped":
            return self._stopped(run, status)
        if status.state == "finished":
            missing = self._course.missing()
            return Ending("failed", missing) if missing else Ending("finished")
        return None

    def crash(self) -> str:
        """Return why its last run crashed, or was killed."""
        end = read_record(open_storage(self.places[-1].location), ExitRecord)
        return end.reason if end else "nobody wrote down how it ended"

    def _stopped(self, run: Run, status: Status) -> Ending | None:
        """Return how a stopped run ended; None where only the sweep was broken off."""
        if status.by == "sweep":
            return self.cut or Ending("pruned", status.reason)
        if status.by == "owner" or status.reason == INTERRUPTION:
            return None
        found = next((one for one in run.findings() if one.rule == status.rule), None)
        fault, remedy = (found.fault, found.remedy) if found else ("", "")
        return Ending("stopped", status.reason, status.rule, fault, remedy)
