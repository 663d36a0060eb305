"""A model in another precision, or with other weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vinedresser.pruning.keras_.graph import values_of

__all__ = ["in_precision", "redraw"]


def in_precision(config: Any, dtype: str) -> Any:
    """Return a configuration with all floating-point dtypes and policies replaced.

    Args:
        config: the configuration of a layer or operation, with those inside it.
        dtype: "float32" or "float64".
    """
    if isinstance(config, dict):
        return {
            key: dtype if key == "dtype" and _is_floating(value) else in_precision(value, dtype)
            for key, value in config.items()
        }
    if isinstance(config, list):
        return [in_precision(one, dtype) for one in config]
    return config


def _is_floating(value: Any) -> bool:
    # A policy is a dictionary with its name inside.
    name = value["config"].get("name") if isinstance(value, dict) else value
    return "float" in str(name)


def redraw(variables: Mapping[str, Any], seed: int) -> None:
    """Draw parameters and running statistics anew, so that no channel is like another or dead.

    Args:
        variables: variables by name.
        seed: seed of the values.
    """
    rng = np.random.default_rng(seed)
    for name, variable in variables.items():
        shape = tuple(variable.shape)
        if not variable.trainable and not name.endswith(("moving_mean", "moving_variance")):
            continue
        # Positive variances and scales, and outputs of about the size of inputs.
        values = rng.uniform(0.5, 1.5, shape)
        if len(shape) > 1:
            values = rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))
        variable.assign(values.astype(values_of(variable).dtype))
