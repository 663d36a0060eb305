"""How a training with XGBoost is set up, for the run's record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from xgboost import Booster

from vinedresser.capture.adapters.training_setup import TrainingSetup, described_optimizer, typed

__all__ = ["training_setup"]

# Of the objective's own parameters and of the booster's, what stands in such a table.
_TABLE = "_param"


def training_setup(booster: Booster) -> TrainingSetup:
    """Return how a booster that has done a round is trained.

    The loss is its objective (of a custom one, that in whose place it stands); the optimizer is the
    kind of booster, with all parameters that it has in force, and ``lr``, its learning rate.
    """
    learner = json.loads(booster.save_config())["learner"]
    objective = learner["objective"]
    settings = dict(_parameters(learner["gradient_booster"]))
    if "learning_rate" in settings:
        settings["lr"] = settings["learning_rate"]
    loss = typed(objective["name"], dict(_parameters(objective)))
    kind = learner["gradient_booster"]["name"]
    return TrainingSetup({"objective": loss}, {0: described_optimizer(kind, settings, ())})


def _parameters(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parameters in a table of a booster's configuration, and in the tables inside."""
    for key, value in table.items():
        if not isinstance(value, dict):
            continue
        if key.endswith(_TABLE):
            yield from ((name, _value(text)) for name, text in value.items())
        else:
            yield from _parameters(value)


def _value(text: Any) -> Any:
    """Return a parameter as a number, where its text is one."""
    try:
        # It holds them as float32.
        number = float(f"{float(text):.7g}")
    except (TypeError, ValueError):
        return text
    return int(number) if number.is_integer() and "." not in text else number
