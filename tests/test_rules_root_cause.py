"""Of several findings one is the cause, the others its symptoms."""

from __future__ import annotations

import itertools

from vinedresser.capture.finding import Finding, Severity
from vinedresser.rules.faults import CONSEQUENCES, FAULTS, brings_about
from vinedresser.rules.root_cause import root_causes


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


def test_an_earlier_one_of_two_is_the_cause() -> None:
    found = [finding("vanishing_gradient", 300), finding("dying_relu", 100)]
    (root,) = root_causes(found)
    assert root.finding.fault == "dying_relu"


def test_every_fault_is_known_and_none_brings_about_itself() -> None:
    assert set(CONSEQUENCES) <= set(FAULTS)
    assert all(found <= set(FAULTS) for found in CONSEQUENCES.values())
    assert not any(brings_about(fault, fault) for fault in FAULTS)
    assert not brings_about("", "not_learning")
    assert not brings_about("of a newer version", "not_learning")
