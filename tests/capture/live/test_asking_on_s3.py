"""A training whose run is on S3 is asked and steered like any other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import vinedresser
from tests.capture.live.live_training import listens
from tests.cli import command_line
from tests.waiting import until
from tests.warm_python import TORCH

pytestmark = pytest.mark.thorough

SCRIPT = """
import sys, time, torch
from torch import nn
from vinedresser.capture import Hook

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss = nn.MSELoss()
with Hook(sys.argv[1], live=True) as hook:
    hook.watch(model, loss=loss, optimizer=optimizer)
    hook.tunable("lr", optimizer, max=1.0)
    while True:
        optimizer.zero_grad()
        loss(model(torch.randn(32, 8)), torch.ones(32, 1)).backward()
        optimizer.step()
        time.sleep(0.005)
"""


def command(*words: str) -> str:
    return command_line.vinedresser(*words, code=0).stdout


def test_a_training_on_s3_is_asked_saved_and_steered(s3: str, tmp_path: Path) -> None:
    run = f"{s3}/asked"
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with TORCH.running([str(script), run], tmp_path, os.environ) as training:
        until(lambda: training.done() or listens(run), "the agent listens")  # type: ignore[arg-type]
        assert not training.done(), training.result().stderr
        query = ("norm(gradients) by layer", "--every", "5 steps", "--limit", "3")
        asked = command("ask", run, *query, "--json", "--save", "norms").splitlines()
        answers = [json.loads(line) for line in asked]
        assert [sorted(answer["value"]) for answer in answers] == [["0", "2"]] * 3
        assert "lr changed from 0.01 to 0.5" in command("set", run, "lr=0.5")
        [lr] = command("ask", run, "lr", "--limit", "1", "--json").splitlines()
        assert json.loads(lr)["value"] == 0.5
        command("stop", run)
        training.result(120)
    # A relay uploads the rest.
    stored = [one.value for one in vinedresser.streams(run)["norms"]]
    assert stored == [answer["value"] for answer in answers]
    assert list(vinedresser.ask(run, "losses/MSELoss", every="step"))
