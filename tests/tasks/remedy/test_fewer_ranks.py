"""With how many ranks a training begins again whose host, GPU or rank is gone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from vinedresser.errors import ConfigError
from vinedresser.infra.supervise.gpus import VISIBLE_GPUS
from vinedresser.infra.supervise.hosts.reachable import unreachable_hosts
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    TrackingRecord,
    rank_log_key,
    write_record,
)
from vinedresser.tasks.config.experiment import Experiment, load_experiment
from vinedresser.tasks.config.sweep_file import load_sweep
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.fewer_ranks import (
    FailingRank,
    Room,
    failing_rank,
    room_for_ranks,
)
from vinedresser.tasks.remedy.remedy_attempts import Attempt, RemedyAttempts
from vinedresser.testing.runs import make_run, step_record

# Of a host that answers only if its name ends with 8.
SSH = '#!/bin/sh\ncase "$*" in *8" true") exit 0;; esac\nexit 255\n'
HOSTS = 'launcher = "torchrun"\nhosts = ["127.0.0.1", "192.0.2.7", "192.0.2.8"]\n'


def written(folder: Path, settings: str, rest: str = "[remedy]\ntimes = 0\nrestarts = 9") -> Path:
    (folder / "train.py").touch()
    path = folder / "experiment.toml"
    path.write_text(
        f'[run]\nname = "run"\ncommand = ["python", "train.py"]\n{settings}\n{rest}\n',
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize(
    ("settings", "rest", "problem"),
    [
        ("ranks = 4\nmin_ranks = 5", "[remedy]\nrestarts = 1", "must be from 1 to ranks, 4, not 5"),
        ("ranks = 4\nmin_ranks = 0", "[remedy]\nrestarts = 1", "must be from 1 to ranks, 4, not 0"),
        ("ranks = 4\nmin_ranks = 2", "", r"run.min_ranks: only supported .* with restarts in"),
        (
            'ranks = 4\nmin_ranks = 2\nrunner = "dask"',
            "[remedy]\nrestarts = 1",
            "run.min_ranks: only supported .* without run.runner",
        ),
        (
            'ranks = 4\nmin_ranks = 2\nlauncher = "slurm"\nhosts = 2',
            "[remedy]\nrestarts = 1",
            "min_ranks: not supported with the launcher slurm",
        ),
    ],
)
def test_a_smallest_number_of_ranks_that_cannot_be_meant_is_refused(
    tmp_path: Path, settings: str, rest: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_experiment(written(tmp_path, settings, rest))


def test_trials_of_a_sweep_have_as_many_ranks_as_each_other(tmp_path: Path) -> None:
    rest = '[sweep]\nmetric = "loss"\ndirection = "minimize"\ntrials = 2\n[space]\nx = [1, 2]'
    with pytest.raises(ConfigError, match=r"run.min_ranks: only supported for trainings of an exp"):
        load_sweep(written(tmp_path, "ranks = 4\nmin_ranks = 2", rest))


@pytest.mark.parametrize(
    ("settings", "threads"),
    [("cpus = 8", "4"), ('cpus = 8\nenvironment = { OMP_NUM_THREADS = "3" }', "3")],
)
def test_fewer_ranks_have_more_of_the_cores_each(
    tmp_path: Path, settings: str, threads: str
) -> None:
    [spec] = load_experiment(written(tmp_path, f"ranks = 4\nmin_ranks = 2\n{settings}")).specs
    assert spec.on(2, 1).environment["OMP_NUM_THREADS"] == threads
    assert spec.on(4, 1).environment == spec.environment


def test_there_are_no_more_ranks_than_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load_experiment(written(tmp_path, "ranks = 3\nmin_ranks = 1\ngpus_per_rank = 2")).run
    for visible, room in {
        "0,1,2,3,4,5": Room(3, 1, ""),
        "0,1,2,4,5": Room(2, 1, "this machine has 5 GPUs"),
        "-1": Room(0, 1, "this machine has 0 GPUs"),
    }.items():
        monkeypatch.setenv(VISIBLE_GPUS, visible)
        assert room_for_ranks(run, ()) == room


def failed(
    folder: Path,
    name: str,
    rank: int | None,
    steps: int = 0,
    errors: tuple[str, ...] = (),
    *,
    ranks: int = 3,
) -> Run:
    """Make a run of some ranks of which one failed after some steps."""
    records = [[step_record(step) for step in range(steps)] for _ in range(ranks)]
    run = make_run(folder / name, *records, name=name)
    write_record(run.storage, ExitRecord("crashed", "it failed", 2.0, 1, rank=rank))
    said = errors or tuple(
        f"RuntimeError: CUDA error at {name}" if one == rank else "Connection closed by peer"
        for one in range(ranks)
    )
    for number, line in enumerate(said):
        run.storage.put(
            rank_log_key(number), [f"Traceback (most recent call last):\n{line}\n".encode()]
        )
    return open_run(folder / name)


ADDRESSES = tuple(f"RuntimeError: no context at 0x{'ab' * rank}" for rank in range(1, 4))
GONE = ("Socket closed", "Connection reset by peer", "Connection closed by peer")
SAME = tuple(f"KeyError: rank {rank} has no weights" for rank in range(3))


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([(1, 20), (1, 0), (1, 0)], 1),
        ([(0, 20), (2, 5), (1, 0), (1, 0)], 1),
        # Once, by turns, after steps, in no rank, or if it has never trained.
        ([(1, 20), (1, 0)], None),
        ([(1, 20), (1, 0), (2, 0)], None),
        ([(1, 20), (1, 0), (1, 3)], None),
        ([(1, 20), (None, 0), (None, 0)], None),
        ([(1, 0), (1, 0), (1, 0)], None),
        # What a record says of a rank that there was not.
        ([(1, 20), (7, 0), (7, 0)], None),
        ([(1, 20), (-1, 0), (-1, 0)], None),
        # All fail alike: it is the checkpoint, or the script.
        ([(1, 20), (1, 0), (1, 0, SAME)], None),
        ([(1, 20), (1, 0), (1, 0, ADDRESSES)], None),
        # It only says that another one is gone.
        ([(1, 20), (1, 0), (1, 0, GONE)], None),
    ],
)
def test_a_rank_that_alone_keeps_a_training_from_beginning_again_is_found(
    tmp_path: Path, runs: list[tuple[int | None, int]], found: int | None
) -> None:
    made = [failed(tmp_path, f"run-{number}", *one) for number, one in enumerate(runs)]
    assert failing_rank(made) == found


def test_ranks_that_capture_nothing_count(tmp_path: Path) -> None:
    made = [
        failed(tmp_path, f"run-{number}", 2, steps, ranks=1)
        for number, steps in enumerate((20, 0, 0))
    ]
    for run in made:
        write_record(run.storage, LaunchRecord(["train"], "/", ranks=3))
        line = f"RuntimeError: CUDA error at {run.path}\n"
        run.storage.put(rank_log_key(2), [f"Traceback (most recent call last):\n{line}".encode()])
    assert failing_rank(made) == 2


def attempts(experiment: Experiment, folder: Path) -> RemedyAttempts:
    return RemedyAttempts(
        RunPlace(folder / "run-0"),
        experiment.specs[0],
        experiment.remedy,
        TrackingRecord("sqlite:///none", "0", "id"),
        table=experiment.run,
    )


def test_the_rank_stays_left_out_and_the_host_that_answers_again_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH, encoding="utf-8")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=os.pathsep)
    monkeypatch.setattr("vinedresser.infra.supervise.hosts.reachable._PATIENCE", 0.0)
    experiment = load_experiment(written(tmp_path, f"ranks = 3\nmin_ranks = 2\n{HOSTS}"))
    one = attempts(experiment, tmp_path)
    failed(tmp_path, "run-0", 1, 20)
    again = one.next()
    assert again is not None
    assert again.spec.launch == {"ranks": 2, "hosts": ["127.0.0.1", "192.0.2.8"]}
    assert again.restart is not None
    assert again.restart.fewer == "2 of 3 ranks: host 192.0.2.7 does not answer"
    # Two runs on the first and the last host, of which the last is named.
    for number in (1, 2):
        failed(tmp_path, f"run-{number}", 1, ranks=2)
        one.begun(RunPlace(tmp_path / f"run-{number}"), again)
        if number == 2:
            ssh.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        again = one.next()
        assert again is not None
    assert again.restart is not None
    assert again.restart.fewer == (
        "2 of 3 ranks: rank 1 of 2 (host 192.0.2.8) failed twice before its first step"
    )
    assert again.spec.launch == {"ranks": 2, "hosts": ["127.0.0.1", "192.0.2.7"]}
    # With fewer ranks than the script allows, it begins again with all, as without the setting.
    ssh.write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
    again = one.next()
    assert again is not None
    assert again.restart is not None
    assert again.restart.fewer == ""
    assert again.spec.launch["ranks"] == 3
    assert "room for 1, fewer than min_ranks = 2: host 192.0.2.7 does not answer" in caplog.text


def test_a_rank_that_fails_among_those_that_are_left_is_another_one(tmp_path: Path) -> None:
    run = load_experiment(written(tmp_path, "ranks = 4\nmin_ranks = 1")).run
    why = " failed twice before its first step"
    assert room_for_ranks(run, {FailingRank(1, 3), FailingRank(1, 4)}) == Room(
        2, 1, f"rank 1 of 4{why}, rank 1 of 3{why}"
    )


def test_of_hosts_nothing_is_said_that_was_interrupted() -> None:
    assert unreachable_hosts(["192.0.2.7"], lambda: True) == []


def begun(one: RemedyAttempts, folder: Path, name: str, **failure: Any) -> Attempt:
    """Make the next run, which fails, and return it."""
    again = one.next()
    assert again is not None
    failed(folder, name, **failure)
    one.begun(RunPlace(folder / name), again)
    return again


def save(folder: Path, *names: str) -> None:
    (folder / "checkpoints").mkdir()
    for name in names:
        (folder / "checkpoints" / name).write_text("weights", encoding="utf-8")


RESUMED = "[remedy]\ntimes = 0\nrestarts = 9\nresume = 'from'"


def test_what_a_rank_could_not_load_is_tried_again_without_it(tmp_path: Path) -> None:
    settings = "ranks = 3\nmin_ranks = 1\ntotal_steps = 100"
    one = attempts(load_experiment(written(tmp_path, settings, RESUMED)), tmp_path)
    failed(tmp_path, "run-0", 1, 30)
    save(tmp_path / "run-0", "step-10.pt", "step-20.pt")
    found = [begun(one, tmp_path, name, rank=1) for name in ("run-1", "run-2")]
    found.append(begun(one, tmp_path, "run-3", rank=1, ranks=2))
    # Without it, one that nobody can load still makes room for the one before.
    found.append(begun(one, tmp_path, "run-4", rank=0, ranks=2))
    assert [
        (Path(again.spec.parameters["from"]).name, again.spec.launch["ranks"]) for again in found
    ] == [("step-20.pt", 3), ("step-10.pt", 3), ("step-20.pt", 2), ("step-10.pt", 2)]


def test_the_parts_of_all_ranks_are_used_once_all_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "ranks = 3\nmin_ranks = 1\ngpus_per_rank = 1\ntotal_steps = 100"
    monkeypatch.setenv(VISIBLE_GPUS, "0,1,2")
    one = attempts(load_experiment(written(tmp_path, settings, RESUMED)), tmp_path)
    failed(tmp_path, "run-0", 1, 30)
    save(tmp_path / "run-0", *(f"step-20_rank_{rank}.pt" for rank in range(3)))
    monkeypatch.setenv(VISIBLE_GPUS, "0,1")
    fewer = begun(one, tmp_path, "run-1", rank=1, steps=9, ranks=2)
    assert fewer.restart is not None
    assert fewer.restart.begins == "from the start"
    assert fewer.spec.total_steps is None
    monkeypatch.setenv(VISIBLE_GPUS, "0,1,2")
    again = one.next()
    assert again is not None
    assert again.spec.parameters == {"from": str(tmp_path / "run-0/checkpoints/step-20")}
    assert (again.spec.launch["ranks"], again.spec.total_steps) == (3, 80)
