"""The benchmark's monitors raise the alarms of real ones."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.drift.fleet import Fleet, baseline_values, columns_of
from benchmarks.drift.worlds import DRIFTS, World
from vinedresser.drift import Baseline, DriftMonitor

WORLDS = {one.name: one for one in DRIFTS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "shift 0.5 sd, 5 of 20",
        "correlation 0.5 of 5 columns",
        "new category, 5 %",
        "embedding moves by 1 sd",
        "autocorrelated 0.9, shift 1 sd",
    ],
)
def test_alarms_are_those_of_real_monitors(name: str) -> None:
    world: World = WORLDS[name]
    random = np.random.default_rng(6)
    baseline = baseline_values(world, random, 3)
    fleet = Fleet(world, baseline, 0.01)
    monitors = [
        DriftMonitor(
            Baseline.of(columns_of(world, baseline[:, one]), seed=one, in_time_order=world.ordered)
        )
        for one in range(3)
    ]
    found = np.zeros(3, bool)
    noise = world.noise()
    for window in range(14 if world.ordered else 22):
        values = world.shaped(random, noise(random, (200, 3, world.columns)))
        if window >= 4 and world.drifted:
            values = world.drifted(random, values, 1.0)
        found |= fleet.update(values)
        alarms = [
            monitor.update(columns_of(world, values[:, one])).alarm
            for one, monitor in enumerate(monitors)
        ]
        assert found.tolist() == alarms
    assert found.any() or name.startswith("autocorrelated")
