"""Lives of monitors and peers in the benchmark's worlds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.drift.images import IMAGE_DRIFTS
from benchmarks.drift.lives import NEVER, PEERS, Scale, first_alarms
from benchmarks.drift.peers import adwin, kolmogorov_smirnov, psi
from benchmarks.drift.worlds import NULLS


@pytest.mark.thorough
def test_peers_find_a_large_shift_and_pass_what_is_alike() -> None:
    random = np.random.default_rng(0)
    baseline, window = random.normal(size=(2, 1000, 3))
    shifted = window + np.array([0, 0, 1])
    for peer in (kolmogorov_smirnov(baseline, 1e-4), psi(baseline)):
        assert not peer(window)
        assert peer(shifted)
    detector = adwin(3)
    if detector is not None:
        assert not detector(window)
        assert detector(shifted)


@pytest.mark.thorough
def test_without_drift_only_tests_of_each_column_raise_alarms() -> None:
    world = next(one for one in NULLS if one.name == "normal")
    found = first_alarms(world, Scale(monitors=4, peers=4, windows=10, change=10), 0.01, 0)
    assert (found["vinedresser"] == NEVER).all()
    assert (found[PEERS[0]] < 10).all()


@pytest.mark.thorough
def test_a_new_class_of_images_is_found() -> None:
    world = next(one for one in IMAGE_DRIFTS if "new class" in one.name)
    found = first_alarms(world, Scale(monitors=2, peers=1, windows=35, change=5), 0.01, 0)
    assert ((found["vinedresser"] >= 5) & (found["vinedresser"] < NEVER)).all()
