"""Train steps that all standing queries leave out to keep their rates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from vinedresser.queries.numpy_numeric import NumpyNumeric
from vinedresser.queries.observables import Moment, Observables
from vinedresser.queries.table import Armed, StreamTable

# Steps that wait to be counted; each is a number and a time.
_MOST = 256


class PassedSteps:
    """Counts steps that queries pass over, many at a time.

    Between two answers at ten a second are dozens of steps. To tell each query about each of them
    when it ends takes longer than all else that queries cost there: after a step, the processor has
    to load their code and data again.

    Used on the training's thread.

    Args:
        clock: time in seconds for the rates, as that of the table.
        wall_clock: time in seconds since the epoch.
    """

    def __init__(
        self,
        table: StreamTable,
        rank: int,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._rank = rank
        self._clock = clock
        self._wall_clock = wall_clock
        self._numeric = NumpyNumeric()
        self._armed: Armed | None = None
        self._until = -math.inf
        # A step has begun that is passed over.
        self._begun = False
        # Number of each step that has ended, and when, in seconds since the epoch.
        self._steps: list[tuple[int, float]] = []

    def begin(self, armed: Armed) -> None:
        """Pass over the step that begins now, and those that follow.

        Args:
            armed: the queries; `Armed.passed_over` is true.
        """
        self._armed, self._until, self._begun = armed, armed.until, True

    def goes_on(self) -> bool:
        """Return whether the step that begins now is passed over like the last one."""
        waiting = self._clock() < self._until and len(self._steps) < _MOST
        self._begun = waiting and not self._table.changed
        return self._begun

    def step_ended(self, step: int) -> None:
        """Note the end of a step."""
        if self._begun:
            self._begun = False
            self._steps.append((step, self._wall_clock()))

    def settle(self) -> None:
        """Tell the queries about the steps that have ended; the next step is looked at again."""
        self._until = -math.inf
        if self._armed is None:
            return
        steps, self._steps = self._steps, []
        for step, at in steps:
            moment = Moment("step", step, "train", self._rank, at)
            self._table.pass_over(Observables(moment, {}, self._numeric), self._armed)
