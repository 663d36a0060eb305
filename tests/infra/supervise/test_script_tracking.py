"""A script that logs to MLflow itself continues the MLflow run of its run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from vinedresser.infra.supervise.launcher.starting import script_tracking
from vinedresser.store.records import MLFLOW_VARIABLE, TrackingRecord

SCRIPT = """
import sys
import mlflow

kind = sys.argv[sys.argv.index("--kind") + 1]
if kind == "block":
    with mlflow.start_run():
        mlflow.log_params({"lr": 0.3, "epochs": 3})
        mlflow.log_param("lr", 0.3)
        for step in range(5):
            mlflow.log_metric("mine", step, step=step)
        with mlflow.start_run(nested=True):
            mlflow.log_metric("child", 1.0)
elif kind == "plain":
    for step in range(300):
        mlflow.log_metric("mine", step, step=step)
elif kind == "elsewhere":
    mlflow.set_experiment("of-the-script")
    mlflow.log_metric("mine", 1)
    mlflow.end_run()
    mlflow.set_tracking_uri("sqlite:///own.db")
    mlflow.set_experiment("there")
    mlflow.log_metric("mine", 1)
if kind == "plain":
    from vinedresser.capture import Hook

    with Hook() as hook:
        for step in range(10):
            hook.step(loss=1 / (1 + step))
if kind == "fails":
    mlflow.start_run()
    mlflow.end_run()
    raise ValueError("too late")
"""
KINDS = ("block", "plain", "elsewhere", "fails")
EXPERIMENT = """
[run]
name = "own"
command = ["python", "train.py"]
max_concurrent = 4
""" + "".join(
    f'[variants.{kind}]\nparameters = {{ kind = "{kind}", lr = 0.5 }}\n' for kind in KINDS
)


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("shared_prefect")
def test_values_of_the_script_are_in_the_mlflow_run(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    done = vinedresser("train", "experiment.toml", cwd=tmp_path, columns=200)

    runs = mlflow_runs(tmp_path / "runs")
    block, plain = runs["own-block"], runs["own-plain"]
    assert block["metrics"]["mine"] == 4.0, done.stdout + done.stderr
    # MLflow refuses a second value of a parameter, which would end the script.
    assert block["params"] == {
        "kind": "block",
        "lr": "0.5",
        "script/lr": "0.3",
        "epochs": "3",
    }
    assert plain["metrics"]["mine"] == 299.0
    assert "train/loss" in plain["metrics"]
    for kind in ("elsewhere", "fails"):
        assert "mine" not in runs[f"own-{kind}"]["metrics"]
    # The script has ended its run long before, and as finished.
    status = {kind: runs[f"own-{kind}"]["status"] for kind in KINDS}
    assert status == dict.fromkeys(KINDS, "FINISHED") | {"fails": "FAILED"}
    assert (tmp_path / "own.db").exists()


def test_a_script_gets_no_other_server_and_no_password(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    uri = f"sqlite:///{database}"
    record = TrackingRecord(uri, "1", "abc")
    assert script_tracking(record, {}) == {}, "the database is on another machine"

    database.touch()
    given = script_tracking(record, {"HOME": "/"})
    assert given["MLFLOW_TRACKING_URI"] == f"{uri}?timeout=60"
    assert given[MLFLOW_VARIABLE].endswith("/1/abc")
    assert script_tracking(record, {"MLFLOW_TRACKING_URI": uri}) == given
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME"):
        assert script_tracking(record, {name: "other"}) == {}
    for secret in ("postgresql://me:secret@host/db", "https://***@host"):
        stored = TrackingRecord.from_json(TrackingRecord(secret, "1", "abc").to_json())
        assert script_tracking(stored, {}) == {}
    assert script_tracking(TrackingRecord(uri, "1", ""), {}) == {}
    assert script_tracking(None, {}) == {}
