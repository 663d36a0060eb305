"""The model of the best trial becomes a registered one, unless something speaks against it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from safetensors.numpy import save_file

from tests.tasks.remedy.findings import finding
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.services.tracking import create_run, prepare_tracking
from vinedresser.objects import open_storage
from vinedresser.store.records import TrackingRecord, findings_key, write_record
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.trial import Trial, TrialEnd
from vinedresser.tasks.sweeping.best_model import register_best
from vinedresser.testing.runs import make_run, step_record

SETTINGS = SweepTable(metric="accuracy", direction="maximize", trials=3, register="digits")
BEST = Trial(1, {"lr": 0.1}, {1: 0.9}, (0.9,), TrialEnd("finished"))


@pytest.fixture
def sweep(tmp_path: Path, mlflow_store: Callable[[Path], Path]) -> tuple[Path, MlflowClient]:
    """Return the store of a sweep with a finished trial, which has no model, and MLflow."""
    store = mlflow_store(tmp_path / "search")
    uri = f"sqlite:///{store / 'mlflow.db'}"
    remember_tracking(store, uri)
    experiment = prepare_tracking(uri, "search")
    run = store / BEST.name
    make_run(
        run,
        [
            step_record(
                step,
                scalars={"losses/loss": 1.0 / (1 + step)},
                tensors={"inputs/net": np.zeros((8, 3, 5 + step % 2), np.float32)},
            )
            for step in range(4)
        ],
        name=BEST.name,
    )
    storage = open_storage(run)
    run_id = create_run(uri, experiment, BEST.name, {}, {})
    write_record(storage, TrackingRecord(uri, experiment, run_id, settled=True))
    return store, MlflowClient(uri)


def weights(store: Path, name: str = "step-4.safetensors") -> Path:
    path = store / BEST.name / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"weight": np.arange(4.0)}, path)
    return path


@pytest.mark.thorough
def test_the_last_weights_are_registered_once(sweep: tuple[Path, MlflowClient]) -> None:
    store, client = sweep
    # As long as the script says, and those that the hook has saved at the end.
    weights(store, "step-9.safetensors")
    weights(store, "last/step-2.safetensors")
    last = weights(store, "last/step-4.safetensors")
    said, problem = register_best(store, SETTINGS, (BEST,))
    assert (said, problem) == (
        f"digits version 1, alias best: trial-0001, the weights of checkpoints/last/{last.name}",
        "",
    )
    assert register_best(store, SETTINGS, (BEST,)) == (said, "")
    version = client.get_model_version_by_alias("digits", "best")
    assert version.source is not None
    folder = Path(version.source.removeprefix("file://"))
    assert (folder / last.name).read_bytes() == last.read_bytes()
    # The width of the inputs has varied, and the first dimension is that of the batch.
    described = (folder / "MLmodel").read_text(encoding="utf-8")
    assert '"inputs/net"' in described
    assert "[-1, 3, -1]" in " ".join(described.split())
    assert version.tags["sweep.trial"] == "trial-0001"
    assert version.tags["sweep.accuracy"] == "0.9"


@pytest.mark.thorough
def test_a_model_that_the_script_has_logged_comes_first(sweep: tuple[Path, MlflowClient]) -> None:
    store, client = sweep
    weights(store)
    (experiment,) = [one for one in client.search_experiments() if one.name == "search"]
    (run,) = client.search_runs([experiment.experiment_id])
    names = ("early", "late", "unfinished")
    logged = [
        client.create_logged_model(experiment.experiment_id, name, run.info.run_id)
        for name in names
    ]
    for one in logged[:2]:
        client.finalize_logged_model(one.model_id, "READY")
    # The script has also registered an earlier one.
    client.create_registered_model("digits")
    client.create_model_version("digits", logged[0].artifact_location, run.info.run_id)
    said, problem = register_best(store, SETTINGS, (BEST,))
    assert (said.partition(": ")[2], problem) == (
        "trial-0001, the model that its script has logged",
        "",
    )
    version = client.get_model_version_by_alias("digits", "best")
    assert version.source == logged[1].artifact_location


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "it has no logged model and no checkpoint of one file; log it in the script"),
        (["step-4.pt"], "loading checkpoints/step-4.pt may run code; log it in the script"),
        (["step-4-a.npz", "step-4-b.npz"], "its model was saved in parts (checkpoints/step-4-a"),
        (["step-4.rank-0.safetensors"], "its model was saved in parts (checkpoints/step-4.rank-0"),
    ],
)
def test_what_cannot_be_registered_is_told(
    sweep: tuple[Path, MlflowClient], files: list[str], said: str
) -> None:
    store, client = sweep
    for name in files:
        # Unpickling it would fail the test.
        weights(store, name).write_bytes(pickle.dumps(_Executed()))
    registered, problem = register_best(store, SETTINGS, (BEST,))
    assert registered == ""
    assert problem.startswith(f"trial-0001, the best trial, is not registered as digits: {said}")
    assert client.search_registered_models() == []
    assert register_best(store, SETTINGS, ()) == (
        "",
        "no model is registered as digits: no trial has finished",
    )


class _Executed:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return pytest.fail, ("the file was unpickled",)


@pytest.mark.thorough
def test_weights_from_before_the_end_are_said_to_be(sweep: tuple[Path, MlflowClient]) -> None:
    store, _ = sweep
    weights(store, "step-3.npz")
    said, _ = register_best(store, SETTINGS, (BEST,))
    assert said.endswith("checkpoints/step-3.npz, 1 step before its end")
    of_best = replace(SETTINGS, value="best")
    said, _ = register_best(store, of_best, (BEST,))
    assert said.endswith("(its best accuracy may be that of earlier ones)")


@pytest.mark.thorough
def test_a_trial_with_a_problem_is_not_registered(sweep: tuple[Path, MlflowClient]) -> None:
    store, client = sweep
    weights(store)
    found = finding({}, rule="overfitting", severity="warning")
    line = json.dumps(found.to_json()).encode()
    open_storage(store / BEST.name).put(findings_key("rules"), [line, b"\n"])
    registered, problem = register_best(store, SETTINGS, (BEST,))
    assert registered == ""
    assert "is not registered as digits: " in problem
    assert "overfitting" in problem
    assert client.search_registered_models() == []
