"""A trial that a rule suspects, held against the trials in which none suspects anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from vinedresser.sweeps.settings import Objective
from vinedresser.sweeps.trial import Ending

__all__ = ["behind_sound_trials"]

# Of fewer sound trials nothing can be said.
_FEWEST = 4
# Of how far the sound ones have come, what is poor: as in `rules.signals.outcome`.
_POOR_SHARE = 0.5


def behind_sound_trials(
    suspicion: Ending,
    epoch: int,
    value: float,
    *,
    sound: Sequence[float],
    starts: Sequence[float],
    goal: Objective,
) -> Ending | None:
    """Say whether a trial that shows a symptom is to end, by what sound trials had come to.

    A symptom alone is in many trainings that learn; one alone has to wait until its outcome is
    clear. Beside others it need not: when more than half of the sound ones were better at the same
    epoch, and it has come less than half as far as their median from where trials begin, the
    outcome agrees.

    Args:
        suspicion: how a rule would end it if the outcome agreed.
        epoch: from 1.
        value: of the objective, that the trial has reported there.
        sound: values at the same epoch of the trials in which no rule suspects anything.
        starts: the first value of each trial.
        goal: the objective.

    Returns:
        How it is to end; None: it goes on.
    """
    if len(sound) < _FEWEST:
        return None
    sign = 1 if goal.direction == "maximize" else -1
    better = sum(sign * one > sign * value for one in sound)
    usual, start = median(sound), median(starts)
    # Where the sound ones have come to nothing either, their median is what counts.
    far = max(sign * (usual - start), 0.0)
    if 2 * better <= len(sound) or sign * (usual - value) < (1 - _POOR_SHARE) * far:
        return None
    behind = (
        f"at epoch {epoch} its {goal.metric} of {value:.4g} is behind {better} of {len(sound)}"
        " trials without a symptom"
    )
    return replace(suspicion, reason=f"{suspicion.reason}; {behind}")
