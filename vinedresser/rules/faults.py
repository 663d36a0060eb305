"""Kinds of faults that findings report, and which of them can cause others.

The names follow the studies of faulty trainings (DeepFD, ICSE 2022; AUTOTRAINER, ICSE 2021;
UMLAUT, CHI 2021; Humbatova et al., "Taxonomy of real faults in deep learning systems", ICSE 2020).
"""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["CONSEQUENCES", "FAULTS", "UNEXPLAINED", "Fault", "brings_about"]

Fault = Literal[
    "",
    # Data
    "class_imbalance",
    "corrupt_inputs",
    "corrupt_labels",
    "data_leakage",
    "drift",
    "single_label",
    "token_ratio",
    "unnormalised_inputs",
    "unnormalised_targets",
    # Model and loss
    "bad_initialisation",
    "identical_units",
    "loss_output_mismatch",
    "loss_scale",
    "missing_activation",
    "unbounded_loss",
    # Optimisation
    "gradients_not_cleared",
    "learning_rate_too_high",
    "learning_rate_too_low",
    "oscillating_loss",
    "over_regularisation",
    "scheduler_not_stepped",
    "untrained_parameters",
    "wrong_mode",
    # Internals
    "all_zero",
    "attention_collapse",
    "dying_relu",
    "exploding_gradient",
    "low_variance",
    "mixed_precision",
    "nonfinite",
    "saturated_activation",
    "stale_statistics",
    "unchanged_tensor",
    "vanishing_gradient",
    # Outcome
    "classifier_confusion",
    "constant_predictions",
    "not_learning",
    "overfitting",
    "overtraining",
    "underfitting",
    # Trees
    "feature_dominance",
    "tree_depth",
    # System
    "replica_divergence",
    "slow_input",
    "stalled",
]

FAULTS: tuple[Fault, ...] = tuple(word for word in get_args(Fault) if word)

# Outcomes that say nothing about their cause.
UNEXPLAINED: frozenset[Fault] = frozenset({"not_learning", "underfitting", "constant_predictions"})
# Faults that any other can cause.
_OUTCOMES: frozenset[Fault] = frozenset(
    {"not_learning", "underfitting", "constant_predictions", "classifier_confusion", "overtraining"}
)
_INSIDE: frozenset[Fault] = frozenset(
    {
        "all_zero",
        "low_variance",
        "vanishing_gradient",
        "exploding_gradient",
        "dying_relu",
        "saturated_activation",
        "attention_collapse",
        "nonfinite",
        "unchanged_tensor",
        "mixed_precision",
    }
)
# Signs of tensors that receive no signal.
_NOTHING_LEFT: frozenset[Fault] = frozenset({"all_zero", "low_variance", "unchanged_tensor"})
_UNSTEADY: frozenset[Fault] = frozenset({"oscillating_loss", "learning_rate_too_high"})

# By fault the faults that it can cause.
CONSEQUENCES: dict[Fault, frozenset[Fault]] = {
    **dict.fromkeys(_INSIDE, _OUTCOMES),
    "nonfinite": _OUTCOMES | {"dying_relu", "exploding_gradient"},
    "exploding_gradient": _OUTCOMES | {"nonfinite", "dying_relu", "oscillating_loss"},
    "dying_relu": _OUTCOMES | _NOTHING_LEFT | {"vanishing_gradient", "learning_rate_too_low"},
    "saturated_activation": _OUTCOMES
    | _NOTHING_LEFT
    | {"vanishing_gradient", "learning_rate_too_low"},
    # Without a gradient, weight decay pulls the weights to zero.
    "vanishing_gradient": _OUTCOMES
    | _NOTHING_LEFT
    | {"learning_rate_too_low", "over_regularisation"},
    "oscillating_loss": _OUTCOMES,
    "learning_rate_too_high": _OUTCOMES | _INSIDE | {"oscillating_loss"},
    "learning_rate_too_low": _OUTCOMES | {"unchanged_tensor", "attention_collapse"},
    "scheduler_not_stepped": _OUTCOMES
    | {"learning_rate_too_low", "oscillating_loss", "unchanged_tensor"},
    "gradients_not_cleared": _OUTCOMES | _INSIDE | _UNSTEADY,
    "over_regularisation": _OUTCOMES
    | _NOTHING_LEFT
    | {"vanishing_gradient", "dying_relu", "attention_collapse"},
    "untrained_parameters": _OUTCOMES
    | _NOTHING_LEFT
    # An optimizer with other parameters does not clear the gradients of these.
    | {
        "learning_rate_too_low",
        "attention_collapse",
        "gradients_not_cleared",
        "exploding_gradient",
    },
    "wrong_mode": _OUTCOMES | {"stale_statistics", "overfitting"},
    "stale_statistics": _OUTCOMES | {"overfitting"},
    "identical_units": _OUTCOMES | _NOTHING_LEFT | {"vanishing_gradient", "learning_rate_too_low"},
    "bad_initialisation": _OUTCOMES | _INSIDE | _UNSTEADY | {"identical_units", "loss_scale"},
    "loss_output_mismatch": _OUTCOMES
    | _INSIDE
    | _UNSTEADY
    | {
        "loss_scale",
        "unbounded_loss",
        "learning_rate_too_low",
        # A loss without much of a gradient leaves the weights to their decay.
        "over_regularisation",
    },
    "loss_scale": _OUTCOMES | _INSIDE | _UNSTEADY,
    # A linear model that has found its best weights moves no more.
    "missing_activation": _OUTCOMES | _NOTHING_LEFT | {"corrupt_labels", "learning_rate_too_low"},
    "unbounded_loss": _OUTCOMES | _INSIDE | _UNSTEADY,
    "unnormalised_inputs": _OUTCOMES | _INSIDE | _UNSTEADY | {"loss_scale"},
    "unnormalised_targets": _OUTCOMES | _INSIDE | _UNSTEADY | {"loss_scale"},
    "single_label": _OUTCOMES | {"data_leakage", "overfitting"},
    "data_leakage": _OUTCOMES | {"overfitting"},
    # Without anything to learn, weight decay pulls the weights to zero.
    # Targets out of reach push the outputs to their ends.
    "corrupt_labels": _OUTCOMES | {"overfitting", "over_regularisation", "saturated_activation"},
    # Inputs of zero give the first layer no gradient, and may be the targets, too. Those that are
    # prepared in another way than the evaluated ones may have a wrong scale for that reason.
    "corrupt_inputs": _OUTCOMES
    | _INSIDE
    | {
        "overfitting",
        "over_regularisation",
        "untrained_parameters",
        "single_label",
        "unnormalised_inputs",
    },
    "drift": _OUTCOMES | {"overfitting", "oscillating_loss"},
    # Classes that the training hardly has are missed in evaluations, as if labels were wrong there.
    "class_imbalance": frozenset(
        {
            "constant_predictions",
            "classifier_confusion",
            "corrupt_labels",
            "not_learning",
            "overfitting",
            "underfitting",
        }
    ),
    "mixed_precision": _OUTCOMES | {"nonfinite", "vanishing_gradient"},
    "underfitting": frozenset({"not_learning"}),
    "constant_predictions": frozenset({"not_learning", "underfitting"}),
    "overfitting": frozenset({"overtraining"}),
}


def brings_about(cause: str, symptom: str) -> bool:
    """Return whether one fault can cause another.

    Args:
        cause: a member of `FAULTS`; an unknown fault causes nothing.
        symptom: a member of `FAULTS`.
    """
    return symptom in CONSEQUENCES.get(cause, frozenset())  # type: ignore[call-overload]
