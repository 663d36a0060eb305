"""All rules over one pass of the steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING

from vinedresser.capture.finding import Finding
from vinedresser.rules.base import Rule
from vinedresser.rules.signals.base import SignalPool
from vinedresser.rules.watch import RuleWatch

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step
    from vinedresser.infra.run_directory import RunRecord

__all__ = ["Engine"]


class Engine:
    """Shows each step to each rule, in a fixed order; a pure fold over the steps.

    Signals that several rules hold are shared, and shown each step first.

    Args:
        rules: what to judge by; they are copied, and stay as they are.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._pool = SignalPool()
        self._watches: list[RuleWatch] = []
        # Those whose rules want to know of silence.
        self._timed: list[RuleWatch] = []
        for rule in rules:
            own = copy.deepcopy(rule)
            self._pool.adopt(own)
            self._watches.append(RuleWatch(own, self._pool))
            if type(own).idle is not Rule.idle:
                self._timed.append(self._watches[-1])

    def begin(self, info: RunRecord) -> None:
        """Tell the rules about the run, before its first step."""
        self._pool.begin(info)
        for watch in self._watches:
            watch.begin(info)

    def update(self, step: Step) -> list[Finding]:
        """Show the next step to all rules; return what they find, in the order of the rules."""
        silence = self.idle(step.time)
        self._pool.update(step)
        return silence + [finding for watch in self._watches for finding in watch.update(step)]

    def idle(self, until: float) -> list[Finding]:
        """Tell the rules that no step was committed up to a time, in seconds since the epoch."""
        return [finding for watch in self._timed for finding in watch.idle(until)]

    def finish(self) -> list[Finding]:
        """Tell the rules that the run is over; return what they still find."""
        return [finding for watch in self._watches for finding in watch.finish()]
