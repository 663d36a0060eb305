"""Pruned models on disk: plans and weights, and never code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from vinedresser.errors import CorruptData, KeyMissing, PruningError, StoreError
from vinedresser.objects.local import LocalStorage
from vinedresser.pruning.backends import backend_of
from vinedresser.pruning.folders import model_folder
from vinedresser.pruning.one_round import Pruned
from vinedresser.pruning.plan import Plan, plan_from_json
from vinedresser.pruning.proof import Check, Proof
from vinedresser.store.json_values import DAMAGE, parse_json

__all__ = ["WEIGHTS", "is_saved", "load", "load_with_plans", "read_proof", "save", "save_model"]

Model = TypeVar("Model")

WEIGHTS, _PROOF = "weights.safetensors", "proof.json"
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
    save_model(pruned.model, pruned.plans, pruned.proof, Path(folder))


def save_model(model: Any, plans: Sequence[Plan], proof: Proof | None, folder: Path) -> None:
    """Write a model: its plans, a proof if there is one, and its weights as they are now.

    Args:
        model: the model, pruned or not.
        plans: how it came from the unpruned one; see `Pruned`.
        proof: what was checked when it was pruned last; None: nothing is known.
        folder: see `save`.

    Raises:
        PruningError: see `save`.
        OSError: a file cannot be written.
    """
    if is_saved(folder):
        raise PruningError(f"{folder}: holds a pruned model already; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    storage = LocalStorage(folder)
    for number, plan in enumerate(plans, start=1):
        storage.put(f"plan-{number}.json", [plan.to_json().encode()])
    if proof is not None:
        storage.put(_PROOF, [json.dumps(asdict(proof), indent=1).encode(), b"\n"])
    # Last: with the weights, the model is complete.
    backend_of(model).write_weights(model, folder / WEIGHTS)


def is_saved(folder: Path) -> bool:
    """Return whether a folder has a complete saved model."""
    # What is no file is a damaged model, not a missing one.
    return os.path.lexists(folder / WEIGHTS)


def load(folder: str | Path, build: Callable[[], Model]) -> Model:
    """Return a saved pruned model, bit for bit.

    The files hold data only, so the model's code comes from the caller.

    Args:
        folder: folder of a saved model, see `save`; of a round of a pruning; or of a whole
            pruning, for the round that is its result.
        build: returns the unpruned model, with any weights.

    Raises:
        PruningError: a file is missing, damaged or not a regular file, or the plans are for another
            architecture.
    """
    return load_with_plans(folder, build)[0]


def load_with_plans(folder: str | Path, build: Callable[[], Model]) -> tuple[Model, list[Plan]]:
    """Return a saved model, and how it came from the unpruned one; see `load`.

    Raises:
        PruningError: see `load`.
    """
    try:
        folder = model_folder(Path(folder))
    except (StoreError, CorruptData) as error:
        raise PruningError(str(error)) from error
    plans = _read_plans(folder)
    model = build()
    backend = backend_of(model)
    for number, plan in enumerate(plans, start=1):
        try:
            model = backend.removed(model, plan)
        except PruningError as error:
            raise PruningError(f"{folder}/plan-{number}.json: {error}") from error
    backend.read_weights(model, folder / WEIGHTS)
    return model, plans


def read_proof(folder: Path) -> Proof | None:
    """Return the proof that was saved with a model; None if there is none.

    Raises:
        PruningError: it is damaged or not a regular file.
    """
    try:
        document = parse_json(LocalStorage(folder).get(_PROOF, 0, _MOST))
        checks = tuple(Check(**one) for one in document["checks"])
        before, after = document["parameters"]
        return Proof(checks, int(document["count"]), (int(before), int(after)))
    except KeyMissing:
        return None
    except (StoreError, *DAMAGE) as error:
        raise PruningError(f"{folder}/{_PROOF}: not a readable proof: {error}") from error


def _read_plans(folder: Path) -> list[Plan]:
    """Return the plans of a saved model, round by round; none of an unpruned one."""
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
    if not plans and not is_saved(folder):
        raise PruningError(f"{folder}: holds no pruned model: plan-1.json is missing")
    return plans
