"""Rules that act on time without a step, suspicions, and what a run lacks for several rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.test_engine import LOSS, LossAbove, losses
from vinedresser.rules.base import Rule
from vinedresser.rules.engine import Engine
from vinedresser.rules.faults import Fault
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.step import Step
from vinedresser.testing.runs import make_run, step_record


class Pause(LossAbove):
    """Reports every time up to which no step was committed."""

    def __init__(self) -> None:
        super().__init__(limit=99.0)
        self.last: Step | None = None
        self.times: list[float] = []

    def update(self, step: Step) -> Finding | None:
        self.last = step
        return super().update(step)

    def idle(self, until: float) -> Finding | None:
        if self.last is None or until - self.last.time < 5:
            return None
        return self.found(
            self.last,
            since=self.last.step,
            tensor=LOSS,
            statistic="pause",
            value=until - self.last.time,
            threshold=5.0,
            confidence=1.0,
            seen=f"nothing for {until - self.last.time:g} s",
            cause="",
            remedy="",
            evidence={},
        )


class Failing(LossAbove):
    """Reports a fault once a loss is above 2.

    Args:
        fault: the fault.
        severity: severity of the rule.
        reported: severity of its findings.
    """

    def __init__(self, fault: Fault, severity: Severity, reported: Severity) -> None:
        super().__init__()
        self.fault = fault
        self.severity = severity
        self.reported: Severity = reported

    def update(self, step: Step) -> Finding | None:
        found = super().update(step)
        return None if found is None else replace(found, severity=self.reported)


class Suspicious(LossAbove):
    """Suspects every run."""

    def suspicion(self) -> Finding | None:
        assert self.last is not None
        return self.last

    def confirmed(self) -> Finding | None:
        return self.suspicion()

    def __init__(self) -> None:
        super().__init__(limit=1.5)
        self.last: Finding | None = None

    def update(self, step: Step) -> Finding | None:
        self.last = super().update(step) or self.last
        return None


def timed_run(folder: Path, *times: float) -> Run:
    return make_run(
        folder,
        [step_record(step, scalars={LOSS: 1.0}, at=at) for step, at in enumerate(times)],
    )


def begun(rules: list[Rule], run: Run) -> Engine:
    engine = Engine(rules)
    engine.begin(run.info)
    return engine


def test_a_pause_between_two_steps_is_found_with_the_later_step(tmp_path: Path) -> None:
    run = timed_run(tmp_path, 100.0, 101.0, 111.5)
    engine = begun([LossAbove(), Pause(), LossAbove()], run)
    found = [engine.update(step) for step in run.follow()]
    assert [[one.seen for one in some] for some in found] == [[], [], ["nothing for 10.5 s"]]


def test_time_without_a_step_is_shown_to_the_rules_that_ask_for_it(tmp_path: Path) -> None:
    run = timed_run(tmp_path, 100.0)
    engine = begun([Pause(), LossAbove()], run)
    for step in run.follow():
        engine.update(step)
    assert engine.idle(102.0) == []
    (finding,) = engine.idle(110.0)
    assert (finding.rule, finding.value) == ("pause", 10.0)


def test_suspicions_are_those_of_the_rules_that_have_one(tmp_path: Path) -> None:
    run = make_run(tmp_path, losses(1, 2, 1))
    engine = begun([LossAbove(), Suspicious()], run)
    assert [one for step in run.follow() for one in engine.update(step)] == []
    assert [(suspicion.rule, suspicion.step) for suspicion in engine.suspicions()] == [
        ("suspicious", 1)
    ]


@pytest.mark.parametrize(
    ("fault", "severity", "reported", "confirmed"),
    [
        ("underfitting", "stop", "stop", ["suspicious"]),
        ("underfitting", "warning", "warning", ["suspicious"]),
        # Milder than the rule reports a run that fails.
        ("underfitting", "stop", "warning", []),
        ("underfitting", "info", "info", []),
        # The cause is known.
        ("learning_rate_too_high", "stop", "stop", []),
    ],
)
def test_a_failure_without_a_cause_confirms_suspicions(
    fault: Fault, severity: Severity, reported: Severity, confirmed: list[str], tmp_path: Path
) -> None:
    run = make_run(tmp_path, losses(1, 1.8, 3))
    engine = begun([Failing(fault, severity, reported), Suspicious()], run)
    found = [[one.rule for one in engine.update(step)] for step in run.follow()]
    assert found == [[], [], ["failing", *confirmed]]


def test_what_the_hook_completes_tells_which_rules_apply(tmp_path: Path) -> None:
    run = make_run(tmp_path, losses(1))
    kinds = ("vanishing_gradient", "tree_depth")
    engine = begun([RULES[kind]() for kind in kinds], run)
    for step in run.follow():
        engine.update(step)
    found = []
    for framework in ("torch", "xgboost"):
        engine.on_record(replace(run.info, framework=framework))
        found.append(engine.checks(whole=True, attached=False).rules)
    assert found == [["vanishing_gradient"], ["tree_depth"]]


def test_a_rule_that_has_stopped_keeps_the_silent_ones_silent(tmp_path: Path) -> None:
    class Last(LossAbove):
        silent_after_stop = True

    first = LossAbove(limit=2.5)
    first.severity = "stop"
    run = make_run(tmp_path, losses(3, 2, 2.2))
    engine = begun([first, LossAbove(limit=1.9), Last(limit=1.9)], run)
    found = [[one.rule for one in engine.update(step)] for step in run.follow()]
    assert found == [["loss_above", "loss_above"], ["loss_above"], ["loss_above"]]
