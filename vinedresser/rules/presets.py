"""Named sets of rules, for a kind of training or a degree of strictness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.rules.base import Rule
from vinedresser.rules.registry import RULES
from vinedresser.rules.signals.base import signals_of
from vinedresser.rules.signals.outcomes.learning_outcome import LearningOutcome
from vinedresser.store.finding import Severity

__all__ = ["PRESETS", "STATED", "preset_table"]

STATED = ("expectation", "reference")
"""The rules that judge by what the user states: they are silent where nothing is stated."""

_Table = dict[str, dict[str, Any]]


def _all() -> _Table:
    """Return all built-in rules at their defaults."""
    return {name: {} for name in RULES}


def _chosen(keep: Callable[[Rule], bool]) -> _Table:
    """Return the selected built-in rules at their defaults, and what judges by statements."""
    return {name: {} for name, kind in RULES.items() if name in STATED or keep(kind())}


def _package(rule: Rule) -> str:
    """Return the package of a built-in rule, such as "trees"."""
    return type(rule).__module__.split(".")[2]


def _for(task: str, *, of: Callable[[Rule], bool]) -> _Table:
    """Return the selected rules, except those that leave themselves out of the preset."""
    return _chosen(lambda rule: of(rule) and task not in rule.left_out_of)


def _of_networks(rule: Rule) -> bool:
    return _package(rule) != "trees"


def _without_losses(rule: Rule) -> bool:
    """Return whether neither the rule nor the outcome that it waits for depends on the losses."""
    judges = any(isinstance(signal, LearningOutcome) for signal in signals_of(rule))
    return _package(rule) not in ("losses", "trees") and not judges


def _of_trees(rule: Rule) -> bool:
    return _package(rule) in ("trees", "losses", "system")


def _with(severity: Severity, *, instead_of: Severity) -> _Table:
    """Return all built-in rules, with another severity for those of a certain one."""
    table = _all()
    for name, kind in RULES.items():
        if kind.severity == instead_of:
            table[name]["severity"] = severity
    return table


# Rules with their settings by preset, as in `rules_from_table`. A preset for a task selects
# rules by their package and data, so that new rules are included automatically.
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "default": _all(),
    "strict": _with("stop", instead_of="warning"),
    "advisory": _with("warning", instead_of="stop"),
    "quiet": _chosen(lambda rule: rule.severity == "stop"),
    "none": {},
    "classification": _for("classification", of=_of_networks),
    "regression": _for("regression", of=_of_networks),
    "autoencoder": _for("autoencoder", of=_of_networks),
    "language_model": _for("language_model", of=_of_networks),
    "boosted_trees": _for("boosted_trees", of=_of_trees),
    "adversarial": _for("adversarial", of=_without_losses),
}


def preset_table(name: object, *, where: str = "preset") -> _Table:
    """Return a copy of the rules of a preset, with their settings.

    Args:
        where: prefix of error messages, such as ``experiment.toml: rules.preset``.

    Raises:
        ConfigError: the preset does not exist.
    """
    if isinstance(name, str) and name in PRESETS:
        return {rule: dict(table) for rule, table in PRESETS[name].items()}
    hint = did_you_mean(str(name), PRESETS) or f"; the presets are {', '.join(PRESETS)}"
    raise ConfigError(f"{where}: no such preset {name!r}{hint}")
