"""The recorded share follows the load and never the requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vinedresser.serving import Limits, RequestRecorder, RequestStore
from vinedresser.serving.recording.sampling import Sampling, position


def test_positions_of_counted_ids_are_uniform() -> None:
    found = np.sort([position(f"request-{number}".encode()) for number in range(20_000)])
    # The statistic of Kolmogorov and Smirnov, and its critical value at 1 %.
    assert np.abs(found - np.arange(20_000) / 20_000).max() < 1.63 / np.sqrt(20_000)


def test_the_share_falls_with_the_rate_and_recovers() -> None:
    sampling = Sampling(1.0, rate=100.0, cost=1.0)
    sampling.update(1.0, seen=1000, recorded=1000, busy=0.001)
    assert sampling.share == pytest.approx(0.1)
    sampling.update(1.0, seen=200, recorded=20, busy=0.001)
    assert sampling.share == pytest.approx(0.125)
    for _ in range(20):
        sampling.update(1.0, seen=50, recorded=10, busy=0.001)
    assert sampling.share == 1.0


def test_the_share_falls_with_the_cost() -> None:
    sampling = Sampling(1.0, rate=1e9, cost=0.02)
    for _ in range(100):
        recorded = int(1000 * sampling.share)
        sampling.update(1.0, seen=1000, recorded=recorded, busy=recorded * 0.001)
    assert sampling.share * 1000 * 0.001 == pytest.approx(0.02, rel=0.3)


def test_requests_without_ids_are_chosen_at_random(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", sample=0.25, limits=Limits(rate=1e9, cost=1.0))
    for number in range(2000):
        recorder.record(np.full((1, 1), number))
    assert recorder.flush()
    found = RequestStore(recorder.location).after(None)[0]
    # Five standard deviations.
    assert abs(len(found) - 500) < 5 * np.sqrt(2000 * 0.25 * 0.75)
    assert set(found.probabilities) == {0.25}
    assert len(set(found.ids)) == len(found)
    recorder.close()


def test_a_few_expensive_requests_do_not_lower_the_share() -> None:
    sampling = Sampling(1.0, rate=200.0, cost=0.005)
    for _ in range(3):
        sampling.update(1.0, seen=5, recorded=5, busy=0.05)
    assert sampling.share == 1.0
    sampling.update(1.0, seen=5, recorded=5, busy=0.05)
    assert sampling.share == pytest.approx(0.1)


def test_a_steady_load_is_judged_by_a_whole_second_however_often_it_is_reported() -> None:
    sampling = Sampling(1.0, rate=1e9, cost=0.001)
    recorded = []
    for _ in range(300):
        count = 20 * sampling.share
        sampling.update(0.1, seen=20, recorded=20, busy=20 * 0.0015)
        recorded.append(count)
    # 200 requests per second: the limit allows two thirds of one.
    assert sum(recorded[200:]) / 10.0 == pytest.approx(0.001 / 0.0015, rel=0.01)


def test_the_share_grows_while_there_are_no_requests() -> None:
    sampling = Sampling(0.9, rate=200.0, cost=1.0)
    sampling.update(1.0, seen=2000, recorded=1800, busy=0.0)
    assert sampling.share == pytest.approx(0.1)
    for _ in range(3):
        sampling.update(1.0, seen=0, recorded=0, busy=0.0)
    assert sampling.share == pytest.approx(0.1 * 1.25**3)
    sampling.update(86400.0, seen=0, recorded=0, busy=0.0)
    assert sampling.share == 0.9


def test_a_sample_is_chosen_by_id_and_its_probability_is_recorded(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", sample=0.25, limits=Limits(rate=1e9, cost=1.0))
    ids = [f"request-{number}" for number in range(400)]
    recorder.record(np.arange(400)[:, None], np.arange(400), ids)
    assert recorder.flush()
    found = RequestStore(recorder.location).after(None)[0]
    assert list(found.ids) == [one for one in ids if position(one.encode()) < 0.25]
    assert set(found.probabilities) == {0.25}
    assert [f"request-{number}" for number in found.columns["x0"]] == list(found.ids)
    assert found.columns["prediction"].tolist() == found.columns["x0"].tolist()
    recorder.close()
