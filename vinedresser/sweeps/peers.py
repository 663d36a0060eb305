"""A trial that a rule suspects, held against the trials in which none suspects anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from vinedresser.sweeps.settings import Objective
from vinedresser.sweeps.trial import TrialEnd

__all__ = ["behind_sound_trials"]

# Of fewer sound trials there is no better half.
_FEWEST = 2
# Of how far the sound ones have come, what is good: as in `rules.signals.outcome`.
_GOOD_SHARE = 0.8


def behind_sound_trials(
    suspicion: TrialEnd,
    epoch: int,
    value: float,
    *,
    sound: Sequence[tuple[float, float]],
    goal: Objective,
) -> TrialEnd | None:
    """Say whether a trial that shows a symptom is to end, by what sound trials had come to.

    A symptom alone is in many trainings that learn; one alone has to wait until its outcome is
    clear. Beside others it need not: when it has not come four fifths as far as they have, the
    outcome agrees. "They" are the better half of the sound ones, and "as far" is measured from the
    worse half of their first values (the median of each): in a space in which most configurations
    are broken, half of those without a symptom do not learn either, or not yet.

    Args:
        suspicion: how a rule would end it if the outcome agreed.
        epoch: from 1.
        value: of the objective, that the trial has reported there.
        sound: of each trial in which no rule suspects anything the first value, and that at the
            same epoch or the last before it: of those that came so far in less time.
        goal: the objective.

    Returns:
        How it is to end; None: it goes on.
    """
    if len(sound) < _FEWEST:
        return None
    sign = 1 if goal.direction == "maximize" else -1
    starts, came = ([sign * one for one in values] for values in zip(*sound, strict=True))
    start = median(sorted(starts)[: (len(sound) + 1) // 2])
    usual = median(sorted(came, reverse=True)[: len(sound) // 2])
    # Where the sound ones have come to nothing either, to be no worse than they are is enough.
    leeway = max(usual - start, 0.0) * (1 - _GOOD_SHARE)
    if usual - sign * value <= leeway:
        return None
    better = sum(one > sign * value for one in came)
    behind = (
        f"at epoch {epoch} its {goal.metric} of {value:.4g} is behind what {better} of {len(sound)}"
        " trials without a symptom had by then"
    )
    return replace(suspicion, reason=f"{suspicion.reason}; {behind}")
