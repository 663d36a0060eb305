"""The ends of trials, as the page about a sweep shows them: their order, and their words."""

from __future__ import annotations

from collections.abc import Sequence

from vinedresser.sweeps.trial import Trial, TrialState

__all__ = ["ENDINGS", "in_drawing_order", "words"]

# What is drawn first lies below: the best are few, and are to be seen.
ENDINGS: tuple[TrialState, ...] = ("pruned", "failed", "stopped", "running", "finished")


def in_drawing_order(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials, those that ended alike together."""
    return sorted(trials, key=lambda trial: ENDINGS.index(trial.ending.state))


def words(trial: Trial) -> str:
    """Return a trial in a line: number, end, configuration."""
    ending = trial.ending
    why = f" by {ending.rule}" if ending.rule else ""
    return f"{trial.name}, {ending.state}{why}: {trial.configuration}"
