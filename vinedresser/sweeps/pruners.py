"""Optuna's pruners by their names in a sweep file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from optuna import pruners
from optuna.exceptions import ExperimentalWarning

from vinedresser.infra.configuration import build
from vinedresser.sweeps.halving import RungPruner

__all__ = ["Pruner", "make_pruner"]


@dataclass(frozen=True)
class Pruner:
    """A pruner that ends no trial, and the base class of those that do.

    Attributes:
        name: its name in the sweep file.
        comparing: whether trials that a rule suspects are compared with others.
    """

    comparing: ClassVar[bool] = False

    name: str

    def make(self) -> pruners.BasePruner:
        """Return Optuna's pruner."""
        return pruners.NopPruner()

    def compares(self, epoch: int) -> bool:  # noqa: ARG002 (subclasses use it)
        """Return whether a trial that a rule suspects is compared at an epoch (from 1)."""
        return False

    def why(self, epoch: int) -> str:
        """Return why a trial was ended at an epoch (from 1), as a clause."""
        return f"pruned at epoch {epoch}"


@dataclass(frozen=True)
class _Median(Pruner):
    """Ends trials worse than the median of the others at the same epoch (Golovin et al., 2017).

    Attributes:
        startup: number of trials that must finish before any is ended.
        grace: minimum number of epochs per trial.
    """

    comparing: ClassVar[bool] = True

    startup: int = 5
    grace: int = 1

    def __post_init__(self) -> None:
        _at_least(self, startup=0, grace=0)

    def make(self) -> pruners.BasePruner:
        """See `Pruner.make`."""
        return pruners.MedianPruner(self.startup, self.grace)

    def compares(self, epoch: int) -> bool:
        """See `Pruner.compares`."""
        return epoch > self.grace

    def why(self, epoch: int) -> str:
        """See `Pruner.why`."""
        return f"worse at epoch {epoch} than the median of the other trials"


@dataclass(frozen=True)
class _Halving(Pruner):
    """Continues the best 1 / eta of the trials at each rung (ASHA: Li et al., arXiv 1810.05934).

    Attributes:
        eta: reduction factor: one of eta trials continues at a rung.
        grace: epochs to the first rung; the others are at grace * eta, grace * eta^2 and so on.
    """

    comparing: ClassVar[bool] = True

    eta: int = 3
    grace: int = 1

    def __post_init__(self) -> None:
        _at_least(self, eta=2, grace=1)

    def make(self) -> pruners.BasePruner:
        """See `Pruner.make`."""
        return RungPruner(self.grace, self.eta)

    def compares(self, epoch: int) -> bool:
        """See `Pruner.compares`: from the first rung on, also between rungs."""
        return epoch >= self.grace

    def why(self, epoch: int) -> str:
        """See `Pruner.why`."""
        return f"not among the best 1 of {self.eta} trials at epoch {epoch}"


@dataclass(frozen=True)
class _Hyperband(_Halving):
    """Successive halving with several grace periods (Hyperband: Li et al., JMLR 2018).

    Attributes:
        epochs: number of metric values that a complete trial reports.
    """

    epochs: int = 1

    def make(self) -> pruners.BasePruner:
        """See `Pruner.make`."""
        return pruners.HyperbandPruner(self.grace, self.epochs, self.eta)


@dataclass(frozen=True)
class _Wilcoxon(Pruner):
    """Ends trials worse than the best one, fold by fold (Wilcoxon signed-rank test).

    Attributes:
        p: p-value below which a difference is significant.
        startup: minimum number of folds per trial.
    """

    p: float = 0.1
    startup: int = 2

    def __post_init__(self) -> None:
        _at_least(self, startup=0)
        if not 0 < self.p < 1:
            raise ValueError(f"p: must lie between 0 and 1, not {self.p:g}")

    def make(self) -> pruners.BasePruner:
        """See `Pruner.make`."""
        with warnings.catch_warnings():
            # Marked as experimental since 2024, but unchanged.
            warnings.simplefilter("ignore", ExperimentalWarning)
            return pruners.WilcoxonPruner(p_threshold=self.p, n_startup_steps=self.startup)

    def why(self, epoch: int) -> str:
        """See `Pruner.why`."""
        return f"worse than the best trial over {epoch} folds (p < {self.p:g})"


_PRUNERS: dict[str, type[Pruner]] = {
    "none": Pruner,
    "median": _Median,
    "asha": _Halving,
    "hyperband": _Hyperband,
    "wilcoxon": _Wilcoxon,
}


def make_pruner(given: str | Mapping[str, Any], epochs: int | None, where: str) -> Pruner:
    """Return a pruner.

    Args:
        given: its name, or a table with ``name`` and settings.
        epochs: number of metric values that a complete trial reports, if known.
        where: prefix of messages.

    Raises:
        ConfigError: an unknown or invalid setting.
    """
    table = {"name": given} if isinstance(given, str) else dict(given)
    kind = _PRUNERS[str(table["name"])]
    if kind is _Hyperband:
        table = {"epochs": epochs, **table}
    return build(kind, table, where)


def _at_least(pruner: Pruner, **least: int) -> None:
    for name, value in least.items():
        if getattr(pruner, name) < value:
            raise ValueError(f"{name}: must be at least {value}, not {getattr(pruner, name)}")
