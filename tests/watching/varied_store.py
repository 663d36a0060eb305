"""A store of runs that differ in learning rate, activation and seed, some of which diverge."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.explain.reports.pages import finding
from vinedresser.objects import LocalStorage
from vinedresser.store.records import findings_key
from vinedresser.testing.runs import make_run, step_record

__all__ = ["HOSTILE", "STEPS", "diverges", "loss_at", "varied_store"]

STEPS = 120
HOSTILE = "<img src=x onerror=document.title='owned'>"
_RATES = (0.001, 0.01, 0.1, 1.0)


def diverges(lr: float, activation: str) -> bool:
    """Return whether a run of these settings diverges, at step 40."""
    return lr == _RATES[-1] and activation == "relu"


def loss_at(step: int, lr: float, seed: int) -> float:
    """Return the training loss of a run that does not diverge."""
    noise = np.random.default_rng((seed, step)).normal()
    return float(2.0 * np.exp(-step * lr**0.5 / 40) + 0.01 * noise)


def varied_store(folder: Path) -> Path:
    """Make 16 runs named after their settings, and one whose name and parameter are HTML."""
    for lr in _RATES:
        for activation in ("relu", "sigmoid"):
            for seed in (1, 2):
                _make(folder / f"{activation}-{lr:g}-{seed}", lr, activation, seed)
    parameters = {HOSTILE: HOSTILE, "constructor": "own", "amp": True}
    make_run(folder / HOSTILE, [step_record(0, at=1.0)], name=HOSTILE, parameters=parameters)
    return folder


def _make(place: Path, lr: float, activation: str, seed: int) -> None:
    records = []
    for step in range(STEPS):
        loss = loss_at(step, lr, seed)
        if diverges(lr, activation) and step >= 40:
            loss = 10.0 ** (step - 38) if step < 60 else np.nan
        scalars = {"losses/CrossEntropyLoss": loss, "metrics/epoch": float(step // 30)}
        records.append(step_record(step, scalars=scalars, at=1e9 + 0.5 * step))
        if step % 30 == 29:
            accuracy = 1 - loss / 2.5 if loss < 2 else 0.1
            scalars = {"metrics/accuracy": accuracy}
            records.append(step_record(step + 1, mode="eval", scalars=scalars, at=1e9 + step / 2))
    parameters = {"lr": lr, "activation": activation, "seed": seed}
    make_run(place, records, name=place.name, parameters=parameters, total_steps=STEPS)
    if diverges(lr, activation):
        found = finding(rule="exploding_loss", seen=f"the loss rises {HOSTILE}", step=45, since=40)
        line = json.dumps(found.to_json()) + "\n"
        LocalStorage(place).put(findings_key("default"), [line.encode()])
