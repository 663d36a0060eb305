"""Ranks keep one budget: rank 0 decides how often they capture, and all capture the same steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.torch_.parallel.paced_training import DEATH, STEPS
from tests.capture.torch_.parallel.ranks import run_ranks
from vinedresser.capture import open_run
from vinedresser.capture.recording.pace import SharedPace
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.capture.run.uploading import Upload
from vinedresser.capture.shield import Shield
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import CapturePaceRecord, new_run, read_record, write_record

TRAINING = "tests.capture.torch_.parallel.paced_training"


def captured(run: Run, rank: int) -> list[int]:
    held = [step for step in run.follow() if "weights/weight" in step.reductions]
    return [step.step for step in held if step.rank == rank]


@pytest.mark.thorough
def test_all_ranks_leave_out_the_same_steps_and_train_the_same(tmp_path: Path) -> None:
    run_ranks(TRAINING, tmp_path, "together")
    run = open_run(tmp_path / "together")
    first, second = (captured(run, rank) for rank in (0, 1))
    assert first == second
    since = run.info.thinned["since"]
    assert first[:since] == list(range(since))
    assert 0 < len(first) - since < (STEPS - since) / 2
    assert len(run.steps("train")) == STEPS
    for rank in (0, 1):
        plain, hooked = (tmp_path / f"{way}-{rank}.safetensors" for way in (False, True))
        assert plain.read_bytes() == hooked.read_bytes()


@pytest.mark.thorough
def test_ranks_that_do_not_wait_for_one_another_are_not_held_up_by_one_that_dies(
    tmp_path: Path,
) -> None:
    run_ranks(TRAINING, tmp_path, "apart")
    run = open_run(tmp_path / "apart")
    assert len(run.steps("train")) == STEPS
    assert captured(run, 1) == list(range(DEATH))
    assert len(captured(run, 0)) < STEPS


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def test_a_rank_that_hears_of_it_late_agrees_from_then_on(storage: LocalStorage) -> None:
    leader, follower = (SharedPace(storage, rank, Shield()) for rank in (0, 1))
    assert [follower.at(step) for step in range(0, 500, 50)] == [1] * 10
    assert leader.change(40, 4) == 140
    assert leader.change(300, 2) == 400
    for step in (0, 139, 140, 399, 400, 10_000):
        assert follower.at(step) == leader.at(step)
    assert [leader.at(step) for step in (139, 140, 399, 400)] == [1, 4, 4, 2]


def test_ranks_with_a_spool_each_share_no_directory(tmp_path: Path) -> None:
    # On an object store, hooks that are not launched have a spool for each rank.
    record, spool = new_run("run", None), Upload("s3://bucket/run", tmp_path, None)
    assert OpenedRun(spool.storage, record, launched=False, upload=spool).directory is None
    assert OpenedRun(spool.storage, record, launched=True, upload=spool).directory is spool.storage


def test_a_damaged_decision_is_reported_and_the_pace_remains(storage: LocalStorage) -> None:
    shield = Shield()
    leader, follower = SharedPace(storage, 0, Shield()), SharedPace(storage, 1, shield)
    since = leader.change(40, 4)
    assert since is not None
    assert follower.at(since) == 4
    storage.put(CapturePaceRecord.KEY, [b'{"changes": [[9, 2], [8, 2, 1]]}'])
    assert follower.at(since) == 4
    (problem,) = shield.problems
    assert "capture_pace.json: not a valid CapturePaceRecord" in problem
    write_record(storage, CapturePaceRecord([[0, 8]]))
    assert follower.at(since) == 8


def test_a_decision_that_cannot_be_stored_has_no_effect(tmp_path: Path) -> None:
    shield = Shield()
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    leader = SharedPace(LocalStorage(tmp_path / "file"), 0, shield)
    assert leader.change(40, 4) is None
    assert leader.at(10_000) == 1
    assert "how often all ranks capture" in " ".join(shield.problems)
    assert read_record(LocalStorage(tmp_path), CapturePaceRecord) is None
