"""Reports of runs in various states."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

from tests.explain.reports.pages import START, Page, finding, make_run, stopped_run, train
from vinedresser.explain.reports.report import write_report
from vinedresser.store.records import (
    ExitRecord,
    Heartbeat,
    SystemRecord,
    findings_key,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.store.step_record import StepRecord

NASTY = "</style><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;"


def test_the_head_names_who_stopped_the_run_why_and_the_steps_saved(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    assert "Stopped by vanishing_gradient — Gradients of first.weight are 1.3e-06" in page.text
    assert "Steps run 25 of 100 Steps saved 75 75% of the run" in page.text
    assert "Duration 1 min 30 s" in page.text
    assert "optimizer.name SGD" in page.text
    assert "python train.py --note 'a b'" in page.text


def test_findings_are_shown_with_their_evidence(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    assert (
        "1 Vanishing gradient stopped the run step 24, seen since step 16 · confidence 94% · "
        "gradients/first.weight Gradients of first.weight are 1.3e-06 of those of last.weight. "
        "Likely cause eleven sigmoid layers Try relu, or batch normalisation after each layer "
        "Evidence ratio 1.3 \N{MULTIPLICATION SIGN} 10⁻⁶"
    ) in page.text
    assert "2 Loss not decreasing warning step 10, seen since step 4" in page.text


def test_the_load_of_the_machine_is_drawn_and_damage_is_named(tmp_path: Path) -> None:
    run = stopped_run(tmp_path / "run")
    gpu = {f"gpu_{NASTY}_memory_usage_percentage": 90.0}
    records = [SystemRecord(START + 1, 4, {"cpu_utilization_percentage": 20.0})]
    records.append(SystemRecord(START + 9, 8, {"cpu_utilization_percentage": 40.0, **gpu}))
    lines = [f"{json.dumps(record.to_json())}\n".encode() for record in records]
    run.storage.put(SystemRecord.KEY, [*lines, b'{"time": 1, "step": 0, "values": {"a": "b"}}\n'])
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "Machine cpu utilization mean 30 % · at most 40 %" in page.text
    assert f"gpu {NASTY} memory usage mean 90 % · at most 90 %" in page.text
    assert "system.jsonl: line 3 is not a record of system metrics" in page.text


def test_text_from_the_run_is_escaped(tmp_path: Path) -> None:
    record = StepRecord(
        "train",
        0,
        START,
        scalars={f"losses/{NASTY}": 1.0, f"metrics/{NASTY}": math.nan},
        reductions={f"gradients/{NASTY}": {"l2": 1.0}},
    )
    nasty = finding(
        rule=NASTY, tensor=NASTY, seen=NASTY, cause=NASTY, remedy=NASTY, evidence={NASTY: [NASTY]}
    )
    run = make_run(
        tmp_path / "run",
        [record],
        findings=[nasty],
        exit_record=ExitRecord("crashed", NASTY, START + 1, code=1),
        name=NASTY,
        parameters={NASTY: NASTY},
        data={"train": [NASTY, "s3://bucket/a/"]},
        command=[NASTY, "\udcff"],
        versions={NASTY: NASTY},
    )
    page = Page(write_report(run, tmp_path / "report.html"))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    assert page.text.count("<script>alert('x')</script>") >= 10
    assert page.html.count("</style>") == 1
    assert f"Data, train {NASTY}, s3://bucket/a/" in page.text


def test_the_page_is_self_contained(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    for tag, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "action"):
            assert (attrs.get(name) or "data:").startswith("data:"), (tag, attrs)
    assert "://" not in page.html
    assert "@import" not in page.html
    assert set(re.findall(r"url\((.*?)\)", page.html)) <= {"#decades"}


def test_scalars_that_are_not_drawn_are_named(tmp_path: Path) -> None:
    scalars = {f"metrics/m{number}": 1.0 for number in range(14)}
    run = make_run(tmp_path / "run", [StepRecord("train", 0, START, scalars=scalars)])
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "2 more scalars not drawn: metrics/m12, metrics/m13" in page.text


def test_lost_records_and_unreadable_findings_are_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [train(0)])
    beat = read_record(run.storage, Heartbeat, key=heartbeat_key(0))
    assert beat is not None
    lossy = Heartbeat(beat.rank, beat.process, beat.last_step, beat.time, dropped=3)
    write_record(run.storage, lossy, key=heartbeat_key(0))
    run.storage.put(findings_key("default"), [b"not json\n"])
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "rank 0: 3 step records lost (queue or disk full)" in page.text
    assert "findings/default.jsonl: line 1 is not a finding" in page.text
    assert "no problem" not in page.text.lower()


def test_the_report_of_a_running_run_is_replaced_by_a_later_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", created=time.time())
    path = tmp_path / "new" / "report.html"
    assert write_report(run, path) == path
    assert "Still running" in Page(path).text
    write_record(run.storage, ExitRecord("finished", "", time.time() + 1, code=0))
    write_report(run, path)
    assert "Still running" not in Page(path).text
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]
