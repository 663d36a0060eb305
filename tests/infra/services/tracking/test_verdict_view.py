"""The saved view of an experiment in MLflow, read back with sqlite3."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from vinedresser.errors import TrackingError
from vinedresser.infra.services.tracking import (
    create_run,
    finish,
    prepare_tracking,
    save_verdict_view,
)

TAG = "mlflow.sharedViewState.vinedresser"
NOTE = "mlflow.note.content"


@pytest.fixture
def database(mlflow_store: Callable[[Path], Path], tmp_path: Path) -> Path:
    """Return an empty MLflow database."""
    return mlflow_store(tmp_path) / "mlflow.db"


def tags(database: Path) -> dict[str, str]:
    """Return the tags of the experiments."""
    with closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute("SELECT key, value FROM experiment_tags"))


def set_tag(database: Path, experiment_id: str, key: str, value: str) -> None:
    """Set a tag of an experiment, as MLflow's UI does."""
    with closing(sqlite3.connect(database)) as connection, connection:
        row = (key, value, experiment_id)
        connection.execute("INSERT OR REPLACE INTO experiment_tags VALUES (?, ?, ?)", row)


def state(database: Path) -> dict[str, Any]:
    """Return the state of the page that the view keeps."""
    found: dict[str, Any] = json.loads(json.loads(tags(database)[TAG])["state"])
    return found


def test_the_view_has_the_verdict_a_loss_and_a_metric_of_the_newest_runs(database: Path) -> None:
    uri = f"sqlite:///{database}"
    experiment_id = prepare_tracking(uri, "digits")
    assert save_verdict_view(uri, experiment_id) == "vinedresser"
    assert "tags.`verdict`" in state(database)["selectedColumns"]
    keys = ("training/gradient_norm", "train/loss", "eval/loss", "eval/accuracy", "train/accuracy")
    finish(
        *(uri, create_run(uri, experiment_id, "run", {}, {}), "FINISHED", {}, {}),
        metrics={key: [(0, 1.0)] for key in keys},
    )
    before = tags(database)
    save_verdict_view(uri, experiment_id)
    columns = state(database)["selectedColumns"]
    metrics = [name for name in columns if name.startswith("metrics.")]
    assert metrics == ["metrics.`eval/loss`", "metrics.`eval/accuracy`"]
    assert "duration" in state(database)["columnOrder"]
    # The same view, with other columns.
    created = [json.loads(one[TAG])["createdAt"] for one in (before, tags(database))]
    assert created[0] == created[1]


def test_parameters_that_differ_between_runs_are_columns_beside_the_results(database: Path) -> None:
    uri = f"sqlite:///{database}"
    experiment_id = prepare_tracking(uri, "digits")
    for number in range(3):
        parameters = {"lr": 10.0**-number, "momentum": 0.9, "seed": number, "depth": number}
        if number:
            parameters |= {"rare": number, "a`b": number}
        run = create_run(uri, experiment_id, f"run-{number}", parameters, {})
        finish(uri, run, "FINISHED", {}, {}, metrics={"train/loss": [(0, 1.0)]})
    save_verdict_view(uri, experiment_id)
    columns = state(database)["selectedColumns"]
    assert [name for name in columns if name.startswith("params.")] == [
        "params.`depth`",
        "params.`lr`",
        "params.`seed`",
    ]
    order = state(database)["columnOrder"]
    assert order.index("metrics.`train/loss`") < order.index("params.`depth`")
    assert order.index("params.`seed`") < order.index("duration")


def test_trials_of_two_sweeps_can_be_told_apart(database: Path) -> None:
    uri = f"sqlite:///{database}"
    experiment_id = prepare_tracking(uri, "digits")
    column = "tags.`parent`"
    for sweep, needed in (("first", False), ("second", True)):
        create_run(uri, experiment_id, "trial-0000", {}, {"parent": sweep})
        save_verdict_view(uri, experiment_id)
        assert (column in state(database)["selectedColumns"]) == needed
    assert state(database)["columnOrder"][0] == column


def test_what_the_user_has_written_is_kept(database: Path) -> None:
    uri = f"sqlite:///{database}"
    experiment_id = prepare_tracking(uri, "digits")
    theirs = json.dumps({"name": "Mine", "createdAt": 1, "updatedAt": 2, "state": "{}"})
    set_tag(database, experiment_id, TAG, theirs)
    set_tag(database, experiment_id, NOTE, "")
    save_verdict_view(uri, experiment_id)
    assert tags(database) == {TAG: theirs, NOTE: ""}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        "[]",
        "null",
        '{"name": "x"}',
        '{"createdAt": {}}',
        '{"createdAt": Infinity}',
        "[" * 5000,
    ],
)
def test_a_view_that_mlflow_cannot_read_is_replaced(database: Path, damaged: str) -> None:
    uri = f"sqlite:///{database}"
    experiment_id = prepare_tracking(uri, "digits")
    set_tag(database, experiment_id, TAG, damaged)
    save_verdict_view(uri, experiment_id)
    assert state(database)["orderByAsc"] is False


def test_an_experiment_that_does_not_exist_is_refused(database: Path) -> None:
    with pytest.raises(TrackingError, match="77"):
        save_verdict_view(f"sqlite:///{database}", "77")
