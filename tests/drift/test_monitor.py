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
    assert (first.name, first.change, first.alarm) == ("age", "mean", True)
    assert first.how_far == pytest.approx(1.0, abs=0.3)
    assert "age: mean" in after[-1].summary


@pytest.mark.thorough
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
    assert [violation.split(":")[0] for violation in verdict.violations] == [
        "extra",
        "age",
        "visits",
        "embedding",
    ]


def test_values_far_outside_the_range_are_told_but_violate_nothing(
    random: np.random.Generator,
) -> None:
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    monitor.update(requests(random, 100))
    rows = requests(random, 100)
    rows["age"][7] = 1e6
    verdict = monitor.update(rows)
    assert not verdict.alarm
    assert verdict.violations == ()
    [told] = verdict.outliers
    assert told.startswith("age: 1 of 100 values far outside ")
    assert verdict.answer == "no drift seen"


def test_a_column_that_is_suddenly_missing_raises_an_alarm_at_once(
    random: np.random.Generator,
) -> None:
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    monitor.update(requests(random, 200))
    rows = requests(random, 200)
    rows["age"][:] = np.nan
    verdict = monitor.update(rows)
    assert verdict.alarm
    assert verdict.features[0].text.startswith(
        "age: missing in 100.0% of the rows, 0.0% before (+100.0 ± "
    )


def test_an_empty_window_changes_nothing(random: np.random.Generator) -> None:
    monitor = DriftMonitor(Baseline.of(requests(random, 200)))
    verdict = monitor.update(requests(random, 0))
    assert (verdict.rows, verdict.alarm, verdict.violations) == (0, False, ())


def test_falling_accuracy_raises_an_alarm_and_rising_accuracy_does_not(
    random: np.random.Generator,
) -> None:
    baseline = Baseline.of(requests(random, 2000), correct=random.random(2000) < 0.8)
    worse, better = DriftMonitor(baseline), DriftMonitor(baseline)
    for _ in range(5):
        worse.add_labels(random.random(200) < 0.6)
        better.add_labels(random.random(200) < 0.99)
    last = worse.add_labels(random.random(200) < 0.6)
    assert last.alarm
    assert last.features[0].text.startswith("accuracy")
    assert last.since == 0
    assert last.features[0].how_far == pytest.approx(-0.2, abs=0.06)
    risen = better.add_labels(np.ones(200, bool))
    assert (risen.alarm, risen.answer) == (False, "no drift seen")
    # One bad batch after many good ones is no fall.
    assert not better.add_labels(random.random(20) < 0.7).alarm


@pytest.mark.thorough
@pytest.mark.parametrize("small", [True, False])
def test_a_change_that_is_too_small_raises_no_alarm(
    random: np.random.Generator, small: bool
) -> None:
    rows = {"x": random.normal(size=5000), "y": random.random(5000) < 0.5}
    limits = {"at_least": 0.3, "at_least_share": 0.1} if small else {}
    baseline = Baseline.of(rows, categories=("y",))
    monitor = DriftMonitor(baseline, **limits)
    for _ in range(15):
        window = {"x": random.normal(0.15, 1, 1000), "y": random.random(1000) < 0.55}
        verdict = monitor.update(window)
        monitor = DriftMonitor.resumed(baseline, json.loads(json.dumps(monitor.state())))
    assert verdict.alarm == (not small)
    by_name = {feature.name: feature for feature in verdict.features}
    assert by_name["x"].evidence > by_name["x"].needed
    if small:
        assert by_name["x"].text.endswith("less than what is worth an alarm")
        # A change of just this size seems smaller half of the time.
        for name, least in (("x", 0.3), ("y", 0.1)):
            size = by_name[name].would_have_seen
            assert size is not None
            assert least < size < 1.2 * least
    # Larger ones do, of each kind.
    verdicts = [
        monitor.update({"x": random.normal(1, 1, 1000), "y": random.random(1000) < 0.9})
        for _ in range(3)
    ]
    assert {"x", "y"} <= {feature.name for feature in verdicts[-1].features if feature.alarm}
