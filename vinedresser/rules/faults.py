"""Kinds of faults that findings report.

Which of them can cause others is declared by the rules (`vinedresser.rules.causes.chain`).

The names follow the studies of faulty trainings (DeepFD, ICSE 2022; AUTOTRAINER, ICSE 2021;
UMLAUT, CHI 2021; Humbatova et al., "Taxonomy of real faults in deep learning systems", ICSE 2020).
"""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["FAULTS", "STAGES", "Fault", "Stage"]

Fault = Literal[
    "",
    # Data
    "class_imbalance",
    "corrupt_inputs",
    "corrupt_labels",
    "data_leakage",
    "equal_workers",
    "single_label",
    "token_ratio",
    "unnormalised_inputs",
    "unnormalised_targets",
    # Model and loss
    "bad_initialisation",
    "identical_units",
    "idle_term",
    "loss_output_mismatch",
    "loss_scale",
    "missing_activation",
    "unbounded_loss",
    # Optimisation
    "gradients_not_cleared",
    "learning_rate_too_high",
    "learning_rate_too_low",
    "nothing_restored",
    "optimizer_made_anew",
    "over_regularisation",
    "scheduler_not_stepped",
    "untrained_parameters",
    "wrong_mode",
    # Internals
    "dying_relu",
    "mixed_precision",
    "no_signal",
    "nonfinite",
    "saturated_activation",
    "stale_statistics",
    "vanishing_gradient",
    # Outcome
    "classifier_confusion",
    "not_learning",
    "overfitting",
    "underfitting",
    "unlike_good_runs",
    "unmet_expectation",
    # Trees
    "feature_dominance",
    "tree_depth",
    # System
    "gradient_reduction",
    "rank_data",
    "replica_divergence",
    "slow_input",
    "slow_rank",
    "stalled",
]

FAULTS: tuple[Fault, ...] = tuple(word for word in get_args(Fault) if word)

Stage = Literal["data", "loss", "model", "optimisation", "inside", "generalisation", "outcome"]

# Place of each stage in the chain from causes to effects: data, loss and outputs, initial weights
# and architecture, optimisation (and all that belongs to no other stage), what happens inside the
# layers, outcomes.
STAGES: dict[Stage, int] = {
    "data": 0,
    "loss": 1,
    "model": 2,
    "optimisation": 3,
    "inside": 4,
    # Overfitting is an outcome that few faults cause.
    "generalisation": 5,
    "outcome": 5,
}
