"""Reading runs on S3: like a directory, with few and concurrent requests."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser.infra.supervise.relay.heartbeats import Heartbeats
from vinedresser.objects import LocalStorage, Storage, open_storage
from vinedresser.objects.s3_client import s3_client
from vinedresser.processes import ProcessIdentity, this_process
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import Heartbeat, heartbeat_key, read_record, write_record
from vinedresser.store.spool import adopt_spool, spool_root
from vinedresser.store.status import rank_is_over, run_status
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record

pytestmark = pytest.mark.thorough

STEPS = 30


def segments(location: str) -> None:
    """Write a run with a segment for each step; the tensor changes its shape, and has a twin."""
    start_run(location)
    writer = RunWriter(open_storage(location), 0)
    for step in range(STEPS):
        tensors = {"x": np.full(1 + step % 3, step, np.float32)}
        writer.add(step_record(step, tensors=tensors, scalars={"losses/loss": float(step)}))
        if step % 4:
            writer.flush()
    writer.close()
    end_run(location)


@contextmanager
def requests() -> Iterator[Counter[str]]:
    """Count the requests of a block."""
    counts: Counter[str] = Counter()

    def count(model: Any, **_: Any) -> None:
        counts[model.name] += 1

    events = s3_client().meta.events
    events.register("before-call.s3", count)
    try:
        yield counts
    finally:
        events.unregister("before-call.s3", count)


def test_a_tensor_over_all_steps_comes_in_order(s3: str) -> None:
    segments(f"{s3}/run")
    run = open_run(f"{s3}/run")
    found = list(run.tensor("x").values())
    assert [(step, value.tolist()) for step, value in found] == [
        (step, [step] * (1 + step % 3)) for step in range(STEPS)
    ]
    assert run.scalars("losses")["losses/loss"].values.tolist() == list(range(STEPS))
    assert run.problems == []


def test_a_missing_segment_is_named_and_the_rest_is_read(s3: str) -> None:
    segments(f"{s3}/run")
    run = open_run(f"{s3}/run")
    name = "segments/0/000000000005.safetensors"
    open_storage(f"{s3}/run").delete(name)
    steps = [step for step, _ in run.tensor("x").values()]
    losses = run.scalars("losses")["losses/loss"].steps.tolist()
    missing = sorted(set(range(STEPS)) - set(steps))
    assert 1 <= len(missing) <= 2
    assert sorted(set(range(STEPS)) - set(losses)) == missing
    assert all(
        f"{s3}/run/{name}" in problem and "is missing" in problem for problem in run.problems
    )


def test_a_waiting_reader_polls_rarely_and_sees_steps_soon(s3: str) -> None:
    url = f"{s3}/run"
    start_run(url)
    with closing(RunWriter(open_storage(url), 0)) as writer:
        seen: list[float] = []
        reader = threading.Thread(
            target=lambda: seen.extend(time.time() - step.time for step in open_run(url).follow())
        )
        with requests() as counts:
            reader.start()
            time.sleep(4.0)
        # A look every 20 ms took more than 200; the writer's heartbeats are some of these.
        assert counts["GetObject"] + counts["HeadObject"] <= 60
        writer.add(step_record(0))
        writer.flush()
    end_run(url)
    reader.join(20)
    assert not reader.is_alive()
    assert len(seen) == 1
    assert seen[0] < 10.0


# How runs stand, seen from another machine


@pytest.fixture
def store(s3: str) -> Storage:
    start_run(f"{s3}/run")
    return open_storage(f"{s3}/run")


def beat(storage: Storage, process: ProcessIdentity, *, age: float, gone: bool = False) -> None:
    record = Heartbeat(0, asdict(process), 5, time.time() - age, gone=gone)
    write_record(storage, record, key=heartbeat_key(0))


def away() -> ProcessIdentity:
    return replace(this_process(), host="another machine")


def test_a_silent_rank_is_dead_after_a_minute(store: Storage) -> None:
    beat(store, away(), age=4)
    assert (run_status(store).state, run_status(store).reason) == ("running", "")
    beat(store, away(), age=30)
    status = run_status(store)
    assert (status.state, status.step) == ("running", 5)
    assert "rank 0 has been silent for 30 s" in status.reason
    assert "counts as gone after 60 s" in status.reason
    assert not rank_is_over(store, 0)
    beat(store, away(), age=61)
    assert run_status(store).state == "dead"
    assert rank_is_over(store, 0)


def test_a_death_reported_by_the_relay_counts_immediately(store: Storage, tmp_path: Path) -> None:
    dead = replace(this_process(), started=1)
    spool = LocalStorage(tmp_path / "its spool")
    beat(spool, dead, age=1)
    relay = Heartbeats(spool, store)
    # As long as not all is in the store the rank lives there, as its relay does.
    assert not relay.bring(relay.read(), behind=[0])
    assert run_status(store).state == "running"
    assert relay.bring(relay.read(), behind=[])
    told = read_record(store, Heartbeat, key=heartbeat_key(0))
    assert told is not None
    assert told.gone
    # The same record, read elsewhere.
    write_record(store, replace(told, process=asdict(away())), key=heartbeat_key(0))
    assert run_status(store).state == "dead"
    assert rank_is_over(store, 0)


def test_the_machine_with_the_spool_checks_the_process(store: Storage) -> None:
    # The relay that wrote it was killed, and the store is away for the next one.
    beat(store, replace(this_process(), started=1), age=100)
    assert run_status(store).state == "dead"
    folder = spool_root() / "run-1"
    os.close(adopt_spool(folder, store.location))
    beat(LocalStorage(folder), this_process(), age=1)
    assert (run_status(store).state, run_status(store).reason) == ("running", "")
    assert not rank_is_over(store, 0)
    beat(LocalStorage(folder), replace(this_process(), started=1), age=1)
    assert run_status(store).state == "dead"
