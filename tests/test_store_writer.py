"""The writer: what it keeps, when it commits, and that it never harms who calls it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser.capture.store.reader import open_run
from vinedresser.capture.store.step_record import HostTensor, StepRecord
from vinedresser.capture.store.writer import RunWriter
from vinedresser.errors import SecondWriter, StoreFull
from vinedresser.infra.run_directory import (
    Heartbeat,
    WaitingRecord,
    heartbeat_key,
    index_key,
    read_record,
    write_record,
)
from vinedresser.infra.storage import LocalStorage
from vinedresser.infra.storage.base import Buffer
from vinedresser.testing.runs import start_run, step_record
from vinedresser.testing.small_disk import small_disk


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def record_of(step: int, size: int = 1000) -> StepRecord:
    """A record with a tensor of so many bytes."""
    return step_record(step, tensors={"x": np.full(size, step % 256, np.uint8)})


def index_records(storage: LocalStorage, rank: int = 0) -> list[dict[str, Any]]:
    keys = storage.list(f"index/{rank}/")
    return [json.loads(storage.get(key))["record"] for key in keys]


def heartbeat(storage: LocalStorage, rank: int = 0) -> Heartbeat:
    beat = read_record(storage, Heartbeat, key=heartbeat_key(rank))
    assert beat is not None
    return beat


class GatedStorage(LocalStorage):
    """A local storage whose puts of segments wait until they are let through."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.reached = threading.Event()

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        if key.startswith("segments/"):
            self.reached.set()
            assert self.gate.wait(30)
        super().put(key, parts, exclusive=exclusive)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    start_run(tmp_path)
    return LocalStorage(tmp_path)


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedStorage]:
    start_run(tmp_path)
    storage = GatedStorage(tmp_path)
    yield storage
    storage.gate.set()


# When a segment is cut


def test_flush_commits_what_was_added_before(storage: LocalStorage) -> None:
    writer = RunWriter(storage, cut_seconds=1000)
    for step in range(3):
        assert writer.add(record_of(step))
    assert writer.flush()
    assert [record["steps"] for record in index_records(storage)] == [[0, 1, 2]]
    writer.close()


def test_a_segment_is_cut_at_its_size(storage: LocalStorage) -> None:
    writer = RunWriter(storage, cut_bytes=10_000, cut_seconds=1000)
    # Ten records of 1,000 bytes and a little more make a segment; nobody asks for the rest.
    for step in range(25):
        writer.add(record_of(step))
        if step % 10 == 9:
            committed = step // 10 + 1
            wait_for(lambda: len(index_records(storage)) == committed)  # noqa: B023 (used at once)
    writer.close()
    assert [len(record["steps"]) for record in index_records(storage)] == [10, 10, 5]


def test_a_writer_that_fell_behind_makes_larger_segments(gated: GatedStorage) -> None:
    writer = RunWriter(gated, cut_bytes=10_000, cut_seconds=1000)
    for step in range(10):
        writer.add(record_of(step))
    assert gated.reached.wait(10)
    for step in range(10, 80):
        writer.add(record_of(step))
    gated.gate.set()
    writer.close()
    assert [len(record["steps"]) for record in index_records(gated)] == [10, 38, 32]


def test_a_segment_is_cut_at_its_age(storage: LocalStorage) -> None:
    writer = RunWriter(storage, cut_seconds=0.2)
    begun = time.monotonic()
    writer.add(record_of(0))
    wait_for(lambda: index_records(storage))
    assert time.monotonic() - begun >= 0.2
    writer.close()


def test_steps_are_committed_at_once_while_a_reader_waits(storage: LocalStorage) -> None:
    writer = RunWriter(storage, cut_seconds=1000)
    write_record(storage, WaitingRecord(time.time() + 60))
    for step in range(3):
        begun = time.monotonic()
        writer.add(record_of(step))
        wait_for(lambda: storage.exists(index_key(0, step)))  # noqa: B023 (used at once)
        assert time.monotonic() - begun < 1.0
    write_record(storage, WaitingRecord(time.time() - 1))
    writer.add(record_of(3))
    writer.add(record_of(4))
    writer.close()
    assert [record["steps"] for record in index_records(storage)] == [[0], [1], [2], [3, 4]]


def test_many_small_steps_share_a_segment_though_a_reader_waits(storage: LocalStorage) -> None:
    write_record(storage, WaitingRecord(time.time() + 60))
    writer = RunWriter(storage)
    begun = time.monotonic()
    for step in range(300):
        writer.add(step_record(step, scalars={"losses/loss": 1.0}))
        time.sleep(0.001)
    writer.close()
    # At most one in 50 ms, the first and the last.
    assert len(index_records(storage)) <= (time.monotonic() - begun) / 0.05 + 2


def test_a_record_without_anything_is_a_step(storage: LocalStorage) -> None:
    writer = RunWriter(storage)
    writer.add(step_record(3))
    writer.close()
    assert open_run(storage).steps().tolist() == [3]


# The queue


def test_block_waits_for_room_and_loses_nothing(gated: GatedStorage) -> None:
    writer = RunWriter(gated, queue_bytes=5_000, cut_bytes=2_000)
    done = threading.Event()

    def train() -> None:
        for step in range(50):
            assert writer.add(record_of(step))
        done.set()

    thread = threading.Thread(target=train)
    thread.start()
    gated.reached.wait(30)
    assert not done.wait(0.2)
    gated.gate.set()
    thread.join(30)
    writer.close()
    assert done.is_set()
    assert writer.dropped == 0
    assert open_run(gated).steps().tolist() == list(range(50))


def test_block_needs_no_size_or_age_to_go_on(storage: LocalStorage) -> None:
    """A queue smaller than a segment: who waits for room must not wait for the age either."""
    writer = RunWriter(storage, queue_bytes=3_000, cut_bytes=1 << 20, cut_seconds=1000)
    for step in range(20):
        assert writer.add(record_of(step))
    writer.close()
    assert open_run(storage).steps().tolist() == list(range(20))


def test_drop_refuses_counts_and_says_so(gated: GatedStorage) -> None:
    writer = RunWriter(gated, queue_bytes=5_000, cut_bytes=1, policy="drop")
    taken = [writer.add(record_of(step)) for step in range(50)]
    assert False in taken
    assert writer.dropped == taken.count(False)
    gated.gate.set()
    writer.flush()
    writer.add(record_of(50))
    writer.close()
    kept = [step for step, ok in enumerate([*taken, True]) if ok]
    assert open_run(gated).steps().tolist() == kept
    assert sum(record["dropped"] for record in index_records(gated)) == taken.count(False)
    assert heartbeat(gated).dropped == taken.count(False)


def test_a_record_larger_than_the_queue_passes_alone(storage: LocalStorage) -> None:
    for policy in ("block", "drop"):
        place = LocalStorage(f"{storage.location}/{policy}")
        start_run(place.location)
        writer = RunWriter(place, queue_bytes=1_000, policy=policy)
        assert writer.add(record_of(0, size=100_000))
        writer.close()
        assert open_run(place).steps().tolist() == [0]


def test_every_record_that_was_taken_is_released_once_after_it_is_committed(
    storage: LocalStorage,
) -> None:
    committed: list[bool] = []
    released: list[StepRecord] = []

    def release(record: StepRecord) -> None:
        released.append(record)
        steps = [step for record in index_records(storage) for step in record["steps"]]
        committed.append(record.step in steps)

    writer = RunWriter(storage, cut_bytes=5_000, on_release=release)
    records = [record_of(step) for step in range(20)]
    for record in records:
        writer.add(record)
    writer.close()
    assert [id(record) for record in released] == [id(record) for record in records]
    assert all(committed)


def test_what_lies_in_flight_is_not_kept_afterwards(storage: LocalStorage) -> None:
    writer = RunWriter(storage)
    values = np.zeros(100, np.uint8)
    writer.add(step_record(0, tensors={"x": values}))
    writer.flush()
    values[:] = 1
    writer.close()
    assert not open_run(storage).tensor("x").value(0).any()


# Ending


def test_close_writes_the_rest_and_a_last_heartbeat(storage: LocalStorage) -> None:
    writer = RunWriter(storage, cut_seconds=1000)
    writer.add(record_of(0))
    writer.last_step = 17
    assert writer.close()
    assert writer.close()
    beat = heartbeat(storage)
    assert beat.closed
    assert beat.last_step == 17
    assert beat.identity().pid == os.getpid()
    assert open_run(storage).steps().tolist() == [0]


def test_after_close_records_are_refused(storage: LocalStorage) -> None:
    writer = RunWriter(storage)
    writer.close()
    assert not writer.add(record_of(0))
    assert writer.dropped == 1
    assert writer.flush()
    assert index_records(storage) == []


def test_close_and_flush_give_up_in_time(gated: GatedStorage) -> None:
    writer = RunWriter(gated)
    writer.add(record_of(0))
    assert not writer.flush(0.05)
    assert not writer.close(0.05)
    gated.gate.set()
    assert writer.close()


def test_the_heartbeat_goes_on_without_records(storage: LocalStorage) -> None:
    writer = RunWriter(storage)
    first = heartbeat(storage)
    assert first.last_step == -1
    writer.last_step = 4
    wait_for(lambda: heartbeat(storage).time > first.time)
    assert heartbeat(storage).last_step == 4
    assert not heartbeat(storage).closed
    writer.close()


def test_a_forked_child_writes_nothing(storage: LocalStorage) -> None:
    writer = RunWriter(storage, queue_bytes=1_000)
    writer.add(record_of(0))
    writer.flush()
    pid = os.fork()
    if pid == 0:
        # More than the queue holds: it would wait for ever for a thread that is not there.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        taken = [writer.add(record_of(step, size=900)) for step in range(5)]
        os._exit(any(taken) or writer.flush() or writer.close())
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    writer.add(record_of(1))
    writer.close()
    assert open_run(storage).steps().tolist() == [0, 1]


# Faults


def test_a_rank_has_one_writer(storage: LocalStorage) -> None:
    writer = RunWriter(storage, 3)
    with pytest.raises(SecondWriter, match="rank 3 has a writer already"):
        RunWriter(storage, 3)
    RunWriter(storage, 4).close()
    writer.close()
    with pytest.raises(SecondWriter, match=str(storage.location)):
        RunWriter(storage, 3)


def test_a_second_writer_that_came_all_the_same_gives_up(storage: LocalStorage) -> None:
    """As when a synchronised folder is written from two machines: no heartbeat was seen."""
    told: list[str] = []
    writer = RunWriter(storage, queue_bytes=3_000, on_problem=told.append)
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


def test_an_index_record_that_is_there_already_as_ours_is_no_second_writer(
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


def test_a_segment_that_cannot_be_committed_gives_its_room_back(storage: LocalStorage) -> None:
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


def test_a_full_disk_loses_steps_says_so_once_and_heals(tmp_path: Path) -> None:
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


def test_a_thread_that_dies_leaves_nobody_waiting(
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
