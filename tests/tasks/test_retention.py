"""Runs are removed as asked for, those that are needed stay, and no kill leaves half of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.cli.command_line import vinedresser
from vinedresser import open_run, open_store
from vinedresser.errors import ConfigError, StillRunning
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.catalog.stores import private_state
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.objects import LocalStorage, Location, StoreUrl, open_storage
from vinedresser.processes import this_process
from vinedresser.store.records import (
    ExitCause,
    ExitRecord,
    LaunchRecord,
    RemedyRecord,
    RestartRecord,
    TrackingRecord,
    write_record,
)
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.config.retention_file import Policy, Retention, load_retention
from vinedresser.tasks.lifecycle.mlflow_run import find_or_create
from vinedresser.tasks.process_lock import process_lock
from vinedresser.tasks.retention import (
    Candidate,
    candidates,
    clean,
    complete,
    named,
    remove,
    remove_named,
)
from vinedresser.tasks.retention_reasons import pin, unpin
from vinedresser.testing.runs import make_run, step_record

DAY = 86_400.0


def ended_run(
    location: Location, *, days: float = 1.0, cause: ExitCause = "finished", **fields: object
) -> None:
    """Make a run that has ended some days ago."""
    make_run(location, [step_record(0, scalars={"losses/loss": 1.0})], **fields)
    write_record(open_storage(location), ExitRecord(cause, "", time.time() - days * DAY))


def chosen(store: Location, policy: Policy) -> list[str]:
    return [
        candidate.location.name for candidate in candidates(store, policy) if not candidate.kept
    ]


def kept(store: Location, policy: Policy) -> dict[str, str]:
    return {
        candidate.location.name: candidate.kept
        for candidate in candidates(store, policy)
        if candidate.kept
    }


def remove_all(store: Location, policy: Policy) -> None:
    for candidate in candidates(store, policy):
        if not candidate.kept:
            remove(candidate, policy.what)


def completed(store: Location) -> list[Location]:
    """Complete all removals that were interrupted."""
    failed: dict[Location, str] = {}
    found = complete(store, failed)
    assert failed == {}
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with runs that have ended 1 to 5 days ago."""
    for days in (3, 1, 5, 2, 4):
        ended_run(tmp_path / "runs" / f"run-{days}", days=days - 0.5)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(older=3 * DAY), [5, 4]),
        (Policy(keep=2), [5, 4, 3]),
        (Policy(older=1 * DAY, keep=3), [5, 4]),
        (Policy(older=9 * DAY), []),
        (Policy(states=["crashed"]), []),
        (Policy(states=["finished", "crashed"]), [5, 4, 3, 2, 1]),
    ],
)
def test_a_policy_chooses_the_oldest(store: Path, policy: Policy, expected: list[int]) -> None:
    assert chosen(store, policy) == [f"run-{days}" for days in expected]


def test_runs_that_ended_otherwise_are_not_listed(store: Path) -> None:
    ended_run(store / "broken", cause="crashed")
    found = candidates(store, Policy(states=["crashed"]))
    assert [one.location.name for one in found] == ["broken"]


def test_a_size_keeps_the_newest_that_fit_into_it(store: Path) -> None:
    sizes = {
        candidate.location.name: candidate.bytes
        for candidate in candidates(store, Policy(older=1.0))
    }
    room = sizes["run-1"] + sizes["run-2"]
    assert chosen(store, Policy(most_bytes=room)) == ["run-5", "run-4", "run-3"]
    assert chosen(store, Policy(most_bytes=room - 1)) == ["run-5", "run-4", "run-3", "run-2"]
    # What must stay makes others go.
    pin(store / "run-5", "the paper")
    # Their sizes differ by a few bytes.
    more = Policy(most_bytes=room + 500)
    assert chosen(store, more) == ["run-4", "run-3", "run-2"]
    remove_all(store, more)
    assert sorted(open_store(store)) == ["run-1", "run-5"]


def test_a_policy_has_to_say_which() -> None:
    with pytest.raises(ConfigError, match="say which runs: older"):
        Policy()


def test_what_is_needed_stays_and_says_why(store: Path) -> None:
    pin(store / "run-1", "the paper")
    # Somebody's who may still settle it, one that nothing has ended, and one elsewhere.
    launch = LaunchRecord(["true"], str(store), {}, asdict(this_process()))
    write_record(LocalStorage(store / "run-2"), launch)
    (store / "run-3/exit.json").unlink()
    (store / "link").symlink_to(store / "run-4")
    retry = RemedyRecord("run-5", 1, "run-5", {"rule": "nonfinite"})
    ended_run(store / "run-5-retry-1", remedy=retry.to_json())
    found = kept(store, Policy(older=1e-6))
    assert {name: reason.split(":")[0] for name, reason in found.items()} == {
        "run-1": f"pinned by {json.loads((store / 'run-1/pin.json').read_text())['user']}",
        "run-2": f"process {os.getpid()}, to which it belongs, still runs",
        "run-3": "it has not ended",
        "link": "it is a link",
        "run-5": "run-5-retry-1 began from it",
    }
    assert chosen(store, Policy(older=1.0)) == ["run-4", "run-5-retry-1"]
    unpin(store / "run-1")
    assert "run-1" in chosen(store, Policy(older=1.0))


def test_a_run_that_begins_another_again_keeps_it(store: Path) -> None:
    restart = RestartRecord("run-5", 1, "run-5")
    ended_run(store / "run-5-restart-1", restart=restart.to_json())
    assert kept(store, Policy(older=1.0)) == {"run-5": "run-5-restart-1 began from it"}
    assert named(store / "run-5").kept == "run-5-restart-1 began from it"


def test_a_run_that_another_one_names_as_its_reference_stays(store: Path) -> None:
    good = open_run(store / "run-5").info.id
    ended_run(store / "new", days=0.1, references=["run-5"], named_references=[good])
    # "auto" can choose others.
    ended_run(store / "other", days=0.1, references=["run-4"])
    assert kept(store, Policy(older=1 * DAY)) == {"run-5": "new is compared with it (reference)"}
    with pytest.raises(ConfigError, match=r"run-5: stays: new is compared with it \(reference\)"):
        remove_named(store / "run-5")
    remove_named(store / "new")
    remove_named(store / "run-5")


def test_a_damaged_run_is_named_and_hinders_no_other(store: Path, tmp_path: Path) -> None:
    ended_run(store / "run-4-remedy-1", days=0.5)
    (store / "run-4-remedy-1/run.json").write_text("{")
    gc = partial(vinedresser, "gc", "--older", "2 d", cwd=tmp_path, columns=300)
    for arguments in ((), ("--delete",)):
        done = gc(*arguments)
        assert done.returncode == 1
        [line] = [line for line in done.stdout.splitlines() if line.startswith("run-4-remedy-1 ")]
        assert "stays:" in line
        assert line.rstrip().endswith("(char 1)")
        assert "1 run could not be read or removed" in done.stdout
    # It may have begun from run-4.
    assert sorted(open_store(store)) == ["run-1", "run-2", "run-4", "run-4-remedy-1"]
    reason = "run-4-remedy-1, which cannot be read, may have begun from it"
    assert kept(store, Policy(older=3 * DAY))["run-4"] == reason
    remove_named(store / "run-2")
    with pytest.raises(ConfigError, match=reason):
        remove_named(store / "run-4")


def test_a_policy_that_is_not_about_a_run_needs_no_mlflow(store: Path, tmp_path: Path) -> None:
    uri = absolute_uri("sqlite:///gone.db", tmp_path)
    remember_tracking(store, uri)
    for name in ("run-1", "run-5"):
        tracking = TrackingRecord(uri, "0", "0" * 32, settled=True)
        write_record(LocalStorage(store / name), tracking)
    found = clean(store, Policy(older=3 * DAY), delete=True)
    assert found.failed.keys() == {store / "run-5"}
    assert found.spared == Counter({"too recent (older)": 3})


def test_what_became_needed_meanwhile_stays(store: Path) -> None:
    [candidate] = candidates(store, Policy(older=4 * DAY))
    pin(candidate.location, "")
    with pytest.raises(ConfigError, match="run-5: stays: pinned by"):
        remove(candidate, "runs")
    assert open_run(candidate.location).steps("train").tolist() == [0]


def test_snapshots_and_checkpoints_go_and_the_run_stays(store: Path) -> None:
    storage = LocalStorage(store / "run-5")
    for key in ("snapshots/step-3/contents.safetensors", "checkpoints/step-4.pt"):
        storage.put(key, [bytes(1000)])
    for what in ("snapshots", "checkpoints"):
        policy = Policy(what, older=4 * DAY)
        assert [candidate.bytes for candidate in candidates(store, policy)] == [1000]
        remove_all(store, policy)
        assert storage.list(f"{what}/") == []
        assert not (store / "run-5" / what).exists()
    assert open_run(store / "run-5").steps("train").tolist() == [0]


def test_the_trials_of_a_sweep_are_not_removed_one_by_one(store: Path) -> None:
    (store / SweepRecord.KEY).write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="belong to a sweep"):
        candidates(store, Policy(older=1.0))


def test_a_run_that_is_named_from_inside_has_its_store(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retry = RemedyRecord("run-5", 1, "run-5", {"rule": "nonfinite"})
    ended_run(store / "run-5-retry-1", remedy=retry.to_json())
    for folder, location in ((store / "run-5", Path()), (store / "run-5/index", Path(".."))):
        monkeypatch.chdir(folder)
        assert named(location).location == store / "run-5"
        assert named(location).kept == "run-5-retry-1 began from it"
        with pytest.raises(ConfigError, match="a run, not a store"):
            candidates(location, Policy(older=1.0))
    (store / SweepRecord.KEY).write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="belong to a sweep"):
        named(Path(".."))


# Kills itself before a file is deleted.
KILLED = """
import os, signal, sys
from pathlib import Path
from vinedresser.tasks.retention import Candidate, remove

def end(event, arguments):
    if (event, str(arguments[0]).rpartition("/")[2]) == (sys.argv[2], sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(end)
remove(Candidate(Path(sys.argv[1]), 0.0, 0), "runs")
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("event", "name"),
    [("os.remove", "run.json"), ("os.remove", "exit.json"), ("shutil.rmtree", "run-5")],
)
def test_a_killed_removal_leaves_no_half_and_is_completed(
    store: Path, event: str, name: str
) -> None:
    command = [sys.executable, "-c", KILLED, str(store / "run-5"), event, name]
    assert subprocess.run(command, check=False).returncode == -9
    assert (store / "run-5").is_dir()
    # A whole run, or none.
    assert ("run-5" in open_store(store)) == (name == "run.json")
    if name == "run.json":
        assert open_run(store / "run-5").steps("train").tolist() == [0]
    assert completed(store) == [store / "run-5"]
    assert not (store / "run-5").exists()
    assert completed(store) == []
    assert len(open_store(store)) == 4


def being_removed(store: Path, run: str) -> LocalStorage:
    """Note that the removal of run-5 was interrupted; return the notes."""
    notes = LocalStorage(private_state(store))
    notes.put("removing/0.json", [json.dumps({"name": "run-5", "id": run}).encode()])
    return notes


def test_a_run_in_the_place_of_a_removed_one_stays(store: Path) -> None:
    notes = being_removed(store, "0")
    assert completed(store) == []
    assert "run-5" in open_store(store)
    assert notes.list("removing/") == []


def test_a_whole_run_that_was_pinned_after_its_removal_was_interrupted_stays(store: Path) -> None:
    notes = being_removed(store, open_run(store / "run-5").info.id)
    pin(store / "run-5", "the paper")
    assert completed(store) == []
    assert open_run(store / "run-5").steps("train").tolist() == [0]
    assert notes.list("removing/") == []


def test_a_link_in_the_place_of_a_half_removed_run_is_not_followed(store: Path) -> None:
    notes = being_removed(store, open_run(store / "run-5").info.id)
    (store / "run-5").rename(store.parent / "elsewhere")
    (store.parent / "elsewhere/run.json").unlink()
    (store / "run-5").symlink_to(store.parent / "elsewhere")
    assert completed(store) == []
    assert (store.parent / "elsewhere/exit.json").is_file()
    assert notes.list("removing/") == []


def test_a_removal_that_cannot_be_completed_hinders_no_other(store: Path, tmp_path: Path) -> None:
    notes = LocalStorage(private_state(store))
    for name in ("run-5", "run-4"):
        note = {"name": name, "id": open_run(store / name).info.id}
        notes.put(f"removing/{name}.json", [json.dumps(note).encode()])
    notes.put("removing/damaged.json", [b"{"])
    uri = absolute_uri("sqlite:///gone.db", tmp_path)
    remember_tracking(store, uri)
    tracking = TrackingRecord(uri, "0", "0" * 32, settled=True)
    write_record(LocalStorage(store / "run-5"), tracking)
    # Half removed: only MLflow is to be told.
    (store / "run-5/run.json").unlink()
    done = vinedresser("gc", "--older", "3 d", "--delete", cwd=tmp_path)
    assert done.returncode == 1
    for name, why in (("run-5", "gone.db: no such file"), ("damaged.json", "not a valid")):
        [line] = [line for line in done.stdout.splitlines() if line.startswith(f"{name} ")]
        assert "its removal, which was interrupted, cannot be completed: " in line
        assert why in done.stdout
    assert "run-4   its removal, which was interrupted, is complete" in done.stdout
    assert sorted(open_store(store)) == ["run-1", "run-2", "run-3"]
    # The next one tries it again.
    (store / "run-5/tracking.json").unlink()
    notes.delete("removing/damaged.json")
    assert completed(store) == [store / "run-5"]


def test_a_store_in_the_place_of_a_removed_run_stays(store: Path) -> None:
    being_removed(store, open_run(store / "run-5").info.id)
    (store / "run-5").rename(store.parent / "elsewhere")
    ended_run(store / "run-5/run-1")
    assert completed(store) == []
    assert len(open_store(store / "run-5")) == 1


# Another process takes the folder away just before it is removed.
RACING = """
import os, sys
from pathlib import Path
from vinedresser.tasks.retention import Policy, clean

def take(event, arguments):
    if event == "shutil.rmtree" and str(arguments[0]).endswith("run-5"):
        os.rename(arguments[0], f"{arguments[0]}.taken")

sys.addaudithook(take)
found = clean(Path(sys.argv[1]), Policy(keep=3), delete=True)
print(found.text, *found.failed.values(), sep="; ")
"""


@pytest.mark.thorough
def test_a_run_that_cannot_be_removed_is_named_and_hinders_no_other(store: Path) -> None:
    command = [sys.executable, "-c", RACING, str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1 run, ")
    assert f"{store / 'run-5'}: not removed: No such file or directory" in done.stdout
    assert sorted(open_store(store)) == ["run-1", "run-2", "run-3"]
    assert clean(store, Policy(keep=3), delete=True).candidates == []


def test_what_lies_in_a_store_removes_nothing(store: Path) -> None:
    run = open_run(store / "run-5").info
    note = json.dumps({"name": "run-5", "id": run.id}).encode()
    for storage in (LocalStorage(store), LocalStorage(store / "run-5")):
        storage.put("removing/0.json", [note])
    assert completed(store) == []
    assert "run-5" in open_store(store)


@pytest.mark.thorough
def test_mlflow_keeps_the_run_and_says_that_its_data_is_gone(store: Path, tmp_path: Path) -> None:
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path)
    remember_tracking(store, uri)
    experiment = prepare_tracking(uri, "digits")
    ids = {}
    for name in ("run-5", "run-4", "run-3"):
        run = open_run(store / name)
        ids[name] = find_or_create(TrackingRecord(uri, experiment, ""), store / name, run.info)
        settled = name != "run-3"
        write_record(run.storage, TrackingRecord(uri, experiment, ids[name], settled=settled))
    client = MlflowClient(uri)
    client.create_registered_model("digits")
    client.create_model_version("digits", str(tmp_path), ids["run-4"])
    assert kept(store, Policy(older=2 * DAY)) == {
        "run-4": "the registered model digits is from it",
        "run-3": "MLflow does not know its end: vinedresser reconcile",
    }
    remove_all(store, Policy(older=2 * DAY))
    assert "run-5" not in open_store(store)
    assert "removed" in client.get_run(ids["run-5"]).data.tags
    # Without MLflow nothing is removed.
    os.rename(tmp_path / "mlflow.db", tmp_path / "away.db")
    assert "no such file" in kept(store, Policy(older=2 * DAY))["run-4"]


@pytest.mark.thorough
def test_runs_on_an_object_store_are_removed(s3: str) -> None:
    for days in (1, 2):
        ended_run(StoreUrl(f"{s3}/run-{days}"), days=days)
    with pytest.raises(ConfigError, match="leave out size"):
        candidates(StoreUrl(s3), Policy(most_bytes=1))
    assert kept(StoreUrl(s3), Policy(keep=1)) == {}
    remove_all(StoreUrl(s3), Policy(keep=1))
    assert {key.partition("/")[0] for key in open_storage(StoreUrl(s3)).list("")} == {"run-1"}
    assert completed(StoreUrl(s3)) == []


def test_a_candidate_that_is_to_stay_is_not_removed(store: Path) -> None:
    with pytest.raises(ConfigError, match="stays: because"):
        remove(Candidate(store / "run-1", 0.0, 0, "because"), "runs")


def test_the_command_lists_first_and_removes_only_if_told(store: Path, tmp_path: Path) -> None:
    gc = partial(vinedresser, "gc", cwd=tmp_path)
    before = sorted(open_store(store))
    listed = gc("--older", "3 d")
    assert listed.stdout.splitlines()[-2:] == [
        "2 runs, 0.0 MB; --delete removes them",
        "3 runs stay: too recent (older)",
    ]
    assert sorted(open_store(store)) == before
    assert gc("--older", "3 d", "--delete").returncode == 0
    assert sorted(open_store(store)) == ["run-1", "run-2", "run-3"]
    refused = gc("--delete")
    assert (refused.returncode, "say which runs" in refused.stderr) == (2, True)
    assert sorted(open_store(store)) == ["run-1", "run-2", "run-3"]


def write(folder: Path, text: str) -> Path:
    path = folder / "retention.toml"
    path.write_text(f"[retention]\n{text}\n", encoding="utf-8")
    return path


def test_a_file_says_which_and_the_command_lists_the_same(store: Path, tmp_path: Path) -> None:
    path = write(tmp_path, 'store = "runs"\nolder = "1 d"\nkeep = 3\nstate = ["finished"]')
    assert load_retention(path) == Retention(
        store, Policy(older=1 * DAY, keep=3, states=["finished"]), delete=False
    )
    gc = partial(vinedresser, "gc", "retention.toml", cwd=tmp_path)
    assert "2 runs, 0.0 MB; --delete removes them" in gc().stdout
    assert len(open_store(store)) == 5
    refused = gc("--older", "9 d")
    assert (refused.returncode, "leave out all options" in refused.stderr) == (2, True)
    assert "2 runs, 0.0 MB" in gc("--delete").stdout
    assert sorted(open_store(store)) == ["run-1", "run-2", "run-3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('store = "runs"', "retention: say which runs: older, keep, state or size"),
        ('store = "runs"\nolder = "soon"', "retention.older: "),
        ('store = "runs"\nsize = "9 fish"', "retention.size: "),
        ('store = "runs"\nstate = ["crash"]', "retention.state 'crash': "),
        ('store = "runs"\nkeep = -1', "retention.keep: "),
        ('store = "runs"\nkeep = 1\nwhat = "run"', "retention.what 'run': "),
        ('store = "rums"\nkeep = 1', "no such directory"),
        ("keep = 1", "retention.store: "),
        ('store = "runs"\nkeep = 1\n[alarm]', "alarm: unknown table"),
    ],
)
def test_a_file_that_says_something_else_is_refused(store: Path, text: str, said: str) -> None:
    path = write(store.parent, text)
    with pytest.raises(ConfigError, match=r"retention\.toml: ") as refused:
        load_retention(path)
    assert said in str(refused.value)


def test_only_one_removes_runs_of_a_store_at_a_time(store: Path) -> None:
    with (
        process_lock(private_state(store) / "removing.lock", "removal"),
        pytest.raises(StillRunning, match="another process runs this removal"),
    ):
        clean(store, Policy(keep=1), delete=True)
    assert len(clean(store, Policy(keep=1), delete=False).candidates) == 4
    assert clean(store, Policy(keep=1), delete=True).text.startswith("4 runs")


def test_runs_that_a_policy_is_not_about_are_counted_by_the_reason(store: Path) -> None:
    ended_run(store / "broken", cause="crashed", days=0.1)
    spared = Counter[str]()
    policy = Policy(keep=1, older=2 * DAY, states=["crashed"])
    assert candidates(store, policy, spared) == []
    assert spared == {
        "among the newest 1 (keep)": 1,
        "too recent (older)": 2,
        "ended otherwise (state)": 3,
    }
    spared.clear()
    assert candidates(store, Policy(keep=7), spared) == []
    assert spared == {"among the newest 7 (keep)": 6}
    spared.clear()
    assert candidates(store, Policy(most_bytes=10**9), spared) == []
    assert spared == {"there is room (size)": 6}
