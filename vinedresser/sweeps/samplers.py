"""Optuna's samplers, by the words of a sweep file."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna import samplers

from vinedresser.errors import ConfigError, MissingDependency
from vinedresser.infra.configuration import build

__all__ = ["make_sampler"]


@dataclass(frozen=True)
class _Plain:
    """A sampler without settings."""

    name: str


@dataclass(frozen=True)
class _Startup:
    """A sampler that begins at random.

    Attributes:
        startup: trials at random before it proposes.
    """

    name: str
    startup: int = 10

    def __post_init__(self) -> None:
        """Check what types cannot say."""
        if self.startup < 1:
            raise ValueError(f"startup: must be at least 1, not {self.startup}")


# Package by sampler: those that Optuna does not bring along.
_WANTED = {"cmaes": ("cmaes",), "gp": ("torch", "scipy")}


def make_sampler(
    given: str | Mapping[str, Any], *, seed: int, objectives: int, where: str
) -> samplers.BaseSampler:
    """Return a sampler.

    A grid has its points from the sweep itself, so what is left to its sampler is nothing. TPE is
    that of Bergstra et al. (2011), with the constant liar for trials that run side by side; the
    Gaussian process is Optuna's, CMA-ES Hansen's.

    Args:
        given: its name, or a table with ``name`` and settings.
        seed: it proposes the same for the same seed and results.
        objectives: how many there are.
        where: what to begin a message with.

    Raises:
        ConfigError: a setting that it does not have, or an objective too many.
        MissingDependency: it needs a package that is not there.
    """
    table = {"name": given} if isinstance(given, str) else dict(given)
    name = str(table.get("name"))
    kind: type[Any] = _Plain if name in ("random", "grid") else _Startup
    settings = build(kind, table, where)
    for package in _WANTED.get(name, ()):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(f"{where}: {name!r} needs the package {package}")
    if name == "cmaes" and objectives > 1:
        raise ConfigError(f"{where}: CMA-ES looks for one objective; tpe and gp for several")
    if kind is _Plain:
        return samplers.RandomSampler(seed=seed)
    if name == "tpe":
        return samplers.TPESampler(seed=seed, n_startup_trials=settings.startup)
    if name == "gp":
        return samplers.GPSampler(seed=seed, n_startup_trials=settings.startup)
    return samplers.CmaEsSampler(seed=seed, n_startup_trials=settings.startup)
