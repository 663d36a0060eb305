"""What a replay found is in the report of a run that has ended, also in MLflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from vinedresser.objects import LocalStorage
from vinedresser.snapshots.replay_record import ReplayRecord, save_replay
from vinedresser.tasks.lifecycle.settle import renew_report

SCRIPT = """
import torch
from torch import nn
from vinedresser.capture import Hook

class Length(nn.Module):
    def forward(self, rows, scale):
        return (rows * scale).square().sum(1).sqrt().mean()

def again():
    return nn.Linear(3, 2), Length()

def main():
    torch.manual_seed(0)
    model, loss_fn = again()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook() as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(3):
            scale = torch.ones(4, 2)
            scale[2] = 0 if step == 1 else 1
            optimizer.zero_grad()
            loss_fn(model(torch.randn(4, 3)), scale).backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""
EXPERIMENT = """
[run]
name = "broken"
command = ["python", "training.py"]
store = "runs"

[capture]
guard = "nonfinite"
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("shared_prefect")
def test_a_saved_replay_is_in_the_report_and_in_mlflow(
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
) -> None:
    store = mlflow_store(tmp_path / "runs")
    (tmp_path / "training.py").write_text(SCRIPT)
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    done = vinedresser("train", "experiment.toml", cwd=tmp_path)
    snapshot = "runs/broken/snapshots/step-1"
    assert (tmp_path / snapshot).is_dir(), done.stdout + done.stderr
    options = ("--factory", "training:again", "--locate", "--save")
    done = vinedresser("replay", snapshot, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = mlflow_runs(store)["broken"]
    (sent,) = [path for path in store.rglob("report.html") if told["id"] in path.parts]
    for page in (sent, store / "broken" / "report.html"):
        assert "aten.div in the backward (SqrtBackward0)" in page.read_text(encoding="utf-8")
    assert told["status"] != "RUNNING"
    proved = ReplayRecord(1.0, "", tried="eps cures it", symptom="broken", cures={"eps": []})
    save_replay(LocalStorage(store / "broken"), "step-1", proved)
    renew_report(store / "broken")
    told = mlflow_runs(store)["broken"]["tags"]
    assert told["verdict.tried"] == "eps cures it; from step 1, symptom: broken"
    assert "Tried: eps cures it; from step 1" in told["mlflow.note.content"]
