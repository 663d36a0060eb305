"""Each training leases its own GPUs; the tests need only their names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from itertools import combinations
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.command_line import vinedresser
from tests.waiting import until
from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.supervise.gpus import NO_GPUS, VISIBLE_GPUS, lease, visible_gpus
from vinedresser.infra.supervise.launcher import prepare_run, request_stop, start, supervisor_alive
from vinedresser.objects import LocalStorage
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    SupervisorRecord,
    new_run,
    read_record,
)
from vinedresser.tasks.config.sweep_file import load_sweep

pytestmark = pytest.mark.timeout(300)

SWEEP = """
[sweep]
metric = "accuracy"
direction = "maximize"
sampler = "grid"
pruner = "none"

[space]
x = [0.1, 0.2, 0.3, 0.4]

[run]
name = "search"
command = ["python", "train.py"]
gpus = 1
{more}

[rules.nonfinite]
"""
TRAIN = """
import argparse
import os
import time
from vinedresser.capture import Hook

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], "threads", os.environ["OMP_NUM_THREADS"])
with Hook() as hook:
    hook.step(loss=1.0)
    with hook.mode("eval"):
        hook.metric("accuracy", parser.parse_args().x)
    time.sleep(0.5)
"""


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Show this process two GPUs that no other test uses."""
    names = [f"GPU-{uuid4()}" for _ in range(2)]
    monkeypatch.setenv(VISIBLE_GPUS, ",".join(names))
    return names


def never() -> bool:
    """Keep waiting."""
    return False


@pytest.mark.parametrize(
    ("given", "seen"),
    [("0,1", ["0", "1"]), (" 3 , GPU-8a ", ["3", "GPU-8a"]), ("", []), ("2,-1,3", ["2"])],
)
def test_visible_gpus_are_those_of_cuda(
    monkeypatch: pytest.MonkeyPatch, given: str, seen: list[str]
) -> None:
    monkeypatch.setenv(VISIBLE_GPUS, given)
    assert visible_gpus() == seen


@pytest.mark.thorough
def test_a_leased_gpu_is_not_leased_again(gpus: list[str]) -> None:
    first = lease(1, never)
    second = lease(1, never)
    assert [*first.names, *second.names] == gpus
    answers = iter([False, False, True])
    assert lease(1, lambda: next(answers)) == NO_GPUS
    first.close()
    # Two are requested and one is free: it is not held while waiting for the other.
    answers = iter([False, False, True])
    assert lease(2, lambda: next(answers)) == NO_GPUS
    third = lease(1, never)
    assert third.names == gpus[:1]
    second.close()
    third.close()
    both = lease(2, never)
    assert both.names == gpus
    both.close()


def test_a_training_that_requests_too_many_gpus_has_crashed(
    tmp_path: Path, gpus: list[str]
) -> None:
    prepare_run(tmp_path / "run", new_run("run"), LaunchRecord([sys.executable, "-V"], ".", gpus=3))
    with pytest.raises(LaunchError, match="3 GPUs requested; this machine has 2"):
        start(tmp_path / "run")
    end = read_record(LocalStorage(tmp_path / "run"), ExitRecord)
    assert end is not None
    assert (end.cause, end.reason) == ("crashed", "3 GPUs requested; this machine has 2")


SHOWS = """
import os, time
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
time.sleep(600)
"""
STARTS = """
import sys
from vinedresser.infra.supervise.launcher import start
start(sys.argv[1])
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.thorough
def test_a_training_keeps_its_gpus_when_its_launcher_is_killed(
    tmp_path: Path, gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE_GPUS, gpus[0])
    argv = [sys.executable, "-c", SHOWS]
    prepare_run(tmp_path / "run", new_run("run"), LaunchRecord(argv, ".", gpus=1))
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", STARTS, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "started\n"
        starter.send_signal(signal.SIGKILL)
    log = tmp_path / "run/log.txt"
    until(lambda: log.exists() and log.read_text() == f"{gpus[0]}\n", "the training")
    answers = iter([False, False, True])
    assert lease(1, lambda: next(answers)) == NO_GPUS
    # The next training waits for the GPU, and stops on request.
    prepare_run(tmp_path / "next", new_run("next"), LaunchRecord(argv, ".", gpus=1))
    request_stop(tmp_path / "next", reason="enough")
    assert start(tmp_path / "next").wait(60) == 0
    end = read_record(LocalStorage(tmp_path / "next"), ExitRecord)
    assert end is not None
    assert end.cause == "stopped"
    request_stop(tmp_path / "run", reason="enough")
    until(lambda: not supervisor_alive(tmp_path / "run"), "its end")
    free = lease(1, never)
    assert free.names == gpus[:1]
    free.close()


def write(folder: Path, more: str = "") -> Path:
    """Write a sweep file and its script."""
    (folder / "train.py").write_text(textwrap.dedent(TRAIN), encoding="utf-8")
    (folder / "sweep.toml").write_text(SWEEP.format(more=more), encoding="utf-8")
    return folder / "sweep.toml"


@pytest.mark.thorough
@pytest.mark.usefixtures("shared_prefect")
def test_trials_of_a_sweep_never_share_a_gpu(tmp_path: Path, gpus: list[str]) -> None:
    # Concurrency follows from the needs of each run.
    write(tmp_path, "cpus = 1")
    vinedresser("sweep", "sweep.toml", cwd=tmp_path, code=0)
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in gpus}
    for trial in (tmp_path / "runs/search").glob("trial-*"):
        said = re.fullmatch(r"sees (\S+) threads 1\n", (trial / "log.txt").read_text())
        assert said is not None
        began = read_record(LocalStorage(trial), SupervisorRecord)
        ended = read_record(LocalStorage(trial), ExitRecord)
        assert began is not None
        assert ended is not None
        spans[said[1]].append((began.started, ended.ended))
    assert sum(map(len, spans.values())) == 4
    for span in spans.values():
        for (begin, end), (other_begin, other_end) in combinations(span, 2):
            assert end <= other_begin or other_end <= begin


@pytest.mark.thorough
@pytest.mark.usefixtures("shared_prefect")
def test_more_gpus_than_the_machine_has_are_refused(tmp_path: Path, gpus: list[str]) -> None:
    write(tmp_path, "max_concurrent = 3")
    done = vinedresser("sweep", "sweep.toml", cwd=tmp_path, code=2)
    said = "run.gpus: 1 for each of 3 trainings at the same time; this machine has 2"
    assert f"sweep.toml: {said}" in done.stderr
    assert not list(tmp_path.glob("runs/search/trial-*"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            'environment = { CUDA_VISIBLE_DEVICES = "0" }',
            "run.gpus: assigns GPUs to each run",
        ),
        ("cpus = 0", "run.cpus: must be at least 1, not 0"),
    ],
)
def test_contradictory_settings_are_refused(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_sweep(write(tmp_path, more))
    assert f"sweep.toml: {said}" in str(refused.value)


def test_concurrency_defaults_to_what_fits(tmp_path: Path, gpus: list[str]) -> None:
    cores = len(os.sched_getaffinity(0))
    assert load_sweep(write(tmp_path, "cpus = 1")).experiment.max_concurrent == min(cores, 2)
    assert load_sweep(write(tmp_path, f"cpus = {cores}")).experiment.max_concurrent == 1
    assert load_sweep(write(tmp_path, f"cpus = {2 * cores}")).experiment.max_concurrent == 1


@pytest.mark.thorough
@pytest.mark.parametrize("max_concurrent", [1, 2])
def test_concurrent_trials_split_the_cores(tmp_path: Path, max_concurrent: int) -> None:
    cores = len(os.sched_getaffinity(0))
    [plan] = load_sweep(write(tmp_path, f"max_concurrent = {max_concurrent}")).experiment.specs
    assert plan.environment["OMP_NUM_THREADS"] == str(max(cores // max_concurrent, 1))
    [plan] = load_sweep(
        write(tmp_path, f"max_concurrent = {max_concurrent}\ncpus = 7")
    ).experiment.specs
    assert plan.environment["OMP_NUM_THREADS"] == "7"
    # The cores of remote workers are unknown.
    runner = 'runner = { name = "dask", address = "tcp://far:8786" }'
    far = f"max_concurrent = {max_concurrent}\n{runner}"
    [plan] = load_sweep(write(tmp_path, far)).experiment.specs
    assert "OMP_NUM_THREADS" not in plan.environment
