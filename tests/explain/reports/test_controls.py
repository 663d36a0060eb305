"""What was changed in a training by hand is visible in its report and in MLflow."""

from __future__ import annotations

import json
import re
from pathlib import Path

from vinedresser.capture import Hook, open_run
from vinedresser.explain.reports.report import write_report
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ControlRecord, ExitRecord, read_record
from vinedresser.tasks.lifecycle.end_tags import end_tags
from vinedresser.tasks.lifecycle.metric_points import control_points

CHANGES = [
    ControlRecord(10, 1.0, "adjust", parameter="lr", old=[0.1, 0.1], new=[0.01, 0.02]),
    ControlRecord(20, 2.0, "pause"),
    ControlRecord(20, 3.0, "resume", seconds=61.0),
    ControlRecord(30, 4.0, "adjust", parameter="<b>", old=[], new=[2.0]),
]


def changed_run(path: Path) -> Path:
    with Hook(path) as hook:
        for _ in range(40):
            hook.step(loss=1.0)
    lines = [json.dumps(one.to_json()) for one in CHANGES]
    path.joinpath(ControlRecord.KEY).write_text("\n".join(lines) + "\n")
    return path


def test_the_time_line_has_a_sign_at_each_change(tmp_path: Path) -> None:
    run = open_run(changed_run(tmp_path / "run"))
    page = write_report(run, tmp_path / "report.html").read_text(encoding="utf-8")
    row = page[page.index("info changes") :].partition("</g>")[0]
    assert [int(step) for step in re.findall(r'data-step="(\d+)"', row)] == [10, 20, 20, 30]
    assert "lr 0.1, 0.1 → 0.01, 0.02" in row
    # The journal is data: a name in it is never markup.
    assert "&lt;b&gt; unset → 2" in row
    assert "<b>" not in row


def test_mlflow_gets_a_tag_and_a_metric_of_each_parameter(tmp_path: Path) -> None:
    path = changed_run(tmp_path / "run")
    end = read_record(LocalStorage(path), ExitRecord)
    assert end is not None
    told = str(end_tags(open_run(path), end)["controls"]).splitlines()
    assert told[:3] == [
        "step 10: lr 0.1, 0.1 → 0.01, 0.02",
        "step 20: paused",
        "step 20: resumed after 61 s",
    ]
    assert control_points(CHANGES) == {"control/lr": [(10, 0.01)], "control/<b>": [(30, 2.0)]}


def test_a_damaged_line_is_left_out_and_named(tmp_path: Path) -> None:
    path = changed_run(tmp_path / "run")
    with path.joinpath(ControlRecord.KEY).open("a") as file:
        file.write("[1]\n{\n")
    run = open_run(path)
    assert run.controls() == CHANGES
    assert any("controls.jsonl: line 5 is not a change" in problem for problem in run.problems)
