"""The tags of a run in MLflow say the verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.explain.reports.pages import finding
from vinedresser.infra.services.tracking import NOTE_TAG
from vinedresser.objects import LocalStorage
from vinedresser.snapshots.replay_record import ReplayRecord, save_replay
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    ChecksRecord,
    ExitCause,
    ExitRecord,
    StopBy,
    StopRecord,
    TrackingRecord,
    checks_key,
    findings_key,
    write_record,
)
from vinedresser.tasks.lifecycle.end_tags import end_tags, proof_tags
from vinedresser.tasks.lifecycle.settle import mlflow_status
from vinedresser.testing.runs import start_run

TRACKING = TrackingRecord("sqlite:///x.db", "7", "f00")


def ended(place: Path, end: ExitRecord, *findings: Finding) -> Run:
    """Make a run of 100 steps that ended so, with findings."""
    start_run(place, total_steps=100)
    write_record(LocalStorage(place), end)
    lines = "".join(json.dumps(one.to_json()) + "\n" for one in findings)
    LocalStorage(place).put(findings_key("default"), [lines.encode()])
    return open_run(place)


def test_only_a_trial_that_its_sweep_pruned_is_finished_in_mlflow() -> None:
    def status(cause: ExitCause, by: StopBy = "rule", rule: str = "") -> str:
        stop = StopRecord(by, "seen", 1.0, rule=rule) if cause == "stopped" else None
        return mlflow_status(ExitRecord(cause, "", 1.0, stop=stop))

    assert status("finished") == status("stopped", "sweep") == "FINISHED"
    assert status("stopped", "sweep", "high_loss") == status("stopped", "person") == "KILLED"
    assert status("stopped", "rule", "nonfinite") == status("killed") == "KILLED"
    assert status("crashed") == "FAILED"


def test_a_stopped_run_says_what_where_why_and_what_to_do(tmp_path: Path) -> None:
    stop = StopRecord("rule", "seen", 1.0, rule="vanishing_gradient", step=24)
    end = ExitRecord("stopped", "", 1.0, last_step=24, stop=stop)
    other = finding(rule="dying_relu", severity="warning", fault="", step=5, since=2)
    tags = end_tags(ended(tmp_path / "run", end, other, finding()), end, (), TRACKING)
    assert tags["verdict"] == "stopped by vanishing_gradient at step 24; problem: dying_relu"
    decisive = finding()
    assert tags["verdict.rule"] == "vanishing_gradient"
    assert tags["verdict.since"] == 16
    assert tags["verdict.tensor"] == "gradients/first.weight"
    assert tags["verdict.cause"] == decisive.cause
    assert tags["verdict.remedy"] == decisive.remedy
    assert tags["steps.saved"] == 75
    words = str(tags["mlflow.note.content"])
    assert words.startswith("**Stopped by vanishing\\_gradient at step 24; ")
    assert "75 steps saved · [report](#/experiments/7/runs/f00/artifacts/report.html)" in words
    assert decisive.remedy in words.replace("\\", "")


PROVED = ReplayRecord(
    time=1.0,
    same="loss the same",
    tried="lr 0.02 instead of 0.2 cures it (loss 0.41 after 200 steps; unchanged: loss 2.3)",
    symptom="the loss does not fall",
    cures={"learning rate": [0.2, 0.02]},
)


def test_a_proved_cure_is_told_with_the_finding(tmp_path: Path) -> None:
    end = ExitRecord("finished", "", 1.0, last_step=24)
    other = finding(rule="dying_relu", severity="warning", fault="", step=5, since=2)
    run = ended(tmp_path / "run", end, other, finding())
    before = end_tags(run, end, (), TRACKING)
    assert "verdict.tried" not in before or before["verdict.tried"] is None
    save_replay(run.storage, "step-3", PROVED)
    tags = end_tags(run, end, (), TRACKING)
    told = f"{PROVED.tried}; from step 3, symptom: the loss does not fall"
    assert tags["verdict.tried"] == told
    # Of the two findings, the one that decides.
    (note,) = [one for one in str(tags[NOTE_TAG]).split("\n\n") if "Tried: " in one]
    assert note.startswith(f"**{finding().rule}**".replace("_", "\\_"))
    # Newer trials replace the text; what the user wrote stays.
    changed = replace(PROVED, time=2.0, tried="eps 0.0001 instead of 1e-08 cures it")
    save_replay(run.storage, "step-3", changed)
    renewed = proof_tags(run, end, TRACKING, str(tags[NOTE_TAG]))
    assert "Tried: eps 0.0001 instead of 1e-08 cures it" in str(renewed[NOTE_TAG]).replace("\\", "")
    assert "lr 0.02" not in str(renewed[NOTE_TAG])
    own = proof_tags(run, end, TRACKING, f"{before[NOTE_TAG]} and so on")
    assert own.keys() == {"verdict.tried"}


def test_a_healthy_run_says_what_that_rests_on(tmp_path: Path) -> None:
    end = ExitRecord("finished", "", 1.0, last_step=99)
    run = ended(tmp_path / "run", end)
    doubtful = end_tags(run, end)
    assert doubtful["verdict.kind"] == "cannot tell"
    assert "no problem" not in str(doubtful["verdict"])
    write_record(run.storage, ChecksRecord(["a", "b"], ended=True), key=checks_key("default"))
    tags = end_tags(run, end)
    assert (tags["verdict"], tags["verdict.kind"]) == ("finished; no problem found", "healthy")
    assert tags["mlflow.note.content"] == "**Finished; no problem found**: 2 rules, 100 steps"
    assert "verdict.rule" not in tags
