"""`vinedresser sweep` over prunings for real: Prefect, MLflow, supervised trials, and a kill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient

from tests.paths import ROOT
from tests.pruning.rounds import functions
from vinedresser import open_run
from vinedresser.objects import LocalStorage
from vinedresser.pruning import load
from vinedresser.pruning.folders import round_folder
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.store.records import read_record

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.slow,
    pytest.mark.usefixtures("shared_prefect"),
]

MODULE = "tests.pruning.rounds.functions"
SWEEP = f"""
[sweep]
sampler = "grid"
{{sweep}}

[space]
{{space}}

[prune]
model = "{MODULE}:network"
weights = "{{weights}}"
example = "{MODULE}:example"
train = "{MODULE}:train"
evaluate = "{MODULE}:evaluate"
losses = "{MODULE}:losses"
rounds = 2

[run]
name = "search"
cwd = "{ROOT}"
grace = 2.0
max_concurrent = 1
parameters = {{{{ lr = 0.01 }}}}
environment = {{{{ {{environment}} }}}}

[rules.nonfinite]
severity = "stop"
"""


def sweep(
    folder: Path,
    settings: str,
    space: str,
    environment: str = "",
    weights: str = f"{MODULE}:pretrain",
    **others: str,
) -> str:
    """Run a sweep that succeeds; return what it printed.

    Args:
        folder: folder of its file.
        settings: lines of the table ``[sweep]``.
        space: lines of the table ``[space]``.
        environment: content of the table ``run.environment``.
        weights: where the weights come from; "": the model has them.
        others: lines of the file by key, each instead of the one with that key.
    """
    text = SWEEP.format(sweep=settings, space=space, environment=environment, weights=weights)
    text = text.replace('weights = ""\n', "")
    for key, value in others.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    (folder / "sweep.toml").write_text(text, encoding="utf-8")
    flow = subprocess.run(
        [sys.executable, "-m", "vinedresser", "sweep", "sweep.toml"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )
    assert flow.returncode == 0, flow.stdout + flow.stderr
    return flow.stdout


def costs(trial: Path) -> tuple[float, int]:
    """Return the figure and the parameters of a trial's result, the second round."""
    record = read_record(LocalStorage(round_folder(trial, 2)), RoundRecord)
    assert record is not None
    return record.figure, record.parameters


def test_a_pareto_front_of_prunings(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    mark = tmp_path / "mark"
    output = sweep(
        tmp_path,
        """pruner = "none"
objectives = [
    { metric = "pruning/figure", direction = "maximize" },
    { metric = "pruning/parameters", direction = "minimize" },
]""",
        """prune.amount = [3, 6]
prune.criterion = { values = ["l1", "taylor_weight"], when = { "prune.amount" = 6 } }
kind = { values = ["", "nan"], when = { "prune.amount" = 3 } }""",
        f'HOLD = "train", UNTIL = "killed", MARK = "{mark}"',
    )
    store = tmp_path / "runs" / "search"
    assert "3 finished, 1 stopped" in output
    table = [line.split() for line in output.splitlines() if line.startswith("trial-")]
    assert {(one[1], one[2]) for one in table if len(one) > 2} >= {("finished", "2")}
    trials = {path.name: costs(path) for path in (store / "prunings").iterdir()}
    # Of the one that was stopped, no models are kept.
    assert trials.keys() == {"trial-0000", "trial-0002", "trial-0003"}
    front = {
        name
        for name, (figure, size) in trials.items()
        if not any(
            other[0] >= figure and other[1] <= size and other != (figure, size)
            for other in trials.values()
        )
    }
    best = [line.split()[1].strip(":") for line in output.splitlines() if line.startswith("best ")]
    assert {*best} == front
    for name, (figure, size) in trials.items():
        model = load(store / "prunings" / name, functions.network)
        assert sum(functions.filters(model)) == figure * functions.FILTERS
        assert sum(parameter.numel() for parameter in model.parameters()) == size
    # The first one was killed in round 1, and began again with it.
    assert open_run(store / "trial-0000").status.state == "killed"
    rounds = [open_run(store / f"trial-0000-2.{number}") for number in (2, 3)]
    assert [one.steps("train").size for one in rounds] == [5, 5]
    assert not (store / "trial-0000-2.4").exists()
    runs = mlflow_runs(tmp_path / "runs")
    assert runs["trial-0000-2"]["metrics"]["eval/pruning/figure"] == trials["trial-0000"][0]
    assert runs["trial-0000-2"]["params"]["prune.criterion"] == "l1"
    assert runs["trial-0001"]["tags"]["stop.rule"] == "nonfinite"
    # A rule judges each fine-tuning; the one that went wrong is that of round 1.
    assert runs["trial-0001"]["tags"]["stop.reason"].startswith("trial-0001.3: ")


def logged_weights(runs: Path) -> str:
    """Log weights of the network to the MLflow of a store; return their URI."""
    model = functions.network()
    functions.pretrain(model)
    path = runs / "trained.pt"
    runs.mkdir()
    torch.save(model.state_dict(), path)
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    experiment = client.create_experiment("trained", artifact_location=(runs / "files").as_uri())
    run = client.create_run(experiment).info.run_id
    client.log_artifact(run, str(path))
    return f"runs:/{run}/{path.name}"


def test_prunings_of_a_model_in_mlflow_are_compared_round_by_round(tmp_path: Path) -> None:
    output = sweep(
        tmp_path,
        """metric = "pruning/figure"
direction = "maximize"
epochs = 2
pruner = { name = "asha", eta = 2 }""",
        "prune.amount = [2, 3, 8]",
        weights=logged_weights(tmp_path / "runs"),
    )
    store = tmp_path / "runs" / "search"
    assert "best             trial-0000: pruning/figure 0.8333 with prune.amount 2" in output
    assert "2 pruned" in output
    assert [path.name for path in (store / "prunings").iterdir()] == ["trial-0000"]


@pytest.mark.slow
def test_prunings_of_a_keras_model_are_fine_tuned_by_a_command(tmp_path: Path) -> None:
    module = "tests.pruning.rounds.keras_functions"
    functions_of = {key: f'"{module}:{key}"' for key in ("example", "evaluate", "losses")}
    output = sweep(
        tmp_path,
        """pruner = "none"
objectives = [
    { metric = "pruning/figure", direction = "maximize" },
    { metric = "pruning/macs", direction = "minimize" },
]""",
        """prune.amount = [2, 3]
prune.criterion = { values = ["taylor_activation"], when = { "prune.amount" = 3 } }""",
        'KERAS_BACKEND = "torch"',
        **functions_of,
        model=f'"{module}:network"',
        weights="",
        train='["python", "-m", "tests.scripts.keras_fine_tuning"]',
        parameters="{ epochs = 2 }",
    )
    assert "2 finished" in output
    store = tmp_path / "runs" / "search"
    for trial, left in (("trial-0000", 4), ("trial-0001", 2)):
        record = read_record(LocalStorage(round_folder(store / "prunings" / trial, 2)), RoundRecord)
        assert record is not None
        assert [*record.left.values()] == [left]
        # The runs of round 1, of its fine-tuning, of round 2, and of its fine-tuning.
        steps = [
            open_run(store / f"{trial}.{number}").steps("train").size for number in range(3, 7)
        ]
        assert steps == [0, 6, 0, 6]
