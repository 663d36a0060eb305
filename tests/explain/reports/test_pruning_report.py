"""The page about a pruning."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.explain.reports.pages import finding
from tests.pruning.rounds.test_ending import TABLE, rounds
from vinedresser.explain.reports.pruning import PruningPage, pareto, write_pruning_report
from vinedresser.pruning.folders import ResultRecord
from vinedresser.pruning.rounds.round_record import RoundRecord


def records() -> list[RoundRecord]:
    return [
        RoundRecord.from_json(one.to_json() | {"left": {"stem": 8 - one.number, "<b>": 4}})
        for one in rounds(0.9, 0.92, 0.85, 0.88)
    ]


def test_the_pareto_front() -> None:
    assert [one.number for one in pareto(records(), "parameters")] == [3, 1]


def test_the_page(tmp_path: Path) -> None:
    found = finding(severity="warning", seen="the loss <rose>")
    page = PruningPage(
        name="slim & small",
        table=TABLE,
        rounds=records(),
        chosen=ResultRecord(3, "the smallest model"),
        over="all 3 rounds are done",
        findings={"round-2": [found]},
    )
    path = write_pruning_report(page, tmp_path / "pruning.html")
    text = path.read_text(encoding="utf-8")
    HTMLParser().feed(text)
    assert "slim &amp; small" in text
    assert "the loss &lt;rose&gt;" in text
    assert "<b>," not in text, "names of layers are escaped"
    assert text.count('class="round chosen"') == 4, "in each chart"
    assert re.search(r"<td>51\.2|51\.2 % of", text), "parameters of the result"
    assert not re.search(r"https?://(?!www\.w3\.org)", text), "nothing is loaded"


def test_the_interval_of_an_unclear_latency_is_below_the_answer(tmp_path: Path) -> None:
    measured = [replace(one, latency_low=0.5, latency_high=1.5) for one in records()]
    page = PruningPage("x", TABLE, measured, ResultRecord(3, "why"), "over", {})
    text = write_pruning_report(page, tmp_path / "pruning.html").read_text(encoding="utf-8")
    assert "<dd>cannot tell<small>50 to 150 % of the unpruned model" in text


@pytest.mark.parametrize(
    ("number", "missed", "tone"),
    [(3, "", "finished"), (3, "50 % of its macs", "doubtful"), (0, "", "doubtful")],
)
def test_a_page_is_green_only_if_the_targets_are_reached(
    number: int, missed: str, tone: str, tmp_path: Path
) -> None:
    page = PruningPage("x", TABLE, records(), ResultRecord(number, "why"), "over", {}, missed)
    text = write_pruning_report(page, tmp_path / "pruning.html").read_text(encoding="utf-8")
    assert f'<body class="{tone}">' in text


def test_a_pruning_without_rounds_has_a_page(tmp_path: Path) -> None:
    page = PruningPage("x", TABLE, [], None, "round-0 crashed: no data", {})
    text = write_pruning_report(page, tmp_path / "pruning.html").read_text(encoding="utf-8")
    assert "No round was completed: round-0 crashed: no data" in text
