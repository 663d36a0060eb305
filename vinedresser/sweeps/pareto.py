"""The Pareto front: the results that no other one dominates."""

from __future__ import annotations

from collections.abc import Sequence

from vinedresser.sweeps.settings import Objective

__all__ = ["dominates", "pareto_front"]


def dominates(one: Sequence[float], other: Sequence[float], goals: Sequence[Objective]) -> bool:
    """Return whether a result is at least as good in each objective, and better in one.

    Args:
        one: values of the objectives.
        other: those of another trial.
    """
    gains = [goal.gain(new, old) for new, old, goal in zip(one, other, goals, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


def pareto_front(results: Sequence[Sequence[float]], goals: Sequence[Objective]) -> list[int]:
    """Return the positions of the results that no other one dominates, in ascending order."""
    front: list[int] = []
    for number, result in enumerate(results):
        if any(dominates(results[one], result, goals) for one in front):
            continue
        front = [one for one in front if not dominates(result, results[one], goals)]
        front.append(number)
    return front
