"""What was made for processes of other machines stays as long as they may be alive."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.tasks.test_retention import DAY, chosen, ended_run, kept
from vinedresser.errors import StillRunning
from vinedresser.objects import LocalStorage
from vinedresser.processes import ProcessIdentity, this_process
from vinedresser.store.records import (
    ExitRecord,
    Heartbeat,
    HostOrders,
    LaunchRecord,
    SupervisorRecord,
    SystemRecord,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.store.status import run_status
from vinedresser.tasks.config.retention_file import Policy
from vinedresser.tasks.health.stores import store_checks
from vinedresser.tasks.reconcile.reconcile import reconcile
from vinedresser.tasks.transfer import copy_run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with two runs that have ended."""
    for days in (4, 5):
        ended_run(tmp_path / "runs" / f"run-{days}", days=days - 0.5)
    return tmp_path / "runs"


def away(owner: ProcessIdentity) -> ProcessIdentity:
    return replace(owner, host="gpu7")


def made_for(run: Path, owner: ProcessIdentity) -> LocalStorage:
    """Have a run be made for a process of another machine."""
    storage = LocalStorage(run)
    write_record(storage, LaunchRecord(["true"], str(run), {}, asdict(away(owner))))
    (run / "exit.json").unlink()
    for heartbeat in (run / "heartbeat").iterdir():
        heartbeat.unlink()
    return storage


def test_a_process_of_another_machine_counts_as_gone_after_a_day(store: Path) -> None:
    here, now = this_process(), time.time()
    other = replace(here, pid=here.pid + 1)
    for name, owner, age in (("run-5", here, 0.9 * DAY), ("run-4", other, 1.1 * DAY)):
        storage = made_for(store / name, owner)
        beat = Heartbeat(0, asdict(away(here)), 7, now - age)
        write_record(storage, beat, key=heartbeat_key(0))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(now - 0.9 * DAY))
    found = kept(store, Policy(older=1e-6))
    assert found["run-5"] == (
        f"process {here.pid} on gpu7, to which it belongs, may still run: last sign of life "
        f"{when}; it counts as gone a day later"
    )
    assert found["run-4"].startswith("nothing was heard from gpu7 after ")
    reconcile(store)
    assert not (store / "run-5/exit.json").exists()
    assert read_record(LocalStorage(store / "run-4"), ExitRecord) is not None
    assert kept(store, Policy(older=1e-6)).keys() == {"run-5"}


def test_the_run_of_a_hook_of_another_machine_is_left_alone_for_a_day(store: Path) -> None:
    here, run = this_process(), store / "run-5"
    storage = made_for(run, here)
    (run / "launch.json").unlink()
    beat = Heartbeat(0, asdict(away(here)), 7, time.time() - 0.9 * DAY)
    write_record(storage, beat, key=heartbeat_key(0))
    assert run_status(storage).state == "dead"
    said = f"process {here.pid} on gpu7, to which it belongs, may still run: "
    assert kept(store, Policy(older=1e-6))["run-5"].startswith(said)
    [found] = [check for check in store_checks(store) if check.state != "ok"]
    assert found.seen.startswith(f"run-5: {said}")
    with pytest.raises(StillRunning, match="may still run"):
        copy_run(run, store.parent / "copy")
    reconcile(store)
    assert not (run / "exit.json").exists()
    write_record(storage, replace(beat, closed=True), key=heartbeat_key(0))
    reconcile(store)
    assert (run / "exit.json").exists()


def test_a_run_that_waits_on_another_machine_is_left_alone_while_others_train(
    store: Path,
) -> None:
    here = this_process()
    waiting, training = (store / name for name in ("run-5", "run-4"))
    for run in (waiting, training):
        made_for(run, here)
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(record | {"created": time.time() - 40 * DAY}))
    begun = SupervisorRecord(asdict(away(here)), asdict(away(here)), time.time() - 35 * DAY)
    write_record(LocalStorage(training), begun)
    load = training / "system.jsonl"
    load.write_text(json.dumps(SystemRecord(time.time() - 200, 0, {}).to_json()) + '\n{"time": 1')
    assert run_status(LocalStorage(training)).state == "running"
    reconcile(store)
    assert not (waiting / "exit.json").exists()
    load.unlink()
    reconcile(store)
    assert "never started" in json.loads((waiting / "exit.json").read_text())["reason"]


def test_a_run_that_waits_for_gpus_of_another_machine_is_left_alone_for_a_month(
    store: Path,
) -> None:
    for name, days in (("run-5", 29), ("run-4", 31)):
        # Each for a process of its own.
        made_for(store / name, replace(this_process(), pid=days))
        record = json.loads((store / name / "run.json").read_text())
        created = {"created": time.time() - days * DAY}
        (store / name / "run.json").write_text(json.dumps(record | created))
    assert kept(store, Policy(older=1e-6))["run-5"].endswith("; it counts as gone 30 days later")
    reconcile(store)
    assert not (store / "run-5/exit.json").exists()
    assert (store / "run-4/exit.json").exists()


def test_what_a_living_process_of_another_machine_has_made_stays(store: Path) -> None:
    here = this_process()
    for name in ("run-5", "run-4"):
        made_for(store / name, here)
    write_record(LocalStorage(store / "run-5"), ExitRecord("finished", "", time.time() - 4 * DAY))
    found = kept(store, Policy(older=3 * DAY))
    assert found["run-5"].startswith(f"process {here.pid} on gpu7, to which it belongs, may")
    (store / "run-4/launch.json").unlink()
    assert "run-5" in chosen(store, Policy(older=3 * DAY))


def test_a_launcher_whose_hosts_have_to_wait_gives_signs_of_life(store: Path) -> None:
    here = asdict(away(this_process()))
    storage = made_for(store / "run-5", this_process())
    write_record(storage, SupervisorRecord(here, here, time.time() - 3 * DAY))
    for age, over in ((0.9 * DAY, False), (1.1 * DAY, True)):
        write_record(storage, HostOrders(9, time=time.time() - age))
        reconcile(store)
        assert (store / "run-5/exit.json").exists() == over
