"""Names of the checks, in the order of their output."""

from __future__ import annotations

__all__ = ["CHECKS", "PROBES", "RULE_CHECK"]

RULE_CHECK = "rules"
"""The check that judges the trial by the rules."""
PROBES = (
    "updates",
    "batches",
    "momentum",
    "own_input",
    "other_samples",
    "future",
    "overfit",
    "learning_rate",
    "scales",
    "cost",
)
"""The checks of what no rule sees."""
CHECKS = (RULE_CHECK, *PROBES)
