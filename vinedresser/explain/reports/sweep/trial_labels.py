"""Drawing order and labels of trials in the report of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from vinedresser.sweeps.trial import Trial, TrialState

__all__ = ["STATES", "in_drawing_order", "trial_label"]

# Later states are drawn on top: finished trials are few and must be visible.
STATES: tuple[TrialState, ...] = ("pruned", "failed", "stopped", "running", "finished")


def in_drawing_order(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials, grouped by state."""
    return sorted(trials, key=lambda trial: STATES.index(trial.ending.state))


def trial_label(trial: Trial) -> str:
    """Return name, state and configuration of a trial in a line."""
    ending = trial.ending
    why = f" by {ending.rule}" if ending.rule else ""
    return f"{trial.name}, {ending.state}{why}: {trial.configuration}"
