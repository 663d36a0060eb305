"""Requests are read exactly once, in the order of time, by any process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.serving.unlimited import UNLIMITED
from vinedresser.errors import ConfigError, NotARun
from vinedresser.serving import Limits, RequestRecorder, RequestStore

ALL = Limits(rate=1e9, cost=1.0)


def record(recorder: RequestRecorder, *ids: str) -> None:
    """Record requests by their ids, one call each, and commit them."""
    for one in ids:
        recorder.record(np.zeros((1, 2)), np.zeros(1), [one])
    assert recorder.flush(60)


def test_processes_are_merged_in_the_order_of_time(tmp_path: Path) -> None:
    recorders = [RequestRecorder(tmp_path, "service", limits=ALL) for _ in range(3)]
    for number in range(60):
        recorders[number % 3].record(np.zeros((1, 2)), None, [number])
        if number % 7 == 0:
            recorders[number % 2].flush()
    for recorder in recorders:
        recorder.close()
    store = RequestStore(tmp_path / "service")
    found = store.after(None)[0]
    assert found.ids == tuple(map(str, range(60)))
    assert np.all(np.diff(found.times) >= 0)


@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
def test_each_request_is_read_once_whatever_the_limit(tmp_path: Path, limit: int) -> None:
    recorders = [RequestRecorder(tmp_path, "service", limits=ALL) for _ in range(2)]
    expected: set[str] = set()
    found: list[str] = []
    cursor = None
    for turn in range(3):
        ids = [f"{turn}-{number}" for number in range(20)]
        expected |= set(ids)
        record(recorders[0], *ids[:5])
        record(recorders[1], *ids[5:12])
        record(recorders[0], *ids[12:])
        if turn == 1:
            recorders[0].close()
            recorders[0] = RequestRecorder(tmp_path, "service", limits=ALL)
        while True:
            # Another reader each time, with a cursor that was a file.
            requests, after = RequestStore(tmp_path / "service").after(cursor, limit)
            cursor = json.loads(json.dumps(after))
            if not len(requests):
                break
            assert len(requests) <= limit
            found += requests.ids
    assert len(found) == len(expected)
    assert set(found) == expected
    for recorder in recorders:
        recorder.close()


def test_columns_that_some_requests_lack_are_missing_values(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    recorder.record({"age": 3, "city": "Bern"})
    recorder.record({"age": 4, "new": True})
    recorder.flush()
    columns = RequestStore(recorder.location).after(None)[0].columns
    assert columns["age"].tolist() == [3.0, 4.0]
    assert columns["city"].tolist() == ["Bern", None]
    np.testing.assert_array_equal(columns["new"], [np.nan, 1.0])
    recorder.close()


def test_texts_of_all_kinds_are_read_back(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    texts = ["", "Zürich", "日本", "a\0b", None, "x" * 100, "\ud800"]
    recorder.record({"text": texts}, None, [*"abcdef", "é" * 40])
    recorder.flush()
    found = RequestStore(recorder.location).after(None)[0]
    assert found.columns["text"].tolist() == ["", "Zürich", "日本", "a\0b", None, "x" * 64, "?"]
    assert found.ids[:6] == tuple("abcdef")
    assert RequestStore(recorder.location).of_ids(["é" * 40]).ids == found.ids[6:]
    recorder.close()


def test_labels_are_joined_by_id(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    record(recorder, "a", "b", "c")
    store = RequestStore(recorder.location)
    store.add_labels(["b", "nobody"], [np.int64(1), 0])
    assert store.after(None)[0].labels == (None, 1, None)
    labelled = store.labelled(settle=0.0)
    assert labelled.requests.ids == ("b",)
    assert labelled.requests.labels == (1,)
    assert labelled.unknown == ("nobody",)
    store.add_labels(["c", "b"], ["yes", 2])
    following = RequestStore(recorder.location).labelled(labelled.cursor, settle=0.0)
    assert following.requests.ids == ("b", "c")
    assert following.requests.labels == (2, "yes")
    assert store.labelled(following.cursor).requests.ids == ()
    assert store.after(None)[0].labels == (None, 2, "yes")
    recorder.close()


def test_young_labels_wait_for_their_requests(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    record(recorder, "a")
    store = RequestStore(recorder.location)
    store.add_labels(["a"], [1])
    assert store.labelled().cursor == {"labels": -1}
    recorder.close()


def test_damaged_segments_are_reported_and_the_others_read(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    for name in ("a", "b", "c"):
        record(recorder, name)
    recorder.close()
    segments = sorted(tmp_path.glob("service/requests-*/segments/0/*"))
    content = bytearray(segments[1].read_bytes())
    content[-30] ^= 1
    segments[1].write_bytes(content)
    store = RequestStore(tmp_path / "service")
    requests, cursor = store.after(None)
    assert set(requests.ids) >= {"a", "c"}
    assert len(store.problems) == 1
    assert "checksum" in store.problems[0]
    assert store.after(cursor)[0].ids == ()


def test_a_missing_segment_of_a_closed_run_is_reported(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    for name in ("a", "b", "c"):
        record(recorder, name)
    recorder.close()
    sorted(tmp_path.glob("service/requests-*/index/0/*"))[1].unlink()
    store = RequestStore(tmp_path / "service")
    requests, cursor = store.after(None)
    assert requests.ids == ("a", "c")
    assert "missing" in store.problems[0]
    assert store.after(cursor)[0].ids == ()


def test_removed_runs_leave_the_cursor(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    record(recorder, "a")
    recorder.close()
    store = RequestStore(tmp_path / "service")
    cursor = store.after(None)[1]
    shutil.rmtree(next(tmp_path.glob("service/requests-*")))
    assert store.after(cursor)[1] == {"runs": {}}


@pytest.mark.parametrize(
    "cursor", [{}, {"runs": []}, {"runs": {"a": [0]}, "x": 1}, {"runs": {"a": ["0", 0, True]}}]
)
def test_an_invalid_cursor_is_refused(tmp_path: Path, cursor: dict[str, object]) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    record(recorder, "a")
    if cursor == {"runs": {"a": [0]}, "x": 1}:
        # Positions have defaults.
        cursor = {"runs": {"a": [0, 0, False, 1]}}
    with pytest.raises(ConfigError, match="is not one of `after`"):
        RequestStore(recorder.location).after(cursor)
    recorder.close()


def test_a_place_without_a_service_is_refused(tmp_path: Path) -> None:
    store = RequestStore(tmp_path / "service")
    for call in (
        lambda: store.after(None),
        lambda: store.add_labels(["a"], [1]),
        lambda: store.ask_for_inputs("alert", ["a"]),
    ):
        with pytest.raises(NotARun, match=r"there is no service\.json"):
            call()


def test_labels_that_are_none_are_refused(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    record(recorder, "a")
    store = RequestStore(recorder.location)
    with pytest.raises(ConfigError, match="1 ids for 2 labels"):
        store.add_labels(["a"], [1, 2])
    with pytest.raises(ConfigError, match="numbers, texts or booleans"):
        store.add_labels(["a"], [[1]])
    recorder.close()
