"""Pruned models on disk: plans and weights, and never code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from vinedresser.errors import KeyMissing, PruningError, StoreError
from vinedresser.pruning.backends import backend_of
from vinedresser.pruning.one_round import Pruned
from vinedresser.pruning.plan import Plan, plan_from_json
from vinedresser.store.storage.local import LocalStorage

__all__ = ["load", "read_plans", "save"]

Model = TypeVar("Model")

_WEIGHTS, _PROOF = "weights.safetensors", "proof.json"
# Largest plan that is read, in bytes: enough for ten million channels.
_MOST = 256 << 20


def save(pruned: Pruned, folder: str | Path) -> None:
    """Write a pruned model: its plans, the last proof, and its weights as they are now.

    Args:
        pruned: the pruned model, fine-tuned or not.
        folder: directory, created if missing: ``plan-1.json`` and so on, one for each round,
            ``proof.json`` and ``weights.safetensors``.

    Raises:
        PruningError: the folder has a saved model already.
        OSError: a file cannot be written.
    """
    folder = Path(folder)
    if (folder / _WEIGHTS).exists():
        raise PruningError(f"{folder}: holds a pruned model already; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    storage = LocalStorage(folder)
    for number, plan in enumerate(pruned.plans, start=1):
        storage.put(f"plan-{number}.json", [plan.to_json().encode()])
    storage.put(_PROOF, [json.dumps(asdict(pruned.proof), indent=1).encode(), b"\n"])
    # Last: with the weights, the model is complete.
    backend_of(pruned.model).write_weights(pruned.model, folder / _WEIGHTS)


def load(folder: str | Path, build: Callable[[], Model]) -> Model:
    """Return a saved pruned model, bit for bit.

    The files hold data only, so the model's code comes from the caller.

    Args:
        folder: see `save`.
        build: returns the unpruned model, with any weights.

    Raises:
        PruningError: a file is missing, damaged or not a regular file, or the plans are for another
            architecture.
    """
    folder = Path(folder)
    plans = read_plans(folder)
    model = build()
    backend = backend_of(model)
    for number, plan in enumerate(plans, start=1):
        try:
            model = backend.removed(model, plan)
        except PruningError as error:
            raise PruningError(f"{folder}/plan-{number}.json: {error}") from error
    backend.read_weights(model, folder / _WEIGHTS)
    return model


def read_plans(folder: str | Path) -> list[Plan]:
    """Return the plans of a saved model, round by round.

    Raises:
        PruningError: there is none, or one is damaged or not a regular file.
    """
    plans: list[Plan] = []
    storage = LocalStorage(folder)
    while True:
        key = f"plan-{len(plans) + 1}.json"
        try:
            text = storage.get(key, 0, _MOST + 1)
        except KeyMissing:
            break
        except StoreError as error:
            raise PruningError(f"the plan cannot be read: {error}") from error
        if len(text) > _MOST:
            raise PruningError(f"{folder}/{key}: not a plan: larger than {_MOST >> 20} MiB")
        plans.append(plan_from_json(text, source=f"{folder}/{key}"))
    if not plans:
        raise PruningError(f"{folder}: holds no pruned model: plan-1.json is missing")
    return plans
