"""Optimizers by name, with the parameter names of Keras and PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.faults.words import check_keys, known_word, number
from vinedresser.errors import ConfigError

__all__ = ["LEARNING_RATES", "check_optimizer", "make_optimizer", "rate_of"]

# Keras's defaults, used if a case specifies none.
LEARNING_RATES = {
    "sgd": 0.01,
    "adam": 0.001,
    "adamw": 0.001,
    "amsgrad": 0.001,
    "adamax": 0.001,
    "nadam": 0.001,
    "radam": 0.001,
    "rmsprop": 0.001,
    "adagrad": 0.001,
    "adadelta": 0.001,
    "asgd": 0.01,
    "rprop": 0.01,
}
_MAKERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "amsgrad": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "asgd": torch.optim.ASGD,
    "rprop": torch.optim.Rprop,
}
_SYNONYMS = {
    "learning_rate": "lr",
    "epsilon": "eps",
    "beta_1": "beta1",
    "beta_2": "beta2",
    "l2": "weight_decay",
    "clip_norm": "clipnorm",
    "clip_value": "clipvalue",
}
# Parameters that torch does not take: the training applies them itself.
_OF_THE_LOOP = ("decay", "clipnorm", "clipvalue")
_PLAIN = (
    *("lr", "eps", "momentum", "weight_decay", "alpha", "rho", "lambd", "dampening"),
    *("initial_accumulator_value", "momentum_decay", "lr_decay"),
)
_KNOWN = ("name", *_PLAIN, *_OF_THE_LOOP, "nesterov", "amsgrad", "centered", "beta1", "beta2")
_ADAPTIVE_EPSILON = ("adam", "adamw", "amsgrad", "adamax", "nadam", "radam", "rmsprop", "adadelta")


def check_optimizer(table: object, where: str) -> dict[str, Any]:
    """Return an optimizer's table with numbers as numbers and unified parameter names.

    Raises:
        ConfigError: The optimizer or a parameter is unknown, or a value is invalid.
    """
    if isinstance(table, str):
        table = {"name": table}
    given = check_keys(table, [*_KNOWN, *_SYNONYMS, "betas"], where)
    name = known_word(str(given.get("name", "")).lower(), _MAKERS, f"{where}.name", "optimizer")
    if "betas" in given:
        given["beta1"], given["beta2"] = _pair(given.pop("betas"), f"{where}.betas")
    checked: dict[str, Any] = {"name": name}
    for key, value in given.items():
        known = _SYNONYMS.get(key, key)
        if known == "name":
            continue
        if known in ("nesterov", "amsgrad", "centered"):
            if not isinstance(value, bool):
                raise ConfigError(f"{where}.{key}: must be true or false, not {value!r}")
            checked[known] = value
        elif value is not None:
            checked[known] = number(value, f"{where}.{key}")
    checked.setdefault("lr", LEARNING_RATES[name])
    return checked


def make_optimizer(table: Mapping[str, Any], parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return an optimizer described by a table from `check_optimizer`.

    Args:
        table: checked table.
        parameters: parameters to update.
    """
    name = table["name"]
    settings = {key: value for key, value in table.items() if key in _PLAIN and value}
    settings |= {key: True for key in ("nesterov", "amsgrad", "centered") if table.get(key)}
    if name == "amsgrad":
        settings["amsgrad"] = True
    if name == "rmsprop" and "rho" in settings:
        settings["alpha"] = settings.pop("rho")
    if "beta1" in table or "beta2" in table:
        settings["betas"] = (table.get("beta1", 0.9), table.get("beta2", 0.999))
    if name in _ADAPTIVE_EPSILON:
        settings.setdefault("eps", 1e-7)
    wanted = table["lr"]
    # torch rejects values that Keras accepts, such as a negative learning rate.
    settings["lr"] = wanted if wanted > 0 and math.isfinite(wanted) else 1.0
    try:
        optimizer = _MAKERS[name](list(parameters), **settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer {name}: {error}") from error
    for group in optimizer.param_groups:
        group["lr"] = wanted
    return optimizer


def rate_of(table: Mapping[str, Any], step: int) -> float:
    """Return the learning rate at a step under Keras's ``decay``: lr / (1 + decay * step)."""
    return float(table["lr"] / (1 + table.get("decay", 0.0) * step))


def _pair(value: object, where: str) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ConfigError(f"{where}: must be two numbers, not {value!r}")
    return number(value[0], where), number(value[1], where)
