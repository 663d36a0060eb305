"""The built-in rules by name, and rules from the tables of a configuration file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from vinedresser.capture.finding import Severity
from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.rules.base import Rule
from vinedresser.rules.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.nonfinite import Nonfinite
from vinedresser.rules.overfitting import Overfitting
from vinedresser.rules.vanishing_gradient import VanishingGradient

__all__ = ["RULES", "describe", "rules_from_table"]

# In the order in which they are asked: of several that fire at one step, the first ends the run.
RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (Nonfinite, VanishingGradient, LossNotDecreasing, Overfitting)
}

_SEVERITIES: tuple[str, ...] = get_args(Severity)
# Keys of every rule's table that are not parameters: what follows, and which process judges.
_RESERVED = ("severity", "group")


def rules_from_table(table: Mapping[str, Mapping[str, Any]], *, where: str = "rules") -> list[Rule]:
    """Make rules from their tables.

    Args:
        table: by a rule's name its parameters, and ``severity``; ``group`` is left to whoever
            starts the judges.
        where: what to begin a message with, such as ``experiment.toml: rules``.

    Returns:
        The rules, in the order of `RULES`.

    Raises:
        ConfigError: an unknown rule or parameter, or a value that is not right.
    """
    for name, settings in table.items():
        if name not in RULES:
            near = did_you_mean(name, RULES) or f"; the rules are {', '.join(RULES)}"
            raise ConfigError(f"{where}.{name}: no such rule{near}")
        if not isinstance(settings, Mapping):
            raise ConfigError(f"{where}.{name}: must be a table of parameters, not {settings!r}")
    return [
        _make(kind, table[name], f"{where}.{name}") for name, kind in RULES.items() if name in table
    ]


def describe(kind: type[Rule]) -> str:
    """Return what a rule does, with its parameters and their defaults, for a terminal."""
    parameters = ", ".join(
        name if entry.default is entry.empty else f"{name} = {entry.default!r}"
        for name, entry in inspect.signature(kind).parameters.items()
    )
    text = inspect.getdoc(kind) or "(not documented)"
    return f"{kind.name}({parameters})   severity {kind.severity}\n\n{text}\n"


def _make(kind: type[Rule], settings: Mapping[str, Any], where: str) -> Rule:
    """Make one rule."""
    parameters = inspect.signature(kind).parameters
    hints = get_type_hints(kind.__init__)
    given = {key: value for key, value in settings.items() if key not in _RESERVED}
    for key, value in given.items():
        if key not in parameters:
            known = (*parameters, *_RESERVED)
            near = did_you_mean(key, known) or f"; the parameters are {', '.join(known)}"
            raise ConfigError(f"{where}.{key}: no such parameter{near}")
        _check_type(value, hints.get(key), f"{where}.{key}")
    for key, entry in parameters.items():
        if entry.default is entry.empty and key not in given:
            raise ConfigError(f"{where}.{key}: is missing")
    try:
        rule = kind(**given)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    severity = settings.get("severity", kind.severity)
    if severity not in _SEVERITIES:
        raise ConfigError(
            f"{where}.severity: must be one of {', '.join(_SEVERITIES)}, not {severity!r}"
        )
    rule.severity = severity
    return rule


def _check_type(value: object, wanted: object, where: str) -> None:
    """Check a parameter of a plain type; others are the constructor's to check."""
    words = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
    if not isinstance(wanted, type) or wanted not in words:
        return
    right = isinstance(value, (int, float) if wanted is float else wanted)
    # In Python, but in no configuration file, true is an integer.
    if right and isinstance(value, bool) is (wanted is bool):
        return
    raise ConfigError(f"{where}: must be {words[wanted]}, not {value!r}")
