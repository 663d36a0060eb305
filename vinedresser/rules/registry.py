"""Rules by name, and rules from the tables of a configuration file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.rules.activations.attention_collapse import AttentionCollapse
from vinedresser.rules.activations.dying_relu import DyingRelu
from vinedresser.rules.activations.missing_activation import MissingActivation
from vinedresser.rules.activations.saturated_activation import SaturatedActivation
from vinedresser.rules.activations.stale_batch_norm import StaleBatchNorm
from vinedresser.rules.base import Rule
from vinedresser.rules.custom_rules import (
    absolute_reference,
    installed_rules,
    is_reference,
    load_rule,
)
from vinedresser.rules.data.class_imbalance import ClassImbalance
from vinedresser.rules.data.corrupt_inputs import CorruptInputs
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.data.drift import Drift
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.data.leakage.target_leakage import TargetLeakage
from vinedresser.rules.data.single_label import SingleLabel
from vinedresser.rules.data.token_ratio import TokenRatio
from vinedresser.rules.data.unnormalised_inputs import UnnormalisedInputs
from vinedresser.rules.data.unnormalised_targets import UnnormalisedTargets
from vinedresser.rules.gradients.exploding_gradient import ExplodingGradient
from vinedresser.rules.gradients.vanishing_gradient import VanishingGradient
from vinedresser.rules.losses.class_numbers import ClassNumbers
from vinedresser.rules.losses.classifier_confusion import ClassifierConfusion
from vinedresser.rules.losses.constant_predictions import ConstantPredictions
from vinedresser.rules.losses.initial_loss import InitialLoss
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.rules.losses.oscillating_loss import OscillatingLoss
from vinedresser.rules.losses.overfitting import Overfitting
from vinedresser.rules.losses.overtraining import Overtraining
from vinedresser.rules.losses.perfect_at_once import PerfectAtOnce
from vinedresser.rules.losses.unbounded_loss import UnboundedLoss
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.optimisation.gradients_not_cleared import GradientsNotCleared
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.rules.optimisation.learning_rate_too_low import LearningRateTooLow
from vinedresser.rules.optimisation.mixed_precision import MixedPrecision
from vinedresser.rules.optimisation.over_regularisation import OverRegularisation
from vinedresser.rules.optimisation.scheduler_not_stepped import SchedulerNotStepped
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters
from vinedresser.rules.optimisation.wrong_mode import WrongMode
from vinedresser.rules.system.replica_divergence import ReplicaDivergence
from vinedresser.rules.system.slow_input import SlowInput
from vinedresser.rules.system.stalled_training import StalledTraining
from vinedresser.rules.system.step_outlier import StepOutlier
from vinedresser.rules.tensors.all_zero import AllZero
from vinedresser.rules.tensors.low_variance import LowVariance
from vinedresser.rules.tensors.nonfinite import Nonfinite
from vinedresser.rules.tensors.similar_across_runs import SimilarAcrossRuns
from vinedresser.rules.tensors.unchanged_tensor import UnchangedTensor
from vinedresser.rules.trees.empty_trees import EmptyTrees
from vinedresser.rules.trees.feature_dominance import FeatureDominance
from vinedresser.rules.trees.memorised_labels import MemorisedLabels
from vinedresser.rules.trees.shrinkage_too_low import ShrinkageTooLow
from vinedresser.rules.trees.tree_depth import TreeDepth
from vinedresser.rules.trees.unused_features import UnusedFeatures
from vinedresser.rules.weights.bad_initialisation import BadInitialisation
from vinedresser.rules.weights.identical_units import IdenticalUnits
from vinedresser.rules.weights.update_ratio import UpdateRatio
from vinedresser.store.finding import Severity

__all__ = ["RESERVED", "RULES", "describe", "find_rule", "known_rules", "rules_from_table"]

# In the order of evaluation: if several fire at one step, the first ends the run.
RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        Nonfinite,
        UnnormalisedInputs,
        UnnormalisedTargets,
        CorruptInputs,
        SingleLabel,
        CorruptLabels,
        ClassImbalance,
        DataLeakage,
        TargetLeakage,
        TokenRatio,
        Drift,
        PerfectAtOnce,
        LossOutputMismatch,
        ClassNumbers,
        MissingActivation,
        UnboundedLoss,
        InitialLoss,
        BadInitialisation,
        IdenticalUnits,
        GradientsNotCleared,
        UntrainedParameters,
        WrongMode,
        OverRegularisation,
        MixedPrecision,
        SchedulerNotStepped,
        LearningRateTooHigh,
        LearningRateTooLow,
        UpdateRatio,
        StaleBatchNorm,
        ExplodingGradient,
        VanishingGradient,
        DyingRelu,
        SaturatedActivation,
        AttentionCollapse,
        AllZero,
        LowVariance,
        UnchangedTensor,
        OscillatingLoss,
        ConstantPredictions,
        LossNotDecreasing,
        Underfitting,
        Overfitting,
        Overtraining,
        ClassifierConfusion,
        SimilarAcrossRuns,
        ReplicaDivergence,
        SlowInput,
        StepOutlier,
        StalledTraining,
        TreeDepth,
        EmptyTrees,
        ShrinkageTooLow,
        MemorisedLabels,
        FeatureDominance,
        UnusedFeatures,
    )
}

# Keys of each rule's table that are not parameters.
RESERVED = ("severity", "group", "actions")

_SEVERITIES: tuple[str, ...] = get_args(Severity)


def known_rules() -> dict[str, type[Rule]]:
    """Return all named rules: the built-in ones, then those of installed packages.

    Raises:
        ConfigError: a package's rule cannot be loaded.
    """
    return {**RULES, **{name: one for name, one in installed_rules().items() if name not in RULES}}


def rules_from_table(
    table: Mapping[str, Mapping[str, Any]], *, where: str = "rules", base: Path | None = None
) -> list[Rule]:
    """Make rules from their tables.

    Args:
        table: by name of a rule, or ``path/to/file.py:Name``, its parameters and ``severity``. The
            keys ``group`` and ``actions`` are allowed and ignored here.
        where: prefix of error messages, such as ``experiment.toml: rules``.
        base: directory that paths are relative to; None: the working directory.

    Returns:
        Built-in rules in the order of `RULES`, then the others in the order of the table.

    Raises:
        ConfigError: a rule or parameter is unknown, or a value is invalid.
    """
    found: dict[str, type[Rule]] = {}
    for name, settings in table.items():
        found[name] = find_rule(name, where=where, base=base)
        if not isinstance(settings, Mapping):
            raise ConfigError(f"{where}.{name}: must be a table of parameters, not {settings!r}")
    order = list(RULES)
    names = sorted(found, key=lambda name: order.index(name) if name in RULES else len(order))
    return [_make(found[name], table[name], f"{where}.{name}") for name in names]


def find_rule(name: str, *, where: str = "rules", base: Path | None = None) -> type[Rule]:
    """Return a rule by its name, or by ``path/to/file.py:Name``.

    Args:
        name: name of the rule, or the reference.
        where: prefix of error messages.
        base: directory that the path is relative to; None: the working directory.

    Raises:
        ConfigError: the rule does not exist, or its file fails.
    """
    if is_reference(name):
        return load_rule(absolute_reference(name, base or Path.cwd()), f"{where}.{name}")
    if name in RULES:
        # Searching the installed packages takes a hundred times as long.
        return RULES[name]
    known = known_rules()
    if name in known:
        return known[name]
    near = did_you_mean(name, known)
    raise ConfigError(
        f'{where}.{name}: no such rule{near} ("vinedresser rules list" shows all; a custom rule '
        "is path/to/file.py:Name)"
    )


def describe(kind: type[Rule]) -> str:
    """Return a description of a rule and its parameters, for a terminal."""
    parameters = ", ".join(
        name if entry.default is entry.empty else f"{name} = {entry.default!r}"
        for name, entry in inspect.signature(kind).parameters.items()
    )
    text = inspect.getdoc(kind) or "(not documented)"
    fault = f"   fault {kind.fault}" if kind.fault else ""
    return f"{kind.name}({parameters})   severity {kind.severity}{fault}\n\n{text}\n"


def _make(kind: type[Rule], settings: Mapping[str, Any], where: str) -> Rule:
    """Make one rule."""
    parameters = inspect.signature(kind).parameters
    hints = get_type_hints(kind.__init__)
    given = {key: value for key, value in settings.items() if key not in RESERVED}
    for key, value in given.items():
        if key not in parameters:
            known = (*parameters, *RESERVED)
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
    """Check a parameter of a plain type; the constructor checks all others."""
    words = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    if not isinstance(wanted, type) or wanted not in words:
        return
    right = isinstance(value, (int, float) if wanted is float else wanted)
    # True is an integer in Python, but not in configuration files.
    if right and isinstance(value, bool) is (wanted is bool):
        return
    raise ConfigError(f"{where}: must be {words[wanted]}, not {value!r}")
