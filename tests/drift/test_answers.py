"""A monitor says "no drift seen" only of what it could judge, and how large a drift it sees."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.drift.worlds import requests
from vinedresser.drift import Baseline, DriftError, DriftMonitor, Verdict


def walks(random: np.random.Generator, columns: int, rows: int) -> NDArray[np.float64]:
    """Return columns whose rows depend on each other over their whole length."""
    return np.cumsum(random.normal(size=(rows, columns)) / 10, axis=0)


def because(verdict: Verdict) -> dict[str, str]:
    """Return why nothing can be told, by feature."""
    return {feature.name: feature.because for feature in verdict.features if feature.because}


def test_what_was_judged_is_told_with_the_change_that_would_have_been_found() -> None:
    random = np.random.default_rng(0)
    monitor = DriftMonitor(Baseline.of(requests(random, 1000)))
    first, *_, last = (monitor.update(requests(random, 200)) for _ in range(10))
    assert (last.answer, last.reasons) == ("no drift seen", ())
    assert (last.rows, last.total_rows, last.judged_rows) == (200, 2000, 2000)
    assert re.match(
        r"no drift seen .*≥ 0\.\d+ standard deviations .*≥ [\d.]+ points of a share "
        r".*window 0, .*90%.* 2,000 of 2,000 rows",
        last.summary,
    )
    before = {feature.name: feature.would_have_seen for feature in first.features}
    for feature in last.features:
        if feature.test != "columns together" and "together" not in feature.name:
            assert feature.would_have_seen is not None
            earlier = before[feature.name]
            assert earlier is None or feature.would_have_seen < earlier / 1.5


def test_columns_that_cannot_be_judged_are_named_beside_those_that_can() -> None:
    random = np.random.default_rng(1)
    names = ["a", "b", "c", "d", "gone", "empty"]
    rows = {name: random.normal(size=1000) for name in names} | {"counter": np.arange(1000)}
    monitor = DriftMonitor(Baseline.of(rows))
    walk = walks(random, 1, 2000)[:, 0]
    for start in range(0, 2000, 200):
        window: dict[str, Any] = {name: random.normal(size=200) for name in "abcd"}
        window |= {"counter": np.arange(200), "b": walk[start : start + 200]}
        window["empty"] = random.normal(size=200) if start < 1800 else np.full(200, np.nan)
        verdict = monitor.update(window)
    assert verdict.answer == "drift"
    found = because(verdict)
    assert "depend on each other over too many rows" in found["b"]
    assert found["gone"] == "the requests do not have it"
    assert "baseline depend on each other" in found["counter"]
    assert verdict.features[0].name == "empty"
    assert {feature.name for feature in verdict.features if feature.answer == "no drift seen"} >= {
        *"acd"
    }
    assert {reason.partition(": ")[0] for reason in verdict.reasons} == {"b", "gone", "counter"}
    for name in found:
        assert name in verdict.summary


def test_nothing_is_called_free_of_drift_if_all_columns_are_beyond_limits() -> None:
    random = np.random.default_rng(2)
    monitor = DriftMonitor(Baseline.of({f"x{at}": random.normal(size=500) for at in range(3)}))
    walk = walks(random, 3, 2000)
    verdicts = [
        monitor.update({f"x{at}": walk[start : start + 200, at] for at in range(3)})
        for start in range(0, 2000, 200)
    ]
    assert {verdict.answer for verdict in verdicts} == {"cannot tell"}
    last = verdicts[-1]
    assert re.match(r"cannot tell\b.* x0, x1, x2, columns together: .*depend", last.summary)
    assert {feature.answer for feature in last.features} == {"cannot tell"}
    assert "no drift" not in last.summary


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        ({"x": np.zeros(0)}, "the window has no requests"),
        ({"x": np.zeros(99)}, "too few requests so far (99)"),
        ({"y": np.zeros(200)}, "the requests do not have it"),
        ({"x": np.full(200, "many")}, "its values are of another type"),
    ],
)
def test_a_window_that_tells_nothing_is_not_called_free_of_drift(
    window: dict[str, Any], reason: str
) -> None:
    random = np.random.default_rng(3)
    verdict = DriftMonitor(Baseline.of({"x": random.normal(size=500)})).update(window)
    assert verdict.answer == "cannot tell"
    assert verdict.summary.startswith(f"cannot tell, because x: {reason}; 0 of ")
    assert verdict.features[0].text == f"x: cannot tell, because {reason}"


def test_columns_without_values_and_labels_that_never_come_are_not_fine() -> None:
    random = np.random.default_rng(4)
    rows = {"x": random.normal(size=3000), "y": np.where(random.random(3000) < 0.9, np.nan, 1.0)}
    monitor = DriftMonitor(Baseline.of(rows, correct=random.random(3000) < 0.9))
    verdict = monitor.update({"x": random.normal(size=200), "y": np.full(200, np.nan)})
    found = because(verdict)
    assert verdict.alarm or found["y"] == "all its values are missing"
    assert "accuracy: no label has become known so far" in verdict.reasons
    told = monitor.add_labels(np.full(50, np.nan))
    assert (told.answer, told.reasons) == (
        "cannot tell",
        ("accuracy: no label has become known so far",),
    )
    few = monitor.add_labels(random.random(20) < 0.9)
    assert few.answer == "cannot tell"
    many = monitor.add_labels(random.random(400) < 0.9)
    assert many.answer == "no drift seen"
    assert many.features[0].would_have_seen is not None
    assert 0.1 < many.features[0].would_have_seen < 0.3


def test_a_constant_column_is_judged_only_as_far_as_a_change_would_show() -> None:
    random = np.random.default_rng(5)
    monitor = DriftMonitor(Baseline.of({"x": np.zeros(500), "y": random.normal(size=500)}))
    for _ in range(2):
        verdict = monitor.update({"x": np.zeros(200), "y": random.normal(size=200)})
    assert verdict.answer == "no drift seen"
    # Without a spread there are no standard deviations; another value in a share of the rows.
    [x] = [feature for feature in verdict.features if feature.name == "x"]
    assert x.answer == "no drift seen"
    assert x.would_have_seen is not None
    assert x.would_have_seen < 0.5
    assert "points of a share" in x.text


def _normal(random: np.random.Generator, rows: int, size: float) -> NDArray[Any]:
    return random.normal(size, 1, rows)


def _count(random: np.random.Generator, rows: int, size: float) -> NDArray[Any]:
    return random.poisson(3 + size * math.sqrt(3), rows)


def _category(random: np.random.Generator, rows: int, size: float) -> NDArray[Any]:
    return random.choice(np.array(["a", "b", "c"], object), rows, p=[0.5 - size, 0.3 + size, 0.2])


Draw = Callable[[np.random.Generator, int, float], NDArray[Any]]


def _monitor(draws: Sequence[Draw], random: np.random.Generator, rows: int) -> DriftMonitor:
    """Return a monitor; a baseline that seems dependent by chance is drawn again."""
    try:
        return DriftMonitor(Baseline.of(_rows(draws, random, rows, [0.0] * len(draws))))
    except DriftError:
        return _monitor(draws, random, rows)


def _rows(
    draws: Sequence[Draw], random: np.random.Generator, rows: int, sizes: Sequence[float]
) -> dict[str, NDArray[Any]]:
    """Return a column of each kind, in which a change of its size has happened."""
    return {
        draw.__name__: draw(random, rows, size) for draw, size in zip(draws, sizes, strict=True)
    }


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("draws", "baseline", "rows", "windows"),
    [
        *(
            pytest.param([draw], *lengths, marks=pytest.mark.slow)
            for draw in (_normal, _count, _category)
            for lengths in ((1000, 200, 5), (200, 100, 8))
        ),
        ([_normal, _count, _category], 200, 100, 8),
    ],
)
def test_the_change_that_would_have_been_seen_is_seen(
    draws: Sequence[Draw], baseline: int, rows: int, windows: int
) -> None:
    names = [draw.__name__ for draw in draws]
    told = []
    for seed in range(12):
        random = np.random.default_rng(seed)
        monitor = _monitor(draws, random, baseline)
        for _ in range(windows):
            verdict = monitor.update(_rows(draws, random, rows, [0.0] * len(draws)))
        by_name = {feature.name: feature.would_have_seen for feature in verdict.features}
        told.append([by_name[name] for name in names])
    sizes = np.median(np.array(told, float), axis=0)

    def seen(lives: int, stream: int, sizes: Sequence[float]) -> list[int]:
        """Return the number of lives in which the change of each column is seen."""
        found = Counter[str]()
        for seed in range(lives):
            random = np.random.default_rng([seed, stream])
            monitor = _monitor(draws, random, baseline)
            alarms = set[str]()
            for _ in range(windows):
                if not alarms.issuperset(names):
                    verdict = monitor.update(_rows(draws, random, rows, sizes))
                    alarms |= {feature.name for feature in verdict.features if feature.alarm}
            found.update(alarms)
        return [found[name] for name in names]

    # 90 % are promised; 80 lives have an error of 3 %.
    assert min(seen(80, 1, sizes)) >= 0.8 * 80
    # It is no idle promise, either: a half of it is mostly missed.
    assert max(seen(30, 2, sizes / 2)) < 0.6 * 30


def test_a_change_that_is_worth_an_alarm_has_to_seem_so_to_be_seen() -> None:
    random = np.random.default_rng(6)
    monitor = DriftMonitor(Baseline.of({"x": random.normal(size=1000)}), at_least=0.5)
    for _ in range(10):
        verdict = monitor.update({"x": random.normal(size=200)})
    # Of 1,000 and 2,000 rows, a difference of means has a standard error of 0.039.
    expected = 0.5 + 1.2816 * math.sqrt(1 / 1000 + 1 / 2000)
    assert verdict.features[0].would_have_seen == pytest.approx(expected, abs=0.005)
