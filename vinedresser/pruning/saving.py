"""Pruned models on disk: plans and weights, and never code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from vinedresser.capture.adapters.checkpoint import replacing
from vinedresser.errors import PruningError
from vinedresser.pruning.backends import backend_of
from vinedresser.pruning.one_round import Pruned
from vinedresser.pruning.plan import Plan, plan_from_json

__all__ = ["load", "read_plans", "save"]

Model = TypeVar("Model")

_WEIGHTS, _PROOF = "weights.safetensors", "proof.json"


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
    for number, plan in enumerate(pruned.plans, start=1):
        _write(folder / f"plan-{number}.json", plan.to_json())
    _write(folder / _PROOF, json.dumps(asdict(pruned.proof), indent=1) + "\n")
    # Last: with the weights, the model is complete.
    backend_of(pruned.model).write_weights(pruned.model, folder / _WEIGHTS)


def load(folder: str | Path, build: Callable[[], Model]) -> Model:
    """Return a saved pruned model, bit for bit.

    The files hold data only, so the model's code comes from the caller.

    Args:
        folder: see `save`.
        build: returns the unpruned model, with any weights.

    Raises:
        PruningError: a file is missing or damaged, or the plans are for another architecture.
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
        PruningError: there is none, or one is damaged.
    """
    plans: list[Plan] = []
    while True:
        path = Path(folder) / f"plan-{len(plans) + 1}.json"
        try:
            plans.append(plan_from_json(path.read_bytes(), source=str(path)))
        except FileNotFoundError:
            break
        except OSError as error:
            raise PruningError(f"{path}: cannot be read: {error.strerror}") from error
    if not plans:
        raise PruningError(f"{folder}: holds no pruned model: plan-1.json is missing")
    return plans


def _write(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
