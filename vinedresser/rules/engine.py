"""Run all rules in one pass over the steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vinedresser.rules.base import Rule
from vinedresser.rules.rule_runner import WATCHED_NOTHING, RuleRunner
from vinedresser.rules.signals.base import SignalPool
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["NOT_APPLICABLE", "NO_DATA", "Engine"]

# Rule names of the findings that list the rules that do not apply, and those that miss data.
NOT_APPLICABLE = "not_applicable"
NO_DATA = "no_data"


class Engine:
    """Passes each step to each rule, in a fixed order; a pure fold over the steps.

    Rules share equal signals, which are updated before the rules.

    Args:
        rules: rules to apply; the engine works on copies.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._pool = SignalPool()
        self._runners: list[RuleRunner] = []
        self._last: Step | None = None
        # Whether a rule of severity "stop" has fired.
        self._stopped = False
        # Runners of the rules that judge silence.
        self._timed: list[RuleRunner] = []
        for rule in rules:
            own = copy.deepcopy(rule)
            self._pool.adopt(own)
            self._runners.append(RuleRunner(own, self._pool))
            if type(own).idle is not Rule.idle:
                self._timed.append(self._runners[-1])

    def begin(self, info: RunRecord) -> None:
        """Begin all signals and rules, before the first step."""
        self._pool.begin(info)
        for runner in self._runners:
            runner.begin(info)

    def update(self, step: Step) -> list[Finding]:
        """Pass the next step to all rules; return their findings in the order of the rules."""
        self._last = step
        silence = self.idle(step.time)
        self._pool.update(step)
        found = self._filtered((runner, runner.update(step)) for runner in self._runners)
        return silence + _joined(found)

    def idle(self, until: float) -> list[Finding]:
        """Report that no step was committed up to a time, in seconds since the epoch."""
        return self._filtered((runner, runner.idle(until)) for runner in self._timed)

    def finish(self) -> list[Finding]:
        """Report the end of the run; return the rules' last findings."""
        found = _joined(self._filtered((runner, runner.finish()) for runner in self._runners))
        unfit = {runner.rule.name: runner.lacks for runner in self._runners if runner.lacks}
        if unfit and self._last is not None:
            found.append(_not_applicable(self._last, unfit))
        return found

    def suspicions(self) -> list[Finding]:
        """Return the suspicions of all rules; see `Rule.suspicion`."""
        asked = (runner.suspicion() for runner in self._runners)
        return [finding for finding in asked if finding is not None]

    def _filtered(self, results: Iterable[tuple[RuleRunner, list[Finding]]]) -> list[Finding]:
        """Return findings without those of rules that are silent after a stop."""
        kept: list[Finding] = []
        for runner, found in results:
            if not (runner.rule.silent_after_stop and self._stopped):
                kept += found
                self._stopped |= any(one.severity == "stop" for one in found)
        return kept


def _joined(findings: list[Finding]) -> list[Finding]:
    """Return findings in which rules that miss the same data share one, in place of the first."""
    rules: dict[str, dict[str, None]] = {}
    for one in findings:
        if one.seen.startswith(WATCHED_NOTHING):
            rules.setdefault(one.seen, {})[one.rule] = None
    joined = []
    for one in findings:
        names = rules.pop(one.seen, None)
        if names is not None and len(names) > 1:
            seen = f"{one.seen}; {len(names)} rules need it: {', '.join(names)}"
            cause = "it was not captured, so these rules cannot find anything"
            joined.append(
                replace(one, rule=NO_DATA, seen=seen, cause=cause, evidence={"rules": [*names]})
            )
        elif names is not None or not one.seen.startswith(WATCHED_NOTHING):
            joined.append(one)
    return joined


def _not_applicable(step: Step, unfit: Mapping[str, list[str]]) -> Finding:
    """Return one finding that lists the rules that do not apply to this run.

    Args:
        step: last step.
        unfit: by rule name the data that the run lacks.
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
        cause="a run of this kind does not have the data that they read",
        remedy="no action needed",
        evidence={"rules": list(unfit)},
    )
