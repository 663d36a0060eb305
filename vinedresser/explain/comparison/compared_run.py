"""One of the runs that are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vinedresser.explain.verdicts import Verdict
from vinedresser.store.collections.collection import ACCURACY
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.store.run_settings import configuration
from vinedresser.store.status import Status
from vinedresser.store.step_record import MODES

__all__ = ["ComparedRun", "named_scalars"]


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs that are compared; its values are read when they are used.

    Attributes:
        name: its name, unique among the runs that are compared.
    """

    name: str
    run: Run
    judged: Verdict

    @cached_property
    def scalars(self) -> dict[str, Column]:
        """Losses and metrics by their names in MLflow, such as ``eval/accuracy``."""
        return named_scalars(self.run)

    @cached_property
    def results(self) -> Mapping[str, float]:
        """The last value of each of the scalars."""
        return {name: float(column.values[-1]) for name, column in self.scalars.items()}

    def result(self, name: str) -> float:
        """Return the last value of a scalar; NaN if there is none."""
        return self.results.get(name, math.nan)

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """See `configuration`."""
        return configuration(self.run.info)

    @property
    def loss(self) -> str:
        """Class or function of its first loss; "" if unknown."""
        return next((str(one.get("type", "")) for one in self.run.info.losses.values()), "")

    @property
    def verdict(self) -> str:
        """See `Verdict.words`."""
        return self.judged.words

    @property
    def fatal(self) -> str:
        """The rule that stopped it, or whose finding should have; "" if there is none."""
        severe = (finding.rule for finding in self.findings if finding.severity == "stop")
        return self.status.rule or next(severe, "")

    @property
    def steps(self) -> int:
        """Number of optimizer steps done."""
        return self.judged.steps

    @property
    def status(self) -> Status:
        """Its status."""
        return self.judged.status

    @property
    def findings(self) -> Sequence[Finding]:
        """Its findings."""
        return self.judged.findings


def named_scalars(run: Run) -> dict[str, Column]:
    """Return losses and metrics of rank 0 by mode and name, such as ``eval/accuracy``.

    The first loss of a mode is ``MODE/loss``, so that trainings with different losses share it.
    ``MODE/accuracy`` is what the script reports, or else what the hook has computed.
    """
    losses, metrics = run.scalars("losses"), run.scalars("metrics")
    accuracies = run.scalars(f"^{ACCURACY}")
    found: dict[str, Column] = {}
    for mode in MODES:
        for name, column in (*losses.items(), *metrics.items()):
            rows = column.of(mode)
            if not len(rows):
                continue
            short = name.removeprefix("losses/").removeprefix("metrics/")
            if name in losses and f"{mode}/loss" not in found:
                short = "loss"
            found.setdefault(f"{mode}/{short}", rows)
        for column in accuracies.values():
            if len(rows := column.of(mode)):
                found.setdefault(f"{mode}/accuracy", rows)
    return found
