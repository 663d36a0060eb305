"""Reports of empty, tiny and very large runs."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.explain.reports.pages import START, Page, attribute, axis_value, finding, make_run, train
from vinedresser.explain.charts.palette import NOT_FINITE
from vinedresser.explain.reports.report import write_report
from vinedresser.store.records import (
    ExitRecord,
)
from vinedresser.store.step_record import StepRecord


def test_a_run_without_steps_names_missing_data(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", exit_record=ExitRecord("crashed", "KeyError: 'x'", START, 1))
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "Crashed with exit code 1 — KeyError: 'x'" in page.text
    assert "Nothing was captured: no optimizer step has finished." in page.text
    assert "Gradient statistics were not captured." in page.text
    assert "No rule has judged it" in page.text
    assert "The run has no named parameters." in page.text
    assert page.charts() == []


def test_a_run_without_a_loss_explains_how_to_capture_one(tmp_path: Path) -> None:
    records = [StepRecord("train", 0, START, scalars={"metrics/accuracy": 0.5})]
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    assert "No loss was captured. Pass the loss module to the hook" in page.text
    assert len(page.charts()) == 1


def test_a_run_of_only_nan_has_a_page(tmp_path: Path) -> None:
    records = [train(step, math.nan, a=math.nan) for step in range(40)]
    run = make_run(tmp_path / "run", records, findings=[])
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "no finite value" in page.text
    assert "not finite 40 times, first at step 0" in page.text
    assert "By which rules it was judged is not recorded" in page.text
    assert set(page.cells().ravel().tolist()) == {NOT_FINITE}
    (strokes,) = [
        node for node in page.charts()[0].iter("path") if node.get("class") == "nonfinite"
    ]
    assert strokes.get("d", "").count("M") == 40


@pytest.mark.parametrize("base", [10.0, -10.0])
def test_a_loss_up_to_the_largest_float_has_a_page(tmp_path: Path, base: float) -> None:
    # Warnings are errors here: an overflow in the drawing would fail it.
    largest = sys.float_info.max
    records = [train(step, base ** min(step * 4, 308), a=largest) for step in range(90)]
    records.append(train(90, largest, a=5e-324))
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    assert "Last loss" in page.text
    assert len(page.charts()) == 1


def test_thousands_of_evaluations_and_findings_stay_small(tmp_path: Path) -> None:
    records = [
        StepRecord("eval", step, START, scalars={"metrics/accuracy": step / 5000})
        for step in range(5000)
    ]
    findings = [finding(step=step) for step in range(60)]
    run = make_run(tmp_path / "run", records, findings=findings)
    page = Page(write_report(run, tmp_path / "report.html"))
    assert len(page.html) < 200_000
    assert "10 more findings not shown" in page.text


def test_a_run_of_one_step_has_a_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [train(0, 1.25, a=0.5)])
    page = Page(write_report(run, tmp_path / "report.html"))
    (point,) = page.charts()[0].iter("circle")
    assert axis_value(page.charts()[0], "y", attribute(point, "cy")) == pytest.approx(1.25)
    assert page.cells().shape == (1, 1)


@pytest.mark.thorough
def test_three_hundred_layers_and_twenty_thousand_steps_stay_small_and_readable(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(2)
    names = [f"encoder.layers.{number}.self_attn.out_proj.weight" for number in range(300)]
    records = [
        train(
            step, 1.0, **(dict(zip(names, rng.random(300), strict=True)) if step % 50 == 0 else {})
        )
        for step in range(20_000)
    ]
    run = make_run(tmp_path / "run", records)
    path = write_report(run, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    page = Page(path)
    assert page.cells().shape == (300, 200)
    labels = [node for node in page.heat().iter("text") if node.get("class") == "tick y"]
    heights = [attribute(node, "y") for node in labels]
    assert len(labels) >= 50
    assert np.diff(heights).min() >= 10
    assert all("out_proj.weight" in (node.text or "") for node in labels)
    titles = [node.findtext("title") or "" for node in page.heat().iter("rect")]
    assert {title.partition(":")[0] for title in titles} >= set(names)
