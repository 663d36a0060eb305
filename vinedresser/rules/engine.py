"""Run all rules in one pass over the steps."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from vinedresser.rules.base import Rule
from vinedresser.rules.causes.chain import is_unexplained
from vinedresser.rules.rule_runner import RuleRunner
from vinedresser.rules.signals.base import SignalPool
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import ChecksRecord, RunRecord

_EVALS = (
    "pass evals=[(dtrain, 'train'), (dvalid, 'eval')] to xgboost.train, or eval_set=[(X, y), …] to "
    "an estimator's fit"
)
_ROWS = "give the hook the rows: hook.xgboost(train=dtrain, validation=dvalid)"
_HELD_OUT = "give the hook rows to evaluate: hook.sklearn(estimator, validation=(X, y))"
# What provides missing data, for a training with a hook and for one without; by framework.
_ADVICE = {
    "": {
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
    },
    "xgboost": {
        "losses": (_EVALS, _EVALS),
        "labels": (_ROWS, _EVALS),
        "metrics": (_EVALS, _EVALS),
        "evaluations": (_EVALS, _EVALS),
    },
    "sklearn": {"evaluations": (_HELD_OUT, _HELD_OUT)},
}


class Engine:
    """Passes each step to each rule, in a fixed order; a pure fold over the steps.

    Rules share equal signals, which are updated before the rules.

    Args:
        rules: rules to apply; the engine works on copies.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._pool = SignalPool()
        self._runners: list[RuleRunner] = []
        self._info: RunRecord | None = None
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
        self._info = info
        self._pool.begin(info)
        for runner in self._runners:
            runner.begin(info)

    def on_record(self, info: RunRecord) -> None:
        """Let signals and rules read the record again, which the hook has completed."""
        self._info = info
        self._pool.on_record(info)
        for runner in self._runners:
            runner.on_record(info)

    def update(self, step: Step) -> list[Finding]:
        """Pass the next step to all rules; return their findings in the order of the rules."""
        silence = self.idle(step.time)
        self._pool.update(step)
        found = self._filtered((runner, runner.update(step)) for runner in self._runners)
        return silence + found + self._confirmed(found)

    @property
    def begun(self) -> bool:
        """Whether it has begun."""
        return self._info is not None

    def idle(self, until: float, started: float | None = None) -> list[Finding]:
        """Report that no step was committed up to a time, in seconds since the epoch.

        Args:
            started: the start of the processes, for a run without any step; None: unknown.
        """
        if self.begun:
            return self._filtered((one, one.idle(until)) for one in self._timed)
        if started is None:
            return []
        return self._filtered((one, one.before_first(started, until)) for one in self._timed)

    def finish(self, *, early: bool = False) -> list[Finding]:
        """Report the end of the run; return the rules' last findings.

        Args:
            early: neither the training nor a rule ended it (`Rule.finish_early`).
        """
        return self._filtered((runner, runner.finish(early=early)) for runner in self._runners)

    def checks(self, *, whole: bool, attached: bool) -> ChecksRecord:
        """Return which rules have judged the run, whose end was reported, and what it lacks.

        Those that do not apply to its framework, or to a single process, are left out.

        Args:
            whole: the training was not cut short; otherwise it lacks nothing.
            attached: the script had no hook of its own.
        """
        info = self._info
        able = [one for one in self._runners if info is None or one.rule.applies_to(info)]
        lacking = {one.rule.name: one.lacks for one in able if one.lacks and whole}
        kinds = dict.fromkeys(lack.split()[0] for lacks in lacking.values() for lack in lacks)
        advice = _ADVICE[""] | _ADVICE.get("" if info is None else info.framework, {})
        words = [advice[kind][attached] for kind in kinds if kind in advice]
        return ChecksRecord(
            rules=[runner.rule.name for runner in able],
            lacking=lacking,
            advice="; ".join(dict.fromkeys(words)),
            ended=True,
        )

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
