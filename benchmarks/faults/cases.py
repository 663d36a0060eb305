"""Cases: trainings as data, parsed from YAML and checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from benchmarks.faults.data import check_data
from benchmarks.faults.measures import MEASURES
from benchmarks.faults.networks.initialisation import check_init
from benchmarks.faults.networks.layers import Layer, check_layer
from benchmarks.faults.networks.losses import LOSSES
from benchmarks.faults.networks.optimizers import check_optimizer
from benchmarks.faults.settings import TrainSettings, check_settings
from benchmarks.faults.words import check_keys, known_word, whole
from vinedresser.errors import ConfigError

__all__ = ["Case", "Expectation", "case_of", "load_cases"]

_NEEDED = ("id", "kind", "fault_class", "data", "model", "loss", "optimizer", "batch", "steps")
# Keys with the origin of a case, which are ignored.
_ABOUT = (
    *("pair", "source", "framework", "substitution", "note", "observed", "status"),
    *("fault_labels", "expected_symptom", "visible_in"),
)
_KNOWN = (*_NEEDED, *_ABOUT, "init", "train", "expect")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
    "==": lambda value, bound: value == bound,
    "!=": lambda value, bound: value != bound,
}


@dataclass(frozen=True)
class Expectation:
    """Condition on the outcome that shows that a training misbehaves or learns.

    Attributes:
        every: whether all conditions must hold; otherwise one is sufficient.
        conditions: measure, comparison and bound.
    """

    every: bool
    conditions: tuple[tuple[str, str, float], ...]

    def holds(self, measured: Callable[[str], float]) -> bool:
        """Return whether the expectation is met.

        Args:
            measured: returns a measure by name.
        """
        met = (_COMPARE[sign](measured(name), bound) for name, sign, bound in self.conditions)
        return all(met) if self.every else any(met)


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        id: name of the case.
        faulty: whether the training has a fault.
        fault_class: class of the fault, in the words of its source; "healthy" for none.
        data: see `check_data`.
        model: layers in order.
        init: default initialisation of the layers.
        loss: name of the loss, from `LOSSES`.
        optimizer: see `check_optimizer`.
        batch: rows per step.
        steps: optimizer steps.
        train: deviations of the loop from a usual one.
        expect: expectation on the outcome; None if unknown.
    """

    id: str
    faulty: bool
    fault_class: str
    data: Mapping[str, Any]
    model: tuple[Layer, ...]
    init: str
    loss: str
    optimizer: Mapping[str, Any]
    batch: int
    steps: int
    train: TrainSettings
    expect: Expectation | None


def load_cases(path: str | os.PathLike[str]) -> list[Case]:
    """Load a file of cases.

    Raises:
        ConfigError: The file is invalid; the message names the case and the key.
        OSError: The file cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        try:
            document = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ConfigError(f"{path}: is not YAML: {error}") from error
    if not isinstance(document, Mapping) or not isinstance(document.get("cases"), list):
        raise ConfigError(f"{path}: must be a table with a list of cases")
    if document.get("version") != 1:
        raise ConfigError(f"{path}: version must be 1, not {document.get('version')!r}")
    cases = [case_of(table, f"{path}: case {n}") for n, table in enumerate(document["cases"], 1)]
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise ConfigError(f"{path}: {case.id}: duplicate id")
        seen.add(case.id)
    return cases


def case_of(table: object, where: str = "case") -> Case:
    """Return a case from its table.

    Args:
        table: table from YAML.
        where: prefix of messages; the id of the case is appended.

    Raises:
        ConfigError: A key is missing or unknown, or a value is invalid.
    """
    given = check_keys(table, _KNOWN, where)
    for key in _NEEDED:
        if key not in given:
            raise ConfigError(f"{where}: {key} is missing")
    where = f"{where} ({given['id']})"
    kind = known_word(given["kind"], ("faulty", "healthy"), f"{where}.kind", "kind")
    if not isinstance(given["model"], list) or not given["model"]:
        raise ConfigError(f"{where}.model: must be a list of layers")
    return Case(
        id=str(given["id"]),
        faulty=kind == "faulty",
        fault_class=str(given["fault_class"]),
        data=check_data(given["data"], f"{where}.data"),
        model=tuple(
            check_layer(layer, f"{where}.model[{place}]")
            for place, layer in enumerate(given["model"])
        ),
        init=check_init(given.get("init") or "torch", f"{where}.init"),
        loss=known_word(given["loss"], LOSSES, f"{where}.loss", "loss"),
        optimizer=check_optimizer(given["optimizer"], f"{where}.optimizer"),
        batch=whole(given["batch"], f"{where}.batch"),
        steps=whole(given["steps"], f"{where}.steps"),
        train=check_settings(given.get("train") or {}, f"{where}.train"),
        expect=_expectation(given.get("expect"), f"{where}.expect"),
    )


def _expectation(table: object, where: str) -> Expectation | None:
    """Return the expectation of a table with "any" or "all"."""
    if not table:
        return None
    given = check_keys(table, ("any", "all"), where)
    if len(given) != 1:
        raise ConfigError(f"{where}: must have either any or all")
    key, conditions = next(iter(given.items()))
    if not isinstance(conditions, list) or not conditions:
        raise ConfigError(f"{where}.{key}: must be a list of conditions")
    return Expectation(
        key == "all", tuple(_condition(condition, f"{where}.{key}") for condition in conditions)
    )


def _condition(one: object, where: str) -> tuple[str, str, float]:
    if not isinstance(one, list) or len(one) != 3:
        raise ConfigError(f"{where}: must be [measure, comparison, bound], not {one!r}")
    name, sign, bound = one
    known_word(name, MEASURES, where, "measure")
    known_word(sign, _COMPARE, where, "comparison")
    if not isinstance(bound, bool | int | float):
        raise ConfigError(f"{where}: {name}: must be compared with a number, not {bound!r}")
    return name, sign, float(bound)
