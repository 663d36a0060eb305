"""Pruning at random and comparing, for tests."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import numpy as np

from vinedresser.pruning.keras_ import KerasPrunable
from vinedresser.pruning.plan import Plan, architecture_digest, make_plan

__all__ = ["drawn_example", "random_plan", "redraw"]


def drawn_example(model: Any, rng: np.random.Generator, batch: int = 2) -> list[Any]:
    """Return an array per input, drawn from a normal distribution or, for integers, below 10."""
    arrays: list[Any] = []
    for one in model.inputs:
        shape = (batch, *(size or 1 for size in one.shape[1:]))
        drawn = rng.integers(0, 10, shape) if "int" in one.dtype else rng.normal(size=shape)
        arrays.append(drawn.astype(one.dtype))
    return arrays


def redraw(model: Any, rng: np.random.Generator) -> None:
    """Draw all variables anew, so that no two channels are alike and none is dead."""
    for variable in model.weights:
        # Outputs are about as large as inputs, so that no activation is saturated.
        inputs = np.prod(variable.shape[:-1]) if len(variable.shape) > 1 else 6
        values = rng.normal(size=variable.shape) / np.sqrt(inputs)
        if "variance" in variable.path:
            values = np.abs(values) + 0.5
        variable.assign(values.astype(variable.dtype))


def random_plan(prunable: KerasPrunable, rng: np.random.Generator, share: float = 0.5) -> Plan:
    """Return a plan that removes about a share of each group that is not locked."""
    channels = {
        group.name: tuple(sorted(rng.permutation(group.size)[: int(group.size * share)].tolist()))
        for group in prunable.groups
        if not group.locked and int(group.size * share)
    }
    return make_plan(
        channels,
        {group.name: group for group in prunable.groups},
        architecture=architecture_digest(
            {name: values.shape for name, values in prunable.tensors().items()}
        ),
        criterion="random",
        scores={},
        attributes=prunable.attributes(channels),
    )
