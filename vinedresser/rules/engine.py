"""All rules over one pass of the steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from vinedresser.rules.base import Rule
from vinedresser.rules.rule_runner import RuleRunner
from vinedresser.rules.signals.base import SignalPool
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["NOT_APPLICABLE", "Engine"]

# What stands for a rule in the finding that some do not apply.
NOT_APPLICABLE = "not_applicable"


class Engine:
    """Shows each step to each rule, in a fixed order; a pure fold over the steps.

    Signals that several rules hold are shared, and shown each step first.

    Args:
        rules: what to judge by; they are copied, and stay as they are.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._pool = SignalPool()
        self._watches: list[RuleRunner] = []
        self._last: Step | None = None
        # A finding was made that ends a run.
        self._stopped = False
        # Those whose rules want to know of silence.
        self._timed: list[RuleRunner] = []
        for rule in rules:
            own = copy.deepcopy(rule)
            self._pool.adopt(own)
            self._watches.append(RuleRunner(own, self._pool))
            if type(own).idle is not Rule.idle:
                self._timed.append(self._watches[-1])

    def begin(self, info: RunRecord) -> None:
        """Tell the rules about the run, before its first step."""
        self._pool.begin(info)
        for watch in self._watches:
            watch.begin(info)

    def update(self, step: Step) -> list[Finding]:
        """Show the next step to all rules; return what they find, in the order of the rules."""
        self._last = step
        silence = self.idle(step.time)
        self._pool.update(step)
        return silence + self._heard((watch, watch.update(step)) for watch in self._watches)

    def idle(self, until: float) -> list[Finding]:
        """Tell the rules that no step was committed up to a time, in seconds since the epoch."""
        return self._heard((watch, watch.idle(until)) for watch in self._timed)

    def finish(self) -> list[Finding]:
        """Tell the rules that the run is over; return what they still find."""
        found = self._heard((watch, watch.finish()) for watch in self._watches)
        unfit = {watch.name: watch.lacks for watch in self._watches if watch.lacks}
        if unfit and self._last is not None:
            found.append(_not_applicable(self._last, unfit))
        return found

    def suspicions(self) -> list[Finding]:
        """Return what the rules would find if the outcome agreed; see `Rule.suspicion`."""
        asked = (watch.suspicion() for watch in self._watches)
        return [finding for finding in asked if finding is not None]

    def _heard(self, told: Iterable[tuple[RuleRunner, list[Finding]]]) -> list[Finding]:
        """Return findings in their order, but for those of nets below a rule that has stopped."""
        heard: list[Finding] = []
        for watch, found in told:
            if not (watch.silent_after_stop and self._stopped):
                heard += found
                self._stopped |= any(one.severity == "stop" for one in found)
        return heard


def _not_applicable(step: Step, unfit: Mapping[str, list[str]]) -> Finding:
    """Return in one finding, of no rule, which of them have nothing to look at in this run.

    Args:
        step: the last.
        unfit: by the rule's name, what the run lacks.
    """
    lacks = dict.fromkeys(f"no {one}" for some in unfit.values() for one in some)
    rules = f"{len(unfit)} rules do" if len(unfit) > 1 else "1 rule does"
    return Finding(
        rule=NOT_APPLICABLE,
        severity="info",
        step=step.step,
        since=step.step,
        mode=step.mode,
        rank=step.rank,
        tensor="",
        statistic="",
        value=float(len(unfit)),
        threshold=0.0,
        confidence=1.0,
        seen=f"{rules} not apply to this run ({', '.join(lacks)}): {', '.join(unfit)}",
        cause="a run of this kind does not have what they look at",
        remedy="nothing has to be done",
        evidence={"rules": list(unfit)},
    )
