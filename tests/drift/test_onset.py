"""A shift is found in one of the first two windows that have it, and a larger one no later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.drift.noise import autoregressive, sessions
from vinedresser.drift import Baseline, DriftMonitor

NEVER = 1 << 30
# Rows after the onset.
LATER = 4000
# Standard deviations of numbers, and shares of the rows that get another category.
SIZES = [0.25, 0.5, 1.0, 2.0, 3.0, 10.0, 80.0]
SHARES = [0.1, 0.2, 0.4, 0.6, 0.8, 1.0]

Draw = Callable[[np.random.Generator, int], dict[str, NDArray[Any]]]


def numbers(size: float, onset: int, columns: int) -> Draw:
    def draw(random: np.random.Generator, rows: int) -> dict[str, NDArray[Any]]:
        shift = size * (np.arange(rows) >= onset)
        return {f"x{column}": random.normal(size=rows) + shift for column in range(columns)}

    return draw


def categories(share: float, onset: int, columns: int) -> Draw:
    """Return a draw in which a share of the rows gets a category that is rare before."""

    def draw(random: np.random.Generator, rows: int) -> dict[str, NDArray[Any]]:
        found = {}
        for column in range(columns):
            values = random.choice(np.array(["a", "b", "c"], object), rows, p=[0.6, 0.35, 0.05])
            values[(random.random(rows) < share) & (np.arange(rows) >= onset)] = "c"
            found[f"x{column}"] = values
        return found

    return draw


def delay(draw: Draw, ordinary: Draw, onset: int, rows: int, seed: int) -> int:
    """Return the number of windows from the one of the onset to that of the alarm."""
    random = np.random.default_rng(seed)
    monitor = DriftMonitor(Baseline.of(ordinary(random, 500)))
    stream = draw(random, onset + LATER)
    for window in range((onset + LATER) // rows):
        part = slice(rows * window, rows * (window + 1))
        if monitor.update({name: values[part] for name, values in stream.items()}).alarm:
            return window - onset // rows
    return NEVER


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows", "onset", "columns"),
    [
        (100, 0, 2),
        (100, 100, 1),
        (100, 50, 5),
        pytest.param(100, 2000, 1, marks=pytest.mark.slow),
        pytest.param(50, 100, 5, marks=pytest.mark.slow),
        (50, 275, 1),
        (200, 207, 3),
        (200, 395, 1),
        (1000, 500, 1),
        (1000, 5500, 1),
    ],
)
def test_a_larger_shift_is_found_no_later(rows: int, onset: int, columns: int) -> None:
    ordinary = numbers(0, 0, columns)
    for seed in range(2):
        delays = [
            delay(numbers(size, onset, columns), ordinary, onset, rows, seed) for size in SIZES
        ]
        assert delays == sorted(delays, reverse=True)
        assert min(delays) >= 0
        assert delays[SIZES.index(2.0)] <= 1


@pytest.mark.thorough
@pytest.mark.parametrize(("rows", "onset"), [(100, 100), (100, 150), (200, 0), (50, 1025)])
def test_a_larger_share_of_a_category_is_found_no_later(rows: int, onset: int) -> None:
    delays = [
        delay(categories(share, onset, 2), categories(0, 0, 2), onset, rows, 0) for share in SHARES
    ]
    assert delays == sorted(delays, reverse=True)
    assert delays[SHARES.index(0.6)] <= 1


@pytest.mark.parametrize("size", [10.0, 80.0])
@pytest.mark.parametrize("way", ["reverts", "slope"])
def test_a_window_that_reverts_and_a_slope_are_found(size: float, way: str) -> None:
    random = np.random.default_rng(1)
    monitor = DriftMonitor(Baseline.of({"x": random.normal(size=500)}))
    since = np.arange(800) - 350
    drift = (since >= 0) & (since < 100) if way == "reverts" else np.clip(since / 1000, 0, 1)
    rows = random.normal(size=800) + size * drift
    alarms = [monitor.update({"x": window}).alarm for window in rows.reshape(8, 100)]
    assert alarms.index(True) in (3, 4, 5)


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [autoregressive(0.9), sessions(30, 0.5)], ids=["ar", "sessions"])
def test_dependent_requests_raise_no_alarm_after_a_baseline_of_independent_ones(
    noise: Callable[..., NDArray[np.float64]],
) -> None:
    random = np.random.default_rng(2)
    names = [f"x{column}" for column in range(10)]
    monitor = DriftMonitor(Baseline.of({name: random.normal(size=1000) for name in names}))
    for _ in range(12):
        rows = noise(random, (200, 1, 10))[:, 0]
        assert not monitor.update(dict(zip(names, rows.T, strict=True))).alarm


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("noise", "rows", "onset"),
    [
        (lambda: autoregressive(0.9), 200, 1),
        (lambda: sessions(10, 0.5), 200, 5),
        (lambda: autoregressive(0.5), 100, 1),
    ],
    ids=["ar-0.9", "sessions", "ar-0.5"],
)
def test_a_gross_shift_of_dependent_requests_is_found_at_once(
    noise: Callable[[], Callable[..., NDArray[np.float64]]], rows: int, onset: int
) -> None:
    """A few independent rows suffice, if the baseline shows how dependent the requests are."""
    delays = []
    for size in (3.0, 10.0, 80.0):
        random = np.random.default_rng(0)
        before = noise()(random, (5000, 1, 2))[:, 0]
        monitor = DriftMonitor(Baseline.of({"x": before[:, 0], "y": before[:, 1]}))
        draw = noise()
        for window in range(onset + 8):
            values = draw(random, (rows, 1, 2))[:, 0] + size * (window >= onset)
            if monitor.update({"x": values[:, 0], "y": values[:, 1]}).alarm:
                break
        delays.append(window - onset)
    assert delays == sorted(delays, reverse=True)
    assert delays[1] in (0, 1)


@pytest.mark.thorough
@pytest.mark.parametrize(("columns", "rows", "lives", "most"), [(20, 200, 10, 0), (1, 100, 24, 3)])
def test_a_few_long_sessions_are_no_change(columns: int, rows: int, lives: int, most: int) -> None:
    """A few of them in a window look like one jump of each column, but not of most, nor for long.

    One column alone still takes them for a drift in one of 20 lives.
    """
    alarms = 0
    names = [f"x{column}" for column in range(columns)]
    for seed in range(lives):
        random = np.random.default_rng(seed)
        noise = sessions(30, 0.5)
        monitor = DriftMonitor(Baseline.of({name: random.normal(size=500) for name in names}))
        for _ in range(5 if rows == 100 else 3):
            values = noise(random, (rows, 1, columns))[:, 0]
            verdict = monitor.update(dict(zip(names, values.T, strict=True)))
        alarms += verdict.alarm
    assert alarms <= most


def test_what_the_first_window_seemed_to_show_is_forgotten_if_its_rows_depend_on_each_other() -> (
    None
):
    """The first 200 rows are one jump; those after it show that such jumps are usual."""
    random = np.random.default_rng(0)
    monitor = DriftMonitor(Baseline.of({f"x{one}": random.normal(size=500) for one in range(20)}))
    jumps = np.repeat(random.normal(size=(10, 20)), 50, axis=0)
    jumps[:200] = np.repeat(random.normal(size=(2, 20)), 100, axis=0)
    rows = jumps + 0.5 * random.normal(size=jumps.shape)
    for start in (0, 200):
        window = rows[start : start + (200 if not start else 300)]
        verdict = monitor.update({f"x{one}": window[:, one] for one in range(20)})
        assert verdict.answer == "cannot tell"
