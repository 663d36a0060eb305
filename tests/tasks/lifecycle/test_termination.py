"""SIGTERM to a flow: its trainings save a checkpoint, all is settled, its exit code says so.

And what ends no flow: Prefect's server is away when it should renew the lease of a slot.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import started_vinedresser
from tests.paths import SCRIPTS
from vinedresser.processes import marked_processes
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import RUN_ID_VARIABLE

SCRIPT = SCRIPTS / "cluster_trainer.py"
SWEEP = f"""
[sweep]
metric = "accuracy"
direction = "maximize"
pruner = "none"
sampler = "grid"

[space]
x = [0.1, 0.2, 0.3, 0.4]

[run]
name = "search"
command = ["python", "{SCRIPT}"]
max_concurrent = 2
parameters = {{ epochs = 900, pause = 0.1 }}

[rules.nonfinite]
"""

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


@pytest.mark.thorough
def test_a_sweep_that_gets_sigterm_ends_in_good_order(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    flow = started_vinedresser("sweep", "sweep.toml", cwd=tmp_path)
    store = tmp_path / "runs/search"
    deadline = time.monotonic() + 200
    while len({path.parts[-4] for path in store.glob("trial-*/index/0/*")}) < 2:
        assert time.monotonic() < deadline
        assert flow.poll() is None, flow.communicate()[0]
        time.sleep(0.1)
    flow.send_signal(signal.SIGTERM)
    output, _ = flow.communicate()
    assert flow.returncode == 128 + signal.SIGTERM, output
    assert "report runs/search/sweep.html" in output
    trials = [path.parent for path in store.glob("trial-*/run.json")]
    assert len(trials) == 2
    for trial in trials:
        run = open_run(trial)
        assert (run.status.state, run.status.by) == ("stopped", "person")
        assert run.status.reason == "its flow was cancelled, or sent SIGTERM"
        assert list((trial / "checkpoints").iterdir())
        assert not list(marked_processes(f"{RUN_ID_VARIABLE}={run.info.id}"))
    recorded = mlflow_runs(tmp_path / "runs")
    assert {one["status"] for one in recorded.values()} == {"KILLED"}
    assert len(recorded) == 3


LOST_LEASE = """
import logging, pathlib, sys, threading, uuid
from prefect.concurrency._leases import maintain_concurrency_lease
from vinedresser.tasks.termination import ends_in_order

lost = threading.Event()

class Notice(logging.Handler):
    def emit(self, record):
        if "slots are no longer reserved" in record.getMessage():
            lost.set()

logging.getLogger("prefect.concurrency").addHandler(Notice())

def work():
    assert lost.wait(120)
    return "all trainings have finished"

with maintain_concurrency_lease(uuid.uuid4(), 60, raise_on_lease_renewal_failure=True):
    print(ends_in_order(work, pathlib.Path("runs")))
"""


@pytest.mark.slow
def test_a_lease_that_cannot_be_renewed_ends_no_training(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST_LEASE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PREFECT_API_URL": "http://127.0.0.1:9/api"},
    )
    assert done.stdout == "all trainings have finished\n", done.stderr
