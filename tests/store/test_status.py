"""The status of a run, derived from its records and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from vinedresser.errors import CorruptData, NotARun, StillRunning
from vinedresser.infra.supervise.launcher import settle
from vinedresser.objects import LocalStorage
from vinedresser.processes import ProcessIdentity, identify, this_process
from vinedresser.store.records import (
    ClaimRecord,
    ExitRecord,
    Heartbeat,
    HostOrders,
    LaunchRecord,
    StopRecord,
    SupervisorRecord,
    SystemRecord,
    heartbeat_key,
    read_record,
    run_lock,
    write_record,
)
from vinedresser.store.status import RunState, Status, rank_is_over, run_status
from vinedresser.testing.runs import start_run


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    start_run(tmp_path)
    return LocalStorage(tmp_path)


@pytest.fixture
def gone() -> ProcessIdentity:
    """A process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = identify(process.pid)
    assert identity is not None
    return identity


@pytest.fixture
def here() -> ProcessIdentity:
    """A process that lives."""
    return this_process()


def away(identity: ProcessIdentity) -> ProcessIdentity:
    return replace(identity, host="another machine")


def beat(
    storage: LocalStorage,
    process: ProcessIdentity,
    *,
    rank: int = 0,
    age: float = 0.0,
    closed: bool = False,
    step: int = 5,
) -> None:
    record = Heartbeat(rank, asdict(process), step, time.time() - age, closed=closed)
    write_record(storage, record, key=heartbeat_key(rank))


def supervise(storage: LocalStorage, process: ProcessIdentity, *, age: float = 0.0) -> None:
    identity = asdict(process)
    write_record(storage, SupervisorRecord(identity, identity, time.time() - age))


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match=str(tmp_path)):
        run_status(LocalStorage(tmp_path))


def test_a_new_run_is_running(storage: LocalStorage) -> None:
    assert run_status(storage).state == "running"


def test_a_run_that_never_began_is_dead(tmp_path: Path) -> None:
    start_run(tmp_path, created=time.time() - 61)
    status = run_status(LocalStorage(tmp_path))
    assert status.state == "dead"
    assert status.over
    assert status.step is None


def test_a_live_supervisor_means_running(
    storage: LocalStorage, here: ProcessIdentity, gone: ProcessIdentity
) -> None:
    supervise(storage, here, age=1000)
    assert run_status(storage).state == "running"
    beat(storage, gone, age=1000)
    assert run_status(storage).state == "running"


def test_a_dead_supervisor_and_no_heartbeat_is_dead(
    storage: LocalStorage, gone: ProcessIdentity
) -> None:
    supervise(storage, gone)
    assert run_status(storage).state == "dead"


def test_a_live_trainer_means_running(
    storage: LocalStorage, here: ProcessIdentity, gone: ProcessIdentity
) -> None:
    supervise(storage, gone)
    beat(storage, here, age=1000)
    assert run_status(storage).state == "running"
    assert run_status(storage).step == 5


def test_a_trainer_that_has_closed_still_runs_until_it_is_gone(
    storage: LocalStorage, here: ProcessIdentity, gone: ProcessIdentity
) -> None:
    beat(storage, here, closed=True)
    assert run_status(storage).state == "running"
    beat(storage, gone, closed=True)
    assert run_status(storage).state == "dead"


def test_one_live_rank_is_enough(
    storage: LocalStorage, here: ProcessIdentity, gone: ProcessIdentity
) -> None:
    beat(storage, gone, step=8)
    assert run_status(storage).state == "dead"
    beat(storage, here, rank=1, step=7)
    assert run_status(storage).state == "running"
    assert run_status(storage).step == 8


def test_a_run_waits_for_ranks_that_have_not_begun(tmp_path: Path, gone: ProcessIdentity) -> None:
    start_run(tmp_path, world_size=2)
    beat(LocalStorage(tmp_path), gone)
    assert run_status(LocalStorage(tmp_path)).state == "running"
    (tmp_path / "run.json").unlink()
    start_run(tmp_path, world_size=2, created=time.time() - 61)
    assert run_status(LocalStorage(tmp_path)).state == "dead"


def test_on_another_machine_the_heartbeat_must_be_fresh(
    storage: LocalStorage, here: ProcessIdentity
) -> None:
    supervise(storage, away(here))
    assert run_status(storage).state == "running"
    supervise(storage, away(here), age=61)
    status = run_status(storage)
    assert status.state == "dead"
    begun = read_record(storage, SupervisorRecord)
    assert begun is not None
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(begun.started))
    assert status.reason == (
        f"nothing was heard from another machine after {when} and no exit was recorded"
    )
    supervise(storage, away(here), age=400)
    # A training without heartbeats, whose supervisor measures the load of its machine.
    load = SystemRecord(time.time() - 200, 0, {}).to_json()
    storage.put(SystemRecord.KEY, [json.dumps(load).encode()])
    assert run_status(storage).state == "running"
    storage.delete(SystemRecord.KEY)
    # One whose launcher waits for its hosts.
    write_record(storage, HostOrders(9, time=time.time() - 3))
    assert run_status(storage).state == "running"
    storage.delete(HostOrders.KEY)
    beat(storage, away(here), age=3)
    assert run_status(storage).state == "running"
    beat(storage, away(here), age=61)
    assert run_status(storage).state == "dead"


def test_a_link_in_the_place_of_the_load_is_no_sign_of_life(
    storage: LocalStorage, gone: ProcessIdentity
) -> None:
    supervise(storage, gone)
    Path(storage.location, SystemRecord.KEY).symlink_to("run.json")
    assert run_status(storage).state == "dead"
    lock = run_lock.acquire(Path(storage.location))
    assert lock is not None
    os.close(lock)
    assert settle(storage.location).cause == "killed"


def test_a_reused_process_id_is_another_process(
    storage: LocalStorage, here: ProcessIdentity
) -> None:
    beat(storage, replace(here, started=here.started - 1))
    assert run_status(storage).state == "dead"
    beat(storage, replace(here, boot="an earlier one"))
    assert run_status(storage).state == "dead"


def test_the_exit_record_takes_precedence(storage: LocalStorage, here: ProcessIdentity) -> None:
    supervise(storage, here)
    beat(storage, here)
    stop = StopRecord("rule", "the loss is NaN", 1.0, rule="nonfinite", step=7)
    ending = ExitRecord("stopped", "the loss is NaN", 12.5, code=0, last_step=9, stop=stop)
    write_record(storage, ending)
    status = run_status(storage)
    assert (status.state, status.by, status.rule) == ("stopped", "rule", "nonfinite")
    assert (status.reason, status.step, status.code) == ("the loss is NaN", 9, 0)
    assert status.ended == 12.5
    write_record(storage, ExitRecord("killed", "by SIGKILL", 1.0, signal="SIGKILL"))
    assert (run_status(storage).state, run_status(storage).signal) == ("killed", "SIGKILL")


def test_an_exit_record_keeps_the_stop_as_a_record(storage: LocalStorage) -> None:
    stop = StopRecord("rule", "the loss is NaN", 1.0, rule="nonfinite", finding={"step": 7})
    written = ExitRecord("stopped", "the loss is NaN", 12.5, stop=stop)
    write_record(storage, written)
    assert json.loads(storage.get("exit.json"))["stop"] == stop.to_json()
    assert read_record(storage, ExitRecord) == written
    storage.put("exit.json", [json.dumps(written.to_json() | {"stop": {"by": 1}}).encode()])
    with pytest.raises(CorruptData, match="by is 1"):
        read_record(storage, ExitRecord)


def test_damaged_records_count_as_missing_and_are_named(
    storage: LocalStorage, here: ProcessIdentity, gone: ProcessIdentity
) -> None:
    beat(storage, here)
    storage.put("exit.json", [b'{"cause": "fini'])
    status = run_status(storage)
    assert status.state == "running"
    assert "exit.json" in " ".join(status.problems)
    storage.put(heartbeat_key(0), [b"\0"])
    supervise(storage, gone)
    status = run_status(storage)
    assert status.state == "dead"
    assert "heartbeat/0.json" in " ".join(status.problems)
    assert "exit.json" in " ".join(status.problems)
    begun = {"supervisor": asdict(gone), "trainer": asdict(gone), "started": 1e300}
    storage.put(SupervisorRecord.KEY, [json.dumps(begun).encode()])
    status = run_status(storage)
    assert status.state == "running"
    assert "started is 1e+300" in " ".join(status.problems)


def test_when_a_rank_is_over(
    storage: LocalStorage, here: ProcessIdentity, gone: ProcessIdentity
) -> None:
    assert not rank_is_over(storage, 0)
    beat(storage, here)
    assert not rank_is_over(storage, 0)
    beat(storage, here, closed=True)
    assert rank_is_over(storage, 0)
    beat(storage, gone)
    assert rank_is_over(storage, 0)
    beat(storage, away(here), age=30)
    assert not rank_is_over(storage, 0)
    beat(storage, away(here), age=61)
    assert rank_is_over(storage, 0)
    assert not rank_is_over(storage, 1)


def test_an_additional_run_ends_with_the_process_that_claimed_it(
    storage: LocalStorage, gone: ProcessIdentity, here: ProcessIdentity
) -> None:
    # Of a job of several ranks, another one may still begin.
    jobs = ["7", "null", "{}", json.dumps({"parent": asdict(gone)}), json.dumps({"RUN": "a"})]
    for processes in (*jobs, json.dumps(asdict(here)), json.dumps(asdict(away(gone)))):
        write_record(storage, ClaimRecord(processes))
        assert run_status(storage).state == "running"
        with pytest.raises(StillRunning):
            settle(storage.location)
    write_record(storage, ClaimRecord(json.dumps(asdict(gone))))
    assert run_status(storage).state == "dead"
    write_record(storage, LaunchRecord(["train"], "/"))
    assert run_status(storage).state == "running", "another process of the script may train"
    storage.delete(LaunchRecord.KEY)
    assert settle(storage.location).cause == "killed"
    assert run_status(storage).state == "killed"


@pytest.mark.parametrize(
    ("state", "by", "saved"),
    [
        ("stopped", "rule", 490),
        ("stopped", "sweep", 490),
        ("stopped", "person", 490),
        ("stopped", "owner", None),
        ("crashed", "", None),
        ("killed", "", None),
        ("finished", "", None),
        ("running", "", None),
    ],
)
def test_only_stopping_a_run_saves_steps(state: RunState, by: str, saved: int | None) -> None:
    status = Status(state, by=by, step=9)
    assert status.steps_saved(500) == saved
    assert status.steps_saved(None) is None
    assert replace(status, step=None).steps_saved(500) is None
    assert status.steps_saved(5) in (0, None)
