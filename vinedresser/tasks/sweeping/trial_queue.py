"""The trials of a sweep as a queue: asked of the study, begun, and concluded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from vinedresser.errors import VinedresserError
from vinedresser.tasks.lifecycle.run_queue import RunQueue
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.sweeping.sweep_runner import SweepRunner
from vinedresser.tasks.sweeping.trial_runs import TrialRuns

__all__ = ["TrialQueue"]


class TrialQueue(RunQueue[TrialRuns]):
    """Begins each trial, and begins it again if it crashed.

    Args:
        sweep: runner of the sweep.
    """

    def __init__(self, sweep: SweepRunner) -> None:
        super().__init__()
        self._sweep = sweep
        self._again: deque[TrialRuns] = deque()

    def next(self) -> TrialRuns | None:
        """Return a trial that begins again, or else the next one."""
        return self._again.popleft() if self._again else self._sweep.next()

    def begin(self, item: TrialRuns) -> RunPlace | None:
        """Return the place of a trial's next run; None if it cannot be made or the trial is over.

        An earlier process may have ended the trial without telling the study.
        """
        try:
            if item.earlier and self._sweep.restore(item):
                self.ended(item)
                return None
            if not item.adopted:
                self._sweep.make_run(item)
        except VinedresserError as error:
            self._give_up(item, error)
            return None
        return item.places[-1]

    def compare(self, item: TrialRuns) -> Callable[[], None]:
        """Return what follows a trial's run and ends it if the study says so."""
        return partial(self._sweep.follow, item)

    def ended(self, item: TrialRuns) -> None:
        """Tell the study how a trial ended, or queue it to begin again."""
        try:
            if self._sweep.conclude(item) is None:
                self._again.append(item)
        except VinedresserError as error:
            self._give_up(item, error)

    def _give_up(self, trial: TrialRuns, error: VinedresserError) -> None:
        self.problems[str(error)] = None
        self._sweep.give_up(trial, error)
