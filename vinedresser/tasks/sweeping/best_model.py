"""Registering the model of a sweep's best trial in MLflow, without reading it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from vinedresser.errors import ConfigError, UnknownStep, VinedresserError
from vinedresser.explain.formatting import count
from vinedresser.explain.verdicts import verdict
from vinedresser.infra.catalog.known_tracking import require_known
from vinedresser.infra.catalog.run_notes import stored_tracking
from vinedresser.infra.services.tracking import (
    Shapes,
    logged_model,
    model_description,
    register_model,
)
from vinedresser.infra.services.tracking.artifacts import upload
from vinedresser.objects import LocalStorage, Location
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import TrackingRecord
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.trial import Trial
from vinedresser.tasks.lifecycle.earlier_runs import runs_of_trial
from vinedresser.tasks.places.checkpoints import SavedCheckpoint, fetch_checkpoint

__all__ = ["BEST_ALIAS", "best_problems", "missing_model", "register_best"]

BEST_ALIAS = "best"
# Folder of the artifacts of the trial's MLflow run.
_FOLDER = "model"
# Weights that the hook has saved at the end, and those that it or the script has saved before.
_LAST = "checkpoints/last/"
_WEIGHTS = re.compile(rf"(?:{_LAST}|checkpoints/)step-(\d+)[^/]*")
# Files that hold numbers and settings only; others may run code when they are loaded.
_HARMLESS = (".safetensors", ".npz", ".weights.h5", ".ubj", ".onnx")
# Most captures of a tensor whose shapes are compared.
_LOOKS = 20


def best_problems(store: Location, best: Iterable[Trial]) -> list[str]:
    """Return a sentence for each of the best trials in which rules found a problem.

    Args:
        best: the best trial, or the Pareto front.
    """
    found = []
    for trial in best:
        try:
            runs = runs_of_trial(store, trial.name)
            judged = verdict(open_run(runs[-1])) if runs else None
        except VinedresserError as error:
            found.append(f"{trial.name}: its verdict cannot be read: {error}")
            continue
        if judged is not None and judged.kind == "problem":
            found.append(f"{trial.name}: {judged.words}: {judged.sentence}")
    return found


def missing_model(store: Location, name: str) -> str:
    """Return why there is no model of a finished trial that could be registered; "" if there is.

    What cannot be looked up now is told when it is registered.
    """
    try:
        run, uri, tracking = _run_of(store, name)
        if logged_model(uri, tracking.experiment_id, tracking.run_id) is None:
            _last_weights(run)
    except ConfigError as error:
        return str(error)
    except VinedresserError:
        return ""
    return ""


def register_best(
    store: Location, settings: SweepTable, best: tuple[Trial, ...]
) -> tuple[str, str]:
    """Make the model of the best trial a version of a registered model; idempotent.

    It is the last model that its script has logged to MLflow, or else the weights of its last
    checkpoint. A trial in which rules found a problem is not registered.

    Args:
        settings: settings of the sweep, which name the registered model.
        best: its best trial; empty if none has finished.

    Returns:
        What was registered, and why nothing was; one of the two is "".
    """
    if not best:
        return "", f"no model is registered as {settings.register}: no trial has finished"
    try:
        return _registered(store, settings, best[0]), ""
    except VinedresserError as error:
        named = f"{best[0].name}, the best trial, is not registered as {settings.register}"
        return "", f"{named}: {error}"


def _registered(store: Location, settings: SweepTable, best: Trial) -> str:
    """Register the model of a trial, and say what was registered.

    Raises:
        ConfigError: a rule found a problem, or there is no model that can be registered.
        TrackingError: MLflow refused or is unavailable.
        StoreError: the store refused.
    """
    name, goal = settings.register, settings.goals[0]
    assert name is not None, "it is asked for"
    run, uri, tracking = _run_of(store, best.name)
    judged = verdict(run)
    if judged.kind == "problem":
        raise ConfigError(f"{judged.words}: {judged.sentence}")
    tags = {
        "sweep": store.name,
        "sweep.trial": best.name,
        f"sweep.{goal.metric}": f"{best.result[0]:.6g}",
        "verdict": judged.words,
    }
    logged = logged_model(uri, tracking.experiment_id, tracking.run_id)
    what = "the model that its script has logged"
    if logged is None:
        saved = _last_weights(run)
        _upload(run, saved, uri, tracking)
        what = f"the weights of {saved.key}"
        if saved.steps < judged.steps:
            what += f", {count(judged.steps - saved.steps, 'step')} before its end"
        if goal.value == "best":
            what += f" (its best {goal.metric} may be that of earlier ones)"
    tags["model"] = what
    version = register_model(
        uri, tracking.run_id, logged or _FOLDER, name, alias=BEST_ALIAS, tags=tags
    )
    return f"{name} version {version}, alias {BEST_ALIAS}: {best.name}, {what}"


def _run_of(store: Location, name: str) -> tuple[Run, str, TrackingRecord]:
    """Return the last run of a trial, its tracking URI, and MLflow's run of it.

    Raises:
        ConfigError: there is none.
        TrackingError: the tracking URI is none of this user's.
        StoreError: the store refused.
    """
    runs = runs_of_trial(store, name)
    if not runs:
        raise ConfigError("its run was removed")
    run = open_run(runs[-1])
    tracking = stored_tracking(runs[-1], run.storage)
    if tracking is None or not tracking.run_id:
        raise ConfigError("MLflow does not know its run")
    return run, require_known(store, tracking.uri), tracking


def _last_weights(run: Run) -> SavedCheckpoint:
    """Return the last checkpoint of a run that has finished.

    Raises:
        ConfigError: there is none, it is not one file, or loading it may run code.
    """
    keys = run.storage.list("checkpoints/")
    # Saved by the hook at the end, or else by the script.
    keys = [key for key in keys if key.startswith(_LAST)] or keys
    found = [
        SavedCheckpoint(run.info.name, key, int(steps[1]))
        for key in keys
        if (steps := _WEIGHTS.fullmatch(key))
    ]
    last = max((one.steps for one in found), default=0)
    files = sorted(one.key for one in found if one.steps == last)
    harmless = [key for key in files if key.endswith(_HARMLESS)]
    how = "log it in the script, for example with mlflow.pytorch.log_model"
    if not files:
        raise ConfigError(f"it has no logged model and no checkpoint of one file; {how}")
    if not harmless:
        raise ConfigError(f"loading {files[0]} may run code; {how}")
    # Ranks may have saved one after the other under the name of the first.
    if len(harmless) > 1 or ".rank-" in harmless[0]:
        raise ConfigError(f"its model was saved in parts ({', '.join(harmless)}); {how}")
    return SavedCheckpoint(run.info.name, harmless[0], last)


def _upload(run: Run, saved: SavedCheckpoint, uri: str, tracking: TrackingRecord) -> None:
    """Give MLflow's run the weights, and a description with what is known of their model."""
    with tempfile.TemporaryDirectory(prefix="vinedresser-") as folder:
        file = fetch_checkpoint(run.storage, saved, Path(folder))
        inputs, outputs = _shapes(run, "inputs"), _shapes(run, "predictions")
        text = model_description(tracking.run_id, file.name, inputs, outputs)
        LocalStorage(folder).put("MLmodel", [text.encode()])
        files = {
            f"{_FOLDER}/MLmodel": Path(folder, "MLmodel"),
            f"{_FOLDER}/{file.name}": file,
        }
        upload(uri, tracking.run_id, files)


def _shapes(run: Run, collection: str) -> Shapes:
    """Return dtype and shape of a collection's tensors, as far as they were captured in full.

    The first dimension, of the batch, and each that varied between captures are -1.
    """
    found = {}
    for name in run.tensor_names(collection=collection):
        tensor = run.tensor(name)
        try:
            dtype, shape = tensor.dtype, tensor.shape
        except UnknownStep:
            continue
        steps = tensor.steps()
        for step in steps[:: max(1, len(steps) // _LOOKS)]:
            other = tensor.value(int(step)).shape
            if len(other) != len(shape):
                return {}
            shape = tuple(a if a == b else -1 for a, b in zip(shape, other, strict=True))
        if dtype.kind in "biuf":
            found[name] = (dtype, (-1, *shape[1:]))
    return found
