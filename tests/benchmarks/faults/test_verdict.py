"""Verdicts, their tables, and the formulas of published rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.faults.classes import CLASSES, right_words
from benchmarks.faults.peers import autotrainer, debugger, umlaut
from benchmarks.faults.tables import report
from benchmarks.faults.verdict import Outcome, Verdict
from tests.benchmarks.faults.iris import iris
from vinedresser.rules.faults import FAULTS
from vinedresser.store.finding import Finding


def finding(**changes: Any) -> Finding:
    given: dict[str, Any] = {
        "rule": "r",
        "severity": "stop",
        "step": 50,
        "since": 40,
        "mode": "train",
        "rank": 0,
        "tensor": "t",
        "statistic": "l2",
        "value": 1.0,
        "threshold": 0.5,
        "confidence": 0.9,
        "seen": "s",
        "cause": "c",
        "remedy": "r",
        "fault": "dying_relu",
    }
    return Finding(**{**given, **changes})


def verdict(*findings: Finding, faulty: bool = True, as_expected: bool = True) -> Verdict:
    return Verdict(
        id="case",
        seed=0,
        faulty=faulty,
        fault_class="dead_relu" if faulty else "healthy",
        steps=200,
        outcome=Outcome(as_expected, {"acc": 0.5}),
        findings=findings,
    )


def test_a_verdict_counts_the_findings_up_to_the_stop() -> None:
    early = finding(severity="warning", step=20, fault="learning_rate_too_high")
    late = finding(severity="stop", step=90, fault="bad_initialisation")
    one = verdict(early, finding(), late)
    assert (one.detected_at, one.saved) == (20, 0.75)
    # A learning rate that is too high causes dead units; the late finding comes after the stop.
    assert one.root is early
    assert not one.named
    assert verdict(finding(), late).named
    about_itself = finding(severity="warning", statistic="", fault="", tensor="")
    assert verdict(about_itself).detected_at is None
    assert verdict(about_itself, faulty=False).alarms == [about_itself]
    assert verdict(finding(severity="info")).detected_at is None


def test_the_table_omits_unexpected_outcomes() -> None:
    text = report(
        [
            verdict(finding()),
            verdict(),
            verdict(as_expected=False),
            verdict(faulty=False),
            verdict(finding(severity="warning"), faulty=False),
        ]
    )
    words = " ".join(text.split())
    assert "dead_relu 2 1 of 2, 50% 1 of 2, 50% 1 of 2, 50% 25% 38%" in words
    assert "vinedresser 1 of 2, 50% 1 of 2, 50% 1 of 2, 50% 0 of 2, 0% 25% 38%" in words
    assert "not counted, 1 of 5" in text


def test_classes_consist_of_known_faults() -> None:
    assert {word for words in CLASSES.values() for word in words} <= set(FAULTS)
    assert right_words("overfitting") == {"overfitting"}
    assert right_words("something else") == frozenset()


def test_formulas_of_autotrainer() -> None:
    assert autotrainer.vanishing(0.9e-4, 1.0)
    assert not autotrainer.vanishing(1.1e-4, 1.0)
    assert not autotrainer.vanishing(0.9e-4, 0.05)
    assert autotrainer.exploding(71.0, 1.0, 0.5)
    assert not autotrainer.exploding(69.0, 1.0, 0.5)
    assert autotrainer.exploding(1.0, 1.0, float("nan"))
    assert autotrainer.dying([0.1, 0.9], [10, 30])
    assert not autotrainer.dying([0.1, 0.9], [11, 30])
    assert autotrainer.oscillating([0.5, 0.46, 0.5, 0.46, 0.5, 0.46])
    assert not autotrainer.oscillating([0.5, 0.48, 0.5, 0.48, 0.5, 0.48])
    assert autotrainer.slow([0.5, 0.505, 0.509], 10)
    assert not autotrainer.slow([0.5, 0.52, 0.52], 10)
    assert not autotrainer.slow([0.5, 0.505], 10)


def test_formulas_of_umlaut() -> None:
    assert umlaut.last_activation(iris().model) == ""
    assert umlaut.last_activation(iris(model=[{"dense": 3}, {"act": "softmax"}]).model) == "softmax"
    assert not umlaut.hidden_linear(iris().model)
    assert umlaut.hidden_linear(iris(model=[{"dense": 4}, {"dropout": 0.1}, {"dense": 3}]).model)
    normed = [{"dense": 4}, {"bn": 0.1}, {"act": "relu"}, {"dense": 3}]
    assert not umlaut.hidden_linear(iris(model=normed).model)


def test_formulas_of_debugger() -> None:
    before, now = np.array([1.0, 2.0]), np.array([1.5, 1.0])
    assert debugger.update_ratio(before, now) == pytest.approx(0.5, rel=1e-6)
    assert debugger.unchanged([now, now + 1e-9, now])
    assert not debugger.unchanged([now, now + 1e-3, now])
    assert not debugger.unchanged([now, now])
    values = np.zeros((200, 4))
    values[:, 0] = 1.0
    values[0, 1] = 1.0
    values[:3, 2] = 1.0
    assert debugger.inactive_share(values, (0.0, np.inf)) == 0.5
    assert debugger.all_zero(np.array([0.1, 1.0]))
    assert not debugger.all_zero(np.array([0.1, 0.99]))
    steps = np.arange(0, 50, 10)
    assert debugger.not_decreasing(steps, np.array([5.0, 4.0, 4.0, 3.0, 3.5])) == [20, 40]
    evaluations = np.array([1.0, 1.05, 1.2, 1.3, 1.0])
    assert debugger.overfit(steps, np.ones(5), steps, evaluations) == [30]
