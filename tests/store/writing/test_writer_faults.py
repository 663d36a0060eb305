"""Second writers, full disks and invalid records: losses are reported and contained."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.store.writing.records import heartbeat, index_records, record_of, wait_for
from vinedresser.errors import SecondWriter, StoreFull
from vinedresser.objects import LocalStorage
from vinedresser.objects.base import Buffer
from vinedresser.store.index.manifest import SPAN
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import (
    RunRecord,
    WaitingRecord,
    heartbeat_key,
    index_key,
    manifest_key,
    segment_key,
)
from vinedresser.store.step_record import HostTensor, StepRecord
from vinedresser.store.writing import writer as writing
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import start_run
from vinedresser.testing.small_disk import small_disk


def test_a_rank_has_one_writer(storage: LocalStorage) -> None:
    writer = RunWriter(storage, 3)
    with pytest.raises(SecondWriter, match="rank 3 already has a writer"):
        RunWriter(storage, 3)
    RunWriter(storage, 4).close()
    writer.close()
    with pytest.raises(SecondWriter) as refused:
        RunWriter(storage, 3)
    assert str(refused.value).startswith(f"{storage.location}: rank 3 ")


def test_a_second_writer_gives_up(storage: LocalStorage) -> None:
    """As when a synchronised folder is written from two machines: no heartbeat was seen."""
    told: list[str] = []
    writer = RunWriter(storage, queue_bytes=3_000, cut_bytes=1, on_problem=told.append)
    storage.put(index_key(0, 0), [b"of somebody else"])
    for step in range(20):
        writer.add(record_of(step))
    assert writer.close()
    assert told == writer.problems
    assert len(told) == 1
    assert "another process writes rank 0" in told[0]
    assert writer.dropped == 20
    assert storage.get(index_key(0, 0)) == b"of somebody else"
    assert not heartbeat(storage).closed


def test_records_behind_the_one_that_met_a_second_writer_are_counted(storage: LocalStorage) -> None:
    added = threading.Event()

    class Waiting(LocalStorage):
        """Has other records arrive while the first one is written."""

        def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
            if key.startswith("segments/"):
                assert added.wait(60.0)
            super().put(key, parts, exclusive=exclusive)

    writer = RunWriter(Waiting(storage.location), cut_bytes=1)
    storage.put(index_key(0, 0), [b"of somebody else"])
    for step in range(5):
        writer.add(record_of(step))
    added.set()
    assert writer.close()
    assert len(writer.problems) == 1
    assert writer.dropped == 5


def test_an_invalid_request_of_a_reader_is_reported_and_ignored(storage: LocalStorage) -> None:
    storage.put(WaitingRecord.KEY, [b"{"])
    told: list[str] = []
    writer = RunWriter(storage, cut_seconds=3600.0, on_problem=told.append)
    for step in range(3):
        writer.add(record_of(step))
        # The writer has looked whether a reader waits.
        wait_for(lambda: told)
    writer.close()
    (problem,) = told
    assert problem.startswith(f"{storage.location}/{WaitingRecord.KEY}: ")
    assert [record["steps"] for record in index_records(storage)] == [[0, 1, 2]]


def test_an_equal_index_record_is_not_a_second_writer(
    storage: LocalStorage,
) -> None:
    class Repeating(LocalStorage):
        """Carries out each put twice, as a network does when an answer is lost."""

        def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
            if key.startswith("index/"):
                super().put(key, parts, exclusive=exclusive)
            super().put(key, parts, exclusive=exclusive)

    writer = RunWriter(Repeating(storage.location))
    writer.add(record_of(0))
    writer.close()
    assert writer.problems == []
    assert writer.dropped == 0


def test_a_segment_that_cannot_be_committed_is_deleted(storage: LocalStorage) -> None:
    class Narrow(LocalStorage):
        """Has no room for the first index record."""

        refuses = True

        def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
            if key.startswith("index/") and self.refuses:
                self.refuses = False
                raise StoreFull(f"{key}: no room")
            super().put(key, parts, exclusive=exclusive)

    writer = RunWriter(Narrow(storage.location))
    writer.add(record_of(0))
    writer.flush()
    assert storage.list("segments/") == []
    writer.add(record_of(1))
    writer.close()
    assert len(storage.list("segments/")) == 1
    assert index_records(storage)[0]["dropped"] == 1
    assert open_run(storage).steps().tolist() == [1]


def test_a_full_disk_loses_steps_reports_once_and_recovers(tmp_path: Path) -> None:
    told: list[str] = []
    released: list[int] = []
    with small_disk(tmp_path, 1 << 20) as folder:
        start_run(folder)
        storage = LocalStorage(folder)
        writer = RunWriter(
            storage,
            cut_bytes=1,
            queue_bytes=4 << 20,
            on_problem=told.append,
            on_release=lambda record: released.append(record.step),
        )
        assert writer.add(record_of(0, 100_000))
        for step in range(1, 5):
            assert writer.add(record_of(step, 2 << 20))
        assert writer.add(record_of(5, 100_000))
        assert writer.close()
        assert len(told) == 1
        assert "train step 1 is lost" in told[0]
        assert "segments/0/000000000001.safetensors" in told[0]
        assert released == list(range(6))
        assert writer.dropped == 4
        assert heartbeat(storage).dropped == 4
        assert [record["dropped"] for record in index_records(storage)] == [0, 4]
        run = open_run(folder)
        assert run.steps().tolist() == [0, 5]
        for step in (0, 5):
            assert (run.tensor("x").value(step) == step).all()


def test_a_storage_that_goes_away_does_not_stop_the_training(tmp_path: Path) -> None:
    place = tmp_path / "run"
    start_run(place)
    writer = RunWriter(LocalStorage(place), queue_bytes=3_000)
    writer.add(record_of(0))
    writer.flush()
    place.rename(tmp_path / "moved")
    place.write_bytes(b"in the way")
    for step in range(1, 30):
        assert writer.add(record_of(step))
    assert writer.close()
    assert writer.dropped == 29
    assert any("run" in problem for problem in writer.problems)
    assert open_run(tmp_path / "moved").steps().tolist() == [0]


def test_a_run_that_is_removed_is_reported_once_and_not_made_again(tmp_path: Path) -> None:
    start_run(tmp_path / "run")
    writer = RunWriter(LocalStorage(tmp_path / "run", anchor=RunRecord.KEY))
    writer.add(record_of(0))
    writer.flush()
    shutil.rmtree(tmp_path / "run")
    for step in range(1, 4):
        writer.add(record_of(step))
        writer.flush()
    assert writer.close()
    (problem,) = writer.problems
    assert problem.startswith(f"{tmp_path / 'run'}: the run directory was removed")
    assert writer.dropped == 3
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_removed_between_records_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_BEAT", 0.01)
    start_run(tmp_path / "run")
    writer = RunWriter(LocalStorage(tmp_path / "run", anchor=RunRecord.KEY))
    (tmp_path / "run").rename(tmp_path / "moved")
    wait_for(lambda: writer.problems)
    writer.add(record_of(0))
    assert writer.close()
    (problem,) = writer.problems
    assert problem.startswith(f"{tmp_path / 'run'}: the run directory was removed")
    assert writer.dropped == 1
    assert not (tmp_path / "run").exists()


def test_an_error_without_a_message_is_named(storage: LocalStorage) -> None:
    class Small(LocalStorage):
        """Has no memory for segments."""

        def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
            if key.startswith("segments/"):
                raise MemoryError
            super().put(key, parts, exclusive=exclusive)

    writer = RunWriter(Small(storage.location))
    writer.add(record_of(0))
    assert writer.close()
    (problem,) = writer.problems
    assert re.search(r"train step 0 .*lost: MemoryError$", problem)


def test_one_bad_record_is_lost_alone(storage: LocalStorage) -> None:
    told: list[str] = []
    writer = RunWriter(storage, on_problem=told.append)
    writer.add(record_of(0))
    lie = HostTensor("F32", (7,), np.zeros(3, np.float32))
    writer.add(StepRecord("train", 1, 0.0, {"weights/a": lie}))
    writer.add(StepRecord("train", 2, 0.0, {}, {"losses/loss": "high"}))  # type: ignore[dict-item]
    writer.add(record_of(3))
    assert writer.close()
    assert open_run(storage).steps().tolist() == [0, 3]
    assert writer.dropped == 2
    assert "train step 1 is lost: weights/a at train step 1: 12 bytes" in told[0]
    assert "train step 2 is lost" in told[1]


def test_data_that_a_device_does_not_deliver_is_reported(storage: LocalStorage) -> None:
    def fail(_record: StepRecord) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    writer = RunWriter(storage)
    record = record_of(5)
    record.arriving.append(fail)
    writer.add(record)
    assert writer.close()
    (problem,) = writer.problems
    assert re.search(r"train step 5 .*lost: an illegal memory access was encountered", problem)
    assert open_run(storage).steps().tolist() == [5]


def test_without_a_manifest_nothing_is_lost_and_other_problems_are_still_reported(
    storage: LocalStorage,
) -> None:
    class Full(LocalStorage):
        """Has no room for manifests, nor for the segment that follows the first one."""

        def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
            if key.startswith("manifests/") or key == segment_key(0, SPAN):
                raise StoreFull(f"{key}: no room")
            super().put(key, parts, exclusive=exclusive)

    writer = RunWriter(Full(storage.location))
    for step in range(SPAN + 1):
        writer.add(record_of(step))
        writer.flush()
    assert writer.close()
    slower, lost = writer.problems
    assert slower.endswith(f": {manifest_key(0, 0)}: no room")
    assert re.search(rf"train step {SPAN} .*lost: {segment_key(0, SPAN)}: no room", lost)
    assert writer.dropped == 1
    assert open_run(storage).steps().tolist() == list(range(SPAN))


def test_of_two_records_the_valid_one_is_kept(storage: LocalStorage) -> None:
    writer = RunWriter(storage, cut_seconds=3600.0)
    writer.add(record_of(0))
    writer.add(StepRecord("train", 1, 0.0, {}, {"losses/loss": "high"}))  # type: ignore[dict-item]
    assert writer.close()
    assert open_run(storage).steps().tolist() == [0]
    assert writer.dropped == 1


@pytest.mark.parametrize("first", [True, False])
def test_a_heartbeat_that_cannot_be_written_is_reported(storage: LocalStorage, first: bool) -> None:
    class Still(LocalStorage):
        """Refuses the first heartbeat, or all others."""

        def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
            if key == heartbeat_key(0) and exclusive == first:
                raise StoreFull(f"{key}: no room")
            super().put(key, parts, exclusive=exclusive)

    writer = RunWriter(Still(storage.location))
    writer.add(record_of(0))
    assert writer.close()
    assert writer.problems == [f"no heartbeat: {heartbeat_key(0)}: no room"]
    assert writer.dropped == 0
    assert open_run(storage).steps().tolist() == [0]


def test_a_dying_writer_thread_wakes_all_waiting_threads(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(_record: StepRecord) -> None:
        raise RuntimeError("a mistake of who uses the writer")

    seen: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(str(args.exc_value)))
    writer = RunWriter(storage, queue_bytes=2_000, on_release=careless)
    for step in range(20):
        writer.add(record_of(step))
    writer.flush()
    assert writer.close()
    assert seen == ["a mistake of who uses the writer"]
