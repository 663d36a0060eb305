"""The tags of a run in MLflow say the verdict."""

from __future__ import annotations

import json
from pathlib import Path

from tests.explain.reports.pages import finding
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    ExitRecord,
    StopRecord,
    TrackingRecord,
    findings_key,
    write_record,
)
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.lifecycle.end_tags import end_tags
from vinedresser.testing.runs import start_run

TRACKING = TrackingRecord("sqlite:///x.db", "7", "f00")


def ended(place: Path, end: ExitRecord, *findings: Finding) -> Run:
    """Make a run of 100 steps that ended so, with findings."""
    start_run(place, total_steps=100)
    write_record(LocalStorage(place), end)
    lines = "".join(json.dumps(one.to_json()) + "\n" for one in findings)
    LocalStorage(place).put(findings_key("default"), [lines.encode()])
    return open_run(place)


def test_a_stopped_run_says_what_where_why_and_what_to_do(tmp_path: Path) -> None:
    stop = StopRecord("rule", "seen", 1.0, rule="vanishing_gradient", step=24)
    end = ExitRecord("stopped", "", 1.0, last_step=24, stop=stop)
    other = finding(rule="dying_relu", severity="warning", fault="", step=5, since=2)
    tags = end_tags(ended(tmp_path / "run", end, other, finding()), end, (), TRACKING)
    assert tags["verdict"] == "stopped by vanishing_gradient at step 24; 1 warning: dying_relu"
    decisive = finding()
    assert tags["verdict.rule"] == "vanishing_gradient"
    assert tags["verdict.since"] == 16
    assert tags["verdict.tensor"] == "gradients/first.weight"
    assert tags["verdict.cause"] == decisive.cause
    assert tags["verdict.remedy"] == decisive.remedy
    assert tags["steps.saved"] == 75
    words = str(tags["mlflow.note.content"])
    assert words.startswith(
        "**Stopped by vanishing\\_gradient at step 24; 1 warning: dying\\_relu**"
    )
    assert "75 steps saved · [report](#/experiments/7/runs/f00/artifacts/report.html)" in words
    assert decisive.remedy in words.replace("\\", "")


def test_a_healthy_run_says_so(tmp_path: Path) -> None:
    end = ExitRecord("finished", "", 1.0, last_step=99)
    tags = end_tags(ended(tmp_path / "run", end), end)
    assert tags["verdict"] == "finished"
    assert tags["mlflow.note.content"] == "**Finished**, no findings"
    assert "verdict.rule" not in tags
