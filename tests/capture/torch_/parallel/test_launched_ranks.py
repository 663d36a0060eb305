"""Unchanged data-parallel scripts, launched as ranks: captured, judged, explained at the end."""

from __future__ import annotations

import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.capture.torch_.parallel.launched_training import AT
from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from vinedresser import open_run
from vinedresser.explain.verdicts import verdict
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import ExitRecord, heartbeats, read_record

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]

SCRIPT = ROOT / "tests/capture/torch_/parallel/launched_training.py"
# Longer than a healthy first step takes on a busy machine.
STALLED = 'stalled_training:seconds=8,severity="stop"'


def train(folder: Path, fault: str, steps: int, *options: str) -> tuple[CompletedProcess[str], Run]:
    command = ["run", "--ranks", "2", "--name", "one", *options, str(SCRIPT), fault, str(steps)]
    return vinedresser(*command, cwd=folder), open_run(folder / "runs/one")


def end_of(run: Run) -> ExitRecord:
    record = read_record(run.storage, ExitRecord)
    assert record is not None
    return record


def test_a_rank_that_raises_is_named_with_its_step_and_error(tmp_path: Path) -> None:
    done, run = train(tmp_path, "raises", 1000)
    assert done.returncode == 1
    assert f"rank 1 after step {AT - 1}: ValueError: no such label" in done.stderr
    assert "[rank 1] ValueError: no such label" in done.stderr
    # Both ranks are captured, as one run.
    assert run.ranks == (0, 1)
    for rank in run.ranks:
        assert run.steps("train", rank=rank).tolist() == list(range(AT))
    end = end_of(run)
    assert (end.cause, end.code, end.rank) == ("crashed", 1, 1)
    page = (tmp_path / "runs/one/report.html").read_text(encoding="utf-8")
    assert "Connection closed by peer" in page.partition('<section id="ranks">')[2]


def test_a_rank_that_hangs_outside_a_collective_is_the_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    done, run = train(tmp_path, "hangs", 1000, "--rule", STALLED)
    assert done.returncode == 3
    [found] = run.findings()
    assert (found.rule, found.rank, found.step) == ("stalled_training", 1, AT - 1)
    assert found.evidence["missing"] == [1]
    assert "load_batch" in found.evidence["ranks"]["1"]
    waits = r"is in the backward pass, all_reduce number \d+ of default_pg, Float \[195\] \("
    assert re.match(waits, found.evidence["ranks"]["0"])
    assert end_of(run).cause == "stopped"


@pytest.mark.slow
def test_ranks_that_wait_in_different_collectives(tmp_path: Path) -> None:
    _, run = train(tmp_path, "is elsewhere", 1000, "--rule", STALLED)
    [found] = run.findings()
    assert "waits in barrier" in found.evidence["ranks"]["1"]
    assert "in the backward pass" in found.evidence["ranks"]["0"]
    # Two of two: nobody knows which is right.
    assert found.evidence["missing"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "end"),
    [("exits", 42, ("crashed", 42, "")), ("is killed", 137, ("killed", None, "SIGKILL"))],
)
def test_the_code_of_the_first_rank_is_that_of_the_job(
    fault: str, code: int, end: tuple[str, int | None, str], tmp_path: Path
) -> None:
    done, run = train(tmp_path, fault, 1000)
    record = end_of(run)
    assert done.returncode == code
    assert (record.cause, record.code, record.signal) == end
    assert record.rank == 1


@pytest.mark.slow
def test_a_script_that_ignores_its_rank_is_told_of(tmp_path: Path) -> None:
    done, run = train(tmp_path, "is alone", 30)
    assert done.returncode == 0
    [finding] = [one for one in run.findings() if one.severity != "info"]
    assert (finding.rule, finding.severity, finding.since) == ("ranks_apart", "warning", 0)
    assert "has not called torch.distributed.init_process_group" in finding.seen
    # While it trains, although it is not rank 0 that has seen it.
    assert finding.rank == 1
    assert f"[rank 1] vinedresser: {finding.seen}" in done.stderr.splitlines()
    assert verdict(run).kind == "problem"


@pytest.mark.slow
def test_ranks_with_a_connection_of_their_own_are_not_apart(tmp_path: Path) -> None:
    done, run = train(tmp_path, "averages", 30)
    assert done.returncode == 0
    assert "trains by itself" not in done.stderr
    assert [one for one in run.findings() if one.severity != "info"] == []


@pytest.mark.slow
def test_a_healthy_job_finishes_with_the_findings_of_one_process(tmp_path: Path) -> None:
    done, run = train(tmp_path, "none", 60, "--preset", "default")
    assert (done.returncode, done.stdout) == (0, "trained 0\n")
    assert [finding for finding in run.findings() if finding.severity != "info"] == []
    assert "trains by itself" not in done.stderr
    assert [
        heartbeat.last_step for heartbeat in heartbeats(LocalStorage(tmp_path / "runs/one"))
    ] == [59, 59]
