"""Optuna's samplers by their names in a sweep file."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna import samplers

from vinedresser.errors import ConfigError, MissingDependency
from vinedresser.infra.configuration import build
from vinedresser.sweeps.bounded_tpe import BoundedTPESampler


@dataclass(frozen=True)
class _Plain:
    """A sampler without settings."""

    name: str


@dataclass(frozen=True)
class _Startup:
    """A sampler that starts with random trials.

    Attributes:
        startup: number of random trials before it proposes.
    """

    name: str
    startup: int = 10

    def __post_init__(self) -> None:
        """Validate the values."""
        if self.startup < 1:
            raise ValueError(f"startup: must be at least 1, not {self.startup}")


# Packages that a sampler needs beside Optuna.
_WANTED = {"cmaes": ("cmaes",), "gp": ("torch", "scipy")}


def make_sampler(
    given: str | Mapping[str, Any], *, seed: int, objectives: int, where: str
) -> samplers.BaseSampler:
    """Return a sampler.

    The points of a grid come from the sweep itself. TPE is that of Bergstra et al. (2011), with the
    constant liar for concurrent trials; the Gaussian process is Optuna's, CMA-ES is Hansen's.

    Args:
        given: its name, or a table with ``name`` and settings.
        seed: random seed; proposals are equal for equal seeds and results.
        objectives: number of objectives.
        where: prefix of messages.

    Raises:
        ConfigError: an unknown or invalid setting, or too many objectives for the sampler.
        MissingDependency: a required package is not installed.
    """
    table = {"name": given} if isinstance(given, str) else dict(given)
    name = str(table.get("name"))
    kind: type[Any] = _Plain if name in ("random", "grid") else _Startup
    settings = build(kind, table, where)
    for package in _WANTED.get(name, ()):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(f"{where}: {name!r} needs the package {package}")
    if name == "cmaes" and objectives > 1:
        raise ConfigError(f"{where}: CMA-ES supports one objective only; use tpe or gp for several")
    if kind is _Plain:
        return samplers.RandomSampler(seed=seed)
    if name == "tpe":
        return BoundedTPESampler(seed=seed, n_startup_trials=settings.startup)
    if name == "gp":
        return samplers.GPSampler(seed=seed, n_startup_trials=settings.startup)
    return samplers.CmaEsSampler(seed=seed, n_startup_trials=settings.startup)
