"""Run all rules in one pass over the steps."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping

from vinedresser.rules.base import Rule
from vinedresser.rules.causes.chain import is_unexplained
from vinedresser.rules.rule_runner import RuleRunner
from vinedresser.rules.signals.base import SignalPool
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["NO_DATA", "Engine"]

# Rule name of the finding about the rules that had nothing to look at.
NO_DATA = "no_data"
# What provides missing data: for a training with a hook, and for one without.
_ADVICE = {
    "losses": (
        "give the hook the loss: Hook(…).watch(model, loss=…), or hook.save('losses/…', …)",
        "losses are seen in the backward pass, or as those of a loss module",
    ),
    "labels": (
        "give the hook the loss: Hook(…).watch(model, loss=…), or loss = hook.loss(function)",
        "labels are seen as those of torch's losses; add a Hook for a loss of your own",
    ),
    "metrics": (
        "hook.metric('accuracy', …) at each step or evaluation",
        "add a Hook and hook.metric('accuracy', …) at each step or evaluation",
    ),
    "evaluations": (
        "evaluate with model.eval() and torch.no_grad(), or in `with hook.mode('eval')`",
        "evaluate the model in the script: torch in eval mode, XGBoost with evals",
    ),
}
# The same for XGBoost without a hook.
_XGBOOST_ADVICE = (
    "pass evals=[(dtrain, 'train'), (dvalid, 'eval')] to xgboost.train, or eval_set=[(X, y), …] to "
    "an estimator's fit"
)


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
        self._framework = ""
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
        self._framework = info.framework
        self._pool.begin(info)
        for runner in self._runners:
            runner.begin(info)

    def on_record(self, info: RunRecord) -> None:
        """Let signals and rules read the record again, which the hook has completed."""
        self._pool.on_record(info)
        for runner in self._runners:
            runner.on_record(info)

    def update(self, step: Step) -> list[Finding]:
        """Pass the next step to all rules; return their findings in the order of the rules."""
        self._last = step
        silence = self.idle(step.time)
        self._pool.update(step)
        found = self._filtered((runner, runner.update(step)) for runner in self._runners)
        return silence + found + self._confirmed(found)

    def idle(self, until: float) -> list[Finding]:
        """Report that no step was committed up to a time, in seconds since the epoch."""
        return self._filtered((runner, runner.idle(until)) for runner in self._timed)

    def finish(
        self, *, whole: bool = True, early: bool = False, attached: bool = False
    ) -> list[Finding]:
        """Report the end of the run; return the rules' last findings.

        Args:
            whole: the training was not cut short; otherwise nothing is said about missing data.
            early: neither the training nor a rule ended it (`Rule.finish_early`).
            attached: the script had no hook of its own.
        """
        found = self._filtered((runner, runner.finish(early=early)) for runner in self._runners)
        lacks = {runner.rule.name: runner.lacks for runner in self._runners if runner.lacks}
        if lacks and whole:
            boosts = self._framework == "xgboost"
            found.append(_no_data(self._last, lacks, attached=attached, boosts=boosts))
        return found

    def suspicions(self) -> list[Finding]:
        """Return the suspicions of all rules; see `Rule.suspicion`."""
        asked = (runner.suspicion() for runner in self._runners)
        return [finding for finding in asked if finding is not None]

    def _confirmed(self, found: Iterable[Finding]) -> list[Finding]:
        """Return the rules' suspicions if a finding says that the run fails, but not why."""
        # In presets that stop nothing, it has the severity of its rule, too.
        gravest = {runner.rule.name: runner.rule.severity for runner in self._runners}
        failing = [one for one in found if is_unexplained(one.fault) and one.severity != "info"]
        if not any(one.severity == gravest.get(one.rule) for one in failing):
            return []
        return [one for runner in self._runners for one in runner.confirmed()]

    def _filtered(self, results: Iterable[tuple[RuleRunner, list[Finding]]]) -> list[Finding]:
        """Return findings without those of rules that are silent after a stop."""
        kept: list[Finding] = []
        for runner, found in results:
            if not (runner.rule.silent_after_stop and self._stopped):
                kept += found
                self._stopped |= any(one.severity == "stop" for one in found)
        return kept


def _no_data(
    last: Step | None, lacks: Mapping[str, list[str]], *, attached: bool, boosts: bool
) -> Finding:
    """Return the finding about the rules that had nothing to look at.

    Args:
        last: last step; None if there was none.
        lacks: by rule name the data that the run lacks.
        attached: the script had no hook of its own.
        boosts: XGBoost trains.
    """
    counts = Counter(one for some in lacks.values() for one in some)
    missing = ", ".join(f"no {one} ({count})" for one, count in counts.most_common())
    words = [advice[attached] for one in counts if (advice := _ADVICE.get(one.split()[0]))]
    if boosts and attached and words:
        words = [_XGBOOST_ADVICE]
    return Finding(
        rule=NO_DATA,
        severity="info",
        step=last.step if last else 0,
        since=last.step if last else 0,
        mode=last.mode if last else "train",
        rank=last.rank if last else 0,
        tensor="",
        statistic="",
        value=float(len(lacks)),
        threshold=0.0,
        confidence=1.0,
        seen=f"{len(lacks)} rule{'s' if len(lacks) > 1 else ''} had nothing to look at: {missing}",
        cause="the run does not have the data that they read",
        remedy="; ".join(dict.fromkeys(words)) or "no action needed",
        evidence={"rules": list(lacks)},
    )
