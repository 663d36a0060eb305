"""Actions of a real training under `vinedresser train`, from its file to MLflow."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.rules.actions.servers import web_server
from vinedresser.store.reading.reader import open_run

TRAINING = """
import time, torch
from vinedresser.capture import Hook
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hook = Hook().watch(model, optimizer=optimizer)
for step in range(100000):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).square().mean() * (float("nan") if step > 50 else 1.0)
    loss.backward()
    optimizer.step()
    hook.save("losses/own", loss)
    time.sleep(0.005)
"""

EXPERIMENT = """
[run]
name = "nan"
command = ["python", "train.py"]

[rules]
preset = "none"
[rules.nonfinite]
actions = ["stop", "snapshot", "checkpoint", "tag", "notify", "command"]

[actions.snapshot]
steps = 2
collections = ["weights"]
[actions.notify]
webhook = "{url}"
[actions.command]
argv = ["{python}", "on_finding.py"]
"""


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("shared_prefect")
def test_all_that_follows_a_finding(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    (tmp_path / "on_finding.py").write_text(
        "import json, sys; open('told', 'w').write(json.load(sys.stdin)['finding']['rule'])\n"
    )
    with web_server([503, 503]) as server:
        (tmp_path / "train.py").write_text(TRAINING)
        text = EXPERIMENT.format(url=server.url, python=sys.executable)
        (tmp_path / "experiment.toml").write_text(text)
        done = vinedresser("train", "experiment.toml", cwd=tmp_path)
        ((_, told),) = server.taken
    run = open_run(tmp_path / "runs/nan")
    assert (run.status.state, run.status.rule) == ("stopped", "nonfinite"), done.stdout
    assert told["run"]["name"] == "nan"
    assert told["finding"]["rule"] == "nonfinite"
    assert (tmp_path / "told").read_text() == "nonfinite"
    lines = (tmp_path / "runs/nan/actions/default.jsonl").read_text().splitlines()
    actions = {one["action"]: one for one in map(json.loads, lines)}
    names = {"snapshot", "checkpoint", "tag", "notify", "command", "stop"}
    assert {name for name, one in actions.items() if one["outcome"] == "done"} == names, lines
    # The run went on until it had taken what was asked of it.
    first, last = (int(word) for word in actions["snapshot"]["detail"].split() if word.isdigit())
    assert last == first + 1
    assert {first, last} <= set(run.tensor("weights/weight").steps().tolist())
    saved = actions["checkpoint"]["detail"].split()[-1]
    assert (tmp_path / "runs/nan" / saved).is_file()
    tags = mlflow_runs(tmp_path / "runs")["nan"]["tags"]
    (found,) = (finding for finding in run.findings() if finding.severity == "stop")
    assert tags["vinedresser.tag.nonfinite"] == f"step {found.step}: {found.seen}"
