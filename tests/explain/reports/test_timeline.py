"""Findings in the report: time line, root causes first, corrections."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explain.reports.pages import Page, attribute, axis_value, finding, make_run, train
from vinedresser.explain.reports.report import write_report
from vinedresser.store.finding import Finding


def found() -> list[Finding]:
    """Return a root cause (learning rate too high), two symptoms and an unrelated finding."""
    return [
        finding(rule="imbalance", fault="class_imbalance", severity="info", step=5, since=5),
        finding(
            rule="rate",
            fault="learning_rate_too_high",
            severity="warning",
            step=12,
            since=6,
            correction={"lr": 0.005},
        ),
        finding(rule="dead", fault="dying_relu", severity="warning", step=18, since=10),
        finding(rule="flat", fault="not_learning", severity="stop", step=24, since=16),
    ]


def page_of(directory: Path, findings: list[Finding], steps: int = 40) -> Page:
    records = [train(step) for step in range(steps)]
    run = make_run(directory / "run", records, findings=findings, parameters={"lr": 0.05})
    return Page(write_report(run, directory / "report.html"))


def test_the_root_cause_comes_first_and_its_symptoms_follow(tmp_path: Path) -> None:
    page = page_of(tmp_path, found())
    cards = [
        attributes
        for tag, attributes in page.tags
        if tag == "article" and "finding" in (attributes.get("class") or "")
    ]
    assert [card.get("class") for card in cards] == [
        "panel finding warning",
        "panel finding info",
    ]
    for words in (
        "1 Rate warning step 12, seen since step 6",
        "Correction lr = 0.005 instead of 0.05",
        "2 Dead at step 18: ",
        "3 Flat at step 24: ",
        "4 Imbalance info step 5",
    ):
        assert words in page.text


def test_a_rule_is_named_once_among_the_symptoms(tmp_path: Path) -> None:
    again = [
        finding(rule="dead", fault="dying_relu", severity="warning", step=step, since=step)
        for step in (19, 20, 21)
    ]
    page = page_of(tmp_path, [*found(), *again])
    symptoms = [attributes for tag, attributes in page.tags if tag == "li"]
    assert [symptom.get("id") for symptom in symptoms] == ["finding-2", "finding-3"]
    assert "Dead at step 18: " in page.text


def test_the_time_line_goes_from_first_sign_to_detection(tmp_path: Path) -> None:
    chart = page_of(tmp_path, found()).figure("chart timeline")
    entries = [node for node in chart.iter("g") if node.get("class", "").startswith("entry")]
    assert [entry.get("class") for entry in entries] == [
        "entry warning",
        "entry warning symptom",
        "entry stop symptom",
        "entry info",
    ]
    spans = [
        [axis_value(chart, "x", attribute(bar, end)) for end in ("x1", "x2")]
        for entry in entries
        for bar in entry.iter("line")
        if bar.get("class") == "span"
    ]
    # What was seen at one step only has no bar.
    assert spans == [
        pytest.approx([6, 12], abs=0.05),
        pytest.approx([10, 18], abs=0.05),
        pytest.approx([16, 24], abs=0.05),
    ]
    signs = [node.tag for node in chart.iter() if node.get("class") == "sign"]
    assert signs == ["path", "path", "rect", "circle"]


def test_the_time_line_shows_the_first_of_many_findings(tmp_path: Path) -> None:
    many = [finding(rule=f"rule_{step}", step=step, since=step - 1) for step in range(1, 40)]
    chart = page_of(tmp_path, many).figure("chart timeline")
    assert len([node for node in chart.iter() if node.get("class") == "sign"]) == 30
