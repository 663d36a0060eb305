"""The table ``[sweep]``: what is sought, how long, who proposes trials, and which are cut off."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from vinedresser.store.step_record import Mode

__all__ = ["Direction", "Objective", "PrunerName", "SamplerName", "SweepTable", "Summary"]

Direction = Literal["minimize", "maximize"]
Summary = Literal["last", "best", "mean"]
SamplerName = Literal["random", "grid", "tpe", "gp", "cmaes"]
PrunerName = Literal["none", "median", "asha", "hyperband", "wilcoxon"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Objective:
    """What a sweep looks for.

    Attributes:
        metric: the name of a metric, or of a loss, as the training records it: ``accuracy``.
        direction: whether less or more of it is better.
        value: which of a trial's values is the trial's: the last, the best, or the mean of all,
            which is that of cross-validation with one value per fold.
        mode: in which it is recorded: "eval", or "train" where nothing is evaluated.
    """

    metric: str
    direction: Direction
    value: Summary = "last"
    mode: Mode = "eval"

    def of(self, values: list[float]) -> float:
        """Return a trial's value, of those that it has reported.

        Args:
            values: in the order of the epochs, at least one, all finite.
        """
        if self.value == "last":
            return values[-1]
        if self.value == "mean":
            return sum(values) / len(values)
        return max(values) if self.direction == "maximize" else min(values)


@dataclass(frozen=True)
class SweepTable:
    """How a sweep is done.

    Attributes:
        metric: the objective's metric; with ``objectives`` it is left out.
        direction: whether less or more of it is better.
        value: which of a trial's values counts; see `Objective`.
        mode: in which it is recorded; see `Objective`.
        objectives: several objectives in place of one: the sweep looks for the Pareto front.
        trials: how many configurations are tried; None: until another budget is used up.
        epochs: values of the metric that a whole trial reports; Hyperband has to know it, and what
            was saved is counted by it.
        total_epochs: no further trial begins when all have taken so many epochs together.
        wall_time: how long the sweep may begin further trials: "90 min", "2 h", or seconds.
        sampler: who proposes configurations: its name, or a table with ``name`` and its settings.
        pruner: who ends trials that are worse than others: the same.
        points: configurations to try first; what one leaves out is proposed.
        seed: of the sampler.
        seeds: passed to the trials in turn as ``--seed``; empty: none is passed.
        retries: how often a trial that crashed is begun again.
        resume: the script's parameter that takes the path of a checkpoint; None: a trial that
            crashed is begun from the start.
        same_failures: the sweep ends when its first so many trials all fail for the same reason.
    """

    metric: str = ""
    direction: Direction = "minimize"
    value: Summary = "last"
    mode: Mode = "eval"
    objectives: list[Objective] = field(default_factory=list)
    trials: int | None = None
    epochs: int | None = None
    total_epochs: int | None = None
    wall_time: float | str | None = None
    sampler: str | dict[str, Any] = "tpe"
    pruner: str | dict[str, Any] = "asha"
    points: list[dict[str, Any]] = field(default_factory=list)
    seed: int = 0
    seeds: list[int] = field(default_factory=list)
    retries: int = 1
    resume: str | None = None
    same_failures: int = 3

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if bool(self.metric) is bool(self.objectives):
            raise ValueError(
                'metric: must be the name of what is sought, such as "accuracy", or else '
                "objectives a list of { metric, direction }; one of both"
            )
        limits = (self.trials, self.total_epochs, self.wall_time)
        if self.sampler_name != "grid" and all(limit is None for limit in limits):
            raise ValueError("trials: is missing; else total_epochs or wall_time must be there")
        for name in ("trials", "epochs", "total_epochs"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ValueError(f"{name}: must be at least 1, not {limit}")
        for name, least in (("retries", 0), ("same_failures", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: must be at least {least}, not {getattr(self, name)}")
        self._check_choice("sampler", self.sampler_name, get_args(SamplerName))
        self._check_choice("pruner", self.pruner_name, get_args(PrunerName))
        if self.pruner_name == "hyperband" and self.epochs is None:
            raise ValueError(
                "epochs: is missing; Hyperband has to know how many values of the metric a whole "
                "trial reports"
            )
        if len(self.goals) > 1 and self.pruner_name != "none":
            raise ValueError(
                f"pruner: {self.pruner_name!r} compares trials by one metric; with several "
                'objectives it must be "none" (rules stop broken trials all the same)'
            )
        self.seconds  # noqa: B018 - it is checked by being computed

    @property
    def goals(self) -> tuple[Objective, ...]:
        """The objectives, whichever way they were given."""
        return tuple(self.objectives) or (
            Objective(self.metric, self.direction, self.value, self.mode),
        )

    @property
    def sampler_name(self) -> str:
        """Who proposes configurations."""
        return _name(self.sampler)

    @property
    def pruner_name(self) -> str:
        """Who ends trials that are worse than others."""
        return _name(self.pruner)

    @property
    def seconds(self) -> float | None:
        """The wall time in seconds; None: no limit.

        Raises:
            ValueError: it is no time.
        """
        if self.wall_time is None:
            return None
        if isinstance(self.wall_time, str):
            match = _DURATION.fullmatch(self.wall_time.strip())
            seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        else:
            seconds = float(self.wall_time)
        if not seconds > 0:
            raise ValueError(
                f'wall_time: must be seconds or a text such as "90 min", "2 h" or "1 d", not '
                f"{self.wall_time!r}"
            )
        return seconds

    @staticmethod
    def _check_choice(key: str, name: str, known: tuple[str, ...]) -> None:
        if name not in known:
            raise ValueError(f"{key}: must be one of {', '.join(known)}, not {name!r}")


def _name(given: str | Mapping[str, Any]) -> str:
    return given if isinstance(given, str) else str(given.get("name", ""))
