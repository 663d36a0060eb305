"""Setup of an XGBoost training for the run's record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from xgboost import Booster

from vinedresser.capture.adapters.training_setup import TrainingSetup, described_optimizer, typed

__all__ = ["training_setup"]

# Suffix of the tables that contain parameters.
_TABLE_SUFFIX = "_param"


def training_setup(booster: Booster) -> TrainingSetup:
    """Return the training setup of a booster that has completed a round.

    The loss is the objective; for a custom objective, the one that it replaces. The optimizer is
    the kind of booster with all of its effective parameters and ``lr``, the learning rate.
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
    """Yield the parameters in a booster's configuration, including nested tables."""
    for key, value in table.items():
        if not isinstance(value, dict):
            continue
        if key.endswith(_TABLE_SUFFIX):
            yield from ((name, _value(text)) for name, text in value.items())
        else:
            yield from _parameters(value)


def _value(text: Any) -> Any:
    """Parse a parameter as a number if possible."""
    try:
        # XGBoost stores parameters as float32.
        number = float(f"{float(text):.7g}")
    except (TypeError, ValueError):
        return text
    return int(number) if number.is_integer() and "." not in text else number
