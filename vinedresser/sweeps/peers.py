"""Comparison of a trial that a rule suspects with the trials that no rule suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from vinedresser.sweeps.settings import Objective
from vinedresser.sweeps.trial import TrialEnd

# Minimum number of sound trials for a comparison.
_FEWEST = 2
# Share of the sound trials' progress that counts as good, as in `rules.signals.outcomes.outcome`.
_GOOD_SHARE = 0.8


def behind_sound_trials(
    suspicion: TrialEnd,
    epoch: int,
    value: float,
    *,
    sound: Sequence[tuple[float, float]],
    goal: Objective,
) -> TrialEnd | None:
    """Decide whether a trial with a symptom ends, by the progress of sound trials.

    Many trainings that learn show symptoms, so a single training has to wait until its outcome is
    clear. In a sweep the outcome is poor if the trial is worse than at least half of the sound
    trials and has made less than four fifths of their progress. Their progress is the median of the
    better half of their values, from the median of the worse half of their first values: in a space
    in which most configurations are broken, half of the trials without a symptom do not learn
    either, or not yet.

    Args:
        suspicion: how a rule would end the trial if its outcome were poor.
        epoch: epoch of the value, from 1.
        value: value of the objective that the trial reported at the epoch.
        sound: for each sound trial its first value and its last value up to the epoch.

    Returns:
        How the trial ends; None: it continues.
    """
    if len(sound) < _FEWEST:
        return None
    sign = 1 if goal.direction == "maximize" else -1
    starts, came = ([sign * one for one in values] for values in zip(*sound, strict=True))
    start = median(sorted(starts)[: (len(sound) + 1) // 2])
    usual = median(sorted(came, reverse=True)[: len(sound) // 2])
    # If the sound trials have made no progress either, being no worse than they are is enough.
    leeway = max(usual - start, 0.0) * (1 - _GOOD_SHARE)
    if usual - sign * value <= leeway:
        return None
    better = sum(one > sign * value for one in came)
    if 2 * better < len(sound):
        return None
    behind = (
        f"at epoch {epoch} its {goal.metric} of {value:.4g} is worse than that of {better} of "
        f"{len(sound)} trials without a symptom"
    )
    return replace(suspicion, reason=f"{suspicion.reason}; {behind}")
