"""The variables of a model and its optimizers, by path."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
from keras.src.backend.common import global_state
from numpy.typing import NDArray

from vinedresser.frameworks.keras_.codec import host_value
from vinedresser.frameworks.keras_.names import Names

__all__ = [
    "changing_variables",
    "environment",
    "host_values",
    "inner_optimizer",
    "optimizer_variables",
    "parameters",
    "variable_paths",
]


def parameters(names: Names) -> dict[str, Any]:
    """Return the parameters of a model by path, frozen ones too."""
    return {
        _inner(names, variable.path): variable.value
        for variable in names.variables()
        if variable.kind != "buffers"
    }


def changing_variables(names: Names) -> dict[str, Any]:
    """Return the variables that a forward may change, by path.

    They are statistics, such as those of batch normalization, and states of random generators.
    """
    listed = names.variables()
    found = {_inner(names, one.path): one.value for one in listed if one.kind == "buffers"}
    known = {id(one.value) for one in listed}
    rest = [variable for variable in names.model.variables if id(variable) not in known]
    found |= {f"seed.{place}": one for place, one in enumerate(rest)}
    generator = global_state.get_global_attribute("global_seed_generator")
    if generator is not None:
        found["global seed"] = generator.state
    return found


def variable_paths(names: Names) -> dict[int, str]:
    """Return the path of each parameter by the id of its variable and of the backend's."""
    found: dict[int, str] = {}
    for path, variable in parameters(names).items():
        found[id(variable)] = found[id(variable._value)] = path
    return found


def host_values(variables: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return copies of variables of any shapes and dtypes in host memory."""
    return {path: np.array(host_value(one)) for path, one in variables.items()}


def inner_optimizer(optimizer: Any) -> Any:
    """Return the optimizer inside nested LossScaleOptimizers, or the optimizer itself."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def optimizer_variables(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer and of the one inside it, each once."""
    both: Iterable[Any] = (*optimizer.variables, *inner_optimizer(optimizer).variables)
    return list({id(one): one for one in both}.values())


def environment(model: Any) -> dict[str, Any]:
    """Return what decides about the bits of a result, as plain JSON types, by name.

    Args:
        model: a Keras model.
    """
    backend = keras.backend.backend()
    found: dict[str, Any] = {
        "backend": backend,
        "machine": platform.machine(),
        "dtype policy": str(model.dtype_policy.name),
        "floatx": keras.config.floatx(),
        "jit_compile": bool(model.jit_compile) if model.compiled else False,
        "run_eagerly": bool(model.run_eagerly) if model.compiled else True,
    }
    if backend == "torch":
        from vinedresser.frameworks.torch_.environment import environment as torch_environment

        first = next(iter(model.weights), None)
        device = "cpu" if first is None else first.value.device
        import torch

        return found | torch_environment(torch.device(device))
    import tensorflow as tf

    return found | {
        "device": "gpu" if tf.config.list_physical_devices("GPU") else "cpu",
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "oneDNN": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
        "deterministic ops": bool(tf.config.experimental.is_op_determinism_enabled())
        if hasattr(tf.config.experimental, "is_op_determinism_enabled")
        else False,
    }


def _inner(names: Names, path: str) -> str:
    """Return a path without the prefix of the model."""
    return path.removeprefix(names.prefix)
