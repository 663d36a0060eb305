"""The page of a comparison: complete, self-contained, one scale."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.explain.reports.pages import finding
from vinedresser import compare
from vinedresser.explain.charts.layer_map import common_maps, gradient_columns
from vinedresser.explain.reports.comparison.report import write_comparison
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import SystemRecord, findings_key
from vinedresser.testing.runs import make_run, step_record


def made(place: Path, scale: float, *, steps: int = 60, every: int = 10, **fields: Any) -> None:
    """Make a run with losses, accuracies and norms of gradients, weights and updates."""
    records = []
    for step in range(steps):
        norms = {}
        if step % every == 0:
            kinds = {"gradients": scale, "weights": 1.0, "updates": scale / 100}
            norms = {f"{kind}/w<0>": {"l2": size} for kind, size in kinds.items()}
        loss = scale * 0.9**step
        records.append(step_record(step, scalars={"losses/loss": loss}, reductions=norms))
    records.append(step_record(steps, mode="eval", scalars={"metrics/accuracy": 1 / (1 + scale)}))
    make_run(place, records, name=place.name, **fields)


def test_the_page_has_all_runs_and_is_self_contained(tmp_path: Path) -> None:
    for number in range(12):
        made(tmp_path / "store" / f"run-{number}", 0.1 + number, parameters={"x<b>": number})
    worst = tmp_path / "store" / "run-11"
    stop = finding(seen="<script>", step=20, since=10)
    line = json.dumps(stop.to_json()) + "\n"
    LocalStorage(worst).put(findings_key("default"), [line.encode()])
    made(tmp_path / "store" / "run-2.5", 2.5, code="0123-dirty", parameters={"x<b>": 2.5})
    found = compare(tmp_path / "store")
    assert [run.name for run in found.drawn] == [
        *("run-0", "run-1", "run-2", "run-2.5", "run-3", "run-4", "run-5"),
        "run-11",
    ]
    text = write_comparison(found, tmp_path / "compare.html").read_text(encoding="utf-8")
    assert all(f"run-{number}" in text for number in range(12))
    assert "8 of 13 runs" in text
    # Named among what differs, with the warning that it may not be all.
    assert "<td>0123-dirty</td>" in text
    assert "1 of the runs had uncommitted changes" in text
    assert not re.search(r"<script|https?://(?!www\.w3\.org)|<link|x<b>|w<0>", text)
    # A sign on the curve of each of its charts, and the cell of the table.
    assert "run-11: vanishing_gradient at step 20" in text
    assert "stop since step 10" in text


def test_heat_maps_share_columns_and_scale(tmp_path: Path) -> None:
    made(tmp_path / "a", 1.0, every=10)
    made(tmp_path / "b", 1e-4, every=20, steps=30)
    columns = [gradient_columns(open_run(tmp_path / name)) for name in "ab"]
    one, two = common_maps([found[1] for found in columns if found is not None])
    assert one.starts.tolist() == two.starts.tolist() == [0, 20, 40]
    assert np.allclose(one.log10, 0)
    assert np.allclose(two.log10[:, :2], -4)
    assert two.captured.tolist() == [[True, True, False]]
    text = write_comparison(compare(tmp_path), tmp_path / "c.html").read_text(encoding="utf-8")
    scales = re.findall(r'data-low="([^"]+)" data-high="([^"]+)"', text)
    assert scales == [("-4", "0"), ("-6", "-2")]


def test_columns_between_captured_steps_repeat_the_last_one(tmp_path: Path) -> None:
    made(tmp_path / "a", 1.0, every=1)
    made(tmp_path / "b", 1.0, every=1, steps=4)
    records = [
        step_record(s, reductions={"gradients/w": {"l2": 10.0**s}}) for s in (0, 1, 2, 9, 10)
    ]
    make_run(tmp_path / "c", records)
    found = [gradient_columns(open_run(tmp_path / name)) for name in "ac"]
    uneven = common_maps([columns[1] for columns in found if columns is not None])[1]
    assert uneven.log10[0, :11].tolist() == [0, 1, 2, 2, 2, 2, 2, 2, 2, 9, 10]
    assert uneven.captured[0].tolist() == [True] * 11 + [False] * 49


def test_the_load_of_the_machines_is_drawn_where_two_runs_have_it(tmp_path: Path) -> None:
    for name in "abc":
        made(tmp_path / name, 1.0)
    write_comparison(compare(tmp_path), tmp_path / "c.html")
    assert 'id="system"' not in (tmp_path / "c.html").read_text(encoding="utf-8")
    for name in "ab":
        values = {"cpu_utilization_percentage": 50.0, "disk_usage_megabytes": 1.0}
        line = json.dumps(SystemRecord(1.0, 5, values | {f"only_{name}_percentage": 1.0}).to_json())
        (tmp_path / name / SystemRecord.KEY).write_text(line, encoding="utf-8")
    text = write_comparison(compare(tmp_path), tmp_path / "c.html").read_text(encoding="utf-8")
    charts = re.findall(r'aria-label="(system/.*?)"', text)
    assert charts == ["system/cpu_utilization_percentage of 2 runs by step"]


def test_one_run_that_diverges_does_not_flatten_the_others(tmp_path: Path) -> None:
    for name, scale in (("a", 1.0), ("b", 1.1), ("c", 1e31)):
        made(tmp_path / name, scale)
    text = write_comparison(compare(tmp_path), tmp_path / "c.html").read_text(encoding="utf-8")
    charts = re.findall(
        r'<svg[^>]*aria-label="train/loss of 3 runs by step".*?</svg>', text, re.DOTALL
    )
    labels = re.findall(r'class="tick y">([^<]+)', charts[0])
    assert labels
    assert not any("³" in label or "²⁰" in label for label in labels)
    assert "at the edge" in text
