"""Weights of a model as they were at a captured step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError, UnknownStep
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import Mode

__all__ = ["captured_steps", "last_step", "load_step"]

_KINDS = ("weights", "biases", "buffers")
# Counts batches, and is not used in evaluation mode.
_COUNTER = "num_batches_tracked"


def captured_steps(run: Run, model: Any) -> tuple[Mode, NDArray[np.int64]]:
    """Return the steps at which all weights of a model were captured in full, and their mode.

    Args:
        model: a torch.nn.Module with the parameters and buffers of the trained one.

    Returns:
        The mode with more such steps, and the steps, int64, ascending.

    Raises:
        UnknownStep: there is none; the message names a tensor that is missing.
    """
    found = _steps(run, model)
    best = max(found, key=lambda mode: len(found[mode]))
    return best, found[best]


def last_step(run: Run, model: Any) -> tuple[Mode, int]:
    """Return the mode and number of the last of these steps.

    Raises:
        UnknownStep: there is none; the message names a tensor that is missing.
    """
    found = [(int(steps[-1]), mode) for mode, steps in _steps(run, model).items() if len(steps)]
    # Of both at one step, the weights are the same.
    step, mode = max(found, key=lambda one: one[0])
    return mode, step


def _steps(run: Run, model: Any) -> dict[Mode, NDArray[np.int64]]:
    """Return the steps at which all weights were captured in full, by mode."""
    names = list(_names(run, model).values())
    modes: tuple[Mode, ...] = ("train", "eval")
    found: dict[Mode, NDArray[np.int64]] = {}
    for mode in modes:
        steps = [run.tensor(name).steps(mode) for name in names]
        found[mode] = np.array(sorted(set(steps[0]).intersection(*steps[1:])), np.int64)
    if not any(map(len, found.values())):
        raise UnknownStep(
            f"{run.path}: no step has all weights of the model in full; set [capture.weights], "
            "[capture.biases] and [capture.buffers] every = 100"
        )
    return found


def load_step(run: Run, model: Any, mode: Mode, step: int) -> None:
    """Give a model the weights of a step.

    Args:
        model: the torch.nn.Module; its weights are overwritten.
        step: one of `captured_steps`.

    Raises:
        ConfigError: a captured tensor has another shape than the model's.
        CorruptData: the bytes on disk do not match their checksum.
    """
    import torch

    state = model.state_dict()
    for key, name in _names(run, model).items():
        value = run.tensor(name).value(step, mode)
        if value.shape != tuple(state[key].shape):
            raise ConfigError(
                f"{run.path}: {name} has the shape {list(value.shape)}, and the model has "
                f"{list(state[key].shape)}"
            )
        wide = value.astype(np.float32) if value.dtype.kind == "V" else np.array(value)
        with torch.no_grad():
            state[key].copy_(torch.from_numpy(wide))


def _names(run: Run, model: Any) -> Mapping[str, str]:
    """Return the captured tensor of each entry of a model's state."""
    captured = {
        name.partition("/")[2]: name
        for name in run.tensor_names()
        if name.partition("/")[0] in _KINDS
    }
    found: dict[str, str] = {}
    places: dict[int, str] = {}
    missing = []
    for key, value in model.state_dict(keep_vars=True).items():
        # Tied parameters are captured under their first path.
        name = captured.get(key) or places.get(id(value))
        if name is not None:
            found[key] = places[id(value)] = name
        elif key.rpartition(".")[2] != _COUNTER:
            missing.append(key)
    if missing or not found:
        what = missing[0] if missing else "any parameter"
        raise UnknownStep(
            f"{run.path}: {what} of the model was not captured; set [capture.weights], "
            "[capture.biases] and [capture.buffers] every = 100"
        )
    return found
