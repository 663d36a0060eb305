"""The recorded step of a Keras model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from vinedresser.errors import ConfigError, CorruptData
from vinedresser.frameworks.keras_.codec import KerasCodec
from vinedresser.replay.keras_.batch import KerasBatch
from vinedresser.snapshots.reading import Snapshot
from vinedresser.store.json_values import DAMAGE

__all__ = ["RecordedKerasModel", "RecordedKerasStep", "recorded_step"]


@dataclass(frozen=True)
class RecordedKerasModel:
    """The recorded state of one model.

    Attributes:
        variables: parameters before the update, and what a forward may change before it, by path.
        gradients: SHA-256 and number of non-finite entries of each gradient, by path.
        optimizers: type, variables, and whether it is the one whose update was next.
    """

    variables: dict[str, Any]
    gradients: dict[str, dict[str, Any]]
    optimizers: list[dict[str, Any]]


@dataclass(frozen=True)
class RecordedKerasStep:
    """A recorded step.

    Attributes:
        models: the models by name.
        trained: name of the one that the step trains.
        own: whether it is a step of Keras's own loop, which calls the model's ``train_step``.
        graph: whether it ran as a graph.
        batches: its inputs.
        losses: values of the losses of each batch.
        random: states of the random generators that eager code uses.
    """

    models: dict[str, RecordedKerasModel]
    trained: str
    own: bool
    graph: bool
    batches: list[KerasBatch]
    losses: list[list[Any]]
    random: dict[str, Any]


def recorded_step(snapshot: Snapshot) -> RecordedKerasStep:
    """Return the step of a snapshot.

    Raises:
        ConfigError: its inputs are missing or could not be stored, or Keras has another backend.
        CorruptData: it is damaged.
        StoreError: the storage refused.
    """
    record, codec = snapshot.record, KerasCodec()
    backend = str(record.environment.get("backend"))
    if backend != keras.backend.backend():
        raise ConfigError(
            f"{snapshot.location}: recorded with the {backend} backend of Keras, which now has "
            f"{keras.backend.backend()}: set KERAS_BACKEND={backend}"
        )
    for path, why in record.left_out.items():
        if ".calls." in path or ".data" in path:
            raise ConfigError(f"{snapshot.location}: it cannot be run again: {path}: {why}")
    contents = snapshot.value(record.contents.get("models"), codec)
    shared = snapshot.value(record.contents.get("shared"), codec)
    try:
        models = {name: _model(one) for name, one in contents.items()}
        stepping = (
            name
            for name, one in models.items()
            if any(each["steps_now"] for each in one.optimizers)
        )
        trained = next(stepping, next(iter(models)))
        content = contents[trained]
        own = content["own_step"] is True
        if own:
            batches = [KerasBatch(data=content["data"])]
            losses = [[] if content["loss"] is None else [content["loss"]]]
        else:
            calls = content["calls"]
            batches = [
                KerasBatch(
                    call["args"],
                    call["kwargs"],
                    call["losses"][-1]["arguments"] if call["losses"] else (),
                )
                for call in calls
            ]
            losses = [[each["value"] for each in call["losses"]] for call in calls]
        step = RecordedKerasStep(
            models, trained, own, content["graph"] is True, batches, losses, dict(shared["random"])
        )
    except (*DAMAGE, StopIteration) as error:
        raise CorruptData(f"{snapshot.location}: not the contents of a step: {error!r}") from error
    if not batches:
        why = "; ".join(record.inexact) or "none were seen"
        raise ConfigError(f"{snapshot.location}: it has no inputs: {why}")
    return step


def _model(one: dict[str, Any]) -> RecordedKerasModel:
    variables = {**one["parameters"], **one["buffers"]}
    if not all(isinstance(value, np.ndarray) for value in variables.values()):
        raise TypeError("a variable is not an array")
    return RecordedKerasModel(variables, one["gradients"], one["optimizers"])
