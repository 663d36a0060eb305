"""Assignment of runs to the trainings of unchanged scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vinedresser.capture.run import claims
from vinedresser.capture.run.claims import claim
from vinedresser.capture.run.environment import Environment
from vinedresser.errors import NotARun, SecondWriter
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ClaimRecord, RunRecord, write_record
from vinedresser.store.writing.writer import RunWriter


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    record = RunRecord("0" * 32, "run", 0.0, framework="torch", modules={"a": ["ReLU", "relu"]})
    write_record(LocalStorage(tmp_path / "run"), record)
    return Environment(str(tmp_path / "run"))


def writes(environment: Environment) -> str:
    """Claim a run, write to it, and return the last part of its path."""
    opened = claim(environment)
    RunWriter(opened.storage, environment.rank).close()
    return Path(opened.storage.location).name


def test_successive_trainings_of_a_process_get_separate_runs(environment: Environment) -> None:
    assert [writes(environment) for _ in range(3)] == ["run", "run.2", "run.3"]
    further = claim(environment)
    assert not further.launched
    assert (further.record.name, further.record.modules) == ("run.4", {})
    assert further.record.id != "0" * 32


def test_a_run_is_needed(tmp_path: Path) -> None:
    with pytest.raises(NotARun):
        claim(Environment(str(tmp_path / "none")))


@pytest.mark.thorough
def test_processes_do_not_share_a_run(environment: Environment) -> None:
    program = (
        "import sys; from vinedresser.capture.run.claims import claim; "
        "from vinedresser.capture.run.environment import Environment; "
        "print(claim(Environment(sys.argv[1])).storage.location)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, environment.run], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    found = {Path(process.communicate(timeout=60)[0].strip()).name for process in processes}
    assert found == {"run", "run.2", "run.3", "run.4"}


def test_ranks_of_a_job_share_one_and_other_jobs_do_not(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = [replace(environment, rank=rank, world_size=2) for rank in (0, 1)]
    for restart, name in (("0", "run"), ("1", "run.2")):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restart)
        assert [writes(rank) for rank in ranks] == [name, name]
    # A training that a rank begins by itself, with the environment that it inherited.
    assert [writes(rank) for rank in reversed(ranks)] == ["run.3", "run.3"]
    assert writes(environment) == "run.4"


def test_ranks_without_a_launcher_are_identified_by_their_parent(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in claims._JOB_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    ranks = [replace(environment, rank=rank, world_size=2) for rank in (0, 1)]
    assert [writes(rank) for rank in ranks] == ["run", "run"]
    monkeypatch.setattr(os, "getppid", os.getpid)
    assert [writes(rank) for rank in ranks] == ["run.2", "run.2"]


def test_a_run_of_another_launch_is_skipped(environment: Environment) -> None:
    other = LocalStorage(f"{environment.run}.2")
    write_record(other, RunRecord("1" * 32, "mine", 0.0))
    assert [writes(environment) for _ in range(2)] == ["run", "run.3"]
    assert not other.exists(ClaimRecord.KEY)


def test_the_number_of_runs_is_limited(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MOST_RUNS", 2)
    assert [writes(environment) for _ in range(2)] == ["run", "run.2"]
    with pytest.raises(SecondWriter, match="more than 2 trainings; the others are not"):
        claim(environment)


@pytest.mark.parametrize(
    ("variables", "rank", "world_size"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, 1, 4),
        ({"RANK": "2", "WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}, 2, 3),
        ({"VINEDRESSER_RANK": "5", "OMPI_COMM_WORLD_RANK": "1"}, 5, 6),
    ],
)
def test_ranks_are_read_from_the_environment(
    variables: dict[str, str], rank: int, world_size: int
) -> None:
    assert Environment.read(variables) == Environment("", rank, world_size)
