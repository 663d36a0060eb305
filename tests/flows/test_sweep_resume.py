"""From which checkpoint a trial goes on, also on S3, and what MLflow is told of a killed sweep."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vinedresser.objects import LocalStorage, Storage, StoreUrl, open_storage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import (
    ExitCause,
    ExitRecord,
    Heartbeat,
    TrackingRecord,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Proposal, TrialEnd
from vinedresser.tasks.config.sweep_file import Sweep, load_sweep
from vinedresser.tasks.lifecycle.earlier_runs import runs_of_trial
from vinedresser.tasks.parents.ending import settle_parent
from vinedresser.tasks.places.checkpoints import SavedCheckpoint, last_checkpoint
from vinedresser.tasks.sweeping.sweep_result import begin_sweep
from vinedresser.tasks.sweeping.sweep_runner import SweepRunner
from vinedresser.tasks.sweeping.trial_runs import TrialRuns
from vinedresser.testing.runs import make_run, step_record

ReadMlflow = Callable[[Path], dict[str, Any]]

TRIAL = "trial-0000"


SWEEP = SweepRecord(
    name="search",
    space={},
    command=[],
    parameters={},
    objectives=[],
    epochs=None,
    created=1e9,
    tracking_uri="",
    experiment_id="",
    id="x",
)


def test_runs_with_another_number_of_ranks_are_not_of_the_same_sweep() -> None:
    before = replace(SWEEP, ranks=2)
    assert before.differences(replace(SWEEP, ranks=3)) == ["ranks: was 2, is 3"]
    assert before.differences(replace(SWEEP, ranks=2)) == []
    # An older version did not record it.
    assert SWEEP.differences(before) == []


def sweep(folder: Path, store: str = "runs", pruner: str = "none") -> Sweep:
    """Return a sweep whose script takes ``--from CHECKPOINT``."""
    (folder / "train.py").touch()
    (folder / "sweep.toml").write_text(
        f"""
        [sweep]
        metric = "accuracy"
        direction = "maximize"
        trials = 3
        pruner = "{pruner}"
        resume = "from"
        [space]
        x = [0.1, 0.2]
        [run]
        name = "search"
        command = ["python", "train.py"]
        store = "{store}"
        total_steps = 100
        """,
        encoding="utf-8",
    )
    return load_sweep(folder / "sweep.toml")


def ended(
    location: Path | str,
    steps: int,
    *checkpoints: int,
    cause: ExitCause = "killed",
    begun_from: str | None = None,
) -> Storage:
    """Make a run with an evaluation every 10 steps; one that was killed has no last word."""
    records = []
    for step in range(steps):
        records.append(step_record(step, scalars={"losses/loss": 1 / (1 + step)}))
        if step % 10 == 9:
            scalars = {"metrics/accuracy": step / 1000}
            records.append(step_record(step + 1, mode="eval", scalars=scalars))
    parameters = {} if begun_from is None else {"from": begun_from}
    storage = make_run(location, records, parameters=parameters).storage
    for checkpoint in checkpoints:
        storage.put(f"checkpoints/step-{checkpoint}.pt", [b"weights"])
    write_record(storage, ExitRecord(cause, "it was to be so", 1e9))
    beat = read_record(storage, Heartbeat, key=heartbeat_key(0))
    assert beat is not None
    if cause == "killed":
        write_record(storage, replace(beat, closed=False, gone=True), key=heartbeat_key(0))
    return storage


def restored(one: Sweep) -> TrialRuns:
    """Return the first trial with what an earlier process left of it."""
    trial = TrialRuns(one, Proposal(0, {"x": 0.1}), earlier=True)
    assert not trial.restore()
    return trial


@pytest.mark.parametrize(("value", "again"), [(0.5, False), (0.001, True)])
def test_a_trial_that_fell_behind_when_nobody_looked_is_not_begun_again(
    tmp_path: Path, value: float, again: bool
) -> None:
    searched = sweep(tmp_path, pruner="asha")
    study = searched.study(tmp_path / "journal.log")
    other, left = study.ask(), study.ask()
    assert other is not None
    assert left is not None
    assert study.report(other.number, 1, value) is None
    study.tell(other.number, TrialEnd("finished"), [value])
    study.close()
    # Of its values, from 0.009 to 0.039, the study has not been told.
    ended(tmp_path / "runs" / "search" / "trial-0001", 45)
    study = searched.study(tmp_path / "journal.log")
    write_record(LocalStorage(searched.state), SWEEP)
    runner = SweepRunner(searched, {}, study, TrackingRecord("", "", ""), flow="")
    trial = runner.next()
    assert trial is not None
    assert trial.number == left.number
    assert runner.restore(trial) is not again
    told = runner.conclude(trial)
    study.close()
    if again:
        assert told is None
    else:
        assert told is not None
        assert told.ending.state == "pruned"
        assert re.search(r"epoch 1 .* best of 3 trials", told.ending.reason)
        assert len(told.values) == 4


def test_of_a_killed_run_the_last_checkpoint_before_its_last_step_is_taken(tmp_path: Path) -> None:
    ended(tmp_path / "run", 35, 10, 20, 30, 35)
    assert last_checkpoint(open_run(tmp_path / "run")) == SavedCheckpoint(
        "run", "checkpoints/step-30.pt", 30
    )
    # Nothing is known to have come after it: it may not be whole.
    ended(tmp_path / "at", 30, 20, 30)
    assert last_checkpoint(open_run(tmp_path / "at")) == SavedCheckpoint(
        "at", "checkpoints/step-20.pt", 20
    )
    # One that ended in good order has saved it as a whole.
    ended(tmp_path / "well", 30, 20, 30, cause="stopped")
    found = last_checkpoint(open_run(tmp_path / "well"))
    assert found is not None
    assert found.steps == 30
    ended(tmp_path / "none", 5)
    assert last_checkpoint(open_run(tmp_path / "none")) is None


def test_a_run_killed_before_its_checkpoint_leaves_that_of_the_one_before(tmp_path: Path) -> None:
    searched = sweep(tmp_path)
    first = ended(tmp_path / "runs" / "search" / TRIAL, 45, 20, 40)
    saved = f"{first.location}/checkpoints/step-40.pt"
    ended(tmp_path / "runs" / "search" / f"{TRIAL}-2", 7, begun_from=saved)
    trial = restored(searched)
    # Epochs at 10, 20, 30 and 40; the second run did not come to one.
    assert len(trial.history.values[0]) == 4
    plan = trial.next_spec()
    assert plan.parameters == {"x": 0.1, "from": saved}
    assert plan.total_steps == 60


def test_epochs_are_counted_over_all_runs(tmp_path: Path) -> None:
    searched = sweep(tmp_path)
    first = ended(tmp_path / "runs" / "search" / TRIAL, 45, 20, 40)
    begun = f"{first.location}/checkpoints/step-20.pt"
    second = ended(tmp_path / "runs" / "search" / f"{TRIAL}-2", 25, 10, 20, begun_from=begun)
    trial = restored(searched)
    # Two of the first, whose others came after its checkpoint, and two of the second.
    assert trial.history.values == [[0.009, 0.019, 0.009, 0.019]]
    plan = trial.next_spec()
    assert plan.parameters["from"] == f"{second.location}/checkpoints/step-20.pt"
    assert plan.total_steps == 60


def test_a_checkpoint_of_no_use_is_not_given_again(tmp_path: Path) -> None:
    searched = sweep(tmp_path)
    first = ended(tmp_path / "runs" / "search" / TRIAL, 45, 20, 40)
    half = f"{first.location}/checkpoints/step-40.pt"
    ended(tmp_path / "runs" / "search" / f"{TRIAL}-2", 0, cause="crashed", begun_from=half)
    plan = restored(searched).next_spec()
    assert plan.parameters["from"] == f"{first.location}/checkpoints/step-20.pt"
    assert plan.total_steps == 80


def test_a_trial_that_finished_when_nobody_looked_is_over(tmp_path: Path) -> None:
    searched = sweep(tmp_path)
    ended(tmp_path / "runs" / "search" / TRIAL, 30, cause="finished")
    trial = TrialRuns(searched, Proposal(0, {"x": 0.1}), earlier=True)
    assert trial.restore()
    assert trial.history.values == [[0.009, 0.019, 0.029]]


@pytest.mark.thorough
def test_runs_on_an_object_store_are_gone_on_with_from_their_checkpoint(
    s3: str, tmp_path: Path
) -> None:
    searched = sweep(tmp_path, s3)
    place = f"{s3}/search/{TRIAL}"
    first = ended(place, 45, 20, 40)
    # A checkpoint may be a folder.
    first.delete("checkpoints/step-40.pt")
    first.put("checkpoints/step-40/weights.bin", [b"w"])
    first.put("checkpoints/step-40/optimizer.bin", [b"o"])
    # The name after it was taken, and nothing came of it; and there is another trial.
    open_storage(f"{place}-2").put("reserved.json", [b"{}"])
    ended(f"{place}-10", 3, begun_from="elsewhere/trial-0000/checkpoints/step-40")
    ended(f"{s3}/search/trial-00001", 3)
    assert runs_of_trial(StoreUrl(f"{s3}/search"), TRIAL) == [place, f"{place}-10"]
    trial = restored(searched)
    plan = trial.next_spec()
    fetched = Path(str(plan.parameters["from"]))
    assert {path.name: path.read_bytes() for path in fetched.iterdir()} == {
        "weights.bin": b"w",
        "optimizer.bin": b"o",
    }
    assert SavedCheckpoint.at(str(fetched)) == SavedCheckpoint(TRIAL, "checkpoints/step-40", 40)
    assert searched.state in fetched.parents
    trial.clean_up(finished=True)
    assert not fetched.exists()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow_is_told_of_a_sweep_whose_process_is_gone(
    tmp_path: Path, mlflow_runs: ReadMlflow
) -> None:
    searched = sweep(tmp_path)
    state = searched.state
    state.mkdir(parents=True)
    study = searched.study(searched.lock)
    parent = begin_sweep(searched, resume=False).parent
    assert settle_parent(state, SweepRecord) == "", "it is being run"
    assert mlflow_runs(tmp_path / "runs")["search"]["status"] == "RUNNING"
    study.close()
    assert settle_parent(state, SweepRecord) == "killed; MLflow brought up to date"
    assert settle_parent(state, SweepRecord) == ""
    told = mlflow_runs(tmp_path / "runs")["search"]
    assert (told["id"], told["status"]) == (parent, "KILLED")
    assert told["tags"]["sweep.over"] == "the process that ran it is gone"
    assert told["tags"]["sweep.running"] == "0"

    study = searched.study(searched.lock)
    assert begin_sweep(searched, resume=True).parent == parent
    assert mlflow_runs(tmp_path / "runs")["search"]["status"] == "RUNNING"
    study.close()
    # Killed before it had noted MLflow's run: that is found again, and not made twice.
    storage = open_storage(state)
    record = read_record(storage, SweepRecord)
    assert record is not None
    write_record(storage, replace(record, run_id=""))
    assert settle_parent(state, SweepRecord) == "killed; MLflow brought up to date"
    assert [run["status"] for run in mlflow_runs(tmp_path / "runs").values()] == ["KILLED"]


def test_a_trial_that_was_killed_while_its_values_were_drawn_gets_the_rest(tmp_path: Path) -> None:
    searched = sweep(tmp_path)
    journal = tmp_path / SweepRecord.LOCK
    study = Study(searched.settings, searched.space, journal)
    asked = study.ask()
    assert asked is not None
    study.close()
    # The last lines are the values of its parameters, and all of them together.
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-2]))
    study = Study(searched.settings, searched.space, journal)
    [again] = study.again()
    study.close()
    assert again.number == asked.number
    assert set(again.parameters) == {"x"}


def test_what_a_follower_did_not_see_is_taken_in_at_the_end(tmp_path: Path) -> None:
    searched = sweep(tmp_path)
    ended(tmp_path / "runs" / "search" / TRIAL, 45, 20, 40)
    begun = str(tmp_path / "runs" / "search" / TRIAL / "checkpoints" / "step-20.pt")
    ended(tmp_path / "runs" / "search" / f"{TRIAL}-2", 25, begun_from=begun)
    trial = restored(searched)
    trial.followed = False
    # From its first step on, and nothing twice.
    trial.catch_up()
    assert trial.history.values == [[0.009, 0.019, 0.009, 0.019]]


def test_a_trial_that_had_done_all_when_it_was_to_be_pruned_is_finished(tmp_path: Path) -> None:
    searched = sweep(tmp_path)
    ended(tmp_path / "runs" / "search" / TRIAL, 30, cause="finished")
    trial = TrialRuns(searched, Proposal(0, {"x": 0.1}), earlier=True)
    assert trial.restore()
    trial.cut = TrialEnd("pruned", "at epoch 3 not the best of 3 trials, of which one goes on")
    # Its value is complete.
    assert trial.ending() == TrialEnd("finished")
    assert trial.history.result() == (0.029,)
