"""Signals are computed once, nested ones first, and their failures reach the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from vinedresser.capture import open_run
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.engine import Engine
from vinedresser.rules.judge import judge
from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.testing.runs import make_run, step_record


class Steps(Signal):
    """Counts steps."""

    needs = (Need("losses"),)
    made = 0

    def __init__(self, by: int = 1) -> None:
        self.by = by
        self.count = 0

    def update(self, step: Step) -> None:
        Steps.made += 1
        self.count += self.by


class Doubled(Signal):
    """Twice another signal."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.value = 0

    def update(self, step: Step) -> None:
        self.value = 2 * self.steps.count


class Counting(Rule):
    """Reports the number of steps at step 2."""

    severity = "info"
    needs = ()

    def __init__(self, limit: int = 2) -> None:
        self.limit = limit
        self.doubled = Doubled()
        self.steps = Steps()

    def update(self, step: Step) -> Finding | None:
        if step.step != self.limit:
            return None
        return self.found(
            step,
            since=0,
            tensor="",
            statistic="",
            value=self.doubled.value,
            threshold=self.steps.count,
            confidence=1.0,
            seen="counted",
            cause="",
            remedy="",
            evidence={},
        )


class Failing(Signal):
    """Fails at step 1."""

    def __init__(self) -> None:
        self.seen = 0

    def update(self, step: Step) -> None:
        if step.step == 1:
            raise ZeroDivisionError("a signal's own fault")


class Relying(Rule):
    """Relies on a signal that fails."""

    needs = ()

    def __init__(self) -> None:
        self.failing = Failing()

    def update(self, step: Step) -> Finding | None:
        return None


def run(path: Path, steps: int = 5) -> Path:
    make_run(path, [step_record(step, scalars={"losses/l": 1.0}) for step in range(steps)])
    return path


def test_equal_signals_are_shared_and_updated_before_those_that_use_them(tmp_path: Path) -> None:
    Steps.made = 0
    found = judge(open_run(run(tmp_path / "run")), [Counting(), Counting(3)])
    assert [(one.value, one.threshold) for one in found] == [(6.0, 3.0), (8.0, 4.0)]
    assert Steps.made == 5


def test_signals_with_different_parameters_are_separate() -> None:
    engine_rule = Counting()
    engine_rule.steps = Steps(by=3)
    assert engine_rule.steps.key != Steps().key
    assert Engine([engine_rule])


def test_needs_of_signals_are_captured() -> None:
    assert set(capture_for([Counting()]).collections) == {"losses"}


def test_a_signal_that_fails_disables_only_its_rules(tmp_path: Path) -> None:
    found = judge(open_run(run(tmp_path / "run")), [Relying(), Counting()])
    assert [one.rule for one in found] == ["relying", "counting"]
    assert "the rule itself failed: ZeroDivisionError: a signal's own fault" in found[0].seen


@pytest.mark.parametrize("rules", [[Counting()], [Counting(), Counting()]])
def test_the_given_rules_are_not_changed(tmp_path: Path, rules: list[Rule]) -> None:
    path = run(tmp_path / "run")
    first = judge(open_run(path), rules)
    assert judge(open_run(path), rules) == first
