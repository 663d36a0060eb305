"""Which configuration is best: runs that differ by their seeds only, compared as groups."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.formatting import count, number
from vinedresser.rules.signals.outcomes.metric_scale import direction
from vinedresser.store.run_settings import is_seed, parameters_of

__all__ = [
    "Direction",
    "Goal",
    "Group",
    "HasResults",
    "choose_goal",
    "configuration_key",
    "groups_of",
    "ranked",
    "winner",
]

Direction = Literal["maximize", "minimize"]

# Two-sided probability below which an order of groups is not chance.
_UNLIKELY = 0.05


class Goal(NamedTuple):
    """The scalar by which runs are ranked.

    Attributes:
        metric: its name, such as ``eval/accuracy``.
        direction: "maximize" or "minimize".
    """

    metric: str
    direction: Direction

    def key(self, value: float) -> float:
        """Return a sort key: the best value first, values that are not finite last."""
        if not math.isfinite(value):
            return math.inf
        return -value if self.direction == "maximize" else value


@dataclass(frozen=True)
class Group:
    """Runs with the same configuration, which differ by their seeds at most.

    Attributes:
        values: last value of the metric of each run that finished with a finite one; runs with
            the same seeds and the same results count once: they say nothing about the spread.
    """

    runs: Sequence[ComparedRun]
    values: Sequence[float]

    @property
    def name(self) -> str:
        """Name of the first run, and how many others there are."""
        more = len(self.runs) - 1
        return f"{self.runs[0].name} and {more} more" if more else self.runs[0].name

    @property
    def mean(self) -> float:
        """Mean of the values; NaN if there are none."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation of the values over the seeds (N - 1); NaN if fewer than two."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def text(self) -> str:
        """Mean and spread, such as "0.95 ± 0.01 (3 runs)"."""
        if len(self.values) < 2:
            return number(self.mean)
        return f"{number(self.mean)} ± {number(self.spread, 2)} ({len(self.values)} runs)"


class HasResults(Protocol):
    """A run whose losses and metrics are known."""

    @property
    def results(self) -> Mapping[str, float]:
        """The last value of each, by its name in MLflow."""


def choose_goal(
    runs: Sequence[HasResults], metric: str | None = None, towards: Direction | None = None
) -> Goal | None:
    """Return the scalar by which the runs are ranked; None if there is no suitable one.

    By default it is the one that most runs have among: metrics of evaluations whose name says
    whether higher is better, the loss of evaluations, metrics of training, the training loss; in
    this order if several are as frequent.

    Args:
        metric: name of the scalar, such as ``eval/accuracy``; None: choose it.
        towards: the better direction; None: by its name.

    Raises:
        ConfigError: no run has the metric, or its name does not say the direction.
    """
    known = Counter(name for run in runs for name in run.results)
    if metric is None:
        metric = max(
            (name for name in known if towards or direction(name)),
            key=lambda name: (known[name], -_place(name)),
            default=None,
        )
        if metric is None:
            return None
    elif metric not in known:
        listed = f"; there are {', '.join(sorted(known))}" if known else ""
        raise ConfigError(
            f"metric {metric!r}: no run has it" + (did_you_mean(metric, known) or listed)
        )
    sign = direction(metric)
    if towards is None and not sign:
        raise ConfigError(
            f"metric {metric!r}: the name does not say which direction is better; "
            "give maximize or minimize"
        )
    return Goal(metric, towards or ("maximize" if sign > 0 else "minimize"))


def _place(name: str) -> int:
    """Return the place of a scalar among those as frequent."""
    mode, _, short = name.partition("/")
    return 2 * (mode != "eval") + (short == "loss" or direction(short) < 0)


def groups_of(runs: Sequence[ComparedRun], goal: Goal | None) -> list[Group]:
    """Return the runs by configuration, the best group first; unfinished ones count as last."""
    found: dict[str, list[ComparedRun]] = {}
    for run in runs:
        found.setdefault(configuration_key(run.configuration), []).append(run)
    groups = [Group(members, _values(members, goal)) for members in found.values()]
    if goal is None:
        return groups
    return sorted(groups, key=lambda group: goal.key(group.mean))


def ranked(runs: Sequence[ComparedRun], goal: Goal | None) -> list[ComparedRun]:
    """Return the runs, the best first: those that finished, then the others."""
    if goal is None:
        return list(runs)

    def place(run: ComparedRun) -> tuple[bool, float]:
        return run.status.state != "finished", goal.key(run.result(goal.metric))

    return sorted(runs, key=place)


def winner(groups: Sequence[Group], goal: Goal | None) -> str:
    """Return in a sentence which configuration is best, and whether that could be chance.

    Only runs that finished count: the last value of a run that was stopped is not its result. The
    best group is clearly ahead of the next if an order as clear as theirs has a two-sided
    probability of at most 5 % when seeds are exchanged at random (the exact test of Mann and
    Whitney, Annals of Mathematical Statistics 1947); that takes four seeds each, or three and
    five.

    Args:
        groups: as from `groups_of`.
        goal: the scalar by which they are ranked.
    """
    done = [group for group in groups if group.values]
    problem = _incomparable(done, goal)
    if goal is None or problem:
        return f"No winner: {problem}."
    best = done[0]
    line = f"Best: {best.name}, {goal.metric} {best.text}"
    if len(done) == 1:
        return f"{line}; no other configuration has finished."
    following = done[1]
    against = f"{line}, ahead of {following.name}, {following.text}"
    if best.mean == following.mean:
        return f"{line}, equal to {following.name}."
    if len(best.values) == len(following.values) == 1:
        return f"{against}; one run each, so the spread over seeds is unknown."
    won = sum(goal.key(value) < goal.key(two) for value in best.values for two in following.values)
    pairs = len(best.values) * len(following.values)
    chance = _probability(best.values, following.values)
    clear = "clearly" if chance <= _UNLIKELY else "which can be chance:"
    return f"{against}; {clear} better in {won} of {count(pairs, 'pair')} of seeds."


def _incomparable(done: Sequence[Group], goal: Goal | None) -> str:
    """Return why configurations that finished have no order; "" if they have one."""
    if goal is None:
        return "no metric or loss is known to be better in one direction"
    if not done:
        return f"no run has finished with a finite {goal.metric}"
    if goal.metric.endswith("/loss"):
        losses = {run.loss for group in done for run in group.runs if run.loss}
        if len(losses) > 1:
            return f"the runs minimize different losses ({', '.join(sorted(losses))})"
    return ""


def _probability(one: Sequence[float], two: Sequence[float]) -> float:
    """Return the exact two-sided probability of the statistic of Mann and Whitney.

    Ties count half; the distribution is that without ties, which makes it conservative.
    """
    first, second = len(one), len(two)
    above = sum((a > b) + 0.5 * (a == b) for a in one for b in two)
    extreme = max(above, first * second - above)
    ways = _orders(first, second)
    return min(1.0, 2 * sum(ways[math.ceil(extreme) :]) / sum(ways))


def _orders(first: int, second: int) -> list[int]:
    """Return the number of orders of two samples with each value of the statistic.

    They are the coefficients of the Gaussian binomial (first + second over first).
    """
    ways = [1] + [0] * (first * second)
    for size in range(1, first + 1):
        for place in range(len(ways) - 1, second + size - 1, -1):
            ways[place] -= ways[place - second - size]
        for place in range(size, len(ways)):
            ways[place] += ways[place - size]
    return ways


def _values(runs: Sequence[ComparedRun], goal: Goal | None) -> list[float]:
    if goal is None:
        return []
    found: dict[str, float] = {}
    for run in runs:
        if run.status.state == "finished" and math.isfinite(run.result(goal.metric)):
            parameters = parameters_of(run.run.info)
            seeds = {name: one for name, one in parameters.items() if is_seed(name)}
            found.setdefault(repr((seeds, run.results)), run.result(goal.metric))
    return list(found.values())


def configuration_key(configuration: dict[str, Any]) -> str:
    """Return a text that is the same for the same configurations; see `configuration`."""
    return json.dumps(configuration, sort_keys=True, default=str)
