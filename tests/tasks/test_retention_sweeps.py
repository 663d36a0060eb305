"""A sweep is removed with all of its trials or stays with them, wherever its removal is killed."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.cli.command_line import vinedresser
from tests.tasks.test_retention import DAY, ended_run
from vinedresser import open_run, open_store
from vinedresser.errors import ConfigError, StillRunning
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.catalog.stores import local_state, private_state
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking import create_run, prepare_tracking
from vinedresser.objects import LocalStorage, Location, StoreUrl, open_storage
from vinedresser.store.records import write_record
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.config.retention_file import Policy
from vinedresser.tasks.parents.kinds import parents_in
from vinedresser.tasks.retention import candidates, clean, named, remove
from vinedresser.tasks.retention_reasons import pin, unpin


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Return MLflow's URI, an experiment and the run of a sweep."""
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path_factory.mktemp("mlflow"))
    experiment = prepare_tracking(uri, "searches")
    return uri, experiment, create_run(uri, experiment, "search", {}, {})


def make_sweep(
    store: Location, tracking: tuple[str, str, str], *, days: float = 3.0, **fields: Any
) -> Location:
    """Make a sweep of three trials that has ended some days ago."""
    place, (uri, experiment, run) = store / "search", tracking
    remember_tracking(place, uri)
    state = local_state(place)
    end = {"status": "FINISHED", "tags": {}, "time": time.time() - days * DAY}
    given: dict[str, Any] = {"run_id": run, "end": end, "settled": True, **fields}
    record = SweepRecord(
        name="search",
        created=time.time() - 9 * DAY,
        tracking_uri=uri,
        experiment_id=experiment,
        id="5" * 8,
        space={},
        command=["true"],
        parameters={},
        objectives=[],
        epochs=None,
        **given,
    )
    write_record(LocalStorage(state), record)
    for key in ("journal.log", "sweep.html", "flows/0"):
        LocalStorage(state).put(key, [b"{}"])
    for number in range(3):
        ended_run(place / f"trial-000{number}", days=days)
    return place


@pytest.fixture
def store(tmp_path: Path, tracking: tuple[str, str, str]) -> Path:
    """Return a store with a run that has ended yesterday, and a sweep that has ended before."""
    ended_run(tmp_path / "runs" / "run-1", days=1.0)
    make_sweep(tmp_path / "runs", tracking)
    return tmp_path / "runs"


def test_a_sweep_goes_with_its_trials_and_mlflow_is_told(
    store: Path, tracking: tuple[str, str, str]
) -> None:
    [found] = candidates(store, Policy(older=2 * DAY))
    assert (found.name, found.state, found.kept) == ("search (sweep)", "finished", "")
    files = [one for one in (store / "search").rglob("*") if one.is_file()]
    assert found.bytes == sum(one.stat().st_size for one in files)
    assert clean(store, Policy(older=2 * DAY), delete=False).text.startswith("1 sweep, ")
    assert (store / "search/sweep.json").exists()
    assert clean(store, Policy(older=2 * DAY), delete=True).failed == {}
    assert os.listdir(store) == ["run-1"]
    assert "removed" in MlflowClient(tracking[0]).get_run(tracking[2]).data.tags


@pytest.mark.parametrize("policy", [Policy(older=4 * DAY), Policy(keep=2), Policy(states=["dead"])])
def test_a_sweep_that_the_policy_is_not_about_stays(store: Path, policy: Policy) -> None:
    assert clean(store, policy, delete=True).candidates == []
    assert len(open_store(store / "search")) == 3


def test_a_sweep_counts_as_one_of_the_newest(store: Path) -> None:
    found = candidates(store, Policy(keep=1))
    assert [one.name for one in found] == ["search (sweep)"]


def test_what_is_needed_of_a_sweep_keeps_all_of_it(store: Path) -> None:
    def kept() -> str:
        [found] = candidates(store, Policy(older=2 * DAY))
        return found.kept

    trial = store / "search/trial-0001"
    pin(trial, "the paper")
    assert kept().startswith("trial-0001: pinned by ")
    with pytest.raises(ConfigError, match="search: stays: trial-0001: pinned by"):
        remove(named(store / "search"), "runs")
    unpin(trial)
    pin(store / "search", "")
    assert kept().startswith("pinned by ")
    unpin(store / "search")
    (trial / "exit.json").rename(store / "exit.json")
    assert kept() == "trial-0001: it has not ended, or nothing has recorded its end"
    (store / "exit.json").rename(trial / "exit.json")
    for name in ("journal.log", "flows/0"):
        with (store / "search" / name).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert kept() == "a process runs it"
    assert kept() == ""


@pytest.mark.parametrize("fields", [{"settled": False}, {"end": {}}])
def test_a_sweep_whose_end_mlflow_does_not_know_stays(
    tmp_path: Path, tracking: tuple[str, str, str], fields: dict[str, Any]
) -> None:
    place = make_sweep(tmp_path, tracking, **fields)
    assert named(place).kept == "MLflow does not know its end: vinedresser reconcile"


def test_a_sweep_that_begins_again_meanwhile_stays(store: Path) -> None:
    found = named(store / "search")
    with (store / "search/journal.log").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StillRunning, match="another process runs this sweep"):
            remove(found, "runs")
    with (store / "search/flows/0").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="stays: a process runs it"):
            remove(found, "runs")
    assert len(open_store(store / "search")) == 3


def remove_up_to(place: Path, changes: int) -> None:
    """Remove a sweep; be killed before a change of a file or folder, counted from 0."""
    candidate = named(place)
    left = changes

    def count(event: str, _: tuple[Any, ...]) -> None:
        nonlocal left
        if event in ("os.remove", "os.rename", "os.rmdir", "shutil.rmtree"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    remove(candidate, "runs")


@pytest.mark.thorough
def test_a_sweep_is_whole_or_gone_wherever_its_removal_is_killed(
    tmp_path: Path, tracking: tuple[str, str, str]
) -> None:
    changes, code = 0, -signal.SIGKILL
    while code:
        store = tmp_path / f"store-{changes}"
        place = make_sweep(store, tracking)
        process = multiprocessing.get_context("fork").Process(
            target=remove_up_to, args=(place, changes)
        )
        process.start()
        process.join()
        code = process.exitcode or 0
        if parents_in(store):
            assert len(open_store(place)) == 3
            assert open_run(place / "trial-0002").steps("train").tolist() == [0]
        else:
            assert "search" not in os.listdir(store)
        begun = LocalStorage(private_state(store)).list("removing/")
        clean(store, Policy(keep=9), delete=True)
        assert os.listdir(store) == ([] if begun or not code else ["search"])
        assert begun or not code or not changes
        changes += 1 if changes < 8 else 9
    assert changes > 30


def test_a_folder_that_is_being_removed_is_no_sweep(store: Path) -> None:
    (store / "search").rename(store / ".tmp-removed-search")
    assert parents_in(store) == []


def test_the_command_names_it_and_rm_removes_it(store: Path) -> None:
    run = partial(vinedresser, cwd=store.parent)
    listed = run("gc", "--older", "2 d").stdout
    assert "search (sweep)" in listed
    assert "1 sweep, 0.0 MB; --delete removes them" in listed
    refused = run("gc", "runs/search", "--older", "2 d")
    assert (refused.returncode, "vinedresser rm runs/search" in refused.stderr) == (2, True)
    assert run("pin", "runs/search").stdout == "search   pinned\n"
    assert run("rm", "runs/search").returncode == 1
    assert run("pin", "runs/search", "--remove").returncode == 0
    assert run("rm", "runs/search").stdout == "search   removed\n"
    assert os.listdir(store) == ["run-1"]


@pytest.mark.thorough
def test_a_sweep_on_an_object_store_is_removed_with_its_state(
    s3: str, tracking: tuple[str, str, str]
) -> None:
    place = make_sweep(StoreUrl(s3), tracking)
    ended_run(StoreUrl(f"{s3}/run-1"), days=1.0)
    found = clean(StoreUrl(s3), Policy(older=2 * DAY), delete=True)
    assert [one.name for one in found.candidates] == ["search (sweep)"]
    assert {key.partition("/")[0] for key in open_storage(StoreUrl(s3)).list("")} == {"run-1"}
    assert not local_state(place).exists()
