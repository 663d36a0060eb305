"""Bad input gets one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.drift.worlds import requests
from vinedresser.drift import Baseline, DriftError, DriftMonitor

ROWS = np.random.default_rng(0).normal(size=200)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "at least one entry"),
        ({"x": ROWS, "y": ROWS[:-1]}, "'y' has 199 rows, 'x' has 200"),
        ({"x": ROWS.reshape(10, 5, 4)}, r"column 'x': has the shape \[10, 5, 4\]"),
        ({"x": ROWS.astype(complex)}, "column 'x': values of type complex128"),
        ({"x": np.zeros(200, "datetime64[s]")}, "column 'x': values of type datetime64"),
        ({"x": np.full((200, 3), "a")}, "column 'x': an embedding of type <U1"),
        ({"x": ROWS[:39]}, "a baseline of 39 rows: at least 40"),
        ({"x": np.sort(ROWS)}, "in_time_order=False"),
    ],
)
def test_a_baseline_of_bad_columns_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DriftError, match=message):
        Baseline.of(columns)


def test_sorted_rows_without_order_are_a_baseline() -> None:
    monitor = DriftMonitor(Baseline.of({"x": np.sort(ROWS)}, in_time_order=False))
    assert not monitor.update({"x": ROWS}).alarm


@pytest.mark.parametrize("budget", [0.0, 1.0, -1.0, float("nan")])
def test_a_budget_that_is_no_probability_is_refused(budget: float) -> None:
    with pytest.raises(DriftError, match="expected a probability"):
        DriftMonitor(Baseline.of({"x": ROWS}), budget=budget)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"at_least": -0.1}, "expected standard deviations"),
        ({"at_least": float("nan")}, "expected standard deviations"),
        ({"at_least_share": 5.0}, "expected a share"),
    ],
)
def test_a_smallest_change_that_is_no_size_is_refused(
    given: dict[str, float], message: str
) -> None:
    with pytest.raises(DriftError, match=message):
        DriftMonitor(Baseline.of({"x": ROWS}), **given)


def test_codes_have_to_be_a_column() -> None:
    with pytest.raises(DriftError, match="there is no column 'y'"):
        Baseline.of({"x": ROWS}, categories=("y",))


@pytest.mark.parametrize("correct", [[1, 0], np.full(200, 0.5), np.ones((200, 2))])
def test_other_values_than_booleans_are_not_correct(correct: Any) -> None:
    with pytest.raises(DriftError, match="expected 200 booleans"):
        Baseline.of({"x": ROWS}, correct=correct)


def test_labels_need_a_baseline() -> None:
    with pytest.raises(DriftError, match="has no accuracy"):
        DriftMonitor(Baseline.of({"x": ROWS})).add_labels([True])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 1),
        ("windows", "x"),
        ("streams", {}),
        ("streams", None),
        ("together", []),
        ("alarms", [1]),
    ],
)
def test_a_damaged_state_is_refused(key: str, value: object) -> None:
    baseline = Baseline.of(requests(np.random.default_rng(0), 100))
    state = DriftMonitor(baseline).state() | {key: value}
    with pytest.raises(DriftError, match="state"):
        DriftMonitor.resumed(baseline, state)


def test_windows_of_one_row_broken_images_and_one_class_are_judged() -> None:
    random = np.random.default_rng(1)
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    assert not monitor.update(requests(random, 1)).alarm
    rows = requests(random, 300)
    rows["embedding"][:] = np.nan
    rows["city"][:] = "Bonn"
    verdict = monitor.update(rows)
    assert [feature.name for feature in verdict.features if feature.alarm] == ["embedding", "city"]
    assert verdict.features[0].text.startswith("embedding: missing in 99.7% of the rows")


def test_too_few_requests_are_a_limit() -> None:
    random = np.random.default_rng(1)
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    verdict = monitor.update(requests(random, 50, shift=5))
    assert not verdict.alarm
    [limit] = verdict.limits
    assert "too few requests" in limit
    assert monitor.update(requests(random, 60, shift=5)).alarm


def test_requests_that_depend_on_each_other_too_long_are_a_limit() -> None:
    random = np.random.default_rng(2)
    monitor = DriftMonitor(Baseline.of({"x": random.normal(size=500)}))
    walk = np.cumsum(random.normal(size=2000) / 10)
    verdicts = [monitor.update({"x": walk[at : at + 200]}) for at in range(0, 2000, 200)]
    assert not any(verdict.alarm for verdict in verdicts)
    assert "use windows of more rows" in verdicts[-1].limits[0]


def test_labels_that_are_all_unknown_are_refused_in_a_baseline_and_ignored_later() -> None:
    with pytest.raises(DriftError, match="unknown for all rows"):
        Baseline.of({"x": ROWS}, correct=np.full(200, np.nan))
    monitor = DriftMonitor(Baseline.of({"x": ROWS}, correct=np.ones(200)))
    assert not monitor.add_labels(np.full(300, np.nan)).alarm


def test_one_column_of_a_baseline_that_depends_on_its_neighbours_is_left_out() -> None:
    random = np.random.default_rng(3)
    rows: dict[str, Any] = {f"x{column}": random.normal(size=400) for column in range(5)}
    rows |= {"counter": np.arange(400), "city": np.repeat(["Bonn", "Kiel"], 200)}
    baseline = Baseline.of(rows)
    assert [one.name for one in baseline.columns if not one.monitored] == ["counter", "city"]
    verdict = DriftMonitor(baseline).update(rows | {"counter": np.arange(400, 800)})
    assert not verdict.alarm
    assert [limit.split(":")[0] for limit in verdict.limits] == ["counter", "city"]
