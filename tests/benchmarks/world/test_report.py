"""Tables of the judgement, against shares and medians worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.faults.peers import Alarm
from benchmarks.faults.verdict import Outcome, Verdict
from benchmarks.world.calibration import Claim, calibration_error, claims, reliability
from benchmarks.world.peers import score_of
from benchmarks.world.report import report
from tests.benchmarks.faults.test_verdict import finding


def verdict(id_: str, *findings: Any, peers: dict[str, list[Alarm]] | None = None) -> Verdict:
    _, fault, _, end = id_.split("-")
    return Verdict(
        id_,
        0,
        end == "F",
        fault if end == "F" else "healthy",
        200,
        Outcome(as_expected=True, measured={}),
        findings,
        peers or {},
        epoch=50,
    )


def cells(text: str, title: str) -> dict[str, list[str]]:
    """Return the cells of each line of the table whose first header is ``title``."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(title + " "))
    header, rule = lines[first], lines[first + 1]
    assert len(header) <= len(rule)
    starts = [n for n, mark in enumerate(rule) if mark == "-" and (not n or rule[n - 1] == " ")]
    rows = {}
    for line in lines[first + 2 :]:
        if not line:
            break
        parts = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        rows[parts[0]] = parts[1:]
    return rows


def test_the_tables_count_by_family_and_by_fault() -> None:
    warning = finding(severity="warning", step=10, since=8, fault="learning_rate_too_high")
    judged = [
        # Named at 5 % of the run, in the first epoch.
        verdict("a-lr_too_high-0.0-F", warning),
        # Its first sign, at 20 %, is wrong; a stop at 40 % is right, but it is not the root.
        verdict(
            "a-dead_relu-0.0-F",
            finding(severity="warning", step=40, since=40, fault="learning_rate_too_high"),
            finding(step=80, since=80),
        ),
        verdict("b-dead_relu-0.0-F"),
        verdict("a-lr_too_high-0.0-H", warning),
        verdict("a-dead_relu-0.0-H"),
        verdict("b-dead_relu-0.0-H", finding()),
    ]
    text = report(judged)
    family = cells(text, "family")
    # Found, right cause, right before 10 %, in the first epoch, first sign, first true sign.
    assert family["a"][:7] == ["2", "2, 100%", "1, 50%", "1, 50%", "1, 50%", "12%", "22%"]
    assert family["a"][7:] == ["2", "0, 0%", "1, 50%"]
    assert family["b"] == ["1", "0, 0%", "", "", "", "", "", "1", "1, 100%", "0, 0%"]
    assert family["all"][0:2] == ["3", "2, 67%"]
    fault = cells(text, "fault class")
    assert fault["dead_relu"][:3] == ["2", "1, 50%", "0, 0%"]
    # The healthy twins of the trainings with this fault.
    assert fault["dead_relu"][7:] == ["2", "1, 50%", "0, 0%"]


def test_two_faults_are_named_by_two_findings() -> None:
    both = "a-missing_zero_grad+dead_relu-0.{}-F"
    # Neither of these faults can cause the other.
    summed = finding(severity="warning", step=60, since=50, fault="gradients_not_cleared")
    corrupt = finding(severity="warning", step=10, since=5, fault="corrupt_labels")
    judged = [
        verdict(both.format(0)),
        verdict(both.format(1), corrupt),
        verdict(both.format(2), corrupt, summed),
        verdict("a-off_by_one+missing_zero_grad-0.0-F", corrupt, summed),
        # Both classes include the same word, which one finding says.
        verdict("a-off_by_one+label_noise-0.0-F", corrupt),
    ]
    assert [one.classes_named for one in judged] == [0, 0, 1, 2, 1]
    rows = cells(report(judged), "family")
    assert rows["a"][:2] == ["5", "4, 80%"]
    two = report(judged).split("two faults")[1]
    assert "5  4, 80%               3, 75%                1, 25%" in two, two


def test_the_calibration_error_is_the_gap_between_stated_and_true() -> None:
    made = [
        *[Claim(0.9, faulty=True, right=True, root=True)] * 3,
        Claim(0.9, faulty=False, right=False, root=True),
        Claim(0.5, faulty=True, right=False, root=False),
    ]
    # Four claims of 0.9 are right in 3 of 4 cases, one of 0.5 in none.
    assert calibration_error(made) == pytest.approx((4 * 0.15 + 1 * 0.5) / 5)
    assert np.isnan(calibration_error([]))
    text = report([verdict("a-dead_relu-0.0-F", finding()), verdict("a-dead_relu-0.0-H")])
    assert cells(text, "confidence")["all"] == ["1", "0.90", "1.00", "1.00", "1", "0.90", "1.00"]
    assert "expected calibration error of all findings: 0.10; of root causes, 0.10" in text


def test_claims_about_a_fault_without_a_word_do_not_count() -> None:
    said = finding(fault="not_learning")
    assert claims([verdict("a-stale_target-0.0-F", said)]) == []
    (claim,) = claims([verdict("a-stale_target-0.0-H", said)])
    assert claim == Claim(0.9, faulty=False, right=False, root=True, fault="not_learning")


def test_the_reliability_of_a_fault_is_drawn_to_that_of_all() -> None:
    judged = [
        *(verdict(f"a-dead_relu-0.{number}-F", finding()) for number in range(6)),
        verdict("b-lr_too_high-0.0-F", finding(fault="nonfinite")),
        # No claim: its class has no word.
        verdict("b-stale_target-0.0-F", finding(fault="not_learning")),
        # A root cause that blames a healthy training is wrong.
        verdict("b-lr_too_high-0.1-H", finding(fault="nonfinite")),
    ]
    # 6 of 8 are right, which weighs as much as four of each fault.
    assert reliability(judged) == {
        "dying_relu": round((6 + 4 * 0.75) / 10, 2),
        "nonfinite": round((0 + 4 * 0.75) / 6, 2),
    }


def test_peers_stand_beside_on_the_trainings_that_they_can_judge() -> None:
    alarm = {"AUTOTRAINER": [Alarm(20, "dying relu")], "UMLAUT": []}
    judged = [
        verdict("a-dead_relu-0.0-F", finding(), peers=alarm),
        verdict("a-dead_relu-0.1-F", finding()),
        verdict("a-dead_relu-0.0-H", peers=alarm),
    ]
    text = report(judged)
    assert cells(text, "family")["a"][-2:] == ["1 of 1; 1 of 1", "0 of 1; 0 of 1"]
    rows = cells(text, "judge")
    assert rows["vinedresser"][0] == "1 of 1, 100%"
    assert rows["AUTOTRAINER"][0] == rows["AUTOTRAINER"][2] == "1 of 1, 100%"
    assert rows["UMLAUT"][0] == "0 of 1, 0%"


def test_peers_judge_by_accuracy_or_by_the_explained_variance() -> None:
    scores = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 5.0]])
    assert score_of(scores, np.array([0, 1, 1, 1])) == 0.75
    targets = np.array([[1.0], [2.0], [3.0]])
    assert score_of(targets + np.array([[1.0], [0.0], [0.0]]), targets) == pytest.approx(0.5)
    assert score_of(scores, np.array([[0.0, 1.0]] * 4)) is None, "logits of labels 0 and 1"
    assert score_of(targets, np.array([[1.0, 2.0]] * 3)) is None
