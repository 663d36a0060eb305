"""A cycle of the requests, such as a week, is no drift, and a drift is found in spite of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.drift.noise import autoregressive, sessions
from vinedresser.drift import Baseline, DriftError, DriftMonitor
from vinedresser.drift.cycle import find_cycle
from vinedresser.drift.evidence.bins import BINS

DAY, HOUR = 86_400.0, 3600.0

Rows = dict[str, NDArray[Any]]


def weekly(random: np.random.Generator, day: int, *, drift: float = 0.0) -> Rows:
    """Return the requests of a day: other shares and a third of the requests at weekends."""
    weekend = day % 7 >= 5
    share = min((0.8 if weekend else 0.5) + drift, 1.0)
    rows = 66 if weekend else 200
    return {"shop": random.choice(["a", "b"], rows, p=[share, 1 - share])}


def busy(random: np.random.Generator, day: int, *, drift: float = 0.0) -> Rows:
    """Return the requests of a day whose number varies: three columns, two of them correlated."""
    weekend = day % 7 >= 5
    rows = int(random.poisson(60 if weekend else 180))
    first = random.normal(weekend * 1.0 + drift * 5, 1, rows)
    sign = -0.8 if weekend else 0.8
    second = sign * first + 0.6 * random.normal(size=rows)
    return {"first": first, "second": second, "other": random.normal(size=rows)}


def daily(random: np.random.Generator, hour: int, *, drift: float = 0.0) -> Rows:
    """Return the requests of an hour of a day with a peak."""
    turn = hour * 2 * np.pi / 24
    rows = int(random.poisson(40 + 30 * np.sin(turn)))
    return {"x": random.normal(np.cos(turn) + 5 * drift, 1, rows)}


def times(random: np.random.Generator, part: int, rows: int, unit: float) -> NDArray[np.float64]:
    return (part + np.sort(random.random(rows))) * unit


def joined(parts: Sequence[Rows]) -> Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def delay(
    draw: Callable[..., Rows],
    seed: int,
    *,
    parts: int,
    quiet: int,
    unit: float | None = None,
    period: float | None = None,
    drift: float = 0.2,
) -> int:
    """Return the number of parts of a cycle after which a drift of all of them is found.

    Args:
        draw: of a day or hour.
        seed: of all values.
        parts: days or hours of the baseline.
        quiet: days or hours without drift, in which there is no alarm.
        unit: seconds of a part, if the requests have times.
        period: given to the baseline.
        drift: given to `draw`.
    """
    random = np.random.default_rng(seed)
    rows = [draw(random, part) for part in range(parts)]
    when = None
    if unit is not None:
        lengths = [len(next(iter(row.values()))) for row in rows]
        when = np.concatenate([times(random, *one, unit) for one in enumerate(lengths)])
    monitor = DriftMonitor(Baseline.of(joined(rows), period=period, times=when))
    for part in range(parts, parts + quiet + 100):
        window = draw(random, part, drift=drift if part >= parts + quiet else 0.0)
        rows_now = len(next(iter(window.values())))
        now = None if unit is None else times(random, part, rows_now, unit)
        if monitor.update(window, times=now).alarm:
            return part - parts - quiet
    return 1 << 30


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_a_week_is_found_and_a_drift_within_two(seed: int) -> None:
    assert 0 <= delay(weekly, seed, parts=56, quiet=28) < 14


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("draw", "parts", "quiet", "period"),
    [
        # The last week is not complete, and the number of requests varies.
        (busy, 59, 28, None),
        (daily, 10 * 24, 72, None),
        (weekly, 56, 28, 1132),
    ],
)
def test_whole_cycles_are_compared(
    draw: Callable[..., Rows], parts: int, quiet: int, period: float | None
) -> None:
    within = 14 if draw is not daily else 48
    assert 0 <= delay(draw, 0, parts=parts, quiet=quiet, period=period) < within


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("draw", "parts", "unit", "period", "within"),
    [(weekly, 56, DAY, 7 * DAY, 3), (busy, 59, DAY, 7 * DAY, 1), (daily, 240, HOUR, DAY, 2)],
)
def test_the_same_phase_is_compared(
    draw: Callable[..., Rows], parts: int, unit: float, period: float, within: int
) -> None:
    assert 0 <= delay(draw, 0, parts=parts, quiet=21, unit=unit, period=period) <= within


def test_the_quietest_phase_decides_on_the_number_of_phases() -> None:
    """A third of the requests at weekends, so few that parts of these days have hardly any."""
    counts = [66 if day % 7 >= 5 else 200 for day in range(56)]
    when = np.concatenate([(day + (np.arange(one) + 0.5) / one) for day, one in enumerate(counts)])
    values = np.random.default_rng(0).normal(size=len(when))
    baseline = Baseline.of({"x": values}, period=7 * DAY, times=when * DAY, seed=0)
    assert baseline.cycle is not None
    assert np.bincount(baseline.phase, minlength=baseline.cycle.phases).min() >= 16


def test_a_drift_of_mondays_alone_is_found_on_one() -> None:
    random = np.random.default_rng(0)
    rows = [weekly(random, day) for day in range(56)]
    when = np.concatenate(
        [times(random, day, len(one["shop"]), DAY) for day, one in enumerate(rows)]
    )
    monitor = DriftMonitor(Baseline.of(joined(rows), period=7 * DAY, times=when))
    alarms = []
    for day in range(56, 77):
        window = weekly(random, day, drift=0.3 if day % 7 == 0 and day >= 63 else 0.0)
        alarms.append(monitor.update(window, times=times(random, day, len(window["shop"]), DAY)))
    assert [alarm.alarm for alarm in alarms].index(True) in (7, 8)


@pytest.mark.parametrize(
    "noise",
    [lambda: autoregressive(0.9), lambda: sessions(30, 0.5)],
    ids=["autocorrelated", "sessions"],
)
def test_dependent_rows_are_no_cycle(noise: Callable[[], Any]) -> None:
    for seed in range(2):
        rows = noise()(np.random.default_rng(seed), (5000, 1, 2))[:, 0]
        assert Baseline.of({"x": rows[:, 0], "y": rows[:, 1]}).cycle is None


def test_independent_rows_of_many_columns_are_no_cycle() -> None:
    random = np.random.default_rng(22)
    assert find_cycle(random.integers(BINS, size=(3000, 20)).astype(np.uint8)) is None


@pytest.mark.thorough
@pytest.mark.parametrize("timed", [False, True])
def test_a_monitor_of_cycles_is_saved_and_resumed(timed: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = [busy(random, day) for day in range(56)]
    each = [times(random, day, len(one["other"]), DAY) for day, one in enumerate(rows)]
    given: dict[str, Any] = {"period": 7 * DAY, "times": np.concatenate(each)} if timed else {}
    baseline = Baseline.of(joined(rows), **given)
    assert baseline.cycle is not None
    assert (baseline.cycle.phases > 1) == timed
    baseline.save(tmp_path / "baseline")
    monitor, other = DriftMonitor(baseline), DriftMonitor(Baseline.load(tmp_path / "baseline"))
    for day in range(56, 66):
        window = busy(random, day, drift=0.2 * (day > 63))
        now = times(random, day, len(window["other"]), DAY) if timed else None
        expected = monitor.update(window, times=now)
        assert other.update(window, times=now).to_json() == expected.to_json()
        state = json.loads(json.dumps(other.state(), allow_nan=False))
        other = DriftMonitor.resumed(baseline, state)
        assert other.state() == monitor.state()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"period": 101}, "span 200 rows; at least two"),
        ({"period": -1}, "expected a positive number"),
        ({"period": float("nan")}, "expected a positive number"),
        ({"times": np.arange(200)}, "of no use without a period"),
        ({"period": 50, "times": np.arange(199)}, "expected 200 finite numbers"),
        ({"period": 50, "times": np.full(200, np.nan)}, "expected 200 finite numbers"),
        ({"period": 99, "times": np.repeat(np.arange(2) * 198.0, 100)}, "parts of the period"),
    ],
)
def test_a_period_that_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DriftError, match=message):
        Baseline.of({"x": np.random.default_rng(0).normal(size=200)}, **given)


def test_times_are_needed_if_the_baseline_has_them() -> None:
    random = np.random.default_rng(0)
    dates = np.datetime64("2026-01-05") + np.arange(800) * np.timedelta64(1, "h")
    baseline = Baseline.of({"x": random.normal(size=800)}, period=DAY, times=dates)
    monitor = DriftMonitor(baseline)
    with pytest.raises(DriftError, match="times: the baseline's period is in seconds"):
        monitor.update({"x": random.normal(size=100)})
    later = dates[-1] + np.arange(100) * np.timedelta64(1, "h")
    assert not monitor.update({"x": random.normal(size=100)}, times=later).alarm
