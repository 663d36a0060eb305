"""The side of a replay in the process of a script that trains a Keras model."""

from __future__ import annotations

import atexit
import os
from typing import Any

import keras

from vinedresser.errors import VinedresserError
from vinedresser.frameworks.keras_.model_state import variable_paths
from vinedresser.frameworks.keras_.names import Names
from vinedresser.frameworks.methods import listen
from vinedresser.replay.answers import Answer
from vinedresser.replay.keras_.factory import KerasParts
from vinedresser.replay.keras_.recorded import RecordedKerasModel, recorded_step
from vinedresser.replay.keras_.script.settings import KerasAnswer, KerasScriptSettings
from vinedresser.replay.keras_.stepping import bisect, locate, replay_with
from vinedresser.snapshots.reading import Snapshot, open_snapshot
from vinedresser.store.records import REPLAY_KERAS_VARIABLE

_WHOSE = "the script"


def attach() -> None:
    """Wait for the training of the script, which has just imported Keras."""
    settings = KerasScriptSettings.from_text(os.environ[REPLAY_KERAS_VARIABLE])
    if settings.parent != os.getppid():
        # A process that the script has started.
        return
    answer = Answer(settings.directory)
    try:
        snapshot = open_snapshot(settings.snapshot)
        step = recorded_step(snapshot)
    except VinedresserError as error:
        answer.end({"failure": str(error)})
    (recorded,) = step.models.values()
    own, seen = os.getpid(), 0

    def begins(model: Any) -> None:
        nonlocal seen
        if os.getpid() != own or not _is_alike(model, recorded):
            return
        seen += 1
        if seen > 1:
            # The step itself.
            return
        try:
            found = _answer(settings, snapshot, model)
        except VinedresserError as error:
            answer.end({"failure": str(error)})
        answer.end(found.to_json())

    def ended() -> None:
        if os.getpid() == own:
            what = "failed in the step" if seen else "trained no model with the recorded parameters"
            answer.write({"failure": f"{_WHOSE} has ended: it {what}"})

    atexit.register(ended)
    for name in ("fit", "train_on_batch"):
        listen(keras.Model, name, begins)


def _is_alike(model: Any, recorded: RecordedKerasModel) -> bool:
    """Return whether a model may be the one that was trained: such as not before fine-tuning.

    A model that is built by its first batch may always be.
    """
    if not model.built:
        return True
    paths = variable_paths(Names(model))
    trained = {
        paths.get(id(variable)): tuple(variable.shape) for variable in model.trainable_variables
    }
    return all(
        trained.get(path) == recorded.variables[path].shape
        for path in recorded.gradients
        if path in recorded.variables
    )


def _answer(settings: KerasScriptSettings, snapshot: Snapshot, model: Any) -> KerasAnswer:
    """Run the step, and find what is looked for.

    Raises:
        VinedresserError: it cannot be run.
    """
    step = recorded_step(snapshot)
    parts = KerasParts({step.trained: model})
    replayed = replay_with(snapshot, parts, _WHOSE, eager=settings.eager)
    located, inputs = locate(replayed) if settings.looks == "locate" else (None, [])
    outcome = replayed.outcome
    return KerasAnswer(
        [float(loss) for loss in outcome.losses],
        replayed.comparison,
        outcome.nonfinite,
        located,
        inputs,
        bisect(replayed) if settings.looks == "bisect" else None,
    )
