"""The served model and its baseline, as functions of the user's make them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.infra.entry import function_named
from vinedresser.pruning.rounds.loading import load_weights

__all__ = ["baseline_data", "baseline_times", "served_model"]


def served_model(build: str, weights: str | None) -> Any:
    """Return the model of a service.

    Args:
        build: ``module:function`` that returns it, with any weights.
        weights: file with its weights; None: it has them.

    Raises:
        ConfigError: the function does not exist.
        PruningError: the weights cannot be read, or do not fit.
    """
    model = function_named(build)()
    if weights is not None:
        load_weights(model, Path(weights))
    return model


def baseline_data(data: str) -> tuple[Any, Sequence[Any] | None]:
    """Return the inputs of a baseline, and their labels.

    Args:
        data: ``module:function`` that returns inputs, or a pair of inputs and labels.

    Raises:
        ConfigError: the function does not exist, or it returns nothing usable.
    """
    returned = function_named(data)()
    if not isinstance(returned, tuple):
        return returned, None
    if len(returned) != 2:
        raise ConfigError(
            f"{data}: returned {len(returned)} values; expected inputs, or inputs and labels"
        )
    inputs, labels = returned
    if len(inputs) != len(labels):
        raise ConfigError(f"{data}: returned {len(inputs)} inputs and {len(labels)} labels")
    return inputs, labels


def baseline_times(times: str, inputs: int) -> NDArray[Any]:
    """Return when the inputs of a baseline were requests, [inputs].

    Args:
        times: ``module:function`` that returns seconds since the epoch, or dates of numpy.
        inputs: number of inputs.

    Raises:
        ConfigError: the function does not exist, or it returns something else.
    """
    found = np.asarray(function_named(times)())
    if found.shape != (inputs,):
        raise ConfigError(
            f"{times}: returned times of shape {list(found.shape)}; expected [{inputs}], one for "
            "each input"
        )
    return found
