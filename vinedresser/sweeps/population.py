"""Population-based training: members that train side by side, and copy each other.

Jaderberg et al., arXiv 1711.09846. A member of the population trains in generations, each of which
is a trial. Between two generations the worst members continue from a checkpoint of one of the best,
with its hyperparameters slightly changed; the others continue from their own.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from annotated_types import Ge, Gt, Le

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.infra.configuration import build
from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.settings import Objective, SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import Line, Trial

__all__ = ["Population", "PopulationSettings", "Successor"]


@dataclass(frozen=True)
class PopulationSettings:
    """Settings of the sampler "pbt".

    Attributes:
        population: number of members.
        quantile: share of the members that is replaced, and that of those that are copied.
        resample: probability with which a hyperparameter of a copy is drawn anew from the space.
        factors: otherwise a number is multiplied by one of these; a choice becomes its neighbour.
        perturb: the hyperparameters that change in a copy; empty: all of the space.
        until: the script's parameter for its number of epochs, counted from the first checkpoint of
            a line of trials; "": each process trains as long as it decides.
    """

    name: str
    population: Annotated[int, Ge(2)]
    quantile: Annotated[float, Gt(0), Le(0.5)] = 0.25
    resample: Annotated[float, Ge(0), Le(1)] = 0.25
    factors: list[Annotated[float, Gt(0)]] = field(default_factory=lambda: [0.8, 1.2])
    perturb: list[str] = field(default_factory=list)
    until: str = ""


class Successor(NamedTuple):
    """The next trial of a population.

    Attributes:
        given: values of its hyperparameters; missing ones are drawn at random.
        line: its place in the population.
    """

    given: Mapping[str, Choice]
    line: Line


class Population:
    """Decides how a population continues, by the results of the generation before alone.

    So decisions depend neither on the order in which trials end nor on a process that was killed.

    Args:
        settings: settings of the sampler.
        seed: seed of the sweep.
        points: configurations of the first members; missing values are drawn at random.
    """

    def __init__(
        self,
        settings: PopulationSettings,
        goal: Objective,
        space: Space,
        seed: int,
        points: Sequence[Mapping[str, Choice]] = (),
    ) -> None:
        self.settings = settings
        self._goal = goal
        self._dimensions = {one.name: one for one in space.dimensions}
        self._seed = seed
        self._points = points

    @classmethod
    def of(
        cls,
        settings: SweepTable,
        space: Space,
        points: Sequence[Mapping[str, Choice]],
        where: str,
    ) -> Population | None:
        """Return the population of a sweep; None: it has another sampler.

        Args:
            points: configurations of the first members.
            where: prefix of messages, such as ``sweep.toml: sweep``.

        Raises:
            ConfigError: a setting is invalid.
        """
        if settings.sampler_name != "pbt":
            return None
        given = settings.sampler if isinstance(settings.sampler, Mapping) else {}
        table = build(PopulationSettings, {"name": "pbt", **given}, f"{where}.sampler")
        names = [one.name for one in space.dimensions]
        for name in table.perturb:
            if name not in names:
                near = did_you_mean(name, names) or f"; the space has {', '.join(names)}"
                raise ConfigError(f"{where}.sampler.perturb: {name!r} is not in the space{near}")
        if not table.factors:
            raise ConfigError(f"{where}.sampler.factors: must have a number, such as [0.8, 1.2]")
        if table.until and settings.epochs is None:
            raise ConfigError(
                f"{where}.epochs: is missing; sampler.until needs the number of epochs of a trial"
            )
        if table.until and table.until == settings.resume:
            raise ConfigError(
                f"{where}.sampler.until: {table.until} is the parameter of sweep.resume; name the "
                "one for the number of epochs"
            )
        if table.until in names:
            raise ConfigError(
                f"{where}.sampler.until: {table.until} is also in the space; remove one of them"
            )
        if len(points) > table.population:
            raise ConfigError(
                f"{where}.points: {len(points)} points are more than the {table.population} "
                "members of the population, which begin with them"
            )
        return cls(table, settings.goals[0], space, settings.seed, points)

    def successor(self, trials: Sequence[Trial]) -> Successor | None:
        """Return the next trial; None while it depends on one that has not ended.

        Args:
            trials: at least the trials of the last two generations, by number.
        """
        lines = [(trial, trial.line) for trial in trials if trial.line is not None]
        generation = max((line.generation for _, line in lines), default=0)
        now = [trial for trial, line in lines if line.generation == generation]
        if len(now) < self.settings.population:
            before = [trial for trial, line in lines if line.generation == generation - 1]
        elif any(trial.ending.state == "running" for trial in now):
            return None
        else:
            before, now, generation = now, [], generation + 1
        member = len(now)
        if not before:
            points = self._points[member : member + 1]
            return Successor(points[0] if points else {}, Line(generation, member))
        return self._continued(before, generation, member)

    def _continued(self, before: Sequence[Trial], generation: int, member: int) -> Successor:
        """Return the trial with which a member continues after a generation."""
        key = f"{self._seed} {generation} {member}"
        chance = random.Random(zlib.crc32(key.encode()))  # noqa: S311 (nothing is secret)
        own = next(one for one in before if one.line is not None and one.line.member == member)
        worst_first = sorted(before, key=self._rank)
        few = min(math.ceil(len(before) * self.settings.quantile), len(before) // 2)
        best = [one for one in worst_first[-few:] if one.competes]
        if not best:
            return Successor({}, Line(generation, member))
        if own.competes and own not in worst_first[:few]:
            return Successor(own.parameters, Line(generation, member, own.number))
        copied = chance.choice(best)
        line = Line(generation, member, copied.number, copied=True)
        return Successor(self._explored(copied.parameters, chance), line)

    def _rank(self, trial: Trial) -> tuple[bool, float]:
        """Return a key by which better trials come later, those without a result first."""
        return trial.competes, self._goal.gain(trial.result[0], 0.0) if trial.result else 0.0

    def _explored(
        self, parameters: Mapping[str, Choice], chance: random.Random
    ) -> dict[str, Choice]:
        """Return the changed configuration of a copy, without the values that are drawn anew."""
        found: dict[str, Choice] = {}
        for name, value in parameters.items():
            if self.settings.perturb and name not in self.settings.perturb:
                found[name] = value
            elif chance.random() >= self.settings.resample:
                dimension = self._dimensions[name]
                if dimension.kind == "choice":
                    found[name] = dimension.neighbour(value, chance.choice((-1, 1)))
                else:
                    found[name] = dimension.scaled(value, chance.choice(self.settings.factors))
        return found
