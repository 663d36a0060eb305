"""Sweeps on Dask and Ray: a real scheduler, workers that are killed, runs on a real S3 server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.cli.command_line import started_vinedresser
from tests.paths import SCRIPTS
from vinedresser.errors import AlreadyARun, ConfigError, MissingDependency
from vinedresser.infra.services.clusters.runner_settings import RunnerSettings, runner_settings
from vinedresser.infra.supervise.launcher import prepare_run
from vinedresser.objects import StoreUrl, open_storage, parse_location
from vinedresser.processes import marked_processes, this_process
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.records import (
    RUN_ID_VARIABLE,
    ExitRecord,
    LaunchRecord,
    new_run,
    read_record,
)
from vinedresser.store.spool import spools
from vinedresser.tasks.lifecycle.worker_run import run_shipment
from vinedresser.tasks.places.shipment import Shipment, pack, unpack

SCRIPT = SCRIPTS / "cluster_trainer.py"
SWEEP = f"""
[sweep]
metric = "accuracy"
direction = "maximize"
pruner = "none"
sampler = "grid"
resume = "resume"

[space]
x = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]

[run]
name = "search"
command = ["python", "{SCRIPT}"]
store = "{{store}}"
max_concurrent = 2
runner = {{runner}}
parameters = {{{{ epochs = 3, hold = "{{hold}}" }}}}

[rules.nonfinite]
"""

Start = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.timeout(600)


def until(
    condition: Callable[[], Any], what: str, flow: subprocess.Popen[str] | None = None
) -> Any:
    """Wait for something, as long as a flow goes on."""
    deadline = time.monotonic() + 400
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        assert flow is None or flow.poll() is None, flow.communicate()[0]
        time.sleep(0.1)
    return found


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a sweep, which is killed if it outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        folder: Path, store: str, runner: str, hold: str = "none", *options: str
    ) -> subprocess.Popen[str]:
        folder.mkdir(exist_ok=True)
        text = SWEEP.format(store=store, runner=runner, hold=hold)
        (folder / "sweep.toml").write_text(text, encoding="utf-8")
        flow = started_vinedresser("sweep", "sweep.toml", *options, cwd=folder)
        started.append(flow)
        return flow

    yield begin
    for flow in started:
        if flow.poll() is None:
            flow.kill()
            flow.communicate()


def results(output: str) -> list[tuple[str, ...]]:
    """Return the rows of the table of trials, without what differs between two sweeps."""
    rows: list[tuple[str, ...]] = re.findall(r"(trial-\d+)\D.*?(finished|failed|stopped)", output)
    return sorted(rows)


def accuracies(store: str) -> dict[float, float]:
    """Return the last accuracy of each trial that finished, by its x."""
    found: dict[float, float] = {}
    for location in runs_in(parse_location(store)):
        run = open_run(location)
        if run.status.state == "finished":
            x = run.info.parameters["x"]
            assert x not in found, "a trial finished twice"
            found[x] = float(run.scalars("metrics", mode="eval")["metrics/accuracy"].values[-1])
    return found


def workers(store: str) -> dict[str, int]:
    """Return by run the process id of the worker that had it."""
    found = {}
    for location in runs_in(parse_location(store)):
        record = json.loads(open_storage(location).get("worker.json"))
        found[str(location).rpartition("/")[2]] = record["process"]["pid"]
    return found


@contextmanager
def dask(
    folder: Path, count: int, gpu: str = ""
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Run a scheduler and workers of one thread each; yield its address and them.

    The last worker sees a GPU, if one is named, and says so.
    """
    file = folder / "scheduler.json"
    log = (folder / "dask.log").open("wb")
    module = [sys.executable, "-m"]
    shared = ["--scheduler-file", str(file), "--no-dashboard"]
    scheduler = [*module, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    worker = [*module, "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny"]
    # What both import for the first task takes seconds; here it is done beside the flow's start.
    shared += ["--preload", "vinedresser.flows.sweep"]
    worker += ["--host", "127.0.0.1", "--local-directory", str(folder / "scratch")]
    started = [subprocess.Popen([*scheduler, *shared], stdout=log, stderr=log)]
    try:
        command = [*worker, *shared]
        for number in range(count):
            has = bool(gpu) and number == count - 1
            started.append(
                subprocess.Popen(
                    [*command, *(["--resources", "GPU=1"] if has else [])],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **({"CUDA_VISIBLE_DEVICES": gpu} if has else {})},
                )
            )
        until(lambda: file.exists() and file.stat().st_size, "the scheduler")
        yield json.loads(file.read_text())["address"], started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()
        log.close()


@pytest.mark.thorough
def test_a_run_is_trained_and_judged_by_one_worker_only(s3: str, tmp_path: Path) -> None:
    argv = ["/elsewhere/python", str(SCRIPT), "--x", "0.5", "--epochs", "2"]
    launch = LaunchRecord(argv, str(tmp_path), owner=asdict(this_process()), attach=False)
    prepare_run(tmp_path / "run", new_run("run", {"x": 0.5}), launch)
    shipment = pack(tmp_path / "run", StoreUrl(f"{s3}/run"), [])
    # It travels as JSON, and the flow's interpreter is not the worker's.
    shipment = json.loads(json.dumps({**shipment, "python": "/elsewhere/python"}))
    delivery = run_shipment.fn("run", shipment)
    assert delivery == {"arrived": [f"{s3}/run"], "missing": [], "failures": []}
    # The worker has waited for the upload.
    assert spools() == []
    run = open_run(f"{s3}/run")
    assert run.status.state == "finished", (run.status, run.storage.list(""))
    assert accuracies(s3) == {0.5: 1.0}
    with pytest.raises(AlreadyARun, match="another worker has or had it"):
        unpack(Shipment(**shipment), print)


@pytest.mark.thorough
def test_a_worker_that_is_killed_leaves_a_checkpoint(s3: str, tmp_path: Path) -> None:
    argv = [sys.executable, str(SCRIPT), "--x", "0.5", "--epochs", "900", "--pause", "0.1"]
    launch = LaunchRecord(argv, str(tmp_path), owner=asdict(this_process()), attach=False)
    prepare_run(tmp_path / "run", new_run("run"), launch)
    shipment = json.dumps(pack(tmp_path / "run", StoreUrl(f"{s3}/run"), []))
    code = (
        "import json, sys; from vinedresser.tasks.lifecycle.worker_run import run_shipment as run; "
    )
    code += "run.fn('run', json.loads(sys.argv[1]))"
    worker = subprocess.Popen([sys.executable, "-c", code, shipment])
    storage = open_storage(f"{s3}/run")
    until(lambda: storage.list("index/0/"), "the first commit")
    worker.kill()
    worker.wait()
    end = until(lambda: read_record(storage, ExitRecord), "the end of the run")
    assert (end.cause, end.reason) == ("stopped", "the worker that ran it is gone")
    assert storage.list("checkpoints/")
    run = open_run(storage)
    until(lambda: not list(marked_processes(f"{RUN_ID_VARIABLE}={run.info.id}")), "its processes")


@pytest.mark.slow
def test_a_sweep_on_dask_outlives_a_worker_and_repeats_nothing(
    s3: str, tmp_path: Path, start: Start
) -> None:
    near = start(tmp_path / "near", "runs", '"local"')
    with dask(tmp_path, 2) as (address, started):
        runner = f'{{ name = "dask", address = "{address}" }}'
        hold = tmp_path / "hold"
        hold.touch()
        flow = start(tmp_path / "far", s3, runner, str(hold))
        store = f"{s3}/search"
        until(lambda: len(set(workers(store).values())) == 2, "a trial on each worker", flow)
        trial = open_storage(f"{store}/trial-0000")
        until(lambda: trial.list("index/0/"), "a trial that trains", flow)
        [victim] = [one for one in started if one.pid == workers(store)["trial-0000"]]
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        until(lambda: trial.exists(ExitRecord.KEY), "the end of its trial", flow)
        hold.unlink()
        output, _ = flow.communicate()
    assert flow.returncode == 0, output
    far = accuracies(store)
    said, _ = near.communicate()
    assert near.returncode == 0, said
    # Those of local processes, and none is missing or there twice.
    assert far == accuracies(str(tmp_path / "near/runs/search"))
    assert len(far) == 6
    assert results(output) == results(said)
    assert len(set(workers(store).values())) == 2
    again = open_run(f"{store}/trial-0000-2")
    assert again.info.parameters["resume"].split("/")[-2] == "checkpoints"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_sweep_on_an_engine_of_its_own(
    engine: str, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path of a socket may have 107 bytes, of which Ray takes most.
    with tempfile.TemporaryDirectory(
        prefix="ray-", dir="/tmp", ignore_cleanup_errors=True
    ) as short:
        monkeypatch.setenv("RAY_TMPDIR", short)
        flow = start(tmp_path / engine, "runs", f'"{engine}"')
        output, _ = flow.communicate()
    assert flow.returncode == 0, output
    store = tmp_path / engine / "runs/search"
    assert accuracies(str(store)) == pytest.approx({x / 10: 0.3 * x for x in range(1, 7)})
    assert this_process().pid not in workers(str(store)).values()


@pytest.mark.slow
def test_trials_that_need_a_gpu_go_to_the_worker_that_has_one(
    s3: str, tmp_path: Path, start: Start
) -> None:
    name = f"GPU-{uuid4()}"
    with dask(tmp_path, 2, name) as (address, started):
        runner = f'{{ name = "dask", address = "{address}" }}\ngpus = 1'
        flow = start(tmp_path / "far", s3, runner)
        output, _ = flow.communicate()
    assert flow.returncode == 0, output
    store = f"{s3}/search"
    assert len(accuracies(store)) == 6
    assert set(workers(store).values()) == {started[-1].pid}


@pytest.mark.slow
def test_trials_of_a_flow_that_was_interrupted_end_on_their_workers(
    s3: str, tmp_path: Path, start: Start
) -> None:
    with dask(tmp_path, 2) as (address, _):
        runner = f'{{ name = "dask", address = "{address}" }}'
        flow = start(tmp_path / "far", s3, runner, str(tmp_path))
        store = f"{s3}/search"
        until(lambda: len(workers(store)) == 2, "two trials", flow)
        until(
            lambda: open_storage(f"{store}/trial-0001").list("index/0/"),
            "a trial that trains",
            flow,
        )
        flow.send_signal(signal.SIGINT)
        output, _ = flow.communicate()
        assert "interrupted at the keyboard" in output
        for location in runs_in(parse_location(store)):
            status = open_run(location).status
            assert (status.state, status.by) == ("stopped", "person")


@pytest.mark.slow
def test_trials_of_a_flow_that_was_killed_end_on_their_workers_and_are_gone_on_with(
    s3: str, tmp_path: Path, start: Start
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    store = f"{s3}/search"
    with dask(tmp_path, 2) as (address, _):
        runner = f'{{ name = "dask", address = "{address}" }}'
        flow = start(tmp_path / "far", s3, runner, str(hold))
        trials = [open_storage(f"{store}/trial-000{number}") for number in range(2)]
        until(lambda: all(one.list("index/0/") for one in trials), "two that train", flow)
        flow.kill()
        flow.communicate()
        # On one machine supervisors see it at once; on another they miss its signs of life.
        until(lambda: all(one.exists(ExitRecord.KEY) for one in trials), "their ends")
        for trial in trials:
            status = open_run(trial).status
            assert (status.state, status.by) == ("stopped", "owner")
        hold.unlink()
        again = start(tmp_path / "far", s3, runner, str(hold), "--resume")
        output, _ = again.communicate()
    assert again.returncode == 0, output
    assert accuracies(store) == pytest.approx({x / 10: 0.3 * x for x in range(1, 7)})
    for number in range(2):
        run = open_run(f"{store}/trial-000{number}-2")
        assert run.info.parameters["resume"].split("/")[-2] == "checkpoints"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("desk", r"sweep.toml: run.runner.name: input should be 'local', 'dask' or 'ray'"),
        ({"name": "dask", "adress": "x"}, r"run.runner.adress: no such key; did you mean address"),
        ({"name": "local", "address": "x"}, r"address: not supported for local processes"),
    ],
)
def test_a_wrong_runner_is_one_line(given: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        runner_settings(given, "sweep.toml: run.runner")


def test_a_missing_engine_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "vinedresser.infra.services.clusters.runner_settings.find_spec", lambda name: None
    )
    for engine in ("dask", "ray"):
        with pytest.raises(MissingDependency, match=rf'pip install "vinedresser\[{engine}\]"'):
            runner_settings(engine, "run.runner")
    assert runner_settings(None, "run.runner") == RunnerSettings("local")
