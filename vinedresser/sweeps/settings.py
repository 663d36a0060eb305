"""The table ``[sweep]``: objectives, budget, sampler and pruner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge

from vinedresser.infra.configuration import build, check_model_name
from vinedresser.quantities import seconds_of
from vinedresser.store.step_record import Mode

__all__ = [
    "Constraint",
    "Direction",
    "Objective",
    "Plateau",
    "PrunerName",
    "SamplerName",
    "SweepTable",
    "Summary",
]

Direction = Literal["minimize", "maximize"]
Summary = Literal["last", "best", "mean"]
SamplerName = Literal["random", "grid", "tpe", "gp", "cmaes", "nsgaii", "pbt"]
PrunerName = Literal["none", "median", "asha", "hyperband", "wilcoxon"]

# Samplers that do not learn from trials of other sweeps; CMA-ES counts its own proposals only.
_FROM_SCRATCH = ("random", "grid", "cmaes", "pbt")
# Unknown keys in the tables of a list are errors.
_STRICT = {"extra": "forbid"}


@dataclass(frozen=True)
class Objective:
    """An objective of a sweep.

    Attributes:
        metric: name of a metric or loss as the training records it, such as ``accuracy``.
        direction: whether to minimize or maximize it.
        value: how a trial's values are summarized: the last, the best, or the mean, such as for
            cross-validation with one value per fold.
        mode: the mode in which it is recorded: "eval", or "train" if nothing is evaluated.
    """

    __pydantic_config__: ClassVar = _STRICT

    metric: str
    direction: Direction
    value: Summary = "last"
    mode: Mode = "eval"

    def of(self, values: list[float]) -> float:
        """Return the summary of a trial's values.

        Args:
            values: values in the order of the epochs, at least one, all finite.
        """
        if self.value == "last":
            return values[-1]
        if self.value == "mean":
            return sum(values) / len(values)
        return max(values) if self.direction == "maximize" else min(values)

    def gain(self, value: float, other: float) -> float:
        """Return by how much a value is better than another one."""
        return value - other if self.direction == "maximize" else other - value


@dataclass(frozen=True)
class Constraint:
    """A bound of a metric; a finished trial that breaks it is infeasible.

    Attributes:
        metric: name of a metric or loss, as of an objective.
        max: the metric must be at most this.
        min: the metric must be at least this.
        value: how a trial's values are summarized, as of an objective.
        mode: the mode in which it is recorded.
    """

    __pydantic_config__: ClassVar = _STRICT

    metric: str
    max: float | None = None
    min: float | None = None
    value: Summary = "last"
    mode: Mode = "eval"

    def __post_init__(self) -> None:
        """Check the bound."""
        if (self.max is None) is (self.min is None):
            raise ValueError("give either max or min; for both, add another constraint")
        if not math.isfinite(self._bound):
            raise ValueError(f"max and min: must be finite numbers, not {self._bound}")

    @property
    def goal(self) -> Objective:
        """The metric as an objective."""
        return Objective(
            self.metric, "maximize" if self.max is None else "minimize", self.value, self.mode
        )

    @property
    def name(self) -> str:
        """The constraint in a few words, such as "latency <= 20" or "recall (mean) >= 0.8"."""
        usual = ((self.value, "last"), (self.mode, "eval"))
        how = ", ".join(one for one, default in usual if one != default)
        metric = f"{self.metric} ({how})" if how else self.metric
        return f"{metric} {'>=' if self.max is None else '<='} {self._bound:.15g}"

    def excess(self, value: float) -> float:
        """Return by how much a value breaks the bound; at most 0 if it does not."""
        return self._bound - value if self.max is None else value - self._bound

    @property
    def _bound(self) -> float:
        bound = self.min if self.max is None else self.max
        assert bound is not None, "one of both is given"
        return bound


@dataclass(frozen=True)
class Plateau:
    """A plateau of the best value of a sweep.

    Attributes:
        trials: number of trials in a row without an improvement.
        min_delta: an improvement is more than this.
    """

    trials: Annotated[int, Ge(1)]
    min_delta: Annotated[float, Ge(0)] = 0.0


@dataclass(frozen=True)
class SweepTable:
    """The settings of a sweep.

    Attributes:
        metric: the objective: name of a metric or loss, as the training records it or as in
            MLflow (`accuracy`, `eval/accuracy`); `loss` is the first loss.
        direction: "minimize" or "maximize".
        value: the value of a trial: its "last" or "best" one, or the "mean", for cross-validation
            with one value per fold.
        mode: mode in which the metric is recorded; "train" if nothing is evaluated.
        objectives: replaces the four keys above by a list of several; the sweep searches their
            Pareto front.
        constraints: bounds of metrics, as a list of ``{ metric, max }`` or ``{ metric, min }``,
            also with ``value`` and ``mode``; a finished trial that breaks one is infeasible.
        trials: number of trials; failed ones count, and ``points`` are all tried even if there are
            more.
        epochs: number of values of the metric that a whole trial reports; required by Hyperband.
        total_epochs: no other trial begins once all have done this number of epochs together.
        wall_time: how long trials may begin: "90 min", "2 h", or seconds; ``--resume`` starts the
            count again.
        target: no other trial begins once one has finished with this value or a better one.
        plateau: no other trial begins once this number of trials in a row has not improved the best
            value, or the Pareto front; or a table, such as ``{ trials = 30, min_delta = 0.001 }``,
            in which only an improvement by more than ``min_delta`` counts. Failed trials do not
            count.
        sampler: "random", "grid", "tpe", "gp", "cmaes", "nsgaii" or "pbt"; or a table, such as
            ``{ name = "tpe", startup = 20 }``.
        pruner: "none", "median", "asha", "hyperband" or "wilcoxon"; or a table.
        warm_start: folder of another sweep with the same objectives, such as ``runs/search-1``; the
            sampler (tpe, gp or nsgaii) learns from those of its finished trials that fit the space.
        points: configurations to try first, as tables; the sampler proposes missing parameters.
        repeats: number of trials of each configuration, as for a noisy metric.
        seed: seed of the sampler: equal seeds and results give equal trials.
        seeds: passed to the trials in turn as ``--seed``; with ``repeats``, to the trials of a
            configuration in turn.
        again: seeds with which the best trial trains again when all others are over, passed as
            ``--seed``; the sweep reports the spread of the results.
        register: name of a registered model in MLflow, of which the model of the best trial
            becomes a version with the alias "best"; of each trial the last weights are kept.
        retries: how often a crashed trial begins again.
        resume: the script's parameter for the path of a checkpoint; without it a trial begins again
            from the start.
        same_failures: the sweep ends if this number of first trials all fail for the same reason
            (ignoring numbers in it); the first one is enough if its evaluations have no metric of
            that name.
    """

    metric: str = ""
    direction: Direction = "minimize"
    value: Summary = "last"
    mode: Mode = "eval"
    objectives: list[Objective] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    trials: Annotated[int, Ge(1)] | None = None
    epochs: Annotated[int, Ge(1)] | None = None
    total_epochs: Annotated[int, Ge(1)] | None = None
    wall_time: float | str | None = None
    target: float | None = None
    plateau: Annotated[int, Ge(1)] | dict[str, Any] | None = None
    sampler: str | dict[str, Any] = "tpe"
    pruner: str | dict[str, Any] = "asha"
    warm_start: str | None = None
    points: list[dict[str, Any]] = field(default_factory=list)
    repeats: Annotated[int, Ge(1)] = 1
    seed: int = 0
    seeds: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    register: str | None = None
    retries: Annotated[int, Ge(0)] = 1
    resume: str | None = None
    same_failures: Annotated[int, Ge(1)] = 3

    def __post_init__(self) -> None:
        """Validate the values."""
        if bool(self.metric) is bool(self.objectives):
            raise ValueError(
                'metric: must be the name of the objective, such as "accuracy"; or set objectives '
                "to a list of { metric, direction } instead"
            )
        limits = (self.trials, self.total_epochs, self.wall_time, self.plateau)
        if self.sampler_name != "grid" and all(limit is None for limit in limits):
            raise ValueError("trials: is missing; set trials, total_epochs, wall_time or plateau")
        self._check_ends()
        self._check_best()
        self._check_constraints()
        if 0 < len(self.seeds) < self.repeats:
            raise ValueError(
                f"seeds: must be at least {self.repeats}, since each of the {self.repeats} trials "
                f"of a configuration (repeats) has its own; there are {len(self.seeds)}"
            )
        self._check_choice("sampler", self.sampler_name, get_args(SamplerName))
        self._check_choice("pruner", self.pruner_name, get_args(PrunerName))
        if self.pruner_name == "hyperband" and self.epochs is None:
            raise ValueError(
                "epochs: is missing; Hyperband needs the number of metric values that a complete "
                "trial reports"
            )
        if len(self.goals) > 1 and self.pruner_name != "none":
            raise ValueError(
                f"pruner: {self.pruner_name!r} compares trials by one metric; with several "
                'objectives it must be "none" (rules still stop broken trials)'
            )
        if self.sampler_name == "pbt":
            self._check_population()
        self.seconds  # noqa: B018 - validates wall_time

    def _check_best(self) -> None:
        """Check what is done with the best trial."""
        if len(set(self.again)) < len(self.again):
            raise ValueError(f"again: must be different seeds, not {self.again}")
        if self.register is not None:
            check_model_name(self.register)
        for key in ("again", "register"):
            if getattr(self, key) and len(self.goals) > 1:
                raise ValueError(
                    f"{key}: not supported with several objectives, which have no best"
                )

    def _check_constraints(self) -> None:
        """Check the constraints, and whether the sampler can do what is asked."""
        if self.constraints and self.sampler_name == "cmaes":
            raise ValueError("constraints: CMA-ES does not support them; use tpe, gp or nsgaii")
        names = [one.name for one in self.constraints]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"constraints: {twice} is given twice; remove one of them")
        if self.warm_start is not None and self.sampler_name in _FROM_SCRATCH:
            raise ValueError(
                f"warm_start: {self.sampler_name} does not learn from other sweeps; use tpe, gp or "
                "nsgaii"
            )

    def _check_population(self) -> None:
        """Check what a population needs and does not support."""
        if self.resume is None:
            raise ValueError(
                "resume: is missing; pbt needs the script's parameter for the path of a checkpoint"
            )
        if len(self.goals) > 1:
            raise ValueError("objectives: pbt supports one objective only; use nsgaii, tpe or gp")
        if self.pruner_name != "none":
            raise ValueError(
                f'pruner: must be "none" with pbt, which compares trials itself, not '
                f"{self.pruner_name!r}"
            )
        if self.repeats > 1 or self.again:
            key = "repeats" if self.repeats > 1 else "again"
            raise ValueError(
                f"{key}: not supported with pbt, whose results have no single configuration"
            )

    def _check_ends(self) -> None:
        """Check what ends the sweep by its results."""
        if self.target is not None and not math.isfinite(self.target):
            raise ValueError(f"target: must be a finite number, not {self.target}")
        patience = self.patience
        if len(self.goals) < 2:
            return
        if self.target is not None:
            raise ValueError("target: not supported with several objectives, which have no best")
        if patience is not None and patience.min_delta:
            raise ValueError(
                "plateau.min_delta: not supported with several objectives, where a trial counts "
                "that joins the Pareto front"
            )

    @property
    def patience(self) -> Plateau | None:
        """The plateau at which the sweep ends; None: at none.

        Raises:
            ConfigError: the table is invalid.
        """
        given = self.plateau
        if isinstance(given, int):
            return Plateau(given)
        return None if given is None else build(Plateau, given, "plateau")

    @property
    def goals(self) -> tuple[Objective, ...]:
        """The objectives, given as ``metric`` or as ``objectives``."""
        return tuple(self.objectives) or (
            Objective(self.metric, self.direction, self.value, self.mode),
        )

    @property
    def watched(self) -> tuple[Objective, ...]:
        """The objectives, and then the metrics of the constraints."""
        return (*self.goals, *(one.goal for one in self.constraints))

    @property
    def sampler_name(self) -> str:
        """Name of the sampler."""
        return _name(self.sampler)

    @property
    def pruner_name(self) -> str:
        """Name of the pruner."""
        return _name(self.pruner)

    @property
    def seconds(self) -> float | None:
        """The wall time in seconds; None: no limit.

        Raises:
            ValueError: ``wall_time`` is not a duration.
        """
        return seconds_of("wall_time", self.wall_time)

    @staticmethod
    def _check_choice(key: str, name: str, known: tuple[str, ...]) -> None:
        if name not in known:
            raise ValueError(f"{key}: must be one of {', '.join(known)}, not {name!r}")


def _name(given: str | Mapping[str, Any]) -> str:
    return given if isinstance(given, str) else str(given.get("name", ""))
