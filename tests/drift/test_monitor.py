"""A monitor finds drift, says what drifted, and continues from its state."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.drift.worlds import requests
from vinedresser.drift import Baseline, DriftError, DriftMonitor


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(5)


def test_a_shift_is_found_and_named(random: np.random.Generator) -> None:
    monitor = DriftMonitor(Baseline.of(requests(random, 500)))
    before = [monitor.update(requests(random, 200)) for _ in range(5)]
    after = [monitor.update(requests(random, 200, shift=1)) for _ in range(3)]
    assert [one.alarm for one in before] == [False] * 5
    assert [one.alarm for one in after][-1]
    assert after[-1].since == 5
    first = after[-1].features[0]
    assert (first.name, first.change, first.alarm) == ("age", "median", True)
    assert first.how_far == pytest.approx(1.0, abs=0.3)
    assert "age: median" in after[-1].summary


def test_a_resumed_monitor_gives_the_same_verdicts(random: np.random.Generator) -> None:
    baseline = Baseline.of(requests(random, 300), correct=random.random(300) < 0.9)
    monitor = DriftMonitor(baseline)
    for window in range(25):
        monitor.update(requests(random, 150))
        monitor.add_labels(random.random(50) < 0.9)
        if window % 8 == 0:
            state = json.loads(json.dumps(monitor.state(), allow_nan=False))
            resumed = DriftMonitor.resumed(baseline, state)
            rows = requests(random, 150, shift=0.5)
            assert resumed.update(rows).to_json() == monitor.update(rows).to_json()
            assert resumed.state() == monitor.state()


def test_the_state_of_another_baseline_is_refused(random: np.random.Generator) -> None:
    state = DriftMonitor(Baseline.of(requests(random, 100))).state()
    with pytest.raises(DriftError, match="another baseline"):
        DriftMonitor.resumed(Baseline.of(requests(random, 100)), state)


def test_missing_unknown_and_other_columns_are_violations(random: np.random.Generator) -> None:
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    rows = requests(random, 100)
    del rows["age"]
    rows |= {"extra": np.zeros(100), "visits": np.full(100, "many"), "embedding": np.ones((100, 5))}
    verdict = monitor.update(rows)
    assert not verdict.alarm
    assert [one.split(":")[0] for one in verdict.violations] == [
        "extra",
        "age",
        "visits",
        "embedding",
    ]


def test_values_far_outside_the_range_are_told_but_violate_nothing(
    random: np.random.Generator,
) -> None:
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    rows = requests(random, 100)
    rows["age"][7] = 1e6
    verdict = monitor.update(rows)
    assert not verdict.alarm
    assert verdict.violations == ()
    [told] = verdict.outliers
    assert told.startswith("age: 1 of 100 values far outside ")
    assert verdict.summary == "no drift"


def test_a_column_that_is_suddenly_missing_raises_an_alarm_at_once(
    random: np.random.Generator,
) -> None:
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    rows = requests(random, 200)
    rows["age"][:] = np.nan
    verdict = monitor.update(rows)
    assert verdict.alarm
    assert verdict.features[0].text == "age: missing in 100.0% of the rows, 0.0% in the baseline"


def test_an_empty_window_changes_nothing(random: np.random.Generator) -> None:
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    verdict = monitor.update(requests(random, 0))
    assert (verdict.rows, verdict.alarm, verdict.violations) == (0, False, ())


def test_falling_accuracy_raises_an_alarm_and_rising_accuracy_does_not(
    random: np.random.Generator,
) -> None:
    baseline = Baseline.of(requests(random, 1000), correct=random.random(1000) < 0.8)
    worse, better = DriftMonitor(baseline), DriftMonitor(baseline)
    for _ in range(5):
        worse.add_labels(random.random(200) < 0.6)
        better.add_labels(random.random(200) < 0.99)
    last = worse.add_labels(random.random(200) < 0.6)
    assert last.alarm
    assert last.features[0].text.startswith("accuracy")
    assert not better.add_labels(np.ones(200, bool)).alarm
