"""The change that an alarm names is the true one, and its size is right within what is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser.drift import Baseline, DriftMonitor, FeatureDrift
from vinedresser.drift.evidence.bins import BINS
from vinedresser.drift.sizes.categories import CategorySizes
from vinedresser.drift.sizes.change import Change
from vinedresser.drift.sizes.numbers import NumberSizes

RANDOM = np.random.default_rng(0)
NORMAL = RANDOM.normal(size=2000)
HEAVY = RANDOM.standard_t(2, 2000)
CITIES = np.array(["Bonn"] * 70 + ["Kiel"] * 30, object)


def change_of(sizes: NumberSizes | CategorySizes, rows: int, values: NDArray[Any]) -> Change:
    """Return the change since the first window, whose rows all count, in even bins."""
    bins = np.full(BINS, rows / BINS), np.full(BINS, len(values) / BINS)
    return sizes.change(np.zeros(sizes.size), sizes.sums(values), bins)


@pytest.mark.parametrize(
    ("baseline", "window", "change", "how_far", "text"),
    [
        (NORMAL, NORMAL[:400] + 1, "mean", 1.0, "standard deviations higher"),
        (NORMAL, NORMAL[:400] + 1e4, "mean", 1e4, "standard deviations higher"),
        (NORMAL, NORMAL[:400] * 2, "spread", 2.0, "times)"),
        (HEAVY, HEAVY[:400] + 2, "median", 2 / 1.22, "standard deviations higher"),
        (NORMAL, np.append(NORMAL[:399] + 0.5, 1e9), "median", 0.5, "higher"),
        (NORMAL, np.where(NORMAL > 1, np.nan, NORMAL), "missing", 0.16, "missing in"),
        (
            np.zeros(100),
            np.array([0, 0, 0, 5.0]),
            "constant",
            0.25,
            "25.0% of the values are not 0",
        ),
        (NORMAL, np.full(50, np.nan), "missing", 1.0, "missing in 100.0%"),
        (np.full(100, np.nan), NORMAL, "missing", -1.0, "missing in 0.0% of the rows, 100.0%"),
        (NORMAL, np.full(50, np.inf), "mean", 1e6, "higher"),
        ((NORMAL > 0) * 1.0, (NORMAL > 1) * 1.0, "mean", -0.68, "lower"),
    ],
)
def test_changes_of_numbers(
    baseline: NDArray[np.float64],
    window: NDArray[np.float64],
    change: str,
    how_far: float,
    text: str,
) -> None:
    found = change_of(NumberSizes("x", baseline), len(baseline), window)
    assert found.change == change
    assert found.text.startswith("x: ")
    assert text in found.text
    assert found.how_far == pytest.approx(how_far, rel=0.15, abs=0.02)


def test_another_distribution_with_the_same_mean_and_spread_is_named_as_such() -> None:
    sizes = NumberSizes("x", NORMAL)
    low = np.zeros(BINS)
    low[[5, 10]] = 500
    values = np.repeat([-1.0, 1.0], 500)
    found = sizes.change(
        np.zeros(sizes.size), sizes.sums(values), (np.full(BINS, 2000 / BINS), low)
    )
    assert found.change in {"distribution", "tails"}


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (["Bonn"] * 30 + ["Kiel"] * 70, "x: 'Bonn' in 30.0% of the rows, 70.0% before"),
        (["Bonn"] * 60 + ["Ulm"] * 40, "x: 'Ulm', which is new, in 40.0% of the rows, 0.0% before"),
        (["Bonn", None, None], "x: missing in 66.7% of the rows, 0.0% before"),
        (["{Bonn}"] * 50, "x: '{Bonn}', which is new, in 100.0% of the rows"),
        (["Bonn"], "x: "),
    ],
)
def test_changes_of_categories(window: list[Any], text: str) -> None:
    values = np.array([*window, None], object)[:-1]
    assert change_of(CategorySizes("x", CITIES), 100, values).text.startswith(text)


def test_ever_new_categories_need_no_more_memory() -> None:
    sizes = CategorySizes("x", CITIES)
    for window in range(50):
        values = np.array([f"{window}-{one}" for one in range(20)], object)
        assert len(sizes.sums(values)) == sizes.size
    assert len(sizes.new) < 20
    assert "all other categories in" in change_of(sizes, 100, values).text


def first_alarm(seed: int, draw: Any, *, clean: int) -> FeatureDrift:
    """Return the feature that raises the first alarm after some windows without drift."""
    random = np.random.default_rng(seed)
    monitor = DriftMonitor(Baseline.of({"x": draw(random, 1000, 0)}))
    for window in range(clean + 60):
        verdict = monitor.update({"x": draw(random, 200, window >= clean)})
        if verdict.alarm:
            return verdict.features[0]
    raise AssertionError("no alarm")


def _moved(random: np.random.Generator, rows: int, on: bool) -> NDArray[Any]:
    return random.normal(0.4 * on, 1, rows)


def _spread(random: np.random.Generator, rows: int, on: bool) -> NDArray[Any]:
    return random.normal(0, 1.4 if on else 1, rows)


def _missing(random: np.random.Generator, rows: int, on: bool) -> NDArray[Any]:
    values = random.normal(size=rows)
    return np.where(random.random(rows) < (0.15 if on else 0.02), np.nan, values)


def _share(random: np.random.Generator, rows: int, on: bool) -> NDArray[Any]:
    return random.choice(
        np.array(["a", "b", "c"], object), rows, p=[0.5 - 0.2 * on, 0.3 + 0.2 * on, 0.2]
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("draw", "change", "size"),
    [
        (_moved, "mean", 0.4),
        (_spread, "spread", 1.4),
        (_missing, "missing", 0.13),
        (_share, "share", 0.2),
    ],
)
@pytest.mark.parametrize(
    ("clean", "seeds"), [(0, 4), (5, 10), pytest.param(5, 50, marks=pytest.mark.slow)]
)
def test_an_alarm_names_the_change_and_its_size(
    draw: Any, change: str, size: float, clean: int, seeds: int
) -> None:
    found = [first_alarm(seed, draw, clean=clean) for seed in range(seeds)]
    assert sum(one.change == change for one in found) >= 0.95 * seeds
    right = [abs(abs(one.how_far) - size) <= one.uncertainty for one in found]
    assert np.mean(right) >= 0.9
    starts = np.array([one.since for one in found], float)
    assert np.mean(abs(starts - clean) <= 1) >= 0.75


def test_a_small_drift_is_not_told_by_the_chance_of_the_last_window() -> None:
    random = np.random.default_rng(1)
    monitor = DriftMonitor(Baseline.of({"x": random.normal(size=5000)}), budget=0.01)
    verdicts = [monitor.update({"x": random.normal(0.1, 1, 200)}) for _ in range(30)]
    first = next(verdict for verdict in verdicts if verdict.alarm)
    assert "x: mean " in first.summary
    assert "standard deviations higher" in first.summary
    [last] = verdicts[-1].features
    assert (last.change, last.since) == ("mean", 0)
    # Of all requests since, so that it gets more exact.
    assert last.how_far == pytest.approx(0.1, abs=0.05)
    assert last.uncertainty < first.features[0].uncertainty / 1.5


@pytest.mark.thorough
def test_a_correlation_is_named_with_its_columns() -> None:
    random = np.random.default_rng(2)

    def rows(count: int, correlation: float) -> dict[str, NDArray[np.float64]]:
        values = random.normal(size=(count, 5))
        root = np.sqrt(1 - correlation**2)
        values[:, 3] = correlation * values[:, 1] + root * values[:, 3]
        return {f"x{column}": values[:, column] for column in range(5)}

    monitor = DriftMonitor(Baseline.of(rows(2000, 0.0)))
    for window in range(40):
        verdict = monitor.update(rows(200, 0.0 if window < 5 else 0.6))
    [found] = [feature for feature in verdict.features if feature.alarm]
    assert found.text.startswith("columns together: x1 and x3: correlation 0.")
    assert found.window == pytest.approx(0.6, abs=found.uncertainty)
    assert found.baseline == pytest.approx(0.0, abs=0.1)
    assert found.uncertainty < 0.1


@pytest.mark.thorough
@pytest.mark.parametrize(("onset", "more", "higher"), [(70, 0.0, 0.5), (75, 0.15, 0.0)])
def test_a_cycle_is_no_part_of_the_size_of_a_change(onset: int, more: float, higher: float) -> None:
    day = 86_400.0
    random = np.random.default_rng(3)

    def orders(first: int, days: int, on: bool) -> tuple[dict[str, NDArray[Any]], Any]:
        times = np.sort(random.uniform(first * day, (first + days) * day, 200 * days))
        weekend = times // day % 7 >= 5
        shares = 0.5 + 0.3 * weekend + more * on
        rows = {
            "shop": np.where(random.random(len(times)) < shares, "a", "b"),
            "x": random.normal(1.5 * weekend + higher * on, 1),
        }
        return rows, times

    rows, times = orders(0, 56, False)
    monitor = DriftMonitor(Baseline.of(rows, times=times, period=7 * day))
    for number in range(56, onset + 5):
        rows, times = orders(number, 1, number >= onset)
        verdict = monitor.update(rows, times=times)
        if number == onset - 1:
            assert verdict.answer == "no drift seen"
            assert all(0.1 < (feature.would_have_seen or 0.3) < 0.6 for feature in verdict.features)
    found = verdict.features[0]
    assert found.alarm
    if higher:
        assert (found.name, found.change) == ("x", "mean")
        assert found.how_far == pytest.approx(higher, abs=found.uncertainty)
    else:
        assert (found.name, found.change) == ("shop", "share")
        assert abs(found.how_far) == pytest.approx(more, abs=found.uncertainty)
