"""Named sets of rules, for a kind of training or a degree of strictness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.rules.base import Rule
from vinedresser.rules.faults import Fault
from vinedresser.rules.registry import RULES
from vinedresser.rules.signals.base import signals_of
from vinedresser.rules.signals.outcomes.learning_outcome import LearningOutcome
from vinedresser.store.finding import Severity

__all__ = ["PRESETS", "preset_table"]

_Table = dict[str, dict[str, Any]]

# Faults that exist only in trainings on classes, values or tokens.
_OF_CLASSES: frozenset[Fault] = frozenset({"class_imbalance", "classifier_confusion"})
_OF_VALUES: frozenset[Fault] = frozenset({"unnormalised_targets"})
_OF_TOKENS: frozenset[Fault] = frozenset({"token_ratio"})
# Faults that the losses and evaluations of adversaries do not show.
_OF_LOSSES: frozenset[Fault] = frozenset(
    {
        *("not_learning", "underfitting", "overfitting", "overtraining", "oscillating_loss"),
        *("loss_scale", "loss_output_mismatch", "constant_predictions", "corrupt_labels"),
        *("single_label", "data_leakage"),
        *_OF_CLASSES,
    }
)
# Faults that libraries for boosted trees do not show.
_OF_LOOPS: frozenset[Fault] = frozenset({"replica_divergence", "slow_input"})


def _all() -> _Table:
    """Return all built-in rules at their defaults."""
    return {name: {} for name in RULES}


def _chosen(keep: Callable[[Rule], bool]) -> _Table:
    """Return the selected built-in rules at their defaults."""
    return {name: {} for name, kind in RULES.items() if keep(kind())}


def _package(rule: Rule) -> str:
    """Return the package of a built-in rule, such as "trees"."""
    return type(rule).__module__.split(".")[2]


def _without(*faults: frozenset[Fault]) -> _Table:
    """Return all rules except those about these faults or about trees."""
    return _chosen(
        lambda rule: _package(rule) != "trees" and not any(rule.fault in some for some in faults)
    )


def _adversarial(rule: Rule) -> bool:
    if _package(rule) in ("losses", "trees") or rule.fault in _OF_LOSSES:
        return False
    # The rule, or the outcome that it waits for, depends on the losses.
    return not any(isinstance(signal, LearningOutcome) for signal in signals_of(rule))


def _of_trees(rule: Rule) -> bool:
    return _package(rule) in ("trees", "losses", "system") and rule.fault not in _OF_LOOPS


def _with(severity: Severity, *, instead_of: Severity) -> _Table:
    """Return all built-in rules, with another severity for those of a certain one."""
    table = _all()
    for name, kind in RULES.items():
        if kind.severity == instead_of:
            table[name]["severity"] = severity
    return table


# Rules with their settings by preset, as in `rules_from_table`. A preset for a task selects
# rules by their faults, so that new rules are included automatically.
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "default": _all(),
    "strict": _with("stop", instead_of="warning"),
    "advisory": _with("warning", instead_of="stop"),
    "quiet": _chosen(lambda rule: rule.severity == "stop"),
    "none": {},
    "classification": _without(_OF_VALUES, _OF_TOKENS),
    "regression": _without(_OF_CLASSES, _OF_TOKENS),
    "autoencoder": _without(_OF_CLASSES, _OF_TOKENS, frozenset({"corrupt_labels"})),
    "language_model": _without(_OF_CLASSES, _OF_VALUES, frozenset({"unnormalised_inputs"})),
    "boosted_trees": _chosen(_of_trees),
    "adversarial": _chosen(_adversarial),
}


def preset_table(name: object, *, where: str = "preset") -> _Table:
    """Return a copy of the rules of a preset, with their settings.

    Args:
        name: name of the preset.
        where: prefix of error messages, such as ``experiment.toml: rules.preset``.

    Raises:
        ConfigError: the preset does not exist.
    """
    if isinstance(name, str) and name in PRESETS:
        return {rule: dict(table) for rule, table in PRESETS[name].items()}
    hint = did_you_mean(str(name), PRESETS) or f"; the presets are {', '.join(PRESETS)}"
    raise ConfigError(f"{where}: no such preset {name!r}{hint}")
