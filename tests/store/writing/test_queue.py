"""The queue of the writer: bounded, with every record accounted for."""

from __future__ import annotations

import threading

import numpy as np

from tests.store.writing.records import GatedStorage, heartbeat, index_records, record_of
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import start_run, step_record


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


def test_block_does_not_wait_for_size_or_age(storage: LocalStorage) -> None:
    """A queue smaller than a segment must not wait for the segment's age."""
    writer = RunWriter(storage, queue_bytes=3_000, cut_bytes=1 << 20, cut_seconds=1000)
    for step in range(20):
        assert writer.add(record_of(step))
    writer.close()
    assert open_run(storage).steps().tolist() == list(range(20))


def test_drop_refuses_counts_and_reports(gated: GatedStorage) -> None:
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


def test_every_accepted_record_is_released_once_after_its_commit(
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


def test_settled_records_are_not_kept_in_memory(storage: LocalStorage) -> None:
    writer = RunWriter(storage)
    values = np.zeros(100, np.uint8)
    writer.add(step_record(0, tensors={"x": values}))
    writer.flush()
    values[:] = 1
    writer.close()
    assert not open_run(storage).tensor("x").value(0).any()
