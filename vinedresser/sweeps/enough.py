"""When the results of a sweep are good enough, or have stopped improving."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vinedresser.sweeps.pareto import dominates
from vinedresser.sweeps.settings import Objective, SweepTable
from vinedresser.sweeps.trial import Trial


def enough(settings: SweepTable, ended: Iterable[Trial]) -> str:
    """Return why no other trial needs to begin; "" if one does."""
    if settings.target is None and settings.plateau is None:
        return ""
    own = (trial for trial in ended if trial.again is None)
    trials = sorted(own, key=lambda trial: trial.number)
    return _target(settings, trials) or _plateau(settings, trials)


def _target(settings: SweepTable, trials: Sequence[Trial]) -> str:
    """Return which trial has reached the target; "" for none."""
    target, goal = settings.target, settings.goals[0]
    if target is None:
        return ""
    done = (one for one in trials if one.competes)
    reached = (one for one in done if goal.gain(one.result[0], target) >= 0)
    first = next(reached, None)
    if first is None:
        return ""
    return f"{first.name} has reached the target of {target:g}: {goal.metric} {first.result[0]:.6g}"


def _plateau(settings: SweepTable, trials: Sequence[Trial]) -> str:
    """Return since when the trials have brought no improvement; "" if they have, or are too few."""
    patience, goals = settings.patience, settings.goals
    if patience is None:
        return ""
    front: list[Trial] = []
    last, without = None, 0
    for trial in trials:
        if trial.ending.state == "failed":
            continue
        without += 1
        if trial.competes and _improves(trial, front, goals, patience.min_delta):
            front = [one for one in front if not dominates(trial.result, one.result, goals)]
            front = [*front, trial] if len(goals) > 1 else [trial]
            last, without = trial, 0
    if without < patience.trials:
        return ""
    if last is None:
        within = " within the constraints" if settings.constraints else ""
        return f"none of {without} trials has finished{within}"
    by = f" by more than {patience.min_delta:g}" if patience.min_delta else ""
    what = goals[0].metric if len(goals) == 1 else "the Pareto front"
    return f"{without} trials in a row have not improved {what}{by}, since {last.name}"


def _improves(
    trial: Trial, front: Sequence[Trial], goals: Sequence[Objective], min_delta: float
) -> bool:
    """Return whether a finished trial improves on the best one, or joins the Pareto front."""
    if not front:
        return True
    if len(goals) == 1:
        return goals[0].gain(trial.result[0], front[0].result[0]) > min_delta
    return not any(
        one.result == trial.result or dominates(one.result, trial.result, goals) for one in front
    )
