"""A trial of several ranks survives its flow, and begins again as a whole if a rank fails."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_line import started_vinedresser
from tests.waiting import until
from vinedresser import open_run
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, heartbeats, read_record

SWEEP = f"""
[sweep]
metric = "accuracy"
direction = "maximize"
pruner = "none"
sampler = "grid"
resume = "from"

[space]
x = [0.5]

[run]
name = "search"
command = ["python", "{Path(__file__).with_name("ranks_trainer.py")}"]
total_steps = 20
ranks = 2
runner = "{{runner}}"
parameters = {{{{ hold = "hold" }}}}

[rules]
preset = "none"
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def write(folder: Path, runner: str) -> None:
    text = SWEEP.format(runner=runner)
    (folder / "sweep.toml").write_text(text, encoding="utf-8")


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return started_vinedresser("sweep", "sweep.toml", *arguments, cwd=folder)


@pytest.mark.usefixtures("shared_prefect")
def test_ranks_survive_their_flow_and_begin_again_from_a_checkpoint(
    tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, "local")
    (tmp_path / "hold").touch()
    first, second = (tmp_path / f"runs/search/{name}" for name in ("trial-0000", "trial-0000-2"))
    storage = LocalStorage(first)
    flow = start(tmp_path)
    until(
        lambda: [heartbeat.last_step for heartbeat in heartbeats(storage)] == [6, 6], "seven steps"
    )
    flow.send_signal(signal.SIGKILL)
    flow.wait()
    # The ranks continue for a while without their owner.
    (tmp_path / "hold").unlink()
    until(lambda: storage.exists(ExitRecord.KEY), "the failure of rank 1")
    # The guard of its processes holds its output open for longer.
    flow.communicate()
    flow = start(tmp_path, "--resume")
    output, _ = flow.communicate()
    assert flow.returncode == 0, output
    crashed = read_record(storage, ExitRecord)
    assert crashed is not None
    assert (crashed.cause, crashed.rank) == ("crashed", 1)
    assert crashed.reason == "rank 1 after step 11: ValueError: bad luck"
    again = open_run(second)
    assert again.info.parameters["from"] == str(first / "checkpoints/step-10.pt")
    assert again.status.state == "finished"
    for rank in range(2):
        assert again.steps("train", rank=rank).tolist() == list(range(10))
    assert "trial-0000: accuracy 0.5" in output


@pytest.mark.usefixtures("shared_prefect")
@pytest.mark.parametrize("runner", ["dask", "ray"])
def test_ranks_on_a_cluster_fail_and_begin_again_together(
    runner: str, tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> None:
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[runner])
    mlflow_store(tmp_path / "runs")
    write(tmp_path, runner)
    flow = start(tmp_path)
    output, _ = flow.communicate()
    assert flow.returncode == 0, output
    crashed = read_record(LocalStorage(tmp_path / "runs/search/trial-0000"), ExitRecord)
    assert crashed is not None
    assert (crashed.rank, crashed.reason) == (1, "rank 1 after step 11: ValueError: bad luck")
    again = open_run(tmp_path / "runs/search/trial-0000-2")
    assert [again.steps("train", rank=rank).tolist() for rank in (0, 1)] == [list(range(10))] * 2
    assert "trial-0000: accuracy 0.5" in output
