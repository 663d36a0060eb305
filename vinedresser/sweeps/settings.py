"""The table ``[sweep]``: objectives, budget, sampler and pruner."""

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
    """An objective of a sweep.

    Attributes:
        metric: name of a metric or loss as the training records it, such as ``accuracy``.
        direction: whether to minimize or maximize it.
        value: how a trial's values are summarized: the last, the best, or the mean, such as for
            cross-validation with one value per fold.
        mode: the mode in which it is recorded: "eval", or "train" if nothing is evaluated.
    """

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


@dataclass(frozen=True)
class SweepTable:
    """The settings of a sweep.

    Attributes:
        metric: metric of the objective; omitted if ``objectives`` is given.
        direction: whether to minimize or maximize it.
        value: summary of a trial's values; see `Objective`.
        mode: mode in which the metric is recorded; see `Objective`.
        objectives: several objectives, for which the sweep finds the Pareto front.
        trials: number of configurations to try; None: until another budget is exhausted.
        epochs: number of metric values that a complete trial reports; required by Hyperband, and
            used to count the saved epochs.
        total_epochs: budget of epochs over all trials, after which no trial starts.
        wall_time: time after which no trial starts: "90 min", "2 h", or seconds.
        sampler: name of the sampler, or a table with ``name`` and its settings.
        pruner: name of the pruner, or a table with ``name`` and its settings.
        points: configurations to try first; missing hyperparameters are proposed.
        seed: seed of the sampler.
        seeds: passed to the trials in turn as ``--seed``; empty: no seed is passed.
        retries: maximum number of restarts of a crashed trial.
        resume: the script's parameter for the path of a checkpoint; None: a crashed trial restarts
            from the beginning.
        same_failures: the sweep ends if this many first trials all fail for the same reason.
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
        """Validate the values."""
        if bool(self.metric) is bool(self.objectives):
            raise ValueError(
                'metric: must be the name of the objective, such as "accuracy"; or set objectives '
                "to a list of { metric, direction } instead"
            )
        limits = (self.trials, self.total_epochs, self.wall_time)
        if self.sampler_name != "grid" and all(limit is None for limit in limits):
            raise ValueError("trials: is missing; set trials, total_epochs or wall_time")
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
                "epochs: is missing; Hyperband needs the number of metric values that a complete "
                "trial reports"
            )
        if len(self.goals) > 1 and self.pruner_name != "none":
            raise ValueError(
                f"pruner: {self.pruner_name!r} compares trials by one metric; with several "
                'objectives it must be "none" (rules still stop broken trials)'
            )
        self.seconds  # noqa: B018 - validates wall_time

    @property
    def goals(self) -> tuple[Objective, ...]:
        """The objectives, given as ``metric`` or as ``objectives``."""
        return tuple(self.objectives) or (
            Objective(self.metric, self.direction, self.value, self.mode),
        )

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
        if self.wall_time is None:
            return None
        if isinstance(self.wall_time, str):
            match = _DURATION.fullmatch(self.wall_time.strip())
            seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        else:
            seconds = float(self.wall_time)
        if not seconds > 0:
            raise ValueError(
                f'wall_time: must be seconds or a string such as "90 min", "2 h" or "1 d", not '
                f"{self.wall_time!r}"
            )
        return seconds

    @staticmethod
    def _check_choice(key: str, name: str, known: tuple[str, ...]) -> None:
        if name not in known:
            raise ValueError(f"{key}: must be one of {', '.join(known)}, not {name!r}")


def _name(given: str | Mapping[str, Any]) -> str:
    return given if isinstance(given, str) else str(given.get("name", ""))
