"""One of several findings is the cause, the others are its symptoms."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

from vinedresser.capture import open_run
from vinedresser.rules.base import Rule
from vinedresser.rules.causes.root_cause import onset, root_causes
from vinedresser.rules.faults import CONSEQUENCES, FAULTS, brings_about
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import StopRecord, read_record
from vinedresser.store.storage import LocalStorage
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record


def finding(fault: str, step: int = 100, severity: Severity = "stop") -> Finding:
    return Finding(
        fault, severity, step, step, "train", 0, "", "", 0.0, 0.0, 1.0, "", "", "", {}, fault
    )


def test_the_cause_comes_first_whatever_the_order() -> None:
    found = [
        finding("not_learning", 200),
        finding("dying_relu", 120, "warning"),
        finding("learning_rate_too_high", 150, "warning"),
        finding("class_imbalance", 10, "info"),
    ]
    for order in itertools.permutations(found):
        roots = root_causes(order)
        assert [root.finding.fault for root in roots] == [
            "learning_rate_too_high",
            "class_imbalance",
        ]
        assert {one.fault for one in roots[0].symptoms} == {"not_learning", "dying_relu"}


def test_what_explains_nothing_stands_alone() -> None:
    found = [finding("overfitting"), finding("tree_depth", severity="warning")]
    assert [len(root.symptoms) for root in root_causes(found)] == [0, 0]
    assert root_causes([]) == []


def test_the_earlier_of_two_is_the_cause() -> None:
    found = [finding("vanishing_gradient", 300), finding("dying_relu", 100)]
    (root,) = root_causes(found)
    assert root.finding.fault == "dying_relu"


def test_shrinking_weights_are_a_symptom_of_a_loss_without_a_gradient() -> None:
    found = [finding("over_regularisation", 360), finding("loss_output_mismatch", 10, "warning")]
    (root,) = root_causes(found)
    assert root.finding.fault == "loss_output_mismatch"


def test_a_cause_does_not_begin_after_its_symptoms() -> None:
    cause, symptom = finding("unbounded_loss", 300), finding("learning_rate_too_high", 100)
    other = finding("overfitting", 20, "warning")
    found = [symptom, cause, other]
    assert root_causes(found)[0].finding is cause
    assert [onset(one, found) for one in found] == [100, 100, 20]


def test_every_fault_is_known_and_none_brings_about_itself() -> None:
    assert set(CONSEQUENCES) <= set(FAULTS)
    assert all(found <= set(FAULTS) for found in CONSEQUENCES.values())
    assert not any(brings_about(fault, fault) for fault in FAULTS)
    assert not brings_about("", "not_learning")
    assert not brings_about("of a newer version", "not_learning")


class Reports(Rule):
    """Reports one fault at one step."""

    needs = ()

    def __init__(self, kind: str, at: int, weight: Severity = "stop") -> None:
        self.kind = kind
        self.at = at
        self.weight = weight

    def update(self, step: Step) -> Finding | None:
        return finding(self.kind, step.step, self.weight) if step.step == self.at else None


def test_a_run_is_stopped_for_the_root_cause(tmp_path: Path) -> None:
    start_run(tmp_path)
    storage = LocalStorage(tmp_path)
    # A warning alone does not end the run.
    cause, end = Reports("learning_rate_too_high", 1, "warning"), Reports("not_learning", 3)
    told: list[Finding] = []
    judging = threading.Thread(
        target=lambda: judge(
            open_run(tmp_path), [cause, end], live=True, on_finding=told.append, poll=0.01
        )
    )
    judging.start()
    writer = RunWriter(storage, 0)
    for step in range(5):
        writer.add(step_record(step, scalars={"losses/a": 1.0}))
    deadline = time.monotonic() + 30
    while (stop := read_record(storage, StopRecord)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    writer.close()
    end_run(tmp_path, "stopped")
    judging.join(30)
    assert [one.rule for one in told] == ["learning_rate_too_high", "not_learning"]
    assert (stop.rule, stop.step) == ("learning_rate_too_high", 3)
