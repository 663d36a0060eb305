"""The writer: commits, heartbeats and shutdown."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from tests.store.writing.records import GatedStorage, heartbeat, index_records, record_of, wait_for
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import (
    Heartbeat,
    WaitingRecord,
    index_key,
    write_record,
)
from vinedresser.store.step_record import Mode, ScalarStep
from vinedresser.store.writing import writer as writing
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import step_record

# When a segment is cut


def test_flush_commits_all_added_records(storage: LocalStorage) -> None:
    writer = RunWriter(storage, cut_seconds=1000)
    for step in range(3):
        assert writer.add(record_of(step))
    assert writer.flush()
    assert [record["steps"] for record in index_records(storage)] == [[0, 1, 2]]
    writer.close()


def test_a_segment_is_cut_at_its_size(storage: LocalStorage) -> None:
    writer = RunWriter(storage, cut_bytes=10_000, cut_seconds=1000)
    # Ten records of slightly more than 1,000 bytes make a segment; no reader waits for the rest.
    for step in range(25):
        writer.add(record_of(step))
        if step % 10 == 9:
            committed = step // 10 + 1
            wait_for(lambda: len(index_records(storage)) == committed)  # noqa: B023 (used at once)
    writer.close()
    assert [len(record["steps"]) for record in index_records(storage)] == [10, 10, 5]


def test_a_writer_that_falls_behind_makes_larger_segments(gated: GatedStorage) -> None:
    writer = RunWriter(gated, cut_bytes=10_000, cut_seconds=1000)
    for step in range(10):
        writer.add(record_of(step))
    assert gated.reached.wait(60)
    for step in range(10, 80):
        writer.add(record_of(step))
    gated.gate.set()
    writer.close()
    assert [len(record["steps"]) for record in index_records(gated)] == [10, 38, 32]


def test_segments_of_many_tensors_stay_small_behind_a_slow_storage(gated: GatedStorage) -> None:
    """A reader decodes the names of a whole segment, so they are not made larger."""
    tensors = {f"x{number}": np.zeros(25, np.uint8) for number in range(400)}
    writer = RunWriter(gated, cut_bytes=15_000, cut_seconds=1000)
    for step in range(2):
        writer.add(step_record(step, tensors=tensors))
    assert gated.reached.wait(60)
    for step in range(2, 14):
        writer.add(step_record(step, tensors=tensors))
    gated.gate.set()
    writer.close()
    # With three steps a segment has more than 1,000 tensors; with six it would be large enough
    # for a writer that has fallen behind.
    assert [len(record["steps"]) for record in index_records(gated)] == [2, 3, 3, 3, 3]


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


def test_small_steps_share_a_segment_even_if_a_reader_waits(storage: LocalStorage) -> None:
    write_record(storage, WaitingRecord(time.time() + 60))
    writer = RunWriter(storage)
    begun = time.monotonic()
    for step in range(300):
        writer.add(step_record(step, scalars={"losses/loss": 1.0}))
        time.sleep(0.001)
    writer.close()
    # At most one in 50 ms, the first and the last.
    assert len(index_records(storage)) <= (time.monotonic() - begun) / 0.05 + 2


def test_an_empty_record_is_a_step(storage: LocalStorage) -> None:
    writer = RunWriter(storage)
    writer.add(step_record(3))
    writer.close()
    assert open_run(storage).steps().tolist() == [3]


def test_only_steps_with_more_than_scalars_keep_the_writer_busy(storage: LocalStorage) -> None:
    writer = RunWriter(storage)
    writer.add_scalars(ScalarStep(0, 0.0, {"losses/loss": 1.0}))
    writer.flush()
    assert writer.busy == 0
    writer.add(record_of(1))
    writer.flush()
    first = writer.busy
    writer.add(record_of(2))
    writer.close()
    assert 0 < first < writer.busy < 1


def test_train_records_raise_the_last_step(storage: LocalStorage) -> None:
    writer = RunWriter(storage)
    found = []
    records: list[tuple[Mode, int]] = [("train", 4), ("train", 3), ("eval", 9), ("train", 5)]
    for mode, step in records:
        writer.add(step_record(step, mode=mode))
        found.append(writer.last_step)
    writer.close()
    assert found == [4, 4, 4, 5]


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


def test_the_heartbeat_continues_without_records(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_BEAT", 0.01)
    beats: list[Heartbeat] = []
    writer = RunWriter(storage, on_beat=lambda: beats.append(heartbeat(storage)))
    first = heartbeat(storage)
    writer.last_step, writer.stopped = 4, True
    wait_for(lambda: any(beat.last_step == 4 for beat in beats))
    writer.close()
    assert (first.last_step, first.stopped, first.closed) == (-1, False, False)
    last = beats[-1]
    assert (last.last_step, last.stopped, last.closed) == (4, True, False)
    assert last.time > first.time
    assert heartbeat(storage).closed


def test_a_forked_child_writes_nothing(storage: LocalStorage) -> None:
    writer = RunWriter(storage, queue_bytes=1_000)
    writer.add(record_of(0))
    writer.flush()
    pid = os.fork()
    if pid == 0:
        # More than the queue's limit: it would wait forever for a missing thread.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        taken = [writer.add(record_of(step, size=900)) for step in range(5)]
        taken.append(writer.add_scalars(ScalarStep(5, 0.0, {"losses/loss": 1.0})))
        os._exit(any(taken) or writer.flush() or writer.close())
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert writer.add_scalars(ScalarStep(1, 0.0, {"losses/loss": 1.0}))
    writer.close()
    assert open_run(storage).steps().tolist() == [0, 1]
