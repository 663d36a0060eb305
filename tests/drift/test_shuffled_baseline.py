"""A baseline in no order does not show how requests depend on each other: they have to."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.drift.lives import NEVER, Scale, first_alarms
from benchmarks.drift.noise import autoregressive, sessions
from benchmarks.drift.worlds import World, codes
from vinedresser.drift import Baseline, DriftMonitor, Verdict

REASON = "the baseline is not in time order; about {:,} requests have to show how far they"


def monitor_of(random: np.random.Generator, **more: Any) -> DriftMonitor:
    rows = {name: random.normal(size=1000) for name in "xy"}
    return DriftMonitor(Baseline.of(rows, in_time_order=False, **more))


def window(random: np.random.Generator, rows: int, shift: float = 0.0) -> dict[str, NDArray[Any]]:
    return {"x": random.normal(size=rows) + shift, "y": random.normal(size=rows)}


WORLDS = {
    "sessions of a window": World("", lambda: sessions(100, 0.5), width=1),
    "short sessions": World("", lambda: sessions(30, 0.5), width=1),
    "5 columns": World("", lambda: sessions(100, 0.5), width=5),
    "autocorrelated": World("", lambda: autoregressive(0.97), width=2),
    "categories": World("", lambda: sessions(100, 0.5), width=1, shaped=codes, kind="category"),
}


@pytest.mark.parametrize(
    ("name", "lives", "windows"),
    [
        ("sessions of a window", 100, 30),
        ("short sessions", 100, 30),
        ("5 columns", 16, 30),
        ("autocorrelated", 12, 30),
        ("categories", 100, 60),
    ],
)
@pytest.mark.thorough
def test_requests_that_depend_on_each_other_raise_no_alarm(
    name: str, lives: int, windows: int
) -> None:
    """With baselines believed to be in time order, half of the lives have an alarm in the first."""
    world = replace(WORLDS[name], rows=lambda _window: 100, ordered=False)
    scale = Scale(lives, 0, windows, windows)
    found = first_alarms(world, scale, 0.01, 5)["vinedresser"]
    assert len(found) == lives
    # By a budget of 1 %, 4 alarms in 100 lives have a probability of 2 %.
    assert (found < NEVER).sum() <= (3 if lives == 100 else 1)


@pytest.mark.parametrize(("rows", "needed"), [(40, 2000), (100, 2000), (150, 3000), (600, 12_000)])
def test_nothing_is_told_before_as_many_requests_as_said(rows: int, needed: int) -> None:
    random = np.random.default_rng(0)
    monitor = monitor_of(random)
    verdicts = [monitor.update(window(random, rows)) for _ in range(needed // rows)]
    for verdict in verdicts[:-1]:
        assert (verdict.answer, verdict.alarm) == ("cannot tell", False)
        assert REASON.format(needed) in verdict.summary
        assert {feature.answer for feature in verdict.features} == {"cannot tell"}
        assert {feature.would_have_seen for feature in verdict.features} == {None}
    assert verdicts[-1].answer == "no drift seen"
    assert verdicts[-1].reasons == ()


@pytest.mark.parametrize(("shift", "most"), [(80.0, 4), (10.0, 4), (3.0, 8)])
def test_a_change_that_no_session_of_a_window_explains_is_found_before(
    shift: float, most: int
) -> None:
    random = np.random.default_rng(1)
    monitor = monitor_of(random)
    for _ in range(most):
        verdict = monitor.update(window(random, 100, shift))
        if verdict.alarm:
            break
    assert (verdict.answer, verdict.since) == ("drift", 0)
    assert verdict.features[0].name == "x"
    [y] = [feature for feature in verdict.features if feature.name == "y"]
    assert y.answer == "cannot tell"


def test_a_small_change_is_found_as_soon_as_the_dependence_is_known() -> None:
    random = np.random.default_rng(2)
    monitor = monitor_of(random)
    verdicts: list[Verdict] = []
    for _ in range(24):
        verdicts.append(monitor.update(window(random, 100, 0.5)))
        # A resumed monitor knows what it has learned so far.
        monitor = DriftMonitor.resumed(monitor.baseline, json.loads(json.dumps(monitor.state())))
    assert [verdict.alarm for verdict in verdicts].index(True) in range(19, 23)


def test_equal_values_tell_less_of_their_dependence() -> None:
    """The ranks of 60, 30 and 10 % of the rows tell 0.76 of what those of different values do."""
    random = np.random.default_rng(3)

    def rows(count: int) -> dict[str, NDArray[Any]]:
        drawn = random.permutation(np.repeat(["a", "b", "c"], [60, 30, 10]).repeat(count // 100))
        return {"x": random.normal(size=count), "city": drawn, "constant": np.zeros(count)}

    monitor = DriftMonitor(Baseline.of(rows(1000), in_time_order=False))
    verdicts = [monitor.update(rows(100)) for _ in range(36)]
    [*_, before, after] = [{feature.name: feature for feature in v.features} for v in verdicts[:20]]
    assert (before["x"].answer, after["x"].answer) == ("cannot tell", "no drift seen")
    needed = int(re.findall(r"about ([\d,]+) requests", after["city"].because)[0].replace(",", ""))
    assert 3400 <= needed <= 3600
    told = [
        next(feature for feature in v.features if feature.name == "city").answer for v in verdicts
    ]
    assert told.index("no drift seen") == needed // 100 - 1
    assert "equal requests never show how far" in verdicts[-1].summary
