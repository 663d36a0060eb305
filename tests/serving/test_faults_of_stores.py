"""A store that is full, away or damaged never reaches the service."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import until
from vinedresser.errors import StoreError
from vinedresser.serving import Limits, RequestRecorder, RequestStore
from vinedresser.testing.s3_server import BUCKET, seaweed
from vinedresser.testing.small_disk import small_disk

FAST = Limits(flush_seconds=0.05, rate=1e9, cost=1.0)


def record(recorder: RequestRecorder, *ids: object, columns: int = 2) -> None:
    for one in ids:
        recorder.record(np.zeros((1, columns)), None, [one])


def test_a_full_disk_is_reported_once_and_the_service_answers_on(tmp_path: Path) -> None:
    with small_disk(tmp_path, 1 << 16) as folder:
        recorder = RequestRecorder(folder, "service", limits=FAST)
        record(recorder, "small")
        assert recorder.flush()
        record(recorder, *range(200), columns=250)
        recorder.flush()
        record(recorder, *range(200), columns=250)
        recorder.flush()
        assert len(recorder.problems) == 1
        assert "No space left" in recorder.problems[0] or "File too large" in recorder.problems[0]
        assert "small" in RequestStore(recorder.location).after(None)[0].ids
    recorder.close()


def test_a_store_that_cannot_be_written_at_the_start_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    recorder = RequestRecorder(tmp_path / "file", "service", limits=FAST)
    record(recorder, *range(10))
    assert not recorder.flush()
    assert len(recorder.problems) == 1
    assert "file" in recorder.problems[0]
    # It may come back: described requests wait in memory.
    (tmp_path / "file").unlink()
    assert recorder.flush()
    assert len(RequestStore(recorder.location).after(None)[0]) == 10
    recorder.close()


@pytest.mark.thorough
def test_requests_labels_and_alerts_on_an_object_store(s3: str) -> None:
    recorder = RequestRecorder(s3, "service", limits=FAST)
    record(recorder, *range(50))
    assert recorder.flush()
    store = RequestStore(f"{s3}/service")
    first, cursor = store.after(None, 30)
    second, cursor = store.after(cursor, 30)
    assert [*first.ids, *second.ids] == [*map(str, range(50))]
    store.add_labels(["3"], [1])
    assert store.labelled(settle=0.0).requests.labels == (1,)
    store.ask_for_inputs("alert", [3, 4])
    recorder.close()
    again = RequestRecorder(s3, "service", limits=FAST)
    record(again, "new")
    again.flush()
    # The first process is gone with its inputs; the new one says that it has none.
    until(lambda: (state := store.alert_state("alert")) and state.answers)
    assert store.inputs_of([3, 4]) == {}
    store.ask_for_inputs("second", ["new"])
    again.flush()
    until(lambda: "new" in store.inputs_of(["new"]))
    assert store.after(cursor)[0].ids == ("new",)
    again.close()


@pytest.mark.slow
def test_an_object_store_that_is_away_loses_nothing_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seaweed(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        recorder = RequestRecorder(f"s3://{BUCKET}", "service", limits=FAST)
        record(recorder, "before")
        assert recorder.flush()
        server.kill()
        record(recorder, "during")
        until(lambda: recorder.problems)
        with pytest.raises(StoreError, match="no server answers"):
            RequestStore(recorder.location).after(None)
        server.restart()
        record(recorder, "after")
        until(lambda: recorder.flush(120))
        found = RequestStore(recorder.location).after(None)[0]
        assert found.ids == ("before", "during", "after")
        assert recorder.dropped == 0
        assert len(recorder.problems) == 1
        recorder.close()


def test_links_in_the_store_are_not_followed(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path / "store", "service", limits=FAST)
    record(recorder, "a")
    recorder.flush()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    name = "requests-20200101T000000000-host-1-00000000"
    os.symlink(outside, Path(recorder.location) / name)
    limits = Limits(flush_seconds=0.05, store_seconds=0.001)
    other = RequestRecorder(tmp_path / "store", "service", limits=limits)
    record(other, "b")
    other.flush()
    assert (outside / "precious").read_text() == "kept"
    recorder.close()
    other.close()
