"""Putting Keras models, optimizers and random generators into a recorded state."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from vinedresser.errors import ConfigError, CorruptData, did_you_mean
from vinedresser.frameworks.keras_.model_state import (
    changing_variables,
    optimizer_variables,
    parameters,
)
from vinedresser.frameworks.keras_.names import Names
from vinedresser.replay.keras_.factory import KerasParts
from vinedresser.replay.keras_.recorded import RecordedKerasModel, RecordedKerasStep
from vinedresser.store.json_values import DAMAGE

__all__ = ["restore"]


def restore(parts: KerasParts, step: RecordedKerasStep, whose: str) -> None:
    """Put everything into the state at the beginning of a step.

    Args:
        parts: result of the factory, with models that are built.
        whose: name of the factory, for messages.

    Raises:
        ConfigError: the factory builds another model or optimizer.
        CorruptData: the recorded states are not valid.
    """
    for name, model in parts.models.items():
        recorded = step.models[name]
        _restore_model(model, recorded, whose)
        optimizers = parts.optimizers or [one for one in [model.optimizer] if one is not None]
        for optimizer, state in zip(optimizers, recorded.optimizers, strict=False):
            _restore_optimizer(optimizer, state, model, whose)
    try:
        _restore_random(step.random)
    except (*DAMAGE, RuntimeError) as error:
        raise CorruptData(f"the recorded random states are not valid: {error}") from error


def _restore_model(model: Any, recorded: RecordedKerasModel, whose: str) -> None:
    names = Names(model)
    ours = parameters(names) | changing_variables(names)
    for path, value in recorded.variables.items():
        if path == "global seed" and path not in ours:
            # It is made when it is first used.
            continue
        if path not in ours:
            near = did_you_mean(path, ours)
            raise ConfigError(
                f"{whose}: builds another model: it has no variable {path}, which the snapshot has"
                f"{near}"
            )
        variable = ours[path]
        if tuple(variable.shape) != value.shape or str(variable.dtype) != value.dtype.name:
            raise ConfigError(
                f"{whose}: builds another model: {path} is {variable.dtype} "
                f"{list(variable.shape)}; in the snapshot it is {value.dtype} {list(value.shape)}"
            )
        variable.assign(value)
    for path in ours:
        if path not in recorded.variables and path != "global seed":
            raise ConfigError(
                f"{whose}: builds another model: its variable {path} is not in the snapshot"
            )


def _restore_optimizer(optimizer: Any, recorded: dict[str, Any], model: Any, whose: str) -> None:
    if type(optimizer).__name__ != recorded["type"]:
        raise ConfigError(
            f"{whose}: builds another optimizer: {type(optimizer).__name__}; the snapshot has "
            f"{recorded['type']}"
        )
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    ours, theirs = optimizer_variables(optimizer), recorded["variables"]
    if [tuple(one.shape) for one in ours] != [one.shape for one in theirs]:
        raise ConfigError(
            f"{whose}: builds another optimizer: it has {len(ours)} variables, the snapshot "
            f"{len(theirs)}, or they have other shapes"
        )
    for variable, value in zip(ours, theirs, strict=True):
        variable.assign(value)


def _restore_random(states: dict[str, Any]) -> None:
    if "python" in states:
        random.setstate(states["python"])
    if "numpy" in states:
        np.random.set_state(states["numpy"])
    if "torch" in states:
        import torch

        torch.set_rng_state(torch.from_numpy(states["torch"]))
