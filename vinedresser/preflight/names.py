"""Names of the checks, in the order of their output."""

from __future__ import annotations

__all__ = ["CHECKS"]

CHECKS = (
    "finite",
    "gradients",
    "clearing",
    "loss_arguments",
    "first_loss",
    "batches",
    "modes",
    "units",
    "own_input",
    "other_samples",
    "overfit",
    "learning_rate",
    "scales",
    "cost",
)
