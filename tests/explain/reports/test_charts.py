"""Charts in the report of a run show the captured values."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.explain.reports.pages import Page, attribute, axis_value, make_run, stopped_run, train
from vinedresser.explain.charts.palette import FIRST_LEVEL, LEVELS, NONE, NOT_FINITE, ZERO
from vinedresser.explain.reports.report import write_report


def test_markers_stand_at_the_steps_of_the_findings(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    charts = page.charts()
    assert [chart.get("aria-label") for chart in charts] == [
        "CrossEntropyLoss by step",
        "accuracy by step",
    ]
    for chart in [*charts, page.heat()]:
        marks = [node for node in chart.iter("g") if "marker" in node.get("class", "")]
        assert [mark.get("class") for mark in marks] == ["marker stop", "marker warning"]
        assert [mark.findtext("text") for mark in marks] == ["1", "2"]
        lines = [mark.find("line") for mark in marks]
        steps = [
            axis_value(chart, "x", attribute(line, "x1")) for line in lines if line is not None
        ]
        assert steps == pytest.approx([24, 10], abs=0.05)


def test_the_loss_curve_passes_through_the_values(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    chart = page.charts()[0]
    (line,) = [node for node in chart.iter("path") if node.get("class") == "trend"]
    pairs = [tuple(map(float, pair.split())) for pair in re.split("[ML]", line.get("d", ""))[1:]]
    values = [axis_value(chart, "y", y) for _, y in pairs]
    assert values == pytest.approx([2.3 - 0.01 * step for step in range(25)], abs=5e-4)
    (point,) = [node for node in chart.iter("circle") if node.get("class") == "point eval"]
    assert point.findtext("title") == "step 20: 2.2"
    assert axis_value(chart, "y", attribute(point, "cy")) == pytest.approx(2.2, abs=5e-4)
    assert axis_value(chart, "x", attribute(point, "cx")) == pytest.approx(20, abs=0.05)


def test_a_noisy_long_curve_is_outlined_with_its_trend(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = [train(step, 1 + 0.1 * rng.normal()) for step in range(3000)]
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    kinds = [node.get("class") for node in page.charts()[0].iter("path")]
    assert kinds == ["raw", "trend"]
    assert len(page.html) < 60_000


def test_the_heat_map_shows_the_captured_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = [f"layers.{number}.weight" for number in range(7)]
    records = [
        train(step, **{name: 10 ** rng.uniform(-9, 1) for name in names}) for step in range(60)
    ]
    run = make_run(tmp_path / "run", records)
    page = Page(write_report(run, tmp_path / "report.html"))
    columns = run.reductions("l2", "gradients")
    expected = np.log10([columns[f"gradients/{name}"].values for name in names])
    low, high = page.colour_ends()
    assert (low, high) == pytest.approx((expected.min(), expected.max()))
    level = page.cells().astype(float) - FIRST_LEVEL
    shown = low + level / (LEVELS - 1) * (high - low)
    assert shown.shape == (7, 60)
    np.testing.assert_allclose(shown, expected, atol=0.51 * (high - low) / (LEVELS - 1))
    labels = [node.text for node in page.heat().iter("text") if node.get("class") == "tick y"]
    assert labels == names


def test_zero_not_finite_and_not_captured_have_distinct_colours(tmp_path: Path) -> None:
    values = [0.5, 0.0, math.nan, math.inf]
    records = [train(step, a=value) for step, value in enumerate(values)]
    records.append(train(4, b=2.0))
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    cells = page.cells().tolist()
    assert cells[0] == [FIRST_LEVEL, ZERO, NOT_FINITE, NOT_FINITE, NONE]
    assert cells[1] == [NONE, NONE, NONE, NONE, FIRST_LEVEL + LEVELS - 1]


def test_many_steps_are_merged_by_their_geometric_mean(tmp_path: Path) -> None:
    # 1 and 100 in turn: the geometric mean is 10, the arithmetic one 50.5.
    records = [train(step, a=100.0 if step % 2 else 1.0, b=1000.0) for step in range(480)]
    records[7].reductions["gradients/a"]["l2"] = math.nan
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    cells = page.cells()
    low, high = page.colour_ends()
    assert (low, high) == pytest.approx((1.0, 3.0))
    assert cells.shape == (2, 240)
    assert cells[0, 3] == NOT_FINITE
    assert set(np.delete(cells[0], 3).tolist()) == {FIRST_LEVEL}
    assert "480 captured steps, neighbours merged" in page.text


def test_the_statistic_captured_for_most_parameters_is_drawn(tmp_path: Path) -> None:
    records = [train(step, a=1.0) for step in range(3)]
    for record in records:
        for name in ("a", "b"):
            record.reductions.setdefault(f"gradients/{name}", {})["abs_mean"] = 0.5
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    assert "mean absolute value · 2 parameters" in page.text
