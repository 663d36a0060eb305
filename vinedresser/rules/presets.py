"""Sets of rules by name, for a kind of training or a degree of strictness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.rules.base import Rule
from vinedresser.rules.faults import Fault
from vinedresser.rules.registry import RULES
from vinedresser.rules.signals.base import signals_of
from vinedresser.rules.signals.outcomes.learning_outcome import LearningOutcome

__all__ = ["PRESETS", "preset_table"]

_Table = dict[str, dict[str, Any]]

# Faults that only a training on classes can have, by the number of which it is one.
_OF_CLASSES: frozenset[Fault] = frozenset({"class_imbalance", "classifier_confusion"})
_OF_VALUES: frozenset[Fault] = frozenset({"unnormalised_targets"})
_OF_TOKENS: frozenset[Fault] = frozenset({"token_ratio"})
# What the losses and evaluations of adversaries cannot be asked about.
_OF_LOSSES: frozenset[Fault] = frozenset(
    {
        *("not_learning", "underfitting", "overfitting", "overtraining", "oscillating_loss"),
        *("loss_scale", "loss_output_mismatch", "constant_predictions", "corrupt_labels"),
        *("single_label", "data_leakage"),
        *_OF_CLASSES,
    }
)
# What a library that boosts trees does not show.
_OF_LOOPS: frozenset[Fault] = frozenset({"replica_divergence", "slow_input"})


def _all() -> _Table:
    """Return all built-in rules at their defaults."""
    return {name: {} for name in RULES}


def _chosen(keep: Callable[[Rule], bool]) -> _Table:
    """Return those built-in rules that are to be kept, at their defaults."""
    return {name: {} for name, kind in RULES.items() if keep(kind())}


def _package(rule: Rule) -> str:
    """Return the package that a built-in rule is in, such as "trees"."""
    return type(rule).__module__.split(".")[2]


def _without(*faults: frozenset[Fault]) -> _Table:
    """Return all rules but those about these faults, and those about trees."""
    return _chosen(
        lambda rule: _package(rule) != "trees" and not any(rule.fault in some for some in faults)
    )


def _asks_the_losses(rule: Rule) -> bool:
    """Say whether a rule, or the outcome that it waits for, goes by how the losses move."""
    return any(isinstance(signal, LearningOutcome) for signal in signals_of(rule))


def _adversarial(rule: Rule) -> bool:
    if _package(rule) in ("losses", "trees") or rule.fault in _OF_LOSSES:
        return False
    return not _asks_the_losses(rule)


def _of_trees(rule: Rule) -> bool:
    return _package(rule) in ("trees", "losses", "system") and rule.fault not in _OF_LOOPS


def _strict() -> _Table:
    table = _all()
    for name, kind in RULES.items():
        if kind.severity == "warning":
            table[name]["severity"] = "stop"
    return table


# By name, the rules with their settings, as `rules_from_table` takes them. The rules of a task are
# told by the faults that they find, so that a further rule finds its place by itself.
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "default": _all(),
    "strict": _strict(),
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
    """Return the rules of a preset with their settings, to be changed at will.

    Args:
        name: of the preset.
        where: what to begin a message with, such as ``experiment.toml: rules.preset``.

    Raises:
        ConfigError: there is no such preset.
    """
    if isinstance(name, str) and name in PRESETS:
        return {rule: dict(table) for rule, table in PRESETS[name].items()}
    hint = did_you_mean(str(name), PRESETS) or f"; there are {', '.join(PRESETS)}"
    raise ConfigError(f"{where}: no such preset {name!r}{hint}")
