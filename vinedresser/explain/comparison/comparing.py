"""Comparing runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from vinedresser.errors import ConfigError, CorruptData, NotARun
from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.comparison.parting import Parting, parting
from vinedresser.explain.comparison.ranking import (
    Direction,
    Goal,
    Group,
    choose_goal,
    groups_of,
    ranked,
    winner,
)
from vinedresser.explain.verdicts import verdict
from vinedresser.objects import Location, parse_location
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.series import Column
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.run_settings import (
    differing,
    environment_of,
    machine_of,
    observed_of,
    parameters_of,
)

__all__ = ["MOST_DRAWN", "Comparison", "compare", "comparison_of"]

# Lines that can be told apart in a chart.
MOST_DRAWN = 8
_BEST_DRAWN = 4


@dataclass(frozen=True)
class Comparison:
    """Runs compared.

    Attributes:
        runs: the runs, the best first: those that finished by the metric, then the others.
        goal: the scalar by which they are ranked; None if there is no suitable one.
        groups: the runs by configuration, the best first; runs of a group differ by seed only.
        problems: a sentence for each run that cannot be read.
    """

    runs: Sequence[ComparedRun]
    goal: Goal | None
    groups: Sequence[Group]
    problems: Sequence[str]

    @property
    def store(self) -> str:
        """Name of the folder in which all of the runs are; "" if they are in several."""
        folders = {PurePath(run.run.path).parent for run in self.runs}
        return folders.pop().name if len(folders) == 1 else ""

    @cached_property
    def winner(self) -> str:
        """Which configuration is best, and what is wrong with it; see `ranking.winner`."""
        sentence = winner(self.groups, self.goal)
        best = next((group.runs for group in self.groups if group.values), [])
        found = [run.judged.finding for run in best if run.judged.kind == "problem"]
        rules = sorted({finding.rule for finding in found if finding is not None})
        if not rules or not sentence.startswith("Best"):
            return sentence
        return f"{sentence} But a problem was found in it: {', '.join(rules)}."

    @cached_property
    def settings(self) -> dict[str, list[Any]]:
        """The settings that differ: a value per run, None where a run lacks it.

        Parameters come first, then what the hooks have seen (`observed_of`), unless a parameter
        has the same values, as ``lr`` beside ``optimizer.lr``.
        """
        infos = [run.run.info for run in self.runs]
        found = differing([parameters_of(info) for info in infos])
        observed = differing([observed_of(info) for info in infos], absent_differs=False)
        for name, values in observed.items():
            if values not in found.values():
                found.setdefault(name, values)
        return found

    @cached_property
    def environment(self) -> dict[str, list[Any]]:
        """What differs between the runs drawn: program, code, versions and machine.

        A value per run drawn; of the machine and its packages only what is known of at least two.
        """
        found = differing([environment_of(run.run.info) for run in self.drawn])
        machines = [machine_of(run.run) for run in self.drawn]
        return found | differing(machines, absent_differs=False)

    @cached_property
    def drawn(self) -> Sequence[ComparedRun]:
        """The runs that are drawn, at most eight.

        Of more, the best four, the best run with a stop finding of each rule, and the next best.
        """
        if len(self.runs) <= MOST_DRAWN:
            return self.runs
        stopped = {run.fatal: run for run in reversed(self.runs) if run.fatal}
        wanted = [*self.runs[:_BEST_DRAWN], *reversed(stopped.values()), *self.runs]
        names = list(dict.fromkeys(run.name for run in wanted))[:MOST_DRAWN]
        return [run for run in self.runs if run.name in names]

    @cached_property
    def partings(self) -> Sequence[tuple[ComparedRun, Parting]]:
        """Each other run that is drawn, and where it parts from the best one."""
        first, *others = self.drawn
        return [(other, self._parting(first, other)) for other in others]

    def _parting(self, one: ComparedRun, two: ComparedRun) -> Parting:
        losses = [run.scalars.get("train/loss") for run in (one, two)]
        groups = [group for group in self.groups if one in group.runs or two in group.runs]
        seeds = [
            [run.scalars["train/loss"] for run in group.runs if "train/loss" in run.scalars]
            for group in groups
        ]
        match losses:
            case [Column() as left, Column() as right]:
                return parting(one.run, two.run, (left, right), seeds)
        return parting(one.run, two.run, None)


def compare(
    runs: str | os.PathLike[str] | Iterable[str | os.PathLike[str] | Run],
    *,
    metric: str | None = None,
    direction: Direction | None = None,
) -> Comparison:
    """Compare runs: results, findings, settings, and when they part.

    Args:
        runs: run directories, ``s3://`` URLs or opened runs; a store stands for all of its runs.
        metric: the scalar by which the runs are ranked, as in MLflow, such as ``eval/accuracy``;
            None: see `ranking.choose_goal`.
        direction: "maximize" or "minimize"; None: by the name of the metric.

    Raises:
        ConfigError: there are fewer than two runs that can be read, or the metric is unknown or
            its direction is.
        NotARun: a location is neither a run nor a store with runs.
        StoreError: a store refused a request.
    """
    given = [runs] if isinstance(runs, str | os.PathLike) else runs
    # A run given twice, by itself and in its store, is one.
    places = list({_real(place): place for one in given for place in _places(one)}.values())
    if len(places) < 2:
        named = ", ".join(map(str, places)) or "none"
        raise ConfigError(f"a comparison needs two runs or more; given: {named}")
    problems: list[str] = []
    found = []
    names = _names(places)
    for place in places:
        try:
            run = open_run(place)
            found.append(ComparedRun(names[place], run, verdict(run)))
        except (CorruptData, NotARun) as error:
            problems.append(str(error))
    if len(found) < 2:
        raise ConfigError(f"fewer than two of the runs can be read: {problems[0]}")
    return comparison_of(found, problems, metric=metric, direction=direction)


def comparison_of(
    runs: Sequence[ComparedRun],
    problems: Sequence[str] = (),
    *,
    metric: str | None = None,
    direction: Direction | None = None,
) -> Comparison:
    """Compare runs that were read.

    Args:
        runs: the runs, at least two.
        problems: a sentence for each other run that cannot be read.
        metric: see `compare`.
        direction: see `compare`.

    Raises:
        ConfigError: the metric is unknown or its direction is.
        StoreError: a store refused a request.
    """
    goal = choose_goal(runs, metric, direction)
    groups = groups_of(runs, goal)
    damaged = [problem for one in runs for problem in one.run.problems]
    return Comparison(ranked(runs, goal), goal, groups, [*problems, *damaged])


def _places(location: str | os.PathLike[str] | Run) -> Sequence[Location]:
    """Return a run, or the runs of a store."""
    place = parse_location(location.path if isinstance(location, Run) else os.fspath(location))
    found = runs_in(place)
    if not found:
        inner = sorted(place.iterdir()) if isinstance(place, Path) and place.is_dir() else []
        stores = ", ".join(str(one) for one in inner if one.is_dir() and runs_in(one))
        hint = f"; these are stores: {stores}" if stores else ""
        raise NotARun(f"{place}: neither a run nor a store with runs{hint}")
    return found


def _real(place: Location) -> str:
    return os.path.realpath(place) if isinstance(place, Path) else str(place)


def _names(places: Sequence[Location]) -> dict[Location, str]:
    """Return a name for each run: the last part of its location, or as many as it takes."""
    parts = {place: PurePath(str(place)).parts for place in places}
    for depth in range(1, max(map(len, parts.values())) + 1):
        names = {place: "/".join(one[-depth:]) for place, one in parts.items()}
        if len(set(names.values())) == len(places):
            return names
    return {place: str(place) for place in places}
